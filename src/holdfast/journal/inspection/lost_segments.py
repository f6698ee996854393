"""Segments that are not what they should be as a whole: files that are gone, short, or without a good header.

Which segment a file without a header was is told by the marks of the groups in it: they are seeded with the
generation, so that it is enough to try the generations that are wanted and not there.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast.journal.format import SEGMENT_HEADER_BYTES, SegmentHeader, parse_segment_header
from holdfast.journal.inspection.findings import Finding, error, warning
from holdfast.journal.inspection.read_only import ReadOnlyView
from holdfast.journal.inspection.rehearsal import Rehearsal, bound_of
from holdfast.journal.inspection.survey import survey_segment
from holdfast.journal.scan import SegmentImage, witnesses


class LostSegment(msgspec.Struct, frozen=True):
    """What became of one segment. `image` is there if it can be told what the file holds, and it is in use."""

    finding: Finding
    generation: int = 0
    image: SegmentImage | None = None


def find_lost_segments(view: ReadOnlyView, rehearsal: Rehearsal) -> list[LostSegment]:
    """One for each file that the catalogue calls damaged, and for each generation in use that has no file."""
    wanted = _wanted_generations(rehearsal)
    found: list[LostSegment] = []
    unknown: list[str] = []
    for name in rehearsal.catalogue.damaged:
        image = _identify(view, name, rehearsal, wanted)
        twin = _twin(view, name, rehearsal)
        if twin is not None:
            found.append(LostSegment(twin))
        elif image is None:
            unknown.append(name)
        else:
            wanted.pop(image.header.generation)
            found.append(_describe(view, image, rehearsal))
    lost = [generation for generation, is_needed in wanted.items() if is_needed]
    found.extend(LostSegment(finding) for finding in _unidentified(view, unknown, lost, rehearsal))
    return found


def _wanted_generations(rehearsal: Rehearsal) -> dict[int, bool]:
    """Generations that are not on the disk; whether they are needed for certain."""
    present = rehearsal.catalogue.by_generation
    newest = max(present, default=0)
    if rehearsal.end is not None and rehearsal.end.name:
        # What lies behind the end of the log was cut off, or is about to be.
        newest = rehearsal.end.generation
    oldest = rehearsal.scan_generation or max(1, newest - len(present))
    wanted = dict.fromkeys(range(oldest, newest + 1), rehearsal.checkpoint is not None)
    wanted[newest + 1] = False
    for generation in rehearsal.held:
        # If recovery stopped half-way, what seems held may have been released since, and its segment reused.
        wanted.setdefault(generation, rehearsal.end is not None)
    is_empty = rehearsal.end is not None and not rehearsal.end.name
    return {
        generation: is_needed and not is_empty
        for generation, is_needed in sorted(wanted.items())
        if generation not in present
    }


def _identify(
    view: ReadOnlyView, name: str, rehearsal: Rehearsal, wanted: dict[int, bool]
) -> SegmentImage | None:
    """The file as the segment that it was, if it has groups of a generation that is wanted."""
    data = memoryview(view.read(name, 0, view.size(name)))
    bases = rehearsal.bases()
    for generation in wanted:
        header = SegmentHeader(
            rehearsal.node_state.segment_bytes, generation, base_lsn=0, run=0, durable_lsn=0
        )
        image = SegmentImage(name, header, data, rehearsal.node_state.salt)
        first = next(witnesses(image, 0), None)
        if first is not None:
            base_lsn = bases.get(generation, first.first_lsn)
            return msgspec.structs.replace(image, header=msgspec.structs.replace(header, base_lsn=base_lsn))
    return None


def _twin(view: ReadOnlyView, name: str, rehearsal: Rehearsal) -> Finding | None:
    """Two files of one generation: one of them is a copy."""
    if view.size(name) < rehearsal.node_state.segment_bytes:
        return None
    header = parse_segment_header(view.read(name, 0, SEGMENT_HEADER_BYTES), rehearsal.node_state.salt)
    if header is None or header.generation not in rehearsal.catalogue.by_generation:
        return None
    other = rehearsal.catalogue.by_generation[header.generation][0]
    return error(
        name,
        0,
        f"The file is a copy of {other}, or the other way round: both have generation {header.generation}. "
        f"The node believes {other}, and would write over this one.",
        advice="Find out which of them is the true one. Restore the other from a backup.",
    )


def _describe(view: ReadOnlyView, image: SegmentImage, rehearsal: Rehearsal) -> LostSegment:
    """A file whose bytes tell which segment it was."""
    name, generation = image.name, image.header.generation
    size_bytes, needed_bytes = view.size(name), rehearsal.node_state.segment_bytes
    bound = bound_of(generation, rehearsal.bases())
    survey = survey_segment(image, rehearsal.lineage, bound)
    first_lsn, last_lsn = image.header.base_lsn, max(survey.next_lsn - 1, bound.lsn - 1 if bound else 0)
    offset, what = 0, "The header of this segment is damaged"
    if size_bytes < needed_bytes:
        offset, what = size_bytes, f"The file ends at byte {size_bytes} instead of {needed_bytes}"
        if survey.next_lsn <= last_lsn:
            first_lsn = survey.next_lsn
    # Without an end, the log may well have gone on in this very segment.
    is_read = generation >= rehearsal.scan_generation and (
        rehearsal.end is None or generation <= rehearsal.end.generation
    )
    held_count = len(rehearsal.held.get(generation, {}))
    if not held_count and not is_read:
        return LostSegment(
            warning(
                name, offset, f"{what}. Nothing that is still needed was in it.", advice="It will be reused."
            )
        )
    meaning = (
        f"{what}: the records of lsn {first_lsn} to {last_lsn} are out of reach, {held_count:,} of them held."
    )
    is_short = size_bytes < needed_bytes
    return LostSegment(
        error(name, offset, f"{meaning} The next start would refuse.", lsns=(first_lsn, last_lsn)),
        generation,
        None if is_short else image,
    )


def _unidentified(
    view: ReadOnlyView, names: list[str], generations: list[int], rehearsal: Rehearsal
) -> Iterator[Finding]:
    """Files that do not say what they were, and segments that have no file: together if there is one of each."""
    pair = len(names) == len(generations) == 1
    for name in names:
        lsns = _lsns(generations[0], rehearsal) if pair else None
        if name in view.missing:
            meaning = "The file of a segment is missing. The next start would refuse."
            yield error(name, 0, meaning + _lost_range(lsns), lsns=lsns)
        elif generations:
            size_bytes = view.size(name)
            offset = size_bytes if size_bytes < rehearsal.node_state.segment_bytes else 0
            yield error(
                name, offset, "This segment is damaged from its header on." + _lost_range(lsns), lsns=lsns
            )
        else:
            yield warning(
                name,
                0,
                "The header of this segment is damaged. Nothing that is still needed was in it.",
                advice="Nothing needs to be done: the node does not read it.",
            )
    for generation in [] if pair else generations:
        lsns = _lsns(generation, rehearsal)
        held_count = len(rehearsal.held.get(generation, {}))
        meaning = f"No file holds this segment, {held_count:,} held records are in it.{_lost_range(lsns)}"
        yield error(f"segment of generation {generation}", 0, meaning, lsns=lsns)


def _lsns(generation: int, rehearsal: Rehearsal) -> tuple[int, int] | None:
    """What a segment without a file held, from its neighbours and the checkpoint."""
    bases = rehearsal.bases()
    later = [base for other, base in bases.items() if other > generation]
    held = rehearsal.held.get(generation, {}).values()
    last_lsn = min(later) - 1 if later else max(held, default=0)
    if generation in bases:
        return bases[generation], last_lsn
    return (min(held), last_lsn) if held else None


def _lost_range(lsns: tuple[int, int] | None) -> str:
    return f" The records of lsn {lsns[0]} to {lsns[1]} are lost here." if lsns is not None else ""
