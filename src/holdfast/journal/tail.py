"""The end of the log: where records are gathered into groups, in memory allocated beforehand (E3).

Two buffers take turns: one gathers while the other is written and synced. A record is encoded in place. When a
segment is full, the group goes on in the next one, as a part of its own with its own headers; group and segment
headers are filled in when the group is sealed, because they attest what is durable by then.

Invariant: the parts of a buffer lie back to back, each goes to one segment in one write, and every part but the
first starts a segment.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from crc32c import crc32c

from holdfast.journal.config import JournalConfig
from holdfast.journal.format import (
    CRC,
    FLAGS_SHIFT,
    GROUP_HEADER_BYTES,
    RECORD,
    RECORD_HEADER_BYTES,
    RUN_MASK,
    SEGMENT_HEADER_BYTES,
    GroupHeader,
    SegmentHeader,
    generation_seed,
)
from holdfast.journal.storage import Buffer

_PADDING = bytes(8)


class Part(msgspec.Struct):
    """What of a group goes to one segment. Buffer positions; `offset` is the place in the segment."""

    name: str
    generation: int
    offset: int
    start: int
    end: int
    first_lsn: int
    record_count: int = 0
    starts_segment: bool = False

    @property
    def header_bytes(self) -> int:
        return SEGMENT_HEADER_BYTES if self.starts_segment else 0


class GroupBuffer:
    """Memory for one group, and the parts that are in it."""

    __slots__ = ("data", "fill", "parts", "view")

    def __init__(self, size_bytes: int) -> None:
        self.data = bytearray(size_bytes)
        self.view = memoryview(self.data)
        self.fill = 0
        self.parts: list[Part] = []


class Tail:
    """Encodes records at the end of the log. Knows bytes and places, not what is allowed or what is live."""

    def __init__(self, config: JournalConfig, *, salt: int, run: int, epoch: int) -> None:
        self._config = config
        self._salt = salt
        self.run = run
        self._run_bits = run & RUN_MASK
        self.epoch = epoch
        self._gathering = GroupBuffer(config.group_bytes_max)
        self._spare: GroupBuffer | None = GroupBuffer(config.group_bytes_max)
        self._name = ""
        self._generation = 0
        self._offset = 0
        self._end = 0
        self._seed = 0
        self._part: Part | None = None
        self._fill_max = config.group_bytes_max - SEGMENT_HEADER_BYTES
        self._message_fill_max = self._fill_max - GROUP_HEADER_BYTES - config.group_reserve_bytes

    # -- where the log ends ------------------------------------------------------------------------------

    @property
    def position(self) -> tuple[int, int]:
        """Generation and offset where the next group would start."""
        return self._generation, self._offset

    @property
    def room_bytes(self) -> int:
        """What is left of the active segment for records and group headers."""
        room_bytes = self._end - self._offset
        return room_bytes if room_bytes > 0 else 0

    @property
    def gathered_bytes(self) -> int:
        return self._gathering.fill

    @property
    def is_empty(self) -> bool:
        return not self._gathering.parts

    def enter(self, name: str, generation: int, offset: int) -> None:
        """Go on in a segment: in the middle of it after recovery, or at its start (offset 0)."""
        self._name = name
        self._generation = generation
        self._offset = offset or SEGMENT_HEADER_BYTES
        self._end = SEGMENT_HEADER_BYTES + self._config.usable_bytes
        self._seed = generation_seed(self._salt, generation)
        self._part = None
        if not offset:
            self._open_part(first_lsn=0, starts_segment=True)

    def _open_part(self, *, first_lsn: int, starts_segment: bool) -> Part:
        buffer = self._gathering
        part = Part(
            self._name,
            self._generation,
            0 if starts_segment else self._offset,
            buffer.fill,
            buffer.fill,
            first_lsn,
            starts_segment=starts_segment,
        )
        buffer.parts.append(part)
        buffer.fill += part.header_bytes
        part.end = buffer.fill
        self._part = part
        return part

    # -- gathering ---------------------------------------------------------------------------------------

    def cost_bytes(self, record_size: int) -> int:
        """What a record adds to the group that is gathering: itself, and a group header if it is the first."""
        if self._part is not None and self._part.record_count:
            return record_size
        return record_size + GROUP_HEADER_BYTES

    def has_buffer_for(self, cost_bytes: int, *, keep_bytes: int) -> bool:
        return self._gathering.fill + cost_bytes + keep_bytes <= self._fill_max

    def has_group_room(self, record_size: int) -> bool:
        """Whether a message fits behind others of its group, in the segment and in the buffer less its reserve."""
        part = self._part
        return (
            part is not None
            and part.record_count > 0
            and self._offset + record_size <= self._end
            and self._gathering.fill + record_size <= self._message_fill_max
        )

    def put(
        self,
        lsn: int,
        section: int,
        kind: int,
        flags: int,
        parts: Sequence[Buffer],
        payload_bytes: int,
        size: int,
    ) -> int:
        """Encode one record, for which there is room. Its place."""
        buffer = self._gathering
        part = self._part
        if part is None:
            part = self._open_part(first_lsn=lsn, starts_segment=False)
        if not part.record_count:
            part.first_lsn = lsn
            buffer.fill += GROUP_HEADER_BYTES
            self._offset += GROUP_HEADER_BYTES
        at = buffer.fill
        data = buffer.data
        RECORD.pack_into(
            data, at, 0, payload_bytes, flags << FLAGS_SHIFT | section, kind, self._run_bits, self.epoch, lsn
        )
        end = at + RECORD_HEADER_BYTES
        for piece in parts:
            start, end = end, end + len(piece)
            data[start:end] = piece
        crc = crc32c(buffer.view[at + 4 : end], self._seed)
        CRC.pack_into(data, at, crc)
        stop = at + size
        if end < stop:
            data[end:stop] = _PADDING[: stop - end]
        place = self._generation << 32 | self._offset
        buffer.fill = part.end = stop
        self._offset += size
        part.record_count += 1
        return place

    def put_marker(self, *, next_lsn: int) -> bool:
        """A group without records, which only attests. False if the segment has no room even for that."""
        if self._offset + GROUP_HEADER_BYTES > self._config.segment_bytes:
            return False
        part = self._part or self._open_part(first_lsn=next_lsn, starts_segment=False)
        part.first_lsn = next_lsn
        self._gathering.fill += GROUP_HEADER_BYTES
        self._offset += GROUP_HEADER_BYTES
        part.end = self._gathering.fill
        return True

    # -- sealing -----------------------------------------------------------------------------------------

    def seal(self, *, durable_lsn: int) -> GroupBuffer:
        """Finish the headers and hand the buffer over to be written; gathering goes on in the spare one."""
        buffer = self._gathering
        assert self._spare is not None, "one group at a time is written"
        for part in buffer.parts:
            self._fill_headers(buffer, part, durable_lsn)
        self._gathering, self._spare = self._spare, None
        self._part = None
        return buffer

    def _fill_headers(self, buffer: GroupBuffer, part: Part, durable_lsn: int) -> None:
        start = part.start
        if part.starts_segment:
            header = SegmentHeader(
                self._config.segment_bytes, part.generation, part.first_lsn, self.run, durable_lsn
            )
            buffer.view[start : start + SEGMENT_HEADER_BYTES] = header.pack(self._salt)
        at = start + part.header_bytes
        group = GroupHeader(
            offset=part.offset + part.header_bytes,
            run=self.run,
            record_count=part.record_count,
            first_lsn=part.first_lsn,
            durable_lsn=durable_lsn,
            group_bytes=part.end - at,
        )
        group.pack_into(buffer.data, at, generation_seed(self._salt, part.generation))

    def recycle(self, buffer: GroupBuffer) -> None:
        """The buffer was written; it may gather again."""
        buffer.fill = 0
        buffer.parts = []
        self._spare = buffer

    @property
    def is_writing(self) -> bool:
        return self._spare is None
