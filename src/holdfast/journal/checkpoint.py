"""Checkpoints: the state at one lsn, so that recovery need not read what led there (decision 6).

Two slots, allocated with the journal and large enough for the largest state that its limits allow, take turns.
A checkpoint is never written over the newest good one, so a crash while writing costs nothing, and none needs
space that is not there already.

| at  | type | field             |                                                                 |
|-----|------|-------------------|-----------------------------------------------------------------|
| 0   | 4s   | magic             | `HFCP`                                                          |
| 4   | u32  | crc               | CRC-32C of everything from byte 8 on, seeded with the salt      |
| 8   | u16  | version           | 1                                                               |
| 10  | u16  |                   | 0                                                               |
| 12  | u32  | segment_count     |                                                                 |
| 16  | u64  | total_bytes       | of the checkpoint, with this header                             |
| 24  | u64  | number            | one more for each checkpoint                                    |
| 32  | u64  | lsn               | all that was committed up to here is in it, nothing after       |
| 40  | u64  | scan_generation   | recovery starts reading in this segment,                        |
| 48  | u64  | scan_offset       | at this group,                                                  |
| 56  | u64  | scan_lsn          | whose first record has this lsn                                 |
| 64  | u32  | run               | of the last group before that                                   |
| 68  | u32  | epoch             |                                                                 |
| 72  | u64  | boot_sequence     | events of the boot section up to here are in the log            |
| 80  | u64  | held_bytes        | length of the index of held records                             |
| 88  | u64  | state_bytes       | length of the state above the journal                           |
| 96  | u64  | segment_files     | how many segment files there are, free ones included            |
| 104 |      |                   | 24 zero bytes                                                   |
| 128 |      | segments          | segment_count times: u64 generation, u64 base_lsn, u64 live     |
|     |      |                   | bytes, u32 live records, u32 0                                  |
|     |      | held, state       | `HeldRecords.snapshot`, and what the state above gave           |
"""

from __future__ import annotations

from struct import Struct

import msgspec
from crc32c import crc32c

from holdfast.errors import LimitExceeded, StorageMissing
from holdfast.journal.config import CHECKPOINT_HEADER_BYTES
from holdfast.journal.format import LSN
from holdfast.journal.storage import Storage

CHECKPOINT_NAMES = ("checkpoint-0", "checkpoint-1")
_MAGIC = b"HFCP"
_VERSION = 1
_HEADER = Struct("<4sIHHIQQQQQQIIQQQQ24x")
_SEGMENT = Struct("<QQQII")
_WRITE_BYTES = 4 * 1024 * 1024


def slot_name(number: int) -> str:
    """The slot for the checkpoint of this number."""
    return CHECKPOINT_NAMES[number % len(CHECKPOINT_NAMES)]


class SegmentEntry(msgspec.Struct, frozen=True):
    generation: int
    base_lsn: int
    live_bytes: int
    live_records: int


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    lsn: int
    scan_generation: int
    scan_offset: int
    scan_lsn: int
    run: int
    epoch: int
    boot_sequence: int
    segment_files: int
    segments: tuple[SegmentEntry, ...]
    held: tuple[bytes | memoryview, ...]
    state: bytes | memoryview

    @property
    def name(self) -> str:
        """The slot that it belongs into."""
        return slot_name(self.number)

    def blocks(self, salt: int) -> list[bytes | memoryview]:
        """The bytes of the slot, as blocks to be written one after another."""
        table = b"".join(
            _SEGMENT.pack(entry.generation, entry.base_lsn, entry.live_bytes, entry.live_records, 0)
            for entry in self.segments
        )
        held_bytes = sum(map(len, self.held))
        header = _HEADER.pack(
            _MAGIC,
            0,
            _VERSION,
            0,
            len(self.segments),
            CHECKPOINT_HEADER_BYTES + len(table) + held_bytes + len(self.state),
            self.number,
            self.lsn,
            self.scan_generation,
            self.scan_offset,
            self.scan_lsn,
            self.run,
            self.epoch,
            self.boot_sequence,
            held_bytes,
            len(self.state),
            self.segment_files,
        )
        rest: list[bytes | memoryview] = [table, *self.held, self.state]
        crc = crc32c(header[8:], crc32c(LSN.pack(salt)))
        for block in rest:
            crc = crc32c(block, crc)
        return [_MAGIC + crc.to_bytes(4, "little") + header[8:], *rest]


def write_checkpoint(storage: Storage, checkpoint: Checkpoint, *, salt: int) -> None:
    """Write the slot and make it durable."""
    blocks = checkpoint.blocks(salt)
    total_bytes = sum(map(len, blocks))
    room_bytes = storage.size(checkpoint.name)
    if total_bytes > room_bytes:
        raise LimitExceeded("size of a checkpoint (state_bytes_max)", value=total_bytes, maximum=room_bytes)
    data = memoryview(b"".join(blocks))
    for start in range(0, total_bytes, _WRITE_BYTES):
        storage.write(checkpoint.name, start, data[start : start + _WRITE_BYTES])
    storage.sync(checkpoint.name)


def read_checkpoint(storage: Storage, name: str, *, salt: int) -> Checkpoint | None:
    """The checkpoint in a slot, or None if there is no whole one."""
    try:
        header = storage.read(name, 0, CHECKPOINT_HEADER_BYTES)
        fields = _HEADER.unpack(header)
        if fields[0] != _MAGIC or fields[2] != _VERSION or not len(header) <= fields[5] <= storage.size(name):
            return None
        data = memoryview(storage.read(name, 0, fields[5]))
    except StorageMissing:
        return None
    if crc32c(data[8:], crc32c(LSN.pack(salt))) != fields[1]:
        return None
    segment_count, _, number, lsn, generation, offset, scan_lsn, run, epoch = fields[4:13]
    boot_sequence, held_bytes, state_bytes, segment_files = fields[13:]
    table_end = CHECKPOINT_HEADER_BYTES + segment_count * _SEGMENT.size
    held_end = table_end + held_bytes
    if held_end + state_bytes != len(data):
        return None
    entries = _SEGMENT.iter_unpack(data[CHECKPOINT_HEADER_BYTES:table_end])
    return Checkpoint(
        number=number,
        lsn=lsn,
        scan_generation=generation,
        scan_offset=offset,
        scan_lsn=scan_lsn,
        run=run,
        epoch=epoch,
        boot_sequence=boot_sequence,
        segment_files=segment_files,
        segments=tuple(SegmentEntry(*entry[:4]) for entry in entries),
        held=(data[table_end:held_end],),
        state=data[held_end:],
    )
