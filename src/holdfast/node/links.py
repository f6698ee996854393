"""Who is connected now: volatile counterparts of sessions and subscriptions.

A gateway gives each connected session an `Outlet`; the manager talks to the client through it, in the words of the
domain. The gateway turns these into its protocol.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Protocol

from holdfast.delivery.distribution import Consumer, Distribution
from holdfast.node.distributor import Parts


class Outlet(Protocol):
    """What a connected session is told."""

    def confirmed(self, destination: int, sequence: int) -> None:
        """All that it sent to this destination, up to this sequence, is durable."""

    def acknowledged(self, number: int) -> None:
        """All its acknowledgements up to this number are durable."""

    def delivered(
        self, *, consumer: int, generation: int, redeliveries: int, first_position: int, batch: Parts
    ) -> None:
        """Messages for one of its consumers."""

    def fenced(self) -> None:
        """The session was resumed elsewhere: this connection has lost it."""


class ConsumerLink:
    """One consumer of a connected session. It is the key of its `Consumer`, and so its `Recipient`."""

    def __init__(self, outlet: Outlet, number: int, distribution: Distribution, *, credit: int) -> None:
        self._outlet = outlet
        self.number = number
        self.distribution = distribution
        self.consumer = Consumer(self, credit=credit)

    def deliver(self, *, generation: int, redeliveries: int, first_position: int, batch: Parts) -> None:
        self._outlet.delivered(
            consumer=self.number,
            generation=generation,
            redeliveries=redeliveries,
            first_position=first_position,
            batch=batch,
        )


class SessionLink:
    """A session that somebody is connected to."""

    def __init__(self, number: int, epoch: int, outlet: Outlet, sequences: Mapping[int, int]) -> None:
        self.number = number
        self.epoch = epoch
        self.outlet = outlet
        self.is_open = True
        self.is_held = False
        self.consumers: dict[int, ConsumerLink] = {}
        # Consumers whose subscription is not committed yet.
        self.opening: set[int] = set()
        # The last sequence appended for each destination: recorded, though perhaps not durable yet.
        self.appended: dict[int, int] = dict(sequences)
        # What is to be confirmed when its record is committed: (lsn, destination, sequence), (lsn, number).
        self.unconfirmed: deque[tuple[int, int, int]] = deque()
        self.unacknowledged: deque[tuple[int, int]] = deque()

    def confirm_up_to(self, lsn: int) -> None:
        """Tell the client what is durable now: once for each destination, and once for its acknowledgements."""
        sequences: dict[int, int] = {}
        while self.unconfirmed and self.unconfirmed[0][0] <= lsn:
            _, destination, sequence = self.unconfirmed.popleft()
            sequences[destination] = sequence
        for destination, sequence in sequences.items():
            self.outlet.confirmed(destination, sequence)
        number = 0
        while self.unacknowledged and self.unacknowledged[0][0] <= lsn:
            _, number = self.unacknowledged.popleft()
        if number:
            self.outlet.acknowledged(number)
