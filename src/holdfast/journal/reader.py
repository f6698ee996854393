"""Readers: records of a range of the log, or of its growing end, without disturbing what is written.

A reader pins the segments that it may still read, so that they are not reused under it. Its two halves run in
different places: `extend` and `close` change the journal and belong to its thread; `read` touches only the
storage and the reader itself, and may run anywhere (decision 14).
"""

from __future__ import annotations

from holdfast.errors import JournalCorrupt, NotHeld
from holdfast.journal.format import SEGMENT_HEADER_BYTES, Record, SegmentHeader, record_bytes
from holdfast.journal.journal import Journal
from holdfast.journal.scan import Lineage, SegmentImage, Walk
from holdfast.journal.storage import Storage

# One read of the storage: many groups under load, not much waste at the end of the log.
WINDOW_BYTES = 1024 * 1024


class Reader:
    """Reads committed records in the order of their lsn, from `from_lsn` on, up to `to_lsn` if given."""

    def __init__(self, journal: Journal, *, from_lsn: int, to_lsn: int | None = None) -> None:
        first_lsn = journal.segments.first_unbroken.base_lsn
        if not first_lsn <= from_lsn <= journal.next_lsn:
            raise NotHeld(
                f"lsn {from_lsn} cannot be read: the unbroken log is {first_lsn} to {journal.next_lsn - 1}"
            )
        self._journal = journal
        self._salt = journal.node_state.salt
        self._lineage = Lineage(journal.run, journal.node_state.start_lsn)
        self._to_lsn = to_lsn
        self._limit_lsn = 0
        start = [segment for segment in journal.segments if segment.base_lsn <= from_lsn][-1]
        self._pinned = [s for s in journal.segments if s.generation >= start.generation]
        for segment in self._pinned:
            segment.pins += 1
        journal.segments.followers.append(self._pinned)
        self._reading = self._pinned[0]
        self._offset = SEGMENT_HEADER_BYTES
        self._group_lsn = self._reading.base_lsn
        self._newest_run = 0
        self.next_lsn = from_lsn
        self.extend()

    # -- on the journal's thread -------------------------------------------------------------------------

    def extend(self) -> int:
        """Allow reading up to what is committed now; unpin what was read. The last lsn allowed."""
        while self._pinned[0] is not self._reading:
            self._pinned.pop(0).pins -= 1
        self._journal.reclaim()
        commit_lsn = self._journal.commit_lsn
        self._limit_lsn = commit_lsn if self._to_lsn is None else min(commit_lsn, self._to_lsn)
        return self._limit_lsn

    def close(self) -> None:
        """Unpin everything. The reader cannot be used again."""
        followers = self._journal.segments.followers
        followers[:] = [pinned for pinned in followers if pinned is not self._pinned]
        for segment in self._pinned:
            segment.pins -= 1
        self._pinned = []
        self._limit_lsn = 0
        self._journal.reclaim()

    # -- on any thread -----------------------------------------------------------------------------------

    def read(self, storage: Storage, *, max_bytes: int) -> list[Record]:
        """The next records, about `max_bytes` of them; an empty list at the end of what is allowed.

        Raises `JournalCorrupt` where a committed record is not whole.
        """
        records: list[Record] = []
        taken_bytes = 0
        window_bytes = WINDOW_BYTES
        while self.next_lsn <= self._limit_lsn and taken_bytes < max_bytes:
            walk = self._walk(storage, window_bytes)
            before = self._offset
            for group, group_records in walk.groups():
                for record in group_records:
                    if self.next_lsn <= record.lsn <= self._limit_lsn:
                        records.append(record)
                        taken_bytes += record_bytes(len(record.parts[0]))
                        self.next_lsn = record.lsn + 1
                if walk.next_lsn > self._limit_lsn + 1:
                    return records
                self._offset, self._group_lsn = walk.offset, walk.next_lsn
                self._newest_run = group.run
                if taken_bytes >= max_bytes:
                    break
            window_bytes = WINDOW_BYTES
            if self._offset == before:
                window_bytes = self._go_on(walk)
        return records

    def _walk(self, storage: Storage, window_bytes: int) -> Walk:
        segment = self._reading
        segment_bytes = self._journal.config.segment_bytes
        length = min(window_bytes, segment_bytes - self._offset)
        data = memoryview(storage.read(segment.name, self._offset, length))
        header = SegmentHeader(segment_bytes, segment.generation, segment.base_lsn, run=0, durable_lsn=0)
        image = SegmentImage(segment.name, header, data, self._salt, self._offset)
        return Walk(
            image,
            self._lineage,
            offset=self._offset,
            next_lsn=self._group_lsn,
            newest_run=self._newest_run,
        )

    def _go_on(self, walk: Walk) -> int:
        """No whole group in the window: look further in this segment, or in the next. How many bytes to read."""
        group = walk.image.group_at(self._offset)
        if group is not None and group.group_bytes > len(walk.image.data):
            return group.group_bytes
        following = [s for s in tuple(self._pinned) if s.generation == walk.image.header.generation + 1]
        if not following or following[0].base_lsn != self._group_lsn:
            raise JournalCorrupt(
                "a committed record cannot be read",
                name=walk.image.name,
                offset=self._offset,
                lsn=self._group_lsn,
            )
        self._offset = SEGMENT_HEADER_BYTES
        self._reading = following[0]
        return WINDOW_BYTES
