"""What the journal wants done to the disk.

The journal itself never waits for a disk. It hands out work; a shell runs it, on whatever thread it likes, and
gives it back to `Journal.finish`, or to `Journal.abort` with the error. `run` touches the storage and the work's
own fields, nothing else.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.journal.checkpoint import Checkpoint, write_checkpoint
from holdfast.journal.format import SEGMENT_HEADER_BYTES, Record, SegmentHeader, parse_record
from holdfast.journal.scan import Lineage, SegmentImage, Walk
from holdfast.journal.storage import Storage
from holdfast.journal.tail import GroupBuffer


class Work(Protocol):
    def run(self, storage: Storage) -> None:
        """Do it. May block. Raises `StorageError`."""


class Flush:
    """Write one group, then make it durable."""

    def __init__(self, buffer: GroupBuffer, *, last_lsn: int, attests_lsn: int, end: tuple[int, int]) -> None:
        self.buffer = buffer
        self.last_lsn = last_lsn
        self.attests_lsn = attests_lsn
        self.end = end

    @property
    def total_bytes(self) -> int:
        return self.buffer.fill

    def run(self, storage: Storage) -> None:
        self.write(storage)
        self.sync(storage)

    def write(self, storage: Storage) -> None:
        for part in self.buffer.parts:
            storage.write(part.name, part.offset, self.buffer.view[part.start : part.end])

    def sync(self, storage: Storage) -> None:
        for part in self.buffer.parts:
            storage.sync(part.name)


class CheckpointWrite:
    """Write a checkpoint into its slot, durably."""

    def __init__(self, checkpoint: Checkpoint, *, salt: int) -> None:
        self.checkpoint = checkpoint
        self._salt = salt

    def run(self, storage: Storage) -> None:
        write_checkpoint(storage, self.checkpoint, salt=self._salt)


class Allocation:
    """Make one more segment, ahead of need."""

    def __init__(self, name: str, *, segment_bytes: int, salt: int) -> None:
        self.name = name
        self._segment_bytes = segment_bytes
        self._salt = salt

    def run(self, storage: Storage) -> None:
        header = SegmentHeader(self._segment_bytes, generation=0, base_lsn=0, run=0, durable_lsn=0)
        storage.allocate(self.name, self._segment_bytes, head=header.pack(self._salt))


class SegmentRead:
    """Read a segment whole, to move forward what still lives in it."""

    def __init__(self, name: str, header: SegmentHeader, lineage: Lineage, *, salt: int) -> None:
        self.name = name
        self.header = header
        self._lineage = lineage
        self._salt = salt
        self.records: list[Record] = []
        self._image = SegmentImage(name, header, memoryview(b""), salt)

    def run(self, storage: Storage) -> None:
        data = memoryview(storage.read(self.name, 0, self.header.segment_bytes))
        self._image = SegmentImage(self.name, self.header, data, self._salt)
        walk = Walk(
            self._image,
            self._lineage,
            offset=SEGMENT_HEADER_BYTES,
            next_lsn=self.header.base_lsn,
            newest_run=0,
        )
        for _, records in walk.groups():
            self.records.extend(records)

    def record_at(self, offset: int) -> Record | None:
        """The record at a place that is known, whatever lies before it."""
        image = self._image
        return parse_record(
            image.data, offset, seed=image.seed, generation=self.header.generation, offset=offset
        )
