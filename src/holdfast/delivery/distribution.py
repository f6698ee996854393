"""The distribution engine of one subscription (E7 to E9).

The event indication queue needs no memory of its own: it is what the subscription has not confirmed, less what is
in flight. It can be derived from the persistent memory at any time, and after a crash it is.

Order (decision 11): returned messages go before new ones; both in the order of their positions. A message in flight
belongs to one consumer, until that confirms it, returns it, or is gone. Credit is counted in messages: a consumer
without any gets nothing, and its share goes to the others.

Everything here is volatile. What must survive a crash (what is confirmed, how often something came back) is in the
subscription, which only records change.
"""

from __future__ import annotations

from collections import deque

import msgspec

from holdfast.destinations.destination import Destination, HeldBatch, Subscription
from holdfast.destinations.positions import PositionSet

# The most rows in one delivery, so that consumers of a queue share large batches.
SLICE_ROWS_MAX = 1024


class Consumer:
    """Somebody who receives. `key` means something to its owner only."""

    __slots__ = ("credit", "generation", "in_flight", "is_held", "key")

    def __init__(self, key: object, *, credit: int) -> None:
        self.key = key
        self.credit = credit
        self.generation = 0
        # Its recipient does not read what it was sent: it gets no more for now, whatever its credit.
        self.is_held = False
        self.in_flight = PositionSet()


class Delivery(msgspec.Struct, frozen=True):
    """Rows of one batch for one consumer: positions `first` to `last`."""

    consumer: Consumer
    batch: HeldBatch
    first: int
    last: int
    redeliveries: int


class Distribution:
    """Gives the messages of a subscription to its consumers."""

    def __init__(self, destination: Destination, subscription: Subscription) -> None:
        self.destination = destination
        self.subscription = subscription
        self.consumers: deque[Consumer] = deque()
        self._returned = PositionSet()
        self._waiting = PositionSet()
        self._next_new = subscription.cursor
        # What lay below this mark when the node started may have been seen before (decision 12).
        self._seen_before = subscription.delivered

    def add(self, consumer: Consumer) -> None:
        self.consumers.append(consumer)

    def remove(self, consumer: Consumer) -> list[tuple[int, int]]:
        """The consumer is gone: what it had comes back. The ranges that did; `give_again` when they are counted."""
        self.consumers.remove(consumer)
        return self.take_back(consumer, list(consumer.in_flight.ranges()))

    def take_back(self, consumer: Consumer, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Some of what the consumer had in flight comes back. What of it really was in flight.

        It is delivered again when the record that counts its return was applied, and `give_again` says so: then
        the next recipient is told how often it came back, whatever happens to this node. What else the consumer
        had waits for that too, and then comes again in its order, behind or before what came back (decision 11):
        the client drops what it has of the older generation.
        """
        taken = []
        for first, last in ranges:
            position = consumer.in_flight.first_present(first, last)
            while position is not None:
                stop = min(consumer.in_flight.first_missing(position) - 1, last)
                consumer.in_flight.remove(position, stop)
                taken.append((position, stop))
                position = consumer.in_flight.first_present(stop + 1, last)
        if taken:
            consumer.generation += 1
            for first, last in list(consumer.in_flight.ranges()):
                consumer.in_flight.remove(first, last)
                self._waiting.add(first, last)
        return taken

    def give_again(self, ranges: list[tuple[int, int]]) -> None:
        """The return of these was counted: whatever of them is not confirmed is due again, and what waited for it."""
        waiting, self._waiting = list(self._waiting.ranges()), PositionSet()
        for first, last in [*ranges, *waiting]:
            position = max(first, self.subscription.cursor)
            while position <= last:
                position = self.subscription.done.first_missing(position)
                confirmed = self.subscription.done.first_present(position, last)
                stop = last if confirmed is None else confirmed - 1
                if position <= stop:
                    self._returned.add(position, stop)
                position = stop + 1

    def acknowledged(self, ranges: list[tuple[int, int]]) -> None:
        """The subscription is past these now, whoever had them."""
        for first, last in ranges:
            self._returned.remove(first, last)
            self._waiting.remove(first, last)
            for consumer in self.consumers:
                consumer.in_flight.remove(first, last)

    # -- choosing ----------------------------------------------------------------------------------------

    def next_delivery(self) -> Delivery | None:
        """What goes to whom next; None if there is nothing, or nobody with credit."""
        consumer = self._next_consumer()
        if consumer is None:
            return None
        first = self._next_position()
        if first is None:
            return None
        batch = self.destination.batch_at(first)
        assert batch is not None, "an unconfirmed position is held"
        last = self._last_alike(first, min(batch.last, first + min(consumer.credit, SLICE_ROWS_MAX) - 1))
        return Delivery(consumer, batch, first, last, self._redeliveries(first))

    def sent(self, delivery: Delivery) -> None:
        """The delivery is on its way."""
        consumer = delivery.consumer
        consumer.credit -= delivery.last - delivery.first + 1
        consumer.in_flight.add(delivery.first, delivery.last)
        self._returned.remove(delivery.first, delivery.last)
        self._next_new = max(self._next_new, delivery.last + 1)
        self.consumers.rotate(-1)

    @property
    def delivered_position(self) -> int:
        """Everything before this has been sent at least once."""
        return self._next_new

    def _next_consumer(self) -> Consumer | None:
        for _ in range(len(self.consumers)):
            if self.consumers[0].credit > 0 and not self.consumers[0].is_held:
                return self.consumers[0]
            self.consumers.rotate(-1)
        return None

    def _next_position(self) -> int | None:
        subscription, destination = self.subscription, self.destination
        returned = next(self._returned.ranges(), None)
        if returned is not None:
            return returned[0]
        position = max(self._next_new, subscription.cursor)
        while True:
            position = destination.next_held(position)
            if position >= destination.next_position:
                return None
            if position not in subscription.done:
                return position
            position = subscription.done.first_missing(position)

    def _last_alike(self, first: int, last: int) -> int:
        """The end of the run from `first` that is due now, and was delivered equally often."""
        if first in self._returned:
            last = min(last, self._returned.first_missing(first) - 1)
        confirmed = self.subscription.done.first_present(first, last)
        if confirmed is not None:
            last = confirmed - 1
        if first < self._seen_before <= last:
            last = self._seen_before - 1
        if self.subscription.returns:
            count = self._redeliveries(first)
            for position in range(first + 1, last + 1):
                if self._redeliveries(position) != count:
                    return position - 1
        return last

    def _redeliveries(self, position: int) -> int:
        return self.subscription.returns.get(position, 0) + (position < self._seen_before)
