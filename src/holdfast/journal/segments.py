"""The segments in use, and the pool of free ones.

A segment in use may go back to the pool when both are true (the reclaim rule):

 1. nothing in it is live, and no reader has pinned it;
 2. it lies wholly before the place where recovery would start reading, as the last durable checkpoint says.

Without the second, recovery would miss records that change state (a confirmation, say) although they hold
nothing themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec

from holdfast.journal.config import MOVE_LIVE_PERCENT_MAX, JournalConfig
from holdfast.journal.format import generation_of

SEGMENT_PREFIX = "segment-"
# Six digits: no journal has more files.
SEGMENT_NUMBER_MAX = 999_999


def segment_name(number: int) -> str:
    return f"{SEGMENT_PREFIX}{number:06d}"


def segment_number(name: str) -> int | None:
    """The number in the name of a segment file; None for any other, such as somebody's copy of one."""
    digits = name.removeprefix(SEGMENT_PREFIX)
    if not digits.isascii() or not digits.isdigit() or len(digits) > len(str(SEGMENT_NUMBER_MAX)):
        return None
    number = int(digits)
    return number if segment_name(number) == name else None


def is_segment(name: str) -> bool:
    return segment_number(name) is not None


class Segment(msgspec.Struct):
    """A segment in use. `live_*` count what the index of held records still points to.

    While recovery goes on, one without a name stands for a segment that the disk no longer has.
    """

    name: str
    generation: int
    base_lsn: int
    live_records: int = 0
    live_bytes: int = 0
    pins: int = 0


class Segments:
    """The segments in use, oldest first."""

    def __init__(self) -> None:
        self._by_generation: dict[int, Segment] = {}
        self.checkpoint_generation = 0
        # What each open reader has pinned. It must read on without a gap, so it pins a new segment at once.
        self.followers: list[list[Segment]] = []

    def __len__(self) -> int:
        return len(self._by_generation)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._by_generation.values())

    def add(self, segment: Segment) -> None:
        assert not self._by_generation or segment.generation > self.active.generation
        self._by_generation[segment.generation] = segment
        for pinned in self.followers:
            segment.pins += 1
            pinned.append(segment)

    def get(self, generation: int) -> Segment | None:
        return self._by_generation.get(generation)

    @property
    def active(self) -> Segment:
        """The one that is written to."""
        return self._by_generation[next(reversed(self._by_generation))]

    @property
    def first_unbroken(self) -> Segment:
        """From this one on no segment is missing: older ones may have been reused between those still held."""
        generation = self.active.generation
        while (before := self._by_generation.get(generation - 1)) is not None and before.name:
            generation -= 1
        return self._by_generation[generation]

    def hold(self, place: int, size: int) -> None:
        segment = self._by_generation[place >> 32]
        segment.live_records += 1
        segment.live_bytes += size

    def release(self, place: int, size: int) -> None:
        segment = self._by_generation[generation_of(place)]
        segment.live_records -= 1
        segment.live_bytes -= size
        assert segment.live_records >= 0, "released more than was held"
        assert segment.live_bytes >= 0, "released more than was held"

    def is_dead(self, segment: Segment) -> bool:
        """Criterion 1 of the reclaim rule."""
        is_idle = not segment.live_records and not segment.pins and segment is not self.active
        return is_idle and bool(segment.name)

    def take_reclaimable(self) -> list[Segment]:
        """Remove and return every segment that fulfils both criteria of the reclaim rule."""
        # In this order: a checkpoint covers few of the segments that are live, and this runs with every group.
        found = [
            segment
            for segment in self
            if not segment.live_records
            and segment.generation < self.checkpoint_generation
            and self.is_dead(segment)
        ]
        for segment in found:
            del self._by_generation[segment.generation]
        return found

    def waiting_for_checkpoint(self, *, before_generation: int) -> int:
        """How many segments a checkpoint that starts reading there would free: dead, not yet covered by one."""
        generations = range(self.checkpoint_generation, before_generation)
        return sum(1 for s in self if s.generation in generations and self.is_dead(s))

    def move_candidate(self, config: JournalConfig, *, before_generation: int) -> Segment | None:
        """The emptiest segment before a generation that is worth moving forward (decision 8)."""
        limit_bytes = config.segment_bytes * MOVE_LIVE_PERCENT_MAX // 100
        candidates = [
            segment
            for segment in self
            if segment.name
            and segment.live_records
            and segment.live_bytes < limit_bytes
            and segment.generation < before_generation
        ]
        return min(candidates, key=lambda segment: segment.live_bytes, default=None)

    def take_missing(self) -> list[Segment]:
        """Remove and return the segments that a checkpoint names and the disk no longer has."""
        missing = [segment for segment in self if not segment.name]
        for segment in missing:
            del self._by_generation[segment.generation]
        return missing


class Pool:
    """Free segments, allocated ahead of need and reused (E3, E6)."""

    def __init__(self, config: JournalConfig) -> None:
        self._config = config
        self._free: deque[str] = deque()
        self._numbers: set[str] = set()
        self._free_wanted = config.reserve_segments + config.segments_ahead
        self.is_allocating = False
        self.is_refused = False

    @property
    def free_count(self) -> int:
        return len(self._free)

    @property
    def total_count(self) -> int:
        return len(self._numbers)

    def know(self, name: str) -> None:
        """A segment exists, free or in use."""
        self._numbers.add(name)

    def put(self, name: str) -> None:
        assert name not in self._free, "a segment cannot be free twice"
        self._numbers.add(name)
        self._free.append(name)

    def take(self) -> str | None:
        return self._free.popleft() if self._free else None

    def wants_segment(self) -> bool:
        """Whether another segment should be allocated now, ahead of need."""
        return (
            not self.is_allocating
            and not self.is_refused
            and len(self._numbers) < self._config.segments_max
            and len(self._free) < self._free_wanted
        )

    def next_name(self) -> str:
        number = len(self._numbers)
        while segment_name(number) in self._numbers:
            number += 1
        return segment_name(number)
