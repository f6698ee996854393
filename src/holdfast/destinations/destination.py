"""One destination: what it holds, and how far each of its subscriptions has come (decisions 3 and 4).

A message is stored once. A queue has one built-in subscription, shared by its consumers; a topic has any number. A
subscription is a cursor and exceptions: everything before the cursor is confirmed, and some of what is behind it. A
batch leaves when every subscription is past all of its rows.

Positions are dense and start at 1. The index is packed arrays, one entry for a batch, whatever its size.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from enum import StrEnum

import msgspec

from holdfast.destinations.positions import PositionSet

# Released batches stay in the arrays until they outnumber this, and the held ones.
_COMPACT_MIN = 1024


class DestinationKind(StrEnum):
    QUEUE = "queue"
    TOPIC = "topic"


class HeldBatch(msgspec.Struct, frozen=True):
    """A batch of a destination: the record that holds it, and the positions of its rows."""

    lsn: int
    first: int
    row_count: int

    @property
    def last(self) -> int:
        return self.first + self.row_count - 1


class Subscription:
    """How far one subscription has come. Durable: changed only by applied records."""

    def __init__(self, *, number: int, name: str, cursor: int, is_durable: bool = True) -> None:
        self.number = number
        self.name = name
        self.is_durable = is_durable
        self.cursor = cursor
        self.done = PositionSet()
        self.delivered = cursor
        self.returns: dict[int, int] = {}

    def acknowledge(self, first: int, last: int) -> None:
        """These are confirmed."""
        if first > self.cursor:
            self.done.add(first, last)
        elif last >= self.cursor:
            self.cursor = self.done.first_missing(last + 1)
            self.done.discard_below(self.cursor)
        if self.returns:
            for position in [p for p in self.returns if first <= p <= last]:
                del self.returns[position]

    def is_done(self, first: int, last: int) -> bool:
        return last < self.cursor or self.done.covers(max(first, self.cursor), last)

    def count_return(self, first: int, last: int) -> None:
        """These were delivered, and came back (decision 12)."""
        for position in range(max(first, self.cursor), last + 1):
            if position not in self.done:
                self.returns[position] = self.returns.get(position, 0) + 1

    def snapshot(self) -> list[object]:
        return [
            self.number,
            self.name,
            self.is_durable,
            self.cursor,
            self.delivered,
            list(self.done.ranges()),
            list(self.returns.items()),
        ]

    @classmethod
    def restore(
        cls, snapshot: tuple[int, str, bool, int, int, list[tuple[int, int]], list[tuple[int, int]]]
    ) -> Subscription:
        number, name, is_durable, cursor, delivered, done, returns = snapshot
        subscription = cls(number=number, name=name, cursor=cursor, is_durable=is_durable)
        subscription.delivered = delivered
        subscription.done = PositionSet(done)
        subscription.returns = dict(returns)
        return subscription


class Destination:
    """A queue or a topic. Durable: changed only by applied records."""

    def __init__(self, *, number: int, name: str, kind: DestinationKind) -> None:
        self.number = number
        self.name = name
        self.kind = kind
        self.next_position = 1
        self.subscriptions: dict[int, Subscription] = {}
        self._firsts = array("Q")
        self._lsns = array("Q")
        self._rows = array("I")
        self._head = 0
        self.batch_count = 0

    def append(self, lsn: int, row_count: int) -> HeldBatch | None:
        """A batch becomes visible. None if nobody is to receive it: then it need not be held."""
        first = self.next_position
        self.next_position += row_count
        if not self.subscriptions:
            return None
        self._firsts.append(first)
        self._lsns.append(lsn)
        self._rows.append(row_count)
        self.batch_count += 1
        return HeldBatch(lsn, first, row_count)

    def batch_at(self, position: int) -> HeldBatch | None:
        """The batch that holds this position; None if it was released, or is not there yet."""
        index = bisect_right(self._firsts, position, self._head) - 1
        if index < self._head or not self._lsns[index]:
            return None
        batch = HeldBatch(self._lsns[index], self._firsts[index], self._rows[index])
        return batch if position <= batch.last else None

    def batches(self, first: int, last: int) -> Iterator[HeldBatch]:
        """The held batches that have rows in this range."""
        index = max(bisect_right(self._firsts, first, self._head) - 1, self._head)
        while index < len(self._firsts) and self._firsts[index] <= last:
            if self._lsns[index] and self._firsts[index] + self._rows[index] > first:
                yield HeldBatch(self._lsns[index], self._firsts[index], self._rows[index])
            index += 1

    def next_held(self, position: int) -> int:
        """The first position at or after this one that is held; `next_position` if none is."""
        index = max(bisect_right(self._firsts, position, self._head) - 1, self._head)
        while index < len(self._firsts):
            if self._lsns[index] and self._firsts[index] + self._rows[index] > position:
                return max(position, self._firsts[index])
            index += 1
        return self.next_position

    def release_done(self, first: int, last: int) -> list[int]:
        """Let go of batches in this range that every subscription is past. Their lsns."""
        released = []
        for batch in self.batches(first, last):
            if all(s.is_done(batch.first, batch.last) for s in self.subscriptions.values()):
                released.append(batch.lsn)
                self._release(batch.first)
        if released:
            self._advance_head()
        return released

    def _release(self, first: int) -> None:
        self._lsns[bisect_right(self._firsts, first, self._head) - 1] = 0
        self.batch_count -= 1

    def _advance_head(self) -> None:
        lsns, head = self._lsns, self._head
        while head < len(lsns) and not lsns[head]:
            head += 1
        self._head = head
        if len(lsns) - self.batch_count > max(_COMPACT_MIN, self.batch_count):
            self._compact()

    def _compact(self) -> None:
        keep = [index for index in range(self._head, len(self._lsns)) if self._lsns[index]]
        self._firsts = array("Q", [self._firsts[index] for index in keep])
        self._rows = array("I", [self._rows[index] for index in keep])
        self._lsns = array("Q", [self._lsns[index] for index in keep])
        self._head = 0

    def snapshot(self) -> list[object]:
        self._compact()
        return [
            self.number,
            self.name,
            str(self.kind),
            self.next_position,
            self._firsts.tobytes(),
            self._lsns.tobytes(),
            self._rows.tobytes(),
            [subscription.snapshot() for subscription in self.subscriptions.values()],
        ]

    @classmethod
    def restore(cls, snapshot: tuple[int, str, str, int, bytes, bytes, bytes, list[object]]) -> Destination:
        number, name, kind, next_position, firsts, lsns, rows, subscriptions = snapshot
        destination = cls(number=number, name=name, kind=DestinationKind(kind))
        destination.next_position = next_position
        destination._firsts.frombytes(firsts)
        destination._lsns.frombytes(lsns)
        destination._rows.frombytes(rows)
        destination.batch_count = len(destination._lsns)
        for each in subscriptions:
            subscription = Subscription.restore(each)  # type: ignore[arg-type]
            destination.subscriptions[subscription.number] = subscription
        return destination
