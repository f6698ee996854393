"""What a node must know before it reads its journal: who it is, and how often it has started (C15, S6).

A file with two copies, 4,096 bytes apart, each within one sector. A change is written and synced to one copy,
then to the other, so that a crash or a damaged sector leaves at least one good copy; the one with the higher
sequence counts.

| at | type | field         |                                                                     |
|----|------|---------------|---------------------------------------------------------------------|
| 0  | 4s   | magic         | `HFNS`                                                              |
| 4  | u32  | crc           | CRC-32C of bytes 8..80                                              |
| 8  | u16  | version       | 1                                                                   |
| 10 | u8   | made          | 1: all files of the journal have been allocated                     |
| 11 | u8   | stop          | how the node stopped: 0 it runs or was cut off, 1 in good order     |
| 12 | u32  | segment_bytes | fixed for the life of the journal                                   |
| 16 | u64  | sequence      | one more for each change                                            |
| 24 | u64  | salt          | chosen once; seeds every checksum of the journal                    |
| 32 | u16  | site          |                                                                     |
| 34 | u16  | node          |                                                                     |
| 36 | u32  | run           | the start counter: part of every id, never reused                   |
| 40 | u64  | start_lsn     | the lsn that this run began with                                    |
| 48 | u32  | epoch         | the newest that this node has seen                                  |
| 52 |      |               | zeros                                                               |
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

import msgspec
from crc32c import crc32c

from holdfast.errors import JournalCorrupt, JournalMismatch, StorageMissing
from holdfast.journal.storage import Storage

NODE_STATE_NAME = "node-state"
_MAGIC = b"HFNS"
_VERSION = 1
_COPY = Struct("<4sIHBBIQQHHIQI28x")
_COPY_OFFSETS = (0, 4096)
_FILE_BYTES = 8192


class Stop(IntEnum):
    """How the node stopped the last time."""

    CUT_OFF = 0
    ORDERLY = 1


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    segment_bytes: int
    salt: int
    site: int
    node: int
    sequence: int = 1
    run: int = 0
    start_lsn: int = 1
    epoch: int = 0
    is_made: bool = False
    stop: Stop = Stop.CUT_OFF

    def pack(self) -> bytes:
        copy = _COPY.pack(
            _MAGIC,
            0,
            _VERSION,
            self.is_made,
            self.stop,
            self.segment_bytes,
            self.sequence,
            self.salt,
            self.site,
            self.node,
            self.run,
            self.start_lsn,
            self.epoch,
        )
        return _MAGIC + crc32c(copy[8:]).to_bytes(4, "little") + copy[8:]


def _parse(data: bytes) -> NodeState | None:
    """A copy, or None if these bytes are not whole. Raises `JournalMismatch` for a newer version."""
    if data[:4] != _MAGIC or crc32c(data[8:]) != int.from_bytes(data[4:8], "little"):
        return None
    _, _, version, made, stop, segment_bytes, sequence, salt, site, node, run, start_lsn, epoch = (
        _COPY.unpack(data)
    )
    if version != _VERSION:
        raise JournalMismatch(
            f"the journal has format version {version}, this Holdfast knows version {_VERSION}: use a newer one"
        )
    return NodeState(
        segment_bytes=segment_bytes,
        salt=salt,
        site=site,
        node=node,
        sequence=sequence,
        run=run,
        start_lsn=start_lsn,
        epoch=epoch,
        is_made=bool(made),
        stop=Stop(stop),
    )


def create_node_state(storage: Storage, state: NodeState) -> None:
    """The first file of a journal: with it, the journal exists."""
    storage.allocate(NODE_STATE_NAME, _FILE_BYTES, head=state.pack())


def read_node_state(storage: Storage) -> NodeState | None:
    """The newest good copy; None where there is no journal. Raises `JournalCorrupt`."""
    if NODE_STATE_NAME not in storage.names():
        return None
    copies = []
    for offset in _COPY_OFFSETS:
        try:
            copies.append(_parse(storage.read(NODE_STATE_NAME, offset, _COPY.size)))
        except StorageMissing:
            continue
    good = [state for state in copies if state is not None]
    if not good:
        raise JournalCorrupt(
            "both copies of the node's state are damaged", name=NODE_STATE_NAME, offset=0, lsn=0
        )
    return max(good, key=lambda state: state.sequence)


def write_node_state(storage: Storage, state: NodeState) -> None:
    """Write both copies, one after the other, each durable before the next is touched."""
    for offset in _COPY_OFFSETS:
        storage.write(NODE_STATE_NAME, offset, state.pack())
        storage.sync(NODE_STATE_NAME)
