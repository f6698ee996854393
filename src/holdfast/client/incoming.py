"""One consumer: from the delivery on the wire to the hands of the program.

A message is *waiting* when it has come and was not handed out, *held* when the program has it, and *settling*
when the program has acknowledged it and that is not yet confirmed. All of them are *known* by their
positions: after a resume the server delivers held and settling ones again, and they are not handed out twice.

Credit: the server spends one for each message that it delivers, and only this side adds to it. At any time
`outstanding + waiting <= window`; whatever leaves the waiting line, to the program or back to the server,
makes room for new credit, which is given in portions of half a window.

Generation (decision 11): returned messages come again before those that were not delivered, so what waits
here would be out of order. When the program returns a message, what waits goes back with it, and what still
comes of that generation or an older one is *stale*, and returned on arrival. A rollback does the same for all
consumers of the session, but there the server takes back by itself whatever it has in flight. A lost
connection returns all, and generations begin anew.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from holdfast.errors import BatchError, ProtocolError
from holdfast.message import Batch, Message
from holdfast.wire.frames import Deliver, Subscribe

GENERATION_NONE = -1


class Waiting(NamedTuple):
    """A message that can be handed out."""

    position: int
    redeliveries: int
    message: Message


class Subscription(NamedTuple):
    """What a consumer consumes."""

    destination: str
    name: str = ""
    is_durable: bool = False
    from_start: bool = False


class Incoming:
    """The machine of one consumer. With a window of 0 it gets credit only for those who `want`."""

    def __init__(self, number: int, subscription: Subscription, *, window: int) -> None:
        self.number = number
        self.subscription = subscription
        self.is_subscribed = False
        self.close_ticket: int | None = None
        self.is_close_sent = False
        self._from_start = subscription.from_start
        self._window = window
        self._wanted = 0
        self._outstanding = 0
        self._generation = GENERATION_NONE
        self._stale_through = GENERATION_NONE
        self._is_stale_returned = False
        self._waiting: deque[Waiting] = deque()
        self._known: set[int] = set()
        self._held: set[int] = set()

    # ---- opening ---------------------------------------------------------------------------------------

    def subscribe(self, request: int) -> Subscribe:
        """Open it, or open it again after a resume: with all the credit that it may have."""
        self._outstanding = 0
        self._outstanding = credit = self._missing_credit()
        subscription = self.subscription
        return Subscribe(
            request=request,
            consumer=self.number,
            destination=subscription.destination,
            subscription=subscription.name,
            is_durable=subscription.is_durable,
            from_start=self._from_start,
            credit=credit,
        )

    def subscribed(self) -> None:
        """It is open. From the start is from the start once: after a resume it goes on."""
        self.is_subscribed = True
        self._from_start = False

    def lost(self) -> None:
        """The connection is gone: what waits will be delivered again, to us or to others."""
        self.is_subscribed = False
        self.is_close_sent = False
        self._drop_waiting()
        self._outstanding = 0
        self._generation = self._stale_through = GENERATION_NONE

    # ---- messages --------------------------------------------------------------------------------------

    def deliver(self, frame: Deliver) -> tuple[bool, list[int]]:
        """Take a delivery: whether there is something new to hand out, and stale positions to be returned."""
        try:
            messages = Batch.parse(frame.batch).messages()
        except BatchError as damage:
            raise ProtocolError(f"a delivery: {damage}", reason_code="protocol.malformed") from None
        self._outstanding = max(0, self._outstanding - len(messages))
        known = self._known
        fresh = [
            Waiting(position, frame.redeliveries, message)
            for position, message in enumerate(messages, frame.first_position)
            if position not in known
        ]
        if self.close_ticket is not None:
            return False, []
        if frame.generation <= self._stale_through:
            return False, [waiting.position for waiting in fresh] if self._is_stale_returned else []
        self._generation = max(self._generation, frame.generation)
        self._waiting += fresh
        known.update(waiting.position for waiting in fresh)
        return bool(fresh), []

    def take(self) -> Waiting | None:
        """Hand out the next message; None if there is none."""
        if not self._waiting:
            return None
        waiting = self._waiting.popleft()
        self._held.add(waiting.position)
        self._wanted = max(0, self._wanted - 1)
        return waiting

    def want(self, messages: int) -> None:
        """So many are being waited for: what a window of 0 gets credit for."""
        self._wanted = messages

    def is_held(self, position: int) -> bool:
        return position in self._held

    @property
    def held_positions(self) -> list[int]:
        return sorted(self._held)

    def settle(self, position: int) -> None:
        """The program has acknowledged it."""
        self._held.remove(position)

    def settled(self, positions: range) -> None:
        """That is confirmed: it will not come again."""
        self._known.difference_update(positions)

    def give_back(self, positions: list[int]) -> list[int]:
        """The program returns these: all that goes back now."""
        self._forget(positions)
        self._is_stale_returned = True
        return positions + self._drop_waiting()

    def rolled_back(self, positions: list[int]) -> None:
        """A rollback returns these, which were acknowledged in it; and by itself all that is in flight."""
        self._forget([*positions, *self._held])
        self._is_stale_returned = False
        self._drop_waiting()

    def _forget(self, positions: list[int]) -> None:
        self._held.difference_update(positions)
        self._known.difference_update(positions)
        self._stale_through = self._generation

    def _drop_waiting(self) -> list[int]:
        positions = [waiting.position for waiting in self._waiting]
        self._waiting.clear()
        self._known.difference_update(positions)
        return positions

    # ---- credit ----------------------------------------------------------------------------------------

    def _missing_credit(self) -> int:
        return max(0, max(self._window, self._wanted) - self._outstanding - len(self._waiting))

    def take_credit(self) -> int:
        """Credit to be given now: a portion, or nothing. Counted as given."""
        if not self.is_subscribed or self.close_ticket is not None:
            return 0
        missing = self._missing_credit()
        if missing < max(1, self._window // 2):
            return 0
        self._outstanding += missing
        return missing

    def check_invariants(self) -> None:
        positions = [waiting.position for waiting in self._waiting]
        assert self._held <= self._known, "what is held is known"
        assert self._known.issuperset(positions), "what waits is known"
        assert self._held.isdisjoint(positions), "nothing is handed out twice"
        assert len(set(positions)) == len(positions), "nothing waits twice"
        assert not self._window or self._outstanding + len(self._waiting) <= self._window
