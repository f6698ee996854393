"""The payloads of the records that sessions and transactions are built from.

| kind                        | payload                                                                   |
|-----------------------------|---------------------------------------------------------------------------|
| SESSION                     | msgpack [number, epoch, lifetime_s]: opened, or resumed with a new epoch   |
| SESSION_END                 | msgpack [number]                                                          |
| TRANSACTION_BATCH           | u64 session, u32 transaction, u32 0, then as BATCH                        |
| TRANSACTION_ACKNOWLEDGEMENT | u64 session, u32 transaction, u32 0, then as ACKNOWLEDGEMENT              |
| COMMIT, ROLLBACK            | u64 session, u32 transaction, u32 0                                       |
"""

from __future__ import annotations

from struct import Struct

import msgspec

from holdfast.journal.storage import Buffer

_TRANSACTION = Struct("<QII")
TRANSACTION_PREFIX_BYTES = _TRANSACTION.size


class SessionRecord(msgspec.Struct, frozen=True, array_like=True):
    number: int
    epoch: int
    lifetime_s: int


class SessionEndRecord(msgspec.Struct, frozen=True, array_like=True):
    number: int


class TransactionKey(msgspec.Struct, frozen=True):
    """A transaction by the session that it belongs to."""

    session: int
    number: int


def pack_transaction(key: TransactionKey) -> bytes:
    return _TRANSACTION.pack(key.session, key.number, 0)


def parse_transaction(payload: Buffer) -> tuple[TransactionKey, memoryview]:
    """Which transaction, and what follows."""
    session, number, _ = _TRANSACTION.unpack_from(payload)
    return TransactionKey(session, number), memoryview(payload)[TRANSACTION_PREFIX_BYTES:]
