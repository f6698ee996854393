"""A survey of one segment: what of it is whole, and every stretch that is not.

Recovery stops at the first place that is not the next record. A survey goes on: behind a bad record at the next
whole record of its group, behind a bad group header at the next whole group. It takes its rules from `scan`, so
that it calls dead what recovery calls dead.

Where a segment ends is known exactly if the first lsn of the next one is. If that one has been reused, the end is
where nothing more looks like a group. One flipped bit never hides a group there: a header shows itself by its
mark, by its checksum, or by the record behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from struct import Struct

import msgspec
from crc32c import crc32c

from holdfast.journal.format import (
    ALIGNMENT_BYTES,
    FLAG_HELD,
    GROUP_HEADER_BYTES,
    RECORD,
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    GroupHeader,
    Record,
    offset_of,
    parse_record,
    record_bytes,
)
from holdfast.journal.scan import Lineage, SegmentImage, Walk, witnesses

_MARK_AND_CRC = Struct("<II")
_OWN_OFFSET = Struct("<I")
_OWN_OFFSET_AT = 36


class Place(StrEnum):
    """What of a segment is damaged."""

    RECORD = "record"
    GROUP = "group"
    MARKER = "marker"
    PADDING = "padding"


class Damage(msgspec.Struct, frozen=True):
    """A stretch of a segment that is not what was written.

    Where no record is lost, `last_lsn` is below `first_lsn`: the lsn that comes next.
    """

    place: Place
    offset: int
    end_offset: int
    first_lsn: int
    last_lsn: int
    is_harmless: bool


class Bound(msgspec.Struct, frozen=True):
    """What is known of where a segment ends: every record in it is below `lsn`, up to it if `is_exact`."""

    lsn: int
    is_exact: bool


class SegmentSurvey(msgspec.Struct):
    """What was found in one segment. `held_offsets`: where whole records start that were to be held."""

    end_offset: int
    next_lsn: int
    attested_lsn: int
    group_count: int = 0
    record_count: int = 0
    damages: list[Damage] = []
    held_offsets: set[int] = set()


def survey_segment(image: SegmentImage, lineage: Lineage, bound: Bound | None = None) -> SegmentSurvey:
    """Look at every group and record. `bound` is None for the segment in which the log ends."""
    surveyor = _Surveyor(image, lineage, bound)
    while surveyor.go_on():
        pass
    return surveyor.survey


class _Surveyor:
    def __init__(self, image: SegmentImage, lineage: Lineage, bound: Bound | None) -> None:
        header = image.header
        self._image = image
        self._lineage = lineage
        self._bound = bound
        self._newest_run = header.run
        self.survey = SegmentSurvey(SEGMENT_HEADER_BYTES, header.base_lsn, header.durable_lsn)

    def go_on(self) -> bool:
        """Walk to where the walk ends; False if the segment ends there, else what is bad has been passed."""
        survey = self.survey
        walk = Walk(
            self._image,
            self._lineage,
            offset=survey.end_offset,
            next_lsn=survey.next_lsn,
            newest_run=self._newest_run,
        )
        last_group = None
        for group, records in walk.groups():
            last_group = group
            survey.group_count += 1
            self._count(records)
        survey.end_offset, survey.next_lsn = walk.offset, walk.next_lsn
        survey.attested_lsn = max(survey.attested_lsn, walk.attested_lsn)
        self._newest_run = walk.newest_run
        if last_group is not None and walk.is_torn and not self._is_complete:
            return self._pass_group(last_group)
        if self._pass_to_next_group(survey.end_offset):
            return True
        self._end()
        return False

    @property
    def _is_complete(self) -> bool:
        """Nothing is missing: the next segment starts with the lsn that comes next."""
        bound = self._bound
        return bound is not None and bound.is_exact and self.survey.next_lsn >= bound.lsn

    def _count(self, records: Sequence[Record]) -> None:
        data = self._image.data
        for record in records:
            offset = offset_of(record.place)
            self.survey.record_count += 1
            if record.flags & FLAG_HELD:
                self.survey.held_offsets.add(offset)
            end = offset + RECORD_HEADER_BYTES + record.payload_bytes
            padded_end = offset + record_bytes(record.payload_bytes)
            if any(data[end:padded_end]):
                self._add(Place.PADDING, end, padded_end, record.lsn, record.lsn, is_harmless=True)

    def _add(
        self,
        place: Place,
        offset: int,
        end_offset: int,
        first_lsn: int,
        last_lsn: int,
        *,
        is_harmless: bool = False,
    ) -> None:
        damage = Damage(place, offset, end_offset, first_lsn, last_lsn, is_harmless)
        self.survey.damages.append(damage)

    # -- inside a group ----------------------------------------------------------------------------------

    def _pass_group(self, group: GroupHeader) -> bool:
        """The group is not whole from here on: find what of it is, and go on behind it."""
        survey = self.survey
        at = max(survey.end_offset, group.offset + GROUP_HEADER_BYTES)
        group_end = group.offset + group.group_bytes
        if self._is_overwritten(group, at, group_end):
            # A later start cut this group here and went on: what is damaged is the first group of that start.
            if not self._pass_to_next_group(at):
                self._end()
                return False
            return True
        lsn, end_lsn = survey.next_lsn, group.first_lsn + group.record_count
        while lsn < end_lsn:
            record = self._next_record(group, at, group_end, lsn)
            if record is None:
                self._add(Place.RECORD, at, group_end, lsn, end_lsn - 1)
                break
            offset = offset_of(record.place)
            if offset > at:
                self._add(Place.RECORD, at, offset, lsn, record.lsn - 1)
            self._count([record])
            at, lsn = offset + record_bytes(record.payload_bytes), record.lsn + 1
        survey.end_offset, survey.next_lsn = group_end, end_lsn
        return True

    def _is_overwritten(self, group: GroupHeader, at: int, group_end: int) -> bool:
        if self._is_broken_header(at):
            return True
        later = (found for found in witnesses(self._image, at) if found.offset < group_end)
        return any(found.run > group.run for found in later)

    def _next_record(self, group: GroupHeader, start: int, end: int, lsn: int) -> Record | None:
        """The first whole record of the group in this stretch. Records are tried only where the lsn fits."""
        image = self._image
        generation = image.header.generation
        lsns = range(lsn, group.first_lsn + group.record_count)
        for at in range(start, end - RECORD_HEADER_BYTES + 1, ALIGNMENT_BYTES):
            if RECORD.unpack_from(image.data, at)[-1] in lsns:
                record = parse_record(
                    image.data[:end], at, seed=image.seed, generation=generation, offset=at, run=group.run
                )
                if record is not None:
                    return record
        return None

    # -- between groups ----------------------------------------------------------------------------------

    def _pass_to_next_group(self, bad_offset: int) -> bool:
        """Go on at the next whole group of the log; False if there is none."""
        survey = self.survey
        for group in witnesses(self._image, bad_offset):
            if self._continues_log(group):
                is_marker = group.first_lsn == survey.next_lsn
                self._add(
                    Place.MARKER if is_marker else Place.GROUP,
                    bad_offset,
                    group.offset,
                    survey.next_lsn,
                    group.first_lsn - 1,
                    is_harmless=is_marker and self._is_complete,
                )
                survey.end_offset, survey.next_lsn = group.offset, group.first_lsn
                return True
        return False

    def _continues_log(self, group: GroupHeader) -> bool:
        if self._lineage.is_dead_group(group, newest_run=self._newest_run):
            return False
        if group.first_lsn < self.survey.next_lsn or group.offset + group.group_bytes > self._image.end:
            return False
        # A marker may stand at the very end, after the last record.
        return self._bound is None or group.first_lsn < self._bound.lsn + (group.record_count == 0)

    def _end(self) -> None:
        """No more groups: see whether one is missing."""
        survey, bound = self.survey, self._bound
        offset, lsn = survey.end_offset, survey.next_lsn
        last_lsn = self._last_lsn_behind(offset + GROUP_HEADER_BYTES)
        if bound is not None and bound.is_exact:
            last_lsn = bound.lsn - 1
        if last_lsn >= lsn:
            self._add(Place.GROUP, offset, self._image.end, lsn, last_lsn)
        elif self._is_broken_header(offset):
            self._add(
                Place.MARKER, offset, offset + GROUP_HEADER_BYTES, lsn, lsn - 1, is_harmless=bound is not None
            )

    def _is_broken_header(self, at: int) -> bool:
        """Whether a group header of this generation was here: its mark or its checksum still says so."""
        data, seed = self._image.data, self._image.seed
        if at + GROUP_HEADER_BYTES > len(data):
            return False
        mark, crc = _MARK_AND_CRC.unpack_from(data, at)
        is_covered: bool = crc == crc32c(data[at + 8 : at + GROUP_HEADER_BYTES], seed)
        is_ours: bool = _OWN_OFFSET.unpack_from(data, at + _OWN_OFFSET_AT)[0] == at
        is_marked: bool = mark == seed
        return is_marked != (is_covered and is_ours)

    def _last_lsn_behind(self, at: int) -> int:
        """The last lsn of whole records from here on, which a group header before them has lost; 0 if none."""
        image, lsn = self._image, self.survey.next_lsn
        generation = image.header.generation
        last_lsn = 0
        runs: Sequence[int] = range(self._newest_run, self._lineage.run + 1)
        while at + RECORD_HEADER_BYTES <= len(image.data):
            if RECORD.unpack_from(image.data, at)[-1] != lsn:
                break
            for run in runs:
                record = parse_record(
                    image.data, at, seed=image.seed, generation=generation, offset=at, run=run
                )
                if record is not None:
                    break
            else:
                break
            at, last_lsn, lsn, runs = at + record_bytes(record.payload_bytes), lsn, lsn + 1, (run,)
        return last_lsn
