"""What one connection may make the node hold. Every limit pauses its own connection, and no other."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.journal.config import JournalConfig
from holdfast.sessions.records import TRANSACTION_PREFIX_BYTES
from holdfast.wire import FRAME_BYTES_MAX
from holdfast.wire.layout import HEADER_BYTES, SEND

KIB = 1024
MIB = 1024 * KIB

HELLO_FRAME_BYTES_MAX: Final = 64 * KIB
"""Before a peer has said who it is: three texts of the longest, in whatever script, fit."""
BORROW_BYTES_MIN: Final = 64 * KIB
"""A batch below this is copied, lest a small one in the cache keep all of a large read in memory."""
GATHER_BYTES_MAX: Final = 32 * KIB
GATHER_ROWS_MAX: Final = 128
"""Single sends that come in one piece become one record, up to this. More would gain little, and a message that
nobody confirms keeps its whole record."""
GATHER_ROW_BYTES: Final = 128
"""What a row may take more in a batch of many than alone: offsets, and columns that only others have."""
KEPT_FRAME_BYTES: Final = 256
"""What a kept frame counts beside its batch: the objects around it."""
BATCH_PREFIX_BYTES: Final = 32
"""What a record has before its batch, when one session sent it."""


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one connection."""

    # The longest frame; told in Welcome. What fits in it fits in a record of the journal.
    frame_bytes_max: int = FRAME_BYTES_MAX
    # Output that waits to be written. Above it there are no more deliveries, and no more requests are looked at.
    output_bytes_max: int = 1 * MIB
    # Frames that wait because the journal is full. Above it nothing more is read.
    kept_bytes_max: int = 1 * MIB
    # Sessions at once: each is a record in the journal, and has its place in every checkpoint.
    channels_max: int = 256
    # Requests that are under way: an answer to each is remembered.
    requests_max: int = 4096
    # Sends of one session that wait for the disk, resends among them, which take no room in the journal.
    unconfirmed_max: int = 65_536
    # Credit of one consumer: what it has in flight is remembered, and counted when it comes back.
    credit_max: int = 100_000
    # Browses at once; each has one read of the disk under way at the most.
    browses_max: int = 8


def frame_bytes_max(config: JournalConfig) -> int:
    """The longest frame whose batch still fits in a record, in a transaction too."""
    batch_bytes_max = config.record_bytes_max - BATCH_PREFIX_BYTES - TRANSACTION_PREFIX_BYTES
    return min(FRAME_BYTES_MAX, batch_bytes_max + HEADER_BYTES + SEND.size)
