"""Inspection: what a journal has on the disk, as values to be shown. It changes nothing.

What is live is not in any file but follows from the records, so inspection rehearses recovery in memory
(`rehearsal`). To find damage is the task of `verification`; inspection shows what can be read.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import msgspec

from holdfast.errors import JournalCorrupt, StorageError
from holdfast.journal.boot import BOOT_NAME, BootSection
from holdfast.journal.checkpoint import CHECKPOINT_NAMES, Checkpoint, read_checkpoint
from holdfast.journal.config import CHECKPOINT_HEADER_BYTES, CHECKPOINT_SEGMENT_BYTES
from holdfast.journal.held import HeldRecords
from holdfast.journal.inspection.file_checks import BOOT_ENTRIES_OFFSET, is_empty_slot, node_state_copies
from holdfast.journal.inspection.read_only import ReadOnlyView
from holdfast.journal.inspection.rehearsal import Rehearsal, bound_of, look
from holdfast.journal.inspection.survey import survey_segment
from holdfast.journal.journal import State
from holdfast.journal.node_state import Stop
from holdfast.journal.persistent_memory import Confirmations
from holdfast.journal.scan import load_segment
from holdfast.journal.segments import is_segment
from holdfast.journal.storage import Storage


class SlotState(StrEnum):
    WHOLE = "whole"
    EMPTY = "empty"
    NOT_WHOLE = "not whole"
    MISSING = "missing"


class SegmentState(StrEnum):
    """`REUSABLE`: it was used, and nothing in it is needed any more."""

    UNUSED = "unused"
    IN_USE = "in use"
    REUSABLE = "reusable"
    DAMAGED = "damaged"


class CheckpointSlot(msgspec.Struct, frozen=True, kw_only=True):
    """One slot. The counts are 0 if it is not whole."""

    name: str
    state: SlotState
    is_newest: bool = False
    size_bytes: int = 0
    used_bytes: int = 0
    number: int = 0
    lsn: int = 0
    scan_generation: int = 0
    scan_offset: int = 0
    boot_sequence: int = 0
    segment_count: int = 0
    held_records: int = 0
    held_bytes: int = 0
    state_bytes: int = 0


class BootEvent(msgspec.Struct, frozen=True, kw_only=True):
    sequence: int
    payload_bytes: int


class BootContents(msgspec.Struct, frozen=True, kw_only=True):
    """The boot section and the events in it. `problem` says why it cannot be read."""

    size_bytes: int = 0
    events: tuple[BootEvent, ...] = ()
    problem: str | None = None


class SegmentSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One segment file. The lsns are None if it holds no record."""

    name: str
    state: SegmentState
    size_bytes: int
    generation: int = 0
    run: int = 0
    base_lsn: int = 0
    first_lsn: int | None = None
    last_lsn: int | None = None
    groups: int = 0
    records: int = 0
    used_bytes: int = 0
    live_records: int = 0
    live_bytes: int = 0


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """A journal at a glance. `problem` is why the next start would refuse it; None if it would not."""

    site: int
    node: int
    run: int
    start_lsn: int
    epoch: int
    segment_bytes: int
    is_made: bool
    stopped_in_good_order: bool
    node_state_copies_whole: int
    last_lsn: int
    attested_lsn: int
    held_records: int
    held_bytes: int
    is_torn: bool
    checkpoints: tuple[CheckpointSlot, ...]
    boot: BootContents
    segments: tuple[SegmentSummary, ...]
    problem: str | None


def inspect(storage: Storage, *, make_state: Callable[[], State] = Confirmations) -> Inspection:
    """Look at a whole journal. Raises `UsageError` if there is none, `JournalCorrupt`, `JournalMismatch` and
    `StorageError` if not even the node's state can be read."""
    view, rehearsal = look(storage, make_state)
    node_state = rehearsal.node_state
    segments, attested_lsn = _segments(view, rehearsal)
    journal, end = rehearsal.journal, rehearsal.end
    last_lsn = end.next_lsn - 1 if end is not None else max((s.last_lsn or 0 for s in segments), default=0)
    problem = str(rehearsal.problem) if rehearsal.problem is not None else None
    return Inspection(
        site=node_state.site,
        node=node_state.node,
        run=node_state.run,
        start_lsn=node_state.start_lsn,
        epoch=node_state.epoch,
        segment_bytes=node_state.segment_bytes,
        is_made=node_state.is_made,
        stopped_in_good_order=node_state.stop is Stop.ORDERLY,
        node_state_copies_whole=sum(copy is not None for copy in node_state_copies(view)),
        last_lsn=last_lsn,
        attested_lsn=attested_lsn,
        held_records=journal.held.count if journal is not None else 0,
        held_bytes=sum(rehearsal.live_bytes.values()),
        is_torn=end is not None and end.is_torn,
        checkpoints=tuple(_slot(view, name, rehearsal) for name in CHECKPOINT_NAMES),
        boot=_boot(view, salt=node_state.salt),
        segments=segments,
        problem=problem if node_state.is_made else None,
    )


