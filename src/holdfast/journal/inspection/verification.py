"""Verification: read everything that a journal has on the disk, and name every place that is not as written.

Recovery reads what it needs and stops at the first damage. Verification reads all segments in use, from their
headers on, whether before the checkpoint or after it, goes on behind what is damaged, and then asks of every held
record whether it is whole where the index has it.

A node may be writing meanwhile, and what is read in the middle of a write looks damaged. So what a pass finds is
believed only if the next pass finds it too, at the same place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from holdfast.errors import JournalCorrupt, JournalMismatch, UsageError
from holdfast.journal.format import SEGMENT_HEADER_BYTES
from holdfast.journal.inspection.file_checks import check_boot, check_checkpoints, check_node_state
from holdfast.journal.inspection.findings import RESTORE, Finding, Severity, error, warning
from holdfast.journal.inspection.lost_segments import LostSegment, find_lost_segments
from holdfast.journal.inspection.read_only import ReadOnlyView
from holdfast.journal.inspection.rehearsal import NO_JOURNAL, Rehearsal, bound_of, rehearse
from holdfast.journal.inspection.survey import Bound, Damage, Place, SegmentSurvey, survey_segment
from holdfast.journal.journal import State
from holdfast.journal.node_state import NODE_STATE_NAME, read_node_state
from holdfast.journal.persistent_memory import Confirmations
from holdfast.journal.scan import SegmentImage, load_segment
from holdfast.journal.segments import is_segment
from holdfast.journal.storage import Storage

Progress = Callable[[int, int], None]

_REFUSED = "A record that is not whole is never delivered; nothing else of the log is concerned."


class _Surveyed(msgspec.Struct, frozen=True):
    image: SegmentImage
    bound: Bound | None
    survey: SegmentSurvey


def verify(
    storage: Storage,
    *,
    make_state: Callable[[], State] = Confirmations,
    on_progress: Progress = lambda done_bytes, total_bytes: None,
) -> list[Finding]:
    """Check everything; an empty list if all is as it was written. Changes nothing.

    `make_state` makes what the records are applied to, so that it is known what is still held. Raises `UsageError`
    if there is no journal, `JournalMismatch` if a newer version wrote it, `StorageError` if it cannot be read.
    """
    findings = _one_pass(storage, make_state, on_progress)
    if findings:
        seen = {finding.key for finding in findings}
        findings = [finding for finding in _one_pass(storage, make_state, on_progress) if finding.key in seen]
    return findings


def _one_pass(storage: Storage, make_state: Callable[[], State], on_progress: Progress) -> list[Finding]:
    view = ReadOnlyView(storage)
    if NODE_STATE_NAME not in view.names():
        return [_lost_node_state(view)]
    findings = list(check_node_state(view))
    try:
        node_state = read_node_state(view)
    except JournalCorrupt:
        return findings
    assert node_state is not None
    if not node_state.is_made:
        findings.append(
            warning(
                NODE_STATE_NAME,
                0,
                "The making of this journal was interrupted. Nothing has been recorded in it.",
                advice="The next start goes on with it.",
            )
        )
        return findings
    rehearsal = rehearse(view, node_state, make_state())
    findings += check_checkpoints(view, rehearsal)
    findings += check_boot(view, node_state.salt)
    findings += _check_log(view, rehearsal, on_progress)
    findings += _check_names(view)
    findings += _refusal(rehearsal, findings)
    return findings


def _lost_node_state(view: ReadOnlyView) -> Finding:
    if not any(map(is_segment, view.names())):
        raise UsageError(NO_JOURNAL)
    return error(
        NODE_STATE_NAME,
        0,
        "The node's state is missing, though segments are here. Without the salt in it they can be neither "
        "checked nor read.",
    )


def _check_names(view: ReadOnlyView) -> Iterator[Finding]:
    for name in view.strays:
        yield error(
            name,
            0,
            "The file is none of the journal's, but its name looks like that of a segment: the node would miss "
            "a segment, or use this one. What is in the journal is not concerned.",
            advice="Move the file out of the directory.",
        )


def _refusal(rehearsal: Rehearsal, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Why the next start would refuse, unless what was found says so already."""
    problem = rehearsal.problem
    if isinstance(problem, JournalMismatch):
        yield error(NODE_STATE_NAME, 0, str(problem), advice="Restore all files from one and the same copy.")
    elif problem is not None and not any(finding.severity is Severity.ERROR for finding in findings):
        if isinstance(problem, JournalCorrupt):
            lsns = (problem.lsn, problem.lsn) if problem.lsn else None
            yield error(
                problem.name, problem.offset, f"The next start would refuse: {problem.what}.", lsns=lsns
            )
        else:
            yield error(NODE_STATE_NAME, 0, f"The next start would refuse: {problem}")


# -- the log -------------------------------------------------------------------------------------------------


