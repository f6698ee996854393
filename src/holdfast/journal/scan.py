"""Reading segments: one after another, group by group, until the log ends; and telling why it ends there.

What a crash can leave behind is a torn tail: only the group that was being written when it came. What bit rot,
a lost write or a foreign hand leaves behind is damage. Both look alike at the place itself: bytes that are no
record. The difference is whether anything that is still there attests that the missing lsn had been durable:
a later group, a later segment, or a checkpoint (decision 5).

Groups that an earlier start of the node wrote, and a later recovery or truncation cut off, are dead: they are
neither records nor witnesses. The `Lineage` tells them.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast.journal.format import (
    GROUP_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    GroupHeader,
    Record,
    SegmentHeader,
    generation_seed,
    parse_group_header,
    parse_record,
    parse_segment_header,
    record_bytes,
)
from holdfast.journal.segments import is_segment
from holdfast.journal.storage import Storage


class Lineage(msgspec.Struct, frozen=True):
    """The newest start of the node, and the lsn that it began with: what older starts wrote ends before it.

    The rule must give one end of the log both to the recovery that cuts and to the next one, which sees what was
    written after the cut. So a segment, or a marker, that an older start left exactly at the cut stays: the new
    start goes on behind it. A group of records there does not: the new start overwrites it.
    """

    run: int
    start_lsn: int

    def is_dead_group(self, group: GroupHeader, *, newest_run: int) -> bool:
        """Whether a later start has cut this group off. `newest_run` is that of the log before it."""
        last_lsn = self.start_lsn - 1 if group.record_count else self.start_lsn
        return group.run < newest_run or (group.run < self.run and group.first_lsn > last_lsn)

    def is_dead_segment(self, header: SegmentHeader, *, newest_run: int) -> bool:
        return header.run < newest_run or (header.run < self.run and header.base_lsn > self.start_lsn)


class SegmentImage(msgspec.Struct, frozen=True):
    """One segment in memory, or the stretch of it that begins at `start`."""

    name: str
    header: SegmentHeader
    data: memoryview
    salt: int
    start: int = 0

    @property
    def seed(self) -> int:
        return generation_seed(self.salt, self.header.generation)

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def group_at(self, offset: int) -> GroupHeader | None:
        return parse_group_header(self.data, offset - self.start, seed=self.seed, offset=offset)


class Catalogue(msgspec.Struct):
    """The segment files of a journal by what their headers say."""

    by_generation: dict[int, tuple[str, SegmentHeader]]
    unused: list[str]
    damaged: list[str]

    @classmethod
    def read(cls, storage: Storage, *, salt: int, segment_bytes: int, settle_from: int) -> Catalogue:
        """Read every segment's header. Two files of one generation count as damaged.

        Segments from generation `settle_from` on may have been in flux when the node died: what can be read of
        them is settled before it is believed. Older ones were durable when a checkpoint covered them.
        """
        catalogue = cls({}, [], [])
        for name in filter(is_segment, storage.names()):
            header = _read_header(storage, name, salt=salt, segment_bytes=segment_bytes)
            if header is not None and (header.generation >= settle_from or header.generation == 0):
                storage.settle(name)
                header = _read_header(storage, name, salt=salt, segment_bytes=segment_bytes)
            if header is None or header.generation in catalogue.by_generation:
                catalogue.damaged.append(name)
            elif header.generation == 0:
                catalogue.unused.append(name)
            else:
                catalogue.by_generation[header.generation] = (name, header)
        return catalogue


def _read_header(storage: Storage, name: str, *, salt: int, segment_bytes: int) -> SegmentHeader | None:
    if storage.size(name) < segment_bytes:
        return None
    header = parse_segment_header(storage.read(name, 0, SEGMENT_HEADER_BYTES), salt)
    return header if header is not None and header.segment_bytes == segment_bytes else None


def load_segment(storage: Storage, name: str, header: SegmentHeader, *, salt: int) -> SegmentImage:
    data = storage.read(name, 0, header.segment_bytes)
    return SegmentImage(name, header, memoryview(data), salt)


class Walk:
    """One pass over the records of one segment.

    Iterate over `groups()`; when it ends, `offset` is the place after the last good record, `next_lsn` the lsn
    that would come there, and `newest_run` the run of the last good group.
    """

    def __init__(
        self, image: SegmentImage, lineage: Lineage, *, offset: int, next_lsn: int, newest_run: int
    ) -> None:
        self.image = image
        self.lineage = lineage
        self.offset = offset
        self.next_lsn = next_lsn
        self.newest_run = newest_run
        self.attested_lsn = image.header.durable_lsn
        self.is_torn = False

    def groups(self) -> Iterator[tuple[GroupHeader, list[Record]]]:
        """Each group with its records. A group that ends early is the last but for one of a later start."""
        while True:
            group = self.image.group_at(self.offset)
            if group is None or not self._continues(group):
                return
            self.newest_run = group.run
            self.attested_lsn = max(self.attested_lsn, group.durable_lsn)
            records = self._records(group)
            yield group, records
            if group.record_count and not records:
                return

    def _continues(self, group: GroupHeader) -> bool:
        if self.lineage.is_dead_group(group, newest_run=self.newest_run):
            return False
        return group.first_lsn == self.next_lsn and group.offset + group.group_bytes <= self.image.end

    def _records(self, group: GroupHeader) -> list[Record]:
        """The records of a group up to the first that is not whole, not next, or cut off."""
        generation = self.image.header.generation
        seed = self.image.seed
        records = []
        at = group.offset + GROUP_HEADER_BYTES
        lsn = group.first_lsn
        cut_lsn = self.lineage.start_lsn if group.run < self.lineage.run else None
        for _ in range(group.record_count):
            if lsn == cut_lsn:
                break
            record = parse_record(
                self.image.data,
                at - self.image.start,
                seed=seed,
                generation=generation,
                offset=at,
                run=group.run,
            )
            if record is None or record.lsn != lsn:
                break
            records.append(record)
            at += record_bytes(len(record.parts[0]))
            lsn += 1
        self.next_lsn = lsn
        self.is_torn = len(records) < group.record_count and lsn != cut_lsn
        # A group without a single whole record leaves nothing: the next start overwrites its header too.
        self.offset = at if records or not group.record_count else group.offset
        return records


def witnesses(image: SegmentImage, start: int) -> Iterator[GroupHeader]:
    """Every whole group header at or after `start`, whatever lies between."""
    mark = image.seed.to_bytes(4, "little")
    data = image.data.obj
    assert isinstance(data, bytes)
    assert image.start == 0
    at = data.find(mark, start)
    while at >= 0:
        group = image.group_at(at)
        if group is not None:
            yield group
        at = data.find(mark, at + 1)


def attested_after(image: SegmentImage, start: int, lineage: Lineage, *, newest_run: int) -> int:
    """The highest lsn that a live group after `start` attests to have been durable; 0 if none does."""
    return max(
        (
            group.durable_lsn
            for group in witnesses(image, start)
            if not lineage.is_dead_group(group, newest_run=newest_run)
        ),
        default=0,
    )
