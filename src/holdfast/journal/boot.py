"""The boot section: room, allocated beforehand, for the node's own events while it still boots (E5, decision 13).

What happens before the log can be written (a torn tail was cut, a disk is slow, a file is damaged) is recorded
here at once. When the journal is ready, the events are appended to the log, before anything newer, and the
section is cleared. Each event has a sequence; the log remembers up to which it has them, so that a crash between
the two steps repeats none.

The file: a header in its first sector, entries from byte 512 on.

| at | type | field             |                                                                 |
|----|------|-------------------|-----------------------------------------------------------------|
| 0  | 4s   | magic             | `HFBT`                                                          |
| 4  | u32  | crc               | CRC-32C of bytes 8..32                                          |
| 8  | u64  | cycle             | one more each time that the section is cleared                  |
| 16 | u64  | first_sequence    | of the first entry in this cycle                                |
| 24 | u64  | attested_sequence | entries up to here were durable when this was written           |

Entry: u32 CRC-32C of the rest of it, seeded with salt and cycle; u32 payload_bytes; u64 sequence; payload; zeros
up to a multiple of 8.
"""

from __future__ import annotations

from struct import Struct

from crc32c import crc32c

from holdfast.errors import JournalCorrupt
from holdfast.journal.format import aligned, generation_seed
from holdfast.journal.storage import Buffer, Storage

BOOT_NAME = "boot"
# Small enough for the smallest record that a journal may be configured for.
BOOT_EVENT_BYTES_MAX = 1000
_MAGIC = b"HFBT"
_HEADER = Struct("<4sIQQQ")
_ENTRY = Struct("<IIQ")
_ENTRIES_OFFSET = 512


def _pack_header(cycle: int, *, first_sequence: int, attested_sequence: int) -> bytes:
    tail = _HEADER.pack(_MAGIC, 0, cycle, first_sequence, attested_sequence)[8:]
    return _MAGIC + crc32c(tail).to_bytes(4, "little") + tail


class BootSection:
    """Events of the node itself, recorded before its journal is ready."""

    def __init__(self, storage: Storage, *, salt: int) -> None:
        self._storage = storage
        self._salt = salt
        self._size_bytes = storage.size(BOOT_NAME)
        self._cycle = 0
        self._first_sequence = 1
        self._end = _ENTRIES_OFFSET
        self.next_sequence = 1
        self.unrecorded = 0
        self.entries: list[tuple[int, bytes]] = []
        self._read()

    @staticmethod
    def create(storage: Storage, size_bytes: int) -> None:
        storage.allocate(BOOT_NAME, size_bytes, head=_pack_header(1, first_sequence=1, attested_sequence=0))

    def _read(self) -> None:
        storage = self._storage
        if self._size_bytes < _ENTRIES_OFFSET:
            raise JournalCorrupt(
                "the boot section is cut short", name=BOOT_NAME, offset=self._size_bytes, lsn=0
            )
        storage.settle(BOOT_NAME)
        data = storage.read(BOOT_NAME, 0, self._size_bytes)
        magic, crc, self._cycle, self._first_sequence, attested_sequence = _HEADER.unpack_from(data)
        self.next_sequence = self._first_sequence
        if magic != _MAGIC or crc32c(data[8 : _HEADER.size]) != crc:
            raise JournalCorrupt("the header of the boot section is damaged", name=BOOT_NAME, offset=0, lsn=0)
        seed = generation_seed(self._salt, self._cycle)
        while self._end + _ENTRY.size <= len(data):
            crc, payload_bytes, sequence = _ENTRY.unpack_from(data, self._end)
            end = self._end + _ENTRY.size + payload_bytes
            if end > len(data) or sequence != self.next_sequence:
                break
            if crc32c(data[self._end + 4 : end], seed) != crc:
                break
            self.entries.append((sequence, data[self._end + _ENTRY.size : end]))
            self._end = aligned(end)
            self.next_sequence += 1
        if self.next_sequence <= attested_sequence:
            raise JournalCorrupt(
                f"event {self.next_sequence} of the boot section is damaged",
                name=BOOT_NAME,
                offset=self._end,
                lsn=0,
            )

    def record(self, payload: Buffer) -> bool:
        """Record an event, durably. False if the section is full: the event is counted in `unrecorded`."""
        end = self._end + _ENTRY.size + len(payload)
        if end > self._size_bytes or len(payload) > BOOT_EVENT_BYTES_MAX:
            self.unrecorded += 1
            return False
        entry = _ENTRY.pack(0, len(payload), self.next_sequence)[4:] + bytes(payload)
        crc = crc32c(entry, generation_seed(self._salt, self._cycle))
        self._write_header(attested_sequence=self.next_sequence - 1)
        self._storage.write(BOOT_NAME, self._end, crc.to_bytes(4, "little") + entry)
        self._storage.sync(BOOT_NAME)
        self.entries.append((self.next_sequence, bytes(payload)))
        self._end = aligned(end)
        self.next_sequence += 1
        return True

    def clear(self) -> None:
        """Everything in it is in the log now, durably: start the next cycle."""
        self._cycle += 1
        self._first_sequence = self.next_sequence
        self._write_header(attested_sequence=self.next_sequence - 1)
        self._storage.sync(BOOT_NAME)
        self.entries = []
        self._end = _ENTRIES_OFFSET

    def _write_header(self, *, attested_sequence: int) -> None:
        header = _pack_header(
            self._cycle, first_sequence=self._first_sequence, attested_sequence=attested_sequence
        )
        self._storage.write(BOOT_NAME, 0, header)
