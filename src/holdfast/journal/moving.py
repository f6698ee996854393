"""Moving forward: the few live records of a mostly dead segment are appended again, so that it can be reused.

One segment at a time. Until the moved records are committed the old ones count; when they are, the segment holds
nothing any more, and the next checkpoint frees it. Only segments of which less than a quarter is live are moved
(decision 8), and only if the budget of moves can carry the whole of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import JournalCorrupt, JournalFailed, JournalFull
from holdfast.journal.config import moved_bytes
from holdfast.journal.format import FLAG_HELD, Record, SegmentHeader, origin_of
from holdfast.journal.scan import Lineage
from holdfast.journal.segments import Segment
from holdfast.journal.space import Budget
from holdfast.journal.work import SegmentRead

if TYPE_CHECKING:
    from holdfast.journal.journal import Journal


class Moving:
    """The segment that is being moved, if any, and how far that has come."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._segment: Segment | None = None
        self._last_lsn: int | None = None

    def begin(self, *, before_generation: int) -> SegmentRead | None:
        """Read the emptiest segment that is worth it, of those before a generation.

        They must be wholly committed: a group still being written would be missing from what is read.
        """
        journal = self._journal
        if self._segment is not None:
            return None
        segment = journal.segments.move_candidate(journal.config, before_generation=before_generation)
        if segment is None or not journal.space.admits(Budget.MOVES, moved_bytes(segment.live_bytes)):
            return None
        self._segment, self._last_lsn = segment, None
        segment.pins += 1
        header = SegmentHeader(journal.config.segment_bytes, segment.generation, segment.base_lsn, 0, 0)
        lineage = Lineage(journal.run, journal.node_state.start_lsn)
        return SegmentRead(segment.name, header, lineage, salt=journal.node_state.salt)

    def finish(self, read: SegmentRead) -> None:
        """Append again what still lives in it. Raises `JournalCorrupt` if some of that is damaged."""
        segment = self._segment
        assert segment is not None, "a segment was read that is not being moved"
        segment.pins -= 1
        for record in self._live_records(segment, read):
            try:
                self._last_lsn = self._journal.append_moved(record)
            except (JournalFull, JournalFailed):
                # The buffer is full; what was not moved now is moved when the segment's turn comes again.
                break
        if self._last_lsn is None:
            self._segment = None

    def committed(self, lsn: int) -> None:
        """What was moved is committed at its new place: the next segment may be moved."""
        if self._last_lsn is not None and lsn >= self._last_lsn:
            self._segment = self._last_lsn = None

    def _live_records(self, segment: Segment, read: SegmentRead) -> list[Record]:
        """What the index still points to in this segment."""
        live = [record for record in read.records if self._lives_at(record)]
        if len(live) == segment.live_records:
            return live
        # Something is damaged. If it is not held any more that does no harm: go by the index, place by place.
        live = []
        for lsn, offset in self._journal.held.offsets_in(segment.generation):
            record = read.record_at(offset)
            if record is None or origin_of(record) != lsn:
                raise JournalCorrupt("a held record is damaged", name=segment.name, offset=offset, lsn=lsn)
            live.append(record)
        return live

    def _lives_at(self, record: Record) -> bool:
        """Whether the index points to this very copy of a record."""
        if not record.flags & FLAG_HELD:
            return False
        found = self._journal.held.find(origin_of(record))
        return found is not None and found[1] == record.place
