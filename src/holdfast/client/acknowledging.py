"""The acknowledgements of one session, gathered into ranges and numbered.

As with sends, what comes while nothing is on its way goes at once, and what comes while something is waits
for its confirmation, or until there is enough of it. So a slow program has its acknowledgements confirmed one
by one, and a fast one puts thousands of neighbouring positions into a single range.

Accepted ones are kept until they are confirmed, and sent again after a resume under the same numbers: they
name positions, so that repeating is harmless. Returned ones are not kept: a resume returns everything in
flight anyway. In a transacted session all are kept until the commit, and a new run of the transaction gives
them new numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from msgspec import Struct

from holdfast.client.limits import ACKNOWLEDGE_RANGES_MAX, ClientLimits
from holdfast.wire.frames import Acknowledge
from holdfast.wire.layout import Outcome

Ranges = tuple[tuple[int, int], ...]


class Settled(Struct, frozen=True):
    """Positions of a consumer whose acknowledgement needs no more care."""

    consumer: int
    ranges: Ranges

    def positions(self) -> Iterator[range]:
        return (range(first, last + 1) for first, last in self.ranges)


class _Kept(Struct):
    number: int
    consumer: int
    outcome: Outcome
    ranges: Ranges
    position_count: int

    def settled(self) -> Settled:
        return Settled(self.consumer, self.ranges)


def ranges_of(positions: Iterable[int]) -> Ranges:
    """The ranges, both ends included, that cover exactly these positions."""
    ranges: list[tuple[int, int]] = []
    first = last = -1
    for position in sorted(positions):
        if first >= 0 and position == last + 1:
            last = position
            continue
        if first >= 0:
            ranges.append((first, last))
        first = last = position
    if first >= 0:
        ranges.append((first, last))
    return tuple(ranges)


class Acknowledgements:
    """The machine. The first `_sent_count` of what is kept are on the wire of this connection."""

    def __init__(self, *, limits: ClientLimits, is_transacted: bool) -> None:
        self._limits = limits
        self._is_transacted = is_transacted
        self._gathering: dict[int, list[int]] = {}
        self._gathering_count = 0
        self._kept: deque[_Kept] = deque()
        self._kept_count = 0
        self._sent_count = 0
        self._next_number = 1

    @property
    def has_room(self) -> bool:
        return self._gathering_count + self._kept_count < self._limits.unconfirmed_acknowledgements_max

    @property
    def is_idle(self) -> bool:
        return not self._kept and not self._gathering

    @property
    def is_sent(self) -> bool:
        return not self._gathering and self._sent_count == len(self._kept)

    def consumers(self) -> set[int]:
        """Those that have something here."""
        return {*self._gathering, *(kept.consumer for kept in self._kept)}

    def accept(self, consumer: int, position: int) -> None:
        self._gathering.setdefault(consumer, []).append(position)
        self._gathering_count += 1

    def give_back(self, consumer: int, positions: list[int]) -> None:
        """Return these. What was accepted before goes before."""
        self._close_gathering()
        self._keep(consumer, Outcome.RETURNED, ranges_of(positions))

    def _close_gathering(self) -> None:
        gathering, self._gathering, self._gathering_count = self._gathering, {}, 0
        for consumer, positions in gathering.items():
            self._keep(consumer, Outcome.ACCEPTED, ranges_of(positions))

    def _keep(self, consumer: int, outcome: Outcome, ranges: Ranges) -> None:
        for start in range(0, len(ranges), ACKNOWLEDGE_RANGES_MAX):
            part = ranges[start : start + ACKNOWLEDGE_RANGES_MAX]
            count = sum(last - first + 1 for first, last in part)
            self._kept.append(_Kept(0, consumer, outcome, part, count))
            self._kept_count += count

    def due(self, *, transaction: int, is_forced: bool, open_consumers: set[int]) -> list[Acknowledge]:
        """What is to be sent now, as far as its consumers are open on this connection."""
        is_full = self._gathering_count >= self._limits.gathered_acknowledgements_max
        nothing_in_flight = not self._kept and not self._is_transacted
        if self._gathering and (is_forced or is_full or nothing_in_flight):
            self._close_gathering()
        frames: list[Acknowledge] = []
        while self._sent_count < len(self._kept):
            kept = self._kept[self._sent_count]
            if kept.consumer not in open_consumers:
                break  # in order: a number confirms all before it
            if not kept.number:
                kept.number = self._next_number
                self._next_number += 1
            if kept.outcome is Outcome.RETURNED:  # in no transaction: it holds whatever becomes of that
                frames.append(Acknowledge(kept.consumer, 0, kept.outcome, kept.number, kept.ranges))
                self._kept_count -= kept.position_count
                del self._kept[self._sent_count]
                continue
            frames.append(Acknowledge(kept.consumer, transaction, kept.outcome, kept.number, kept.ranges))
            self._sent_count += 1
        return frames

    def confirm(self, number: int) -> list[Settled]:
        """All up to this number is durable. In a transaction that means little until the commit."""
        if self._is_transacted:
            return []
        settled: list[Settled] = []
        while self._sent_count and self._kept[0].number <= number:
            settled.append(self._pop().settled())
            self._sent_count -= 1
        return settled

    def _pop(self) -> _Kept:
        kept = self._kept.popleft()
        self._kept_count -= kept.position_count
        return kept

    def lost(self) -> None:
        """The connection is gone. What was to be returned returns by that alone."""
        self._sent_count = 0
        self._kept = deque(kept for kept in self._kept if kept.outcome is Outcome.ACCEPTED)
        self._kept_count = sum(kept.position_count for kept in self._kept)

    def run_again(self) -> None:
        """All of the transaction anew, under new numbers."""
        self._sent_count = 0
        for kept in self._kept:
            kept.number = 0

    def new_session(self) -> None:
        """The server knows nothing of us: count from the beginning."""
        self.run_again()
        self._next_number = 1

    def drop_all(self) -> list[Settled]:
        """Forget the transaction: it was committed, or is rolled back. Returns, which are in none, still go."""
        self._close_gathering()
        dropped = [kept.settled() for kept in self._kept if kept.outcome is Outcome.ACCEPTED]
        self._kept = deque(kept for kept in self._kept if kept.outcome is Outcome.RETURNED)
        self._kept_count = sum(kept.position_count for kept in self._kept)
        self._sent_count = 0
        return dropped

    def forget(self, consumer: int) -> bool:
        """The consumer cannot be opened again: drop what is for it. Whether there was anything."""
        had_any = consumer in self.consumers()
        self._gathering_count -= len(self._gathering.pop(consumer, []))
        sent = [kept for kept in list(self._kept)[: self._sent_count] if kept.consumer != consumer]
        self._kept = deque(kept for kept in self._kept if kept.consumer != consumer)
        self._sent_count = len(sent)
        self._kept_count = sum(kept.position_count for kept in self._kept)
        return had_any

    def check_invariants(self) -> None:
        assert 0 <= self._sent_count <= len(self._kept)
        assert self._kept_count == sum(kept.position_count for kept in self._kept)
        numbers = [kept.number for kept in self._kept if kept.number]
        assert numbers == sorted(set(numbers)), "numbers rise"
        assert all(number < self._next_number for number in numbers)
