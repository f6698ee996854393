"""The tables and sentences of `holdfast journal`, for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from holdfast.cli.output import console, plain, table
from holdfast.journal.inspection import (
    CheckpointSlot,
    Finding,
    GroupDetail,
    Inspection,
    RecordDetail,
    SegmentState,
    SegmentSummary,
    Severity,
)

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow"}


def print_inspection(directory: Path, inspection: Inspection, holder: int | None) -> None:
    out = console()
    _print_identity(out, directory, inspection, holder)
    checkpoints = table(
        "Checkpoints",
        *("slot", "state", "number", "lsn", "recovery starts at", "held", "segments", "bytes", "of"),
        right=frozenset({"number", "lsn", "held", "segments", "bytes", "of"}),
    )
    for slot in inspection.checkpoints:
        checkpoints.add_row(*map(plain, _slot_row(slot)))
    out.print(checkpoints)
    segments = table(
        "Segments",
        *("file", "state", "generation", "lsns", "groups", "records", "used bytes", "live", "live bytes"),
        right=frozenset({"generation", "lsns", "groups", "records", "used bytes", "live", "live bytes"}),
    )
    for segment in inspection.segments:
        segments.add_row(*map(plain, _segment_row(segment)))
    out.print(segments)
    _print_summary(out, inspection)


def _print_identity(out: Console, directory: Path, inspection: Inspection, holder: int | None) -> None:
    if holder is not None:
        state = f"in use by process {holder}; what is shown is a moment of it"
    elif inspection.stopped_in_good_order:
        state = "stopped in good order"
    elif not inspection.is_made:
        state = "not made completely yet; the next start goes on with it"
    else:
        state = "cut off, or in use by a process that cannot be seen from here"
    rows = {
        "journal": directory,
        "node": f"{inspection.node} of site {inspection.site}, epoch {inspection.epoch}",
        "starts": f"{inspection.run}, the last from lsn {inspection.start_lsn:,} on",
        "state": state,
        "log": f"lsn {inspection.last_lsn:,} is the last, {inspection.attested_lsn:,} is attested",
        "held": f"{inspection.held_records:,} records, {inspection.held_bytes:,} bytes",
        "boot section": _boot_row(inspection),
        "node-state": f"{inspection.node_state_copies_whole} of 2 copies whole",
    }
    for name, value in rows.items():
        out.print(plain(f"{name + ':':<14} {value}"))


def _boot_row(inspection: Inspection) -> str:
    boot = inspection.boot
    if boot.problem is not None:
        return boot.problem
    if not boot.events:
        return "no events"
    total_bytes = sum(event.payload_bytes for event in boot.events)
    first, last = boot.events[0].sequence, boot.events[-1].sequence
    return f"{len(boot.events)} events, {first} to {last}, {total_bytes:,} bytes"


def _slot_row(slot: CheckpointSlot) -> Sequence[object]:
    if not slot.used_bytes:
        return slot.name, slot.state, "", "", "", "", "", "", slot.size_bytes
    state = f"{slot.state}, newest" if slot.is_newest else slot.state
    start = f"generation {slot.scan_generation}, byte {slot.scan_offset}"
    counts = (slot.held_records, slot.segment_count, slot.used_bytes, slot.size_bytes)
    return slot.name, state, slot.number, slot.lsn, start, *counts


def _segment_row(segment: SegmentSummary) -> Sequence[object]:
    if not segment.generation:
        return segment.name, segment.state, "", "", "", "", "", "", ""
    lsns = "" if segment.first_lsn is None else f"{segment.first_lsn:,} - {segment.last_lsn:,}"
    counts = (segment.groups, segment.records, segment.used_bytes, segment.live_records, segment.live_bytes)
    return segment.name, segment.state, segment.generation, lsns, *counts


def _print_summary(out: Console, inspection: Inspection) -> None:
    count = dict.fromkeys(SegmentState, 0)
    for segment in inspection.segments:
        count[segment.state] += 1
    out.print(
        plain(
            f"{len(inspection.segments)} segments of {inspection.segment_bytes:,} bytes: "
            + ", ".join(f"{number} {state}" for state, number in count.items() if number)
            + "."
        )
    )
    if inspection.is_torn:
        out.print(
            plain("The log ends in a torn group, which the next start cuts off. It was never confirmed.")
        )
    if inspection.problem is not None:
        out.print(plain(f"The next start would refuse this journal: {inspection.problem}"), style="red")


def print_groups(name: str, groups: Sequence[GroupDetail]) -> None:
    columns = ("byte", "run", "lsns", "records", "bytes", "attests lsn")
    made = table(f"Groups of {name}", *columns, right=frozenset(columns))
    for group in groups:
        last_lsn = group.first_lsn + group.record_count - 1
        lsns = f"{group.first_lsn:,} - {last_lsn:,}" if group.record_count else "marker"
        row = (group.offset, group.run, lsns, len(group.records), group.group_bytes, group.durable_lsn)
        made.add_row(*map(plain, row))
    out = console()
    out.print(made)
    out.print(plain(f"{len(groups):,} groups, {sum(len(group.records) for group in groups):,} records."))


def print_records(name: str, groups: Sequence[GroupDetail]) -> None:
    made = table(
        f"Records of {name}",
        *("byte", "lsn", "section", "kind", "flags", "epoch", "payload bytes", "rows", "types"),
        right=frozenset({"byte", "lsn", "epoch", "payload bytes", "rows"}),
    )
    records = [record for group in groups for record in group.records]
    for record in records:
        made.add_row(*map(plain, _record_row(record)))
    out = console()
    out.print(made)
    live = sum(record.is_live for record in records)
    out.print(plain(f"{len(records):,} records in {len(groups):,} groups; {live:,} of them are live."))


def _record_row(record: RecordDetail) -> Sequence[object]:
    flags = []
    if record.is_held:
        flags.append("live" if record.is_live else "was held")
    if record.is_moved:
        flags.append(f"moved from {record.origin_lsn}")
    rows = "" if record.rows is None else record.rows
    place = (record.offset, record.lsn, record.section, record.kind, ", ".join(flags))
    return *place, record.epoch, record.payload_bytes, rows, ", ".join(record.types)


def print_findings(directory: Path, findings: Sequence[Finding], holder: int | None) -> None:
    out = console()
    if findings:
        made = table(
            "Findings",
            *("severity", "file", "byte", "lsns", "what it means, what to do"),
            right=frozenset({"byte", "lsns"}),
        )
        made.show_lines = True
        for finding in findings:
            text = plain(f"{finding.meaning} {finding.advice}")
            severity = plain(finding.severity)
            severity.stylize(_COLOURS[finding.severity])
            made.add_row(severity, plain(finding.file), plain(finding.offset), plain(_lsns(finding)), text)
        out.print(made)
    errors = sum(finding.severity is Severity.ERROR for finding in findings)
    warnings = len(findings) - errors
    if errors:
        sentence = f"{directory}: {_count(errors, 'error')} and {_count(warnings, 'warning')}."
    elif warnings:
        sentence = f"{directory}: no errors, {_count(warnings, 'warning')}. All that was confirmed is whole."
    else:
        sentence = f"{directory}: all is as it was written."
    out.print(plain(sentence), style="red" if errors else "green")
    if holder is not None:
        out.print(plain(f"Process {holder} is using this journal; what it wrote meanwhile was not checked."))


def _lsns(finding: Finding) -> str:
    if finding.first_lsn is None:
        return ""
    if finding.first_lsn == finding.last_lsn:
        return f"{finding.first_lsn:,}"
    return f"{finding.first_lsn:,} - {finding.last_lsn:,}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