# -- the files -----------------------------------------------------------------------------------------------


def _slot(view: ReadOnlyView, name: str, rehearsal: Rehearsal) -> CheckpointSlot:
    if name not in view.names():
        return CheckpointSlot(name=name, state=SlotState.MISSING)
    size_bytes = view.size(name)
    checkpoint = read_checkpoint(view, name, salt=rehearsal.node_state.salt)
    if checkpoint is None:
        state = SlotState.EMPTY if is_empty_slot(view, name) else SlotState.NOT_WHOLE
        return CheckpointSlot(name=name, state=state, size_bytes=size_bytes)
    newest = rehearsal.checkpoint
    segment_count, held_bytes = len(checkpoint.segments), sum(map(len, checkpoint.held))
    table_bytes = CHECKPOINT_HEADER_BYTES + segment_count * CHECKPOINT_SEGMENT_BYTES
    return CheckpointSlot(
        name=name,
        state=SlotState.WHOLE,
        is_newest=newest is not None and newest.number == checkpoint.number,
        size_bytes=size_bytes,
        used_bytes=table_bytes + held_bytes + len(checkpoint.state),
        number=checkpoint.number,
        lsn=checkpoint.lsn,
        scan_generation=checkpoint.scan_generation,
        scan_offset=checkpoint.scan_offset,
        boot_sequence=checkpoint.boot_sequence,
        segment_count=segment_count,
        held_records=_held_count(checkpoint),
        held_bytes=held_bytes,
        state_bytes=len(checkpoint.state),
    )


def _held_count(checkpoint: Checkpoint) -> int:
    held = HeldRecords()
    held.restore(memoryview(b"".join(checkpoint.held)))
    return held.count


def _boot(view: ReadOnlyView, *, salt: int) -> BootContents:
    try:
        if view.size(BOOT_NAME) < BOOT_ENTRIES_OFFSET:
            return BootContents(problem="the boot section ends within its header")
        boot = BootSection(view, salt=salt)
    except (JournalCorrupt, StorageError) as error:
        return BootContents(problem=str(error))
    events = tuple(
        BootEvent(sequence=sequence, payload_bytes=len(payload)) for sequence, payload in boot.entries
    )
    return BootContents(size_bytes=view.size(BOOT_NAME), events=events)


def _segments(view: ReadOnlyView, rehearsal: Rehearsal) -> tuple[tuple[SegmentSummary, ...], int]:
    """Every segment file by name, and the highest lsn that anything attests."""
    catalogue, bases = rehearsal.catalogue, rehearsal.bases()
    generations = {name: generation for generation, (name, _) in catalogue.by_generation.items()}
    attested_lsn = rehearsal.checkpoint.lsn if rehearsal.checkpoint is not None else 0
    summaries = []
    for name in filter(is_segment, view.names()):
        size_bytes = view.size(name)
        if name not in generations:
            state = SegmentState.UNUSED if name in catalogue.unused else SegmentState.DAMAGED
            summaries.append(SegmentSummary(name=name, state=state, size_bytes=size_bytes))
            continue
        summary, attests_lsn = _used_segment(view, generations[name], rehearsal, bases)
        summaries.append(summary)
        if summary.state is SegmentState.IN_USE:
            attested_lsn = max(attested_lsn, attests_lsn)
    return tuple(summaries), attested_lsn


def _used_segment(
    view: ReadOnlyView, generation: int, rehearsal: Rehearsal, bases: dict[int, int]
) -> tuple[SegmentSummary, int]:
    name, header = rehearsal.catalogue.by_generation[generation]
    image = load_segment(view, name, header, salt=rehearsal.node_state.salt)
    survey = survey_segment(image, rehearsal.lineage, bound_of(generation, bases))
    has_records = survey.next_lsn > header.base_lsn
    summary = SegmentSummary(
        name=name,
        state=SegmentState.IN_USE if rehearsal.is_in_use(generation) else SegmentState.REUSABLE,
        size_bytes=view.size(name),
        generation=generation,
        run=header.run,
        base_lsn=header.base_lsn,
        first_lsn=header.base_lsn if has_records else None,
        last_lsn=survey.next_lsn - 1 if has_records else None,
        groups=survey.group_count,
        records=survey.record_count,
        used_bytes=survey.end_offset,
        live_records=len(rehearsal.held.get(generation, {})),
        live_bytes=rehearsal.live_bytes.get(generation, 0),
    )
    return summary, survey.attested_lsn
