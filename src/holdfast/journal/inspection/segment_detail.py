"""Inspection of one segment: its groups and records, one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from holdfast.errors import BatchError, UsageError
from holdfast.journal.format import (
    FLAG_HELD,
    FLAG_MOVED,
    ORIGIN_LSN_BYTES,
    SEGMENT_HEADER_BYTES,
    GroupHeader,
    Kind,
    Record,
    Section,
    offset_of,
)
from holdfast.journal.inspection.rehearsal import look
from holdfast.journal.journal import State
from holdfast.journal.persistent_memory import Confirmations
from holdfast.journal.scan import Walk, load_segment
from holdfast.journal.segments import is_segment
from holdfast.journal.storage import Buffer, Storage
from holdfast.message import Batch

# Types shown for one batch; a batch of thousands of types is not better understood by all of them.
_TYPES_SHOWN_MAX = 4


class RecordDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One record. `rows` and `types` are those of its batch, if its payload is one."""

    offset: int
    lsn: int
    origin_lsn: int
    section: str
    kind: str
    is_held: bool
    is_moved: bool
    is_live: bool
    epoch: int
    payload_bytes: int
    rows: int | None = None
    types: tuple[str, ...] = ()


class GroupDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One group commit, or the part of it in this segment; without records, a marker."""

    offset: int
    run: int
    first_lsn: int
    record_count: int
    durable_lsn: int
    group_bytes: int
    records: tuple[RecordDetail, ...]


def inspect_segment(
    storage: Storage, name: str, *, make_state: Callable[[], State] = Confirmations
) -> Iterator[GroupDetail]:
    """The groups of one segment, up to the first that is not whole. Raises `UsageError` for a wrong name."""
    view, rehearsal = look(storage, make_state)
    if name not in filter(is_segment, view.names()):
        raise UsageError(f"there is no segment {name!r} in this journal")
    if name in rehearsal.catalogue.unused:
        return
    generations = {found: generation for generation, (found, _) in rehearsal.catalogue.by_generation.items()}
    if name not in generations:
        raise UsageError(
            f"the header of {name} is damaged: its records cannot be shown. Run `holdfast journal verify`."
        )
    generation = generations[name]
    header = rehearsal.catalogue.by_generation[generation][1]
    image = load_segment(view, name, header, salt=rehearsal.node_state.salt)
    offset, lsn = SEGMENT_HEADER_BYTES, header.base_lsn
    walk = Walk(image, rehearsal.lineage, offset=offset, next_lsn=lsn, newest_run=header.run)
    live = rehearsal.held.get(generation, {})
    for group, records in walk.groups():
        yield _group_detail(group, records, live)


def _group_detail(group: GroupHeader, records: list[Record], live: dict[int, int]) -> GroupDetail:
    return GroupDetail(
        offset=group.offset,
        run=group.run,
        first_lsn=group.first_lsn,
        record_count=group.record_count,
        durable_lsn=group.durable_lsn,
        group_bytes=group.group_bytes,
        records=tuple(_record_detail(record, live) for record in records),
    )


def _record_detail(record: Record, live: dict[int, int]) -> RecordDetail:
    offset, payload = offset_of(record.place), memoryview(record.payload)
    is_moved = bool(record.flags & FLAG_MOVED)
    origin_lsn = record.lsn
    if is_moved:
        origin_lsn = int.from_bytes(payload[:ORIGIN_LSN_BYTES], "little")
        payload = payload[ORIGIN_LSN_BYTES:]
    rows, types = _batch(record.kind, payload)
    return RecordDetail(
        offset=offset,
        lsn=record.lsn,
        origin_lsn=origin_lsn,
        section=Section(record.section).name.lower(),
        kind=kind_name(record.kind),
        is_held=bool(record.flags & FLAG_HELD),
        is_moved=is_moved,
        is_live=offset in live,
        epoch=record.epoch,
        payload_bytes=record.payload_bytes,
        rows=rows,
        types=types,
    )


def kind_name(kind: int) -> str:
    """The name of a kind; its number if it belongs to someone whom this module does not know."""
    return Kind(kind).name.lower() if kind in frozenset(Kind) else str(kind)


def _batch(kind: int, payload: Buffer) -> tuple[int | None, tuple[str, ...]]:
    """Rows and types of a message; a payload that is no batch has none."""
    if kind not in (Kind.MESSAGE, Kind.SYSTEM_EVENT):
        return None, ()
    try:
        batch = Batch.parse(payload).validate()
    except BatchError:
        return None, ()
    types = dict.fromkeys(batch.column("type").to_texts())
    return len(batch), tuple(types)[:_TYPES_SHOWN_MAX]
