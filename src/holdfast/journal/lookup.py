"""Reading one held record, wherever it lies now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.errors import JournalCorrupt
from holdfast.journal.format import (
    FLAG_MOVED,
    ORIGIN_LSN_BYTES,
    Record,
    generation_seed,
    origin_of,
    parse_record,
)
from holdfast.journal.journal import Journal
from holdfast.journal.storage import Storage


class HeldRead:
    """Work: read the record that was appended as `lsn`. Its segment is pinned until `finish`.

    Made and finished on the journal's thread; `run` may run anywhere. Raises `NotHeld` when it is made.
    """

    def __init__(self, journal: Journal, lsn: int) -> None:
        self.lsn = lsn
        self.waiting: list[Callable[[Any], None]] = []
        self._journal = journal
        self._segment, self._offset, self._size = journal.locate(lsn)
        self._segment.pins += 1
        self._data = b""

    def run(self, storage: Storage) -> None:
        self._data = storage.read(self._segment.name, self._offset, self._size)

    def finish(self) -> Record:
        """The record, with the payload that it had at first. Raises `JournalCorrupt`."""
        segment, offset = self._segment, self._offset
        segment.pins -= 1
        self._journal.reclaim()
        seed = generation_seed(self._journal.node_state.salt, segment.generation)
        record = parse_record(
            memoryview(self._data), 0, seed=seed, generation=segment.generation, offset=offset
        )
        if record is None or origin_of(record) != self.lsn:
            raise JournalCorrupt("a held record is damaged", name=segment.name, offset=offset, lsn=self.lsn)
        if not record.flags & FLAG_MOVED:
            return record
        payload = memoryview(record.payload)[ORIGIN_LSN_BYTES:]
        flags = record.flags & ~FLAG_MOVED
        return msgspec.structs.replace(record, lsn=self.lsn, flags=flags, parts=(payload,))


def read_held(journal: Journal, storage: Storage, lsn: int) -> Record:
    """The same, here and now. Raises `NotHeld`, `JournalCorrupt`."""
    read = HeldRead(journal, lsn)
    read.run(storage)
    return read.finish()