def _check_log(view: ReadOnlyView, rehearsal: Rehearsal, on_progress: Progress) -> Iterator[Finding]:
    lost = find_lost_segments(view, rehearsal)
    surveyed = _survey_all(view, rehearsal, lost, on_progress)
    attested_lsn = max((found.survey.attested_lsn for found in surveyed), default=0)
    if rehearsal.checkpoint is not None:
        attested_lsn = max(attested_lsn, rehearsal.checkpoint.lsn)
    yield from (found.finding for found in lost)
    for (name, offset), message in view.unreadable.items():
        yield error(
            name,
            offset,
            f"The disk cannot read this block: {message}.",
            advice=f"Look at the disk. {RESTORE}",
        )
    for found in surveyed:
        for damage in _damages(found, attested_lsn):
            if damage.first_lsn > attested_lsn:
                yield _torn_tail(found.image.name, damage)
                return
            yield _describe(found, damage, rehearsal)
        yield from _check_held(found, rehearsal)


def _survey_all(
    view: ReadOnlyView, rehearsal: Rehearsal, lost: Iterable[LostSegment], on_progress: Progress
) -> list[_Surveyed]:
    """A survey of every segment in use that can be read, oldest first."""
    entries = {
        generation: (name, header)
        for generation, (name, header) in rehearsal.catalogue.by_generation.items()
        if rehearsal.is_in_use(generation)
    }
    images = {found.generation: found.image for found in lost if found.image is not None}
    bases = rehearsal.bases() | {generation: image.header.base_lsn for generation, image in images.items()}
    total_bytes = (len(entries) + len(images)) * rehearsal.node_state.segment_bytes
    surveyed = []
    for generation in sorted(entries.keys() | images.keys()):
        image = images.get(generation)
        if image is None:
            name, header = entries[generation]
            image = load_segment(view, name, header, salt=rehearsal.node_state.salt)
        bound = bound_of(generation, bases)
        surveyed.append(_Surveyed(image, bound, survey_segment(image, rehearsal.lineage, bound)))
        on_progress(len(surveyed) * rehearsal.node_state.segment_bytes, total_bytes)
    return surveyed


def _damages(found: _Surveyed, attested_lsn: int) -> list[Damage]:
    """What the survey found; for the last segment also what is attested and not there at all."""
    survey = found.survey
    damages = survey.damages
    if found.bound is None and survey.next_lsn <= attested_lsn:
        at, lsn = survey.end_offset, survey.next_lsn
        damages = [damage for damage in damages if damage.offset != at]
        damages.append(Damage(Place.GROUP, at, found.image.end, lsn, attested_lsn, is_harmless=False))
    return damages


def _torn_tail(name: str, damage: Damage) -> Finding:
    return warning(
        name,
        damage.offset,
        f"The log ends here with a group that is not whole, from lsn {damage.first_lsn} on: it was being written "
        f"when the node stopped, or is being written now. Nothing of it was confirmed.",
        lsns=(damage.first_lsn, damage.last_lsn),
        advice="Nothing needs to be done: the next start cuts it off.",
    )


def _describe(found: _Surveyed, damage: Damage, rehearsal: Rehearsal) -> Finding:
    name, lsns = found.image.name, (damage.first_lsn, damage.last_lsn)
    generation = found.image.header.generation
    if damage.is_harmless:
        what = {
            Place.PADDING: f"The filling after the record of lsn {damage.first_lsn} is not zeros. The record is "
            f"whole: its checksum does not cover the filling.",
        }.get(damage.place, f"A marker before lsn {damage.first_lsn} is damaged. It held no record.")
        return warning(name, damage.offset, what, lsns=lsns, advice="If this comes again, look at the disk.")
    held = [
        lsn
        for offset, lsn in rehearsal.held.get(generation, {}).items()
        if damage.offset <= offset < damage.end_offset
    ]
    count = damage.last_lsn - damage.first_lsn + 1
    if not count:
        what = f"A marker before lsn {damage.first_lsn} is damaged. No record is lost, but the log is broken here."
    elif damage.place is Place.RECORD:
        what = f"{_records(count)} damaged. {_REFUSED}"
    else:
        what = f"The header of a group is damaged: {_records(count).lower()} out of reach."
    return error(name, damage.offset, f"{what} {_held(held)} {_needed_for(generation, rehearsal)}", lsns=lsns)


def _records(count: int) -> str:
    return "One record is" if count == 1 else f"{count:,} records are"


def _held(lsns: list[int]) -> str:
    if not lsns:
        return "None of the held records is concerned."
    noun = "A held record is" if len(lsns) == 1 else f"{len(lsns):,} held records are"
    return (
        f"{noun} concerned, from lsn {min(lsns)} on: confirmed to the producer, not yet by every recipient."
    )


def _needed_for(generation: int, rehearsal: Rehearsal) -> str:
    if generation >= rehearsal.scan_generation and rehearsal.problem is not None:
        return "The next start would refuse."
    return "The next start does not read this; a reader of the log, or moving the segment, would fail here."


def _check_held(found: _Surveyed, rehearsal: Rehearsal) -> Iterator[Finding]:
    """Every record that the index has in this segment must be whole where it has it."""
    image, survey = found.image, found.survey
    for offset, lsn in rehearsal.held.get(image.header.generation, {}).items():
        if offset in survey.held_offsets:
            continue
        if any(damage.offset <= offset < damage.end_offset for damage in survey.damages):
            continue
        where = "behind the end of the segment" if offset >= image.end else "not at its place"
        yield error(
            image.name,
            max(offset, SEGMENT_HEADER_BYTES),
            f"The held record of lsn {lsn} is {where}.",
            lsns=(lsn, lsn),
        )
