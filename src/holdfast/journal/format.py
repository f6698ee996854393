"""The bytes of a segment: its header, groups, records (`docs/journal-format.md` has the same tables).

A segment is a file of fixed size. After its header come groups, one for each group commit; a group is a
header and the records that were made durable together. All numbers are little-endian, and every header and
record starts at a multiple of 8.

Segment header, 64 bytes:

| at | type | field         |                                                                     |
|----|------|---------------|---------------------------------------------------------------------|
| 0  | 4s   | magic         | `HFSG`                                                              |
| 4  | u32  | crc           | CRC-32C of bytes 8..64, seeded with the journal's salt              |
| 8  | u16  | version       | 1                                                                   |
| 10 | u16  |               | 0                                                                   |
| 12 | u32  | segment_bytes | size of the file                                                    |
| 16 | u64  | generation    | 0: never used; else one more than that of the segment before it     |
| 24 | u64  | base_lsn      | lsn of its first record                                             |
| 32 | u32  | run           | the start of the node that opened it                                |
| 36 | u32  |               | 0                                                                   |
| 40 | u64  | durable_lsn   | attested: durable when this was written                             |
| 48 |      |               | 16 zero bytes                                                       |

Group header, 40 bytes:

| at | type | field         |                                                                     |
|----|------|---------------|---------------------------------------------------------------------|
| 0  | u32  | mark          | seed of the segment's generation: where a group may start           |
| 4  | u32  | crc           | CRC-32C of bytes 8..40, seeded with the same                        |
| 8  | u32  | run           | the start of the node that wrote it                                 |
| 12 | u32  | record_count  | 0 in a marker                                                       |
| 16 | u64  | first_lsn     | lsn of its first record; of the next one to come in a marker        |
| 24 | u64  | durable_lsn   | attested: durable when this was written                             |
| 32 | u32  | group_bytes   | with this header                                                    |
| 36 | u32  | offset        | its own place in the segment                                        |

Record, 24 bytes and its payload, then zeros up to a multiple of 8:

| at | type | field         |                                                                     |
|----|------|---------------|---------------------------------------------------------------------|
| 0  | u32  | crc           | CRC-32C of bytes 4..24 and the payload, seeded with the same        |
| 4  | u32  | payload_bytes |                                                                     |
| 8  | u4   | section       | low bits: `Section`                                                 |
|    | u4   | flags         | high bits: 1 held until released; 2 moved: the payload starts with  |
|    |      |               | the u64 lsn that the record had at first                            |
| 9  | u8   | kind          | `Kind`                                                              |
| 10 | u16  | run           | low bits of its group's run                                         |
| 12 | u32  | epoch         | of the primary that appended it                                     |
| 16 | u64  | lsn           | one more than that of the record before it                          |
| 24 |      | payload       |                                                                     |

Because the checksums are seeded with the generation, what an earlier use of the segment left behind can never
look valid again; because groups and records name their run, neither can what a crash cut off. The salt, chosen
once for a journal, keeps a client from writing a payload that looks like a group.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

import msgspec
from crc32c import crc32c

from holdfast.journal.storage import Buffer

FORMAT_VERSION = 1
SEGMENT_MAGIC = b"HFSG"
ALIGNMENT_BYTES = 8
SEGMENT_HEADER_BYTES = 64
GROUP_HEADER_BYTES = 40
RECORD_HEADER_BYTES = 24
ORIGIN_LSN_BYTES = 8

FLAG_HELD = 1
FLAG_MOVED = 2
_FLAGS_KNOWN = FLAG_HELD | FLAG_MOVED
FLAGS_SHIFT = 4
_SECTION_MASK = 0xF
RUN_MASK = 0xFFFF

_SEGMENT = Struct("<4sIHHIQQIIQ16x")
_GROUP = Struct("<IIIIQQII")
RECORD = Struct("<IIBBHIQ")
_SEED = Struct("<QQ")
_RUN = Struct("<I")
LSN = Struct("<Q")
CRC = Struct("<I")


class Section(IntEnum):
    """The named sections of the persistent memory (E6), in the order of their replay (E10)."""

    BOOT = 0
    MESSAGES = 1
    SESSIONS = 2
    TRANSACTIONS = 3
    NODE = 4


class Kind(IntEnum):
    """What a record says. A kind belongs to whoever applies it; numbers are never reused."""

    MESSAGE = 1
    CONFIRM = 2
    SYSTEM_EVENT = 3
    BOOT_EVENT = 4
    DESTINATION = 16
    SUBSCRIPTION = 17
    SUBSCRIPTION_END = 18
    BATCH = 19
    ACKNOWLEDGEMENT = 20
    RETURN = 21
    DELIVERED = 22
    SESSION = 23
    SESSION_END = 24
    TRANSACTION_BATCH = 25
    TRANSACTION_ACKNOWLEDGEMENT = 26
    COMMIT = 27
    ROLLBACK = 28


_SECTIONS = frozenset(Section)


class SegmentHeader(msgspec.Struct, frozen=True):
    segment_bytes: int
    generation: int
    base_lsn: int
    run: int
    durable_lsn: int

    def pack(self, salt: int) -> bytes:
        tail = _SEGMENT.pack(
            SEGMENT_MAGIC,
            0,
            FORMAT_VERSION,
            0,
            self.segment_bytes,
            self.generation,
            self.base_lsn,
            self.run,
            0,
            self.durable_lsn,
        )[8:]
        return SEGMENT_MAGIC + _RUN.pack(crc32c(tail, _salted(salt))) + tail


class GroupHeader(msgspec.Struct, frozen=True):
    offset: int
    run: int
    record_count: int
    first_lsn: int
    durable_lsn: int
    group_bytes: int

    def pack_into(self, buffer: bytearray, at: int, seed: int) -> None:
        _GROUP.pack_into(
            buffer,
            at,
            seed,
            0,
            self.run,
            self.record_count,
            self.first_lsn,
            self.durable_lsn,
            self.group_bytes,
            self.offset,
        )
        crc = crc32c(memoryview(buffer)[at + 8 : at + GROUP_HEADER_BYTES], seed)
        _RUN.pack_into(buffer, at + 4, crc)


class Record(msgspec.Struct, frozen=True):
    """One record, as appended or as read back. `parts` together are its payload."""

    lsn: int
    section: int
    kind: int
    flags: int
    epoch: int
    place: int
    parts: tuple[Buffer, ...]

    @property
    def payload(self) -> Buffer:
        return self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)

    @property
    def payload_bytes(self) -> int:
        parts = self.parts
        return len(parts[0]) if len(parts) == 1 else sum(map(len, parts))


def origin_of(record: Record) -> int:
    """The lsn that a record had at first: its name in the index, wherever it was moved to."""
    if record.flags & FLAG_MOVED:
        origin_lsn: int = LSN.unpack_from(record.payload)[0]
        return origin_lsn
    return record.lsn


def place_of(generation: int, offset: int) -> int:
    """One number for a place on the disk, so that millions of them fit into a packed array."""
    return generation << 32 | offset


def generation_of(place: int) -> int:
    return place >> 32


def offset_of(place: int) -> int:
    return place & 0xFFFF_FFFF


def aligned(size: int) -> int:
    return (size + ALIGNMENT_BYTES - 1) & -ALIGNMENT_BYTES


def record_bytes(payload_bytes: int) -> int:
    """What a record with this payload takes in a segment."""
    return (RECORD_HEADER_BYTES + payload_bytes + ALIGNMENT_BYTES - 1) & -ALIGNMENT_BYTES


def _salted(salt: int) -> int:
    return crc32c(LSN.pack(salt))


def generation_seed(salt: int, generation: int) -> int:
    return crc32c(_SEED.pack(salt, generation))


def parse_segment_header(data: bytes, salt: int) -> SegmentHeader | None:
    """The header, or None if these bytes are not one of this journal."""
    if len(data) < SEGMENT_HEADER_BYTES or data[:4] != SEGMENT_MAGIC:
        return None
    fields = _SEGMENT.unpack_from(data)
    _, crc, version, _, segment_bytes, generation, base_lsn, run, _, durable_lsn = fields
    if version != FORMAT_VERSION or crc32c(data[8:SEGMENT_HEADER_BYTES], _salted(salt)) != crc:
        return None
    return SegmentHeader(segment_bytes, generation, base_lsn, run, durable_lsn)


def parse_group_header(data: memoryview, at: int, *, seed: int, offset: int) -> GroupHeader | None:
    """The group header at `at`, which is `offset` in its segment; None if none of this generation is there."""
    if at + GROUP_HEADER_BYTES > len(data):
        return None
    mark, crc, run, record_count, first_lsn, durable_lsn, group_bytes, place = _GROUP.unpack_from(data, at)
    if mark != seed or place != offset or crc32c(data[at + 8 : at + GROUP_HEADER_BYTES], seed) != crc:
        return None
    return GroupHeader(offset, run, record_count, first_lsn, durable_lsn, group_bytes)


def parse_record(
    data: memoryview, at: int, *, seed: int, generation: int, offset: int, run: int | None = None
) -> Record | None:
    """The record at `at`, which is `offset` in its segment; None if its bytes are not whole.

    With `run`, a record that another start of the node wrote is not whole either.
    """
    start = at + RECORD_HEADER_BYTES
    if start > len(data):
        return None
    crc, payload_bytes, section_and_flags, kind, run_bits, epoch, lsn = RECORD.unpack_from(data, at)
    end = start + payload_bytes
    if end > len(data) or crc32c(data[at + 4 : end], seed) != crc:
        return None
    if run is not None and run_bits != run & RUN_MASK:
        return None
    flags, section = section_and_flags >> FLAGS_SHIFT, section_and_flags & _SECTION_MASK
    if flags & ~_FLAGS_KNOWN or section not in _SECTIONS:
        return None
    if flags & FLAG_MOVED and payload_bytes < ORIGIN_LSN_BYTES:
        return None
    return Record(lsn, section, kind, flags, epoch, generation << 32 | offset, (data[start:end],))
