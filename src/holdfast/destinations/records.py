"""The payloads of the records that destinations are built from.

| kind             | payload                                                                              |
|------------------|--------------------------------------------------------------------------------------|
| DESTINATION      | msgpack [number, name, kind]                                                         |
| SUBSCRIPTION     | msgpack [number, destination, name, is_durable, from_start]                          |
| SUBSCRIPTION_END | msgpack [number]                                                                     |
| BATCH            | u32 destination, u32 run count, then for each run: u64 session, u64 first sequence,  |
|                  | u32 rows, u32 0; then the batch                                                      |
| ACKNOWLEDGEMENT  | u32 subscription, u32 0, then ranges: u64 first, u64 last position                   |
| RETURN           | the same: these were delivered and came back                                         |
| DELIVERED        | for each subscription: u32 number, u32 0, u64 position: delivered before that        |

A run says who sent which rows, so that a resend is recognised (decision 15). Session 0 is the node itself; a first
sequence of 0 stands for none, which is what sends in a transaction have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct

import msgspec

from holdfast.journal.storage import Buffer

_BATCH = Struct("<II")
_RUN = Struct("<QQII")
_SUBSCRIPTION = Struct("<II")
_RANGE = Struct("<QQ")
_MARK = Struct("<IIQ")


class Run(msgspec.Struct, frozen=True):
    """Rows of a batch that one session sent, one after another."""

    session: int
    first_sequence: int
    row_count: int

    @property
    def last_sequence(self) -> int:
        return self.first_sequence + self.row_count - 1


class DestinationRecord(msgspec.Struct, frozen=True, array_like=True):
    number: int
    name: str
    kind: str


class SubscriptionRecord(msgspec.Struct, frozen=True, array_like=True):
    number: int
    destination: int
    name: str
    is_durable: bool
    from_start: bool


class SubscriptionEndRecord(msgspec.Struct, frozen=True, array_like=True):
    number: int


class BatchRecord(msgspec.Struct, frozen=True):
    destination: int
    runs: tuple[Run, ...]
    batch: memoryview

    @property
    def row_count(self) -> int:
        return sum(run.row_count for run in self.runs)


def pack_batch_prefix(destination: int, runs: Sequence[Run]) -> bytes:
    """What goes before the batch."""
    head = _BATCH.pack(destination, len(runs))
    return head + b"".join(_RUN.pack(run.session, run.first_sequence, run.row_count, 0) for run in runs)


def parse_batch(payload: Buffer) -> BatchRecord:
    view = memoryview(payload)
    destination, run_count = _BATCH.unpack_from(view)
    end = _BATCH.size + run_count * _RUN.size
    runs = tuple(
        Run(session, first, rows) for session, first, rows, _ in _RUN.iter_unpack(view[_BATCH.size : end])
    )
    return BatchRecord(destination, runs, view[end:])


def pack_ranges(subscription: int, ranges: Iterable[tuple[int, int]]) -> bytes:
    return _SUBSCRIPTION.pack(subscription, 0) + b"".join(_RANGE.pack(first, last) for first, last in ranges)


def parse_ranges(payload: Buffer) -> tuple[int, list[tuple[int, int]]]:
    view = memoryview(payload)
    subscription, _ = _SUBSCRIPTION.unpack_from(view)
    return subscription, list(_RANGE.iter_unpack(view[_SUBSCRIPTION.size :]))


def pack_marks(marks: Iterable[tuple[int, int]]) -> bytes:
    return b"".join(_MARK.pack(subscription, 0, position) for subscription, position in marks)


def parse_marks(payload: Buffer) -> list[tuple[int, int]]:
    return [(subscription, position) for subscription, _, position in _MARK.iter_unpack(payload)]
