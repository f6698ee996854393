"""Reading one held record, wherever it lies now."""

from __future__ import annotations

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


def read_held(journal: Journal, storage: Storage, lsn: int) -> Record:
    """The record that was appended as `lsn`, with the payload that it had then.

    Raises `NotHeld`, and `JournalCorrupt` if its bytes are no longer what was written.
    """
    segment, offset, size = journal.locate(lsn)
    data = memoryview(storage.read(segment.name, offset, size))
    seed = generation_seed(journal.node_state.salt, segment.generation)
    record = parse_record(data, 0, seed=seed, generation=segment.generation, offset=offset)
    if record is None or origin_of(record) != lsn:
        raise JournalCorrupt("a held record is damaged", name=segment.name, offset=offset, lsn=lsn)
    if record.flags & FLAG_MOVED:
        payload = memoryview(record.payload)[ORIGIN_LSN_BYTES:]
        return msgspec.structs.replace(record, lsn=lsn, flags=record.flags & ~FLAG_MOVED, parts=(payload,))
    return record
