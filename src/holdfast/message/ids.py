"""Message ids: who made it, in which of its lives, and the how-manieth it was (C15).

An id is an origin and a sequence. The origin names a site, a node of it, and the node's start counter, which
is made durable before the first id of a run is given: so a node that lost its memory of the last sequence
still never gives an id twice. No clock and no chance are in it, and only nodes make ids.

    packed, 16 bytes, big-endian, so that the order of the bytes is the order of the ids:
    | offset | type | field                                        |
    | 0      | u16  | site                                         |
    | 2      | u16  | node                                         |
    | 4      | u32  | start: how often this node has been started  |
    | 8      | u64  | sequence                                     |

    text, 33 characters, sorts as the ids do: the same in lowercase hex, with a dash after the origin.
"""

from __future__ import annotations

import re
import struct
from functools import lru_cache
from typing import Any

from msgspec import Struct

from holdfast.errors import LimitExceeded, UsageError

SITE_MAX = 0xFFFF
NODE_MAX = 0xFFFF
START_MAX = 0xFFFF_FFFF
SEQUENCE_MAX = 0xFFFF_FFFF_FFFF_FFFF

ID_BYTES = 16
ID_TEXT_CHARACTERS = 33

ORIGINS_REMEMBERED_MAX = 1024
"""Origins are unpacked for every batch that is read; a cluster has few of them."""

_PACKED = struct.Struct(">QQ")
_TEXT = re.compile("([0-9a-f]{16})-([0-9a-f]{16})")


class Origin(Struct, frozen=True, order=True, kw_only=True):
    """One run of one node. All zero stands for "no origin yet" in a batch, and is no origin."""

    site: int
    node: int
    start: int

    def __post_init__(self) -> None:
        _check_range("site", self.site, SITE_MAX)
        _check_range("node", self.node, NODE_MAX)
        _check_range("start", self.start, START_MAX)
        if not (self.site or self.node or self.start):
            raise UsageError("origin: site, node and start are all 0; count starts from 1")

    @property
    def packed(self) -> int:
        """The origin as one number below 2**64, never 0."""
        return self.site << 48 | self.node << 32 | self.start

    @staticmethod
    @lru_cache(maxsize=ORIGINS_REMEMBERED_MAX)
    def from_packed(packed: int) -> Origin:
        """The origin of which `packed` is the number. Raises UsageError for what is none."""
        if not 0 < packed <= SEQUENCE_MAX:
            raise UsageError("origin: a packed origin is a number from 1 to 2**64 - 1")
        return Origin(site=packed >> 48, node=packed >> 32 & NODE_MAX, start=packed & START_MAX)

    def __str__(self) -> str:
        return f"{self.packed:016x}"


class MessageId(Struct, frozen=True, order=True):
    """The id of one message, for ever. Ids of one origin are ordered as they were given."""

    origin: Origin
    sequence: int

    def to_bytes(self) -> bytes:
        """16 bytes whose order is the order of the ids."""
        _check_range("sequence", self.sequence, SEQUENCE_MAX)
        return _PACKED.pack(self.origin.packed, self.sequence)

    @classmethod
    def from_bytes(cls, packed: bytes | bytearray | memoryview) -> MessageId:
        """The id of which `packed` is the 16 bytes. Raises UsageError for what is none."""
        if len(packed) != ID_BYTES:
            raise UsageError(f"message id: expected {ID_BYTES} bytes, got {len(packed)}")
        origin, sequence = _PACKED.unpack(packed)
        return cls(Origin.from_packed(origin), sequence)

    @classmethod
    def parse(cls, text: str) -> MessageId:
        """The id that was printed as `text`, to the letter. Raises UsageError for anything else."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise UsageError(
                f"message id: {text[:64]!r} is none; expected 16 lowercase hex digits, a dash, and 16 more"
            )
        return cls(Origin.from_packed(int(match[1], 16)), int(match[2], 16))

    def __str__(self) -> str:
        return f"{self.origin}-{self.sequence:016x}"


class IdSource:
    """Gives out the sequences of one origin, in ranges, none of them twice.

    The caller has made the start counter of `origin` durable before it asks for the first range.
    """

    __slots__ = ("_next_sequence", "_origin")

    def __init__(self, origin: Origin, next_sequence: int = 0) -> None:
        _check_range("next_sequence", next_sequence, SEQUENCE_MAX)
        self._origin = origin
        self._next_sequence = next_sequence

    @property
    def origin(self) -> Origin:
        return self._origin

    @property
    def next_sequence(self) -> int:
        """The first sequence that has not been given out."""
        return self._next_sequence

    def take(self, count: int) -> int:
        """Take `count` sequences; the first of them is returned, the others follow it without a gap."""
        if count < 1:
            raise UsageError("count: take at least one id")
        first = self._next_sequence
        if first + count > SEQUENCE_MAX:
            raise LimitExceeded("SEQUENCE_MAX", value=first + count, maximum=SEQUENCE_MAX)
        self._next_sequence = first + count
        return first


def _check_range(field: str, value: Any, maximum: int) -> None:
    if type(value) is not int or not 0 <= value <= maximum:
        raise UsageError(f"{field}: not a whole number from 0 to {maximum}")
