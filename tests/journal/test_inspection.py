"""Inspection and verification of journals on real files: worn, damaged in every place, and looked at only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from holdfast.disk import FileStorage
from holdfast.errors import JournalFull, UsageError
from holdfast.journal.boot import BootSection
from holdfast.journal.format import (
    FLAG_MOVED,
    GROUP_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    offset_of,
    record_bytes,
)
from holdfast.journal.inspection import (
    Finding,
    SegmentState,
    Severity,
    SlotState,
    inspect,
    inspect_segment,
    verify,
)
from holdfast.journal.inspection.read_only import ReadOnlyView
from holdfast.journal.inspection.rehearsal import Rehearsal, bound_of, look
from holdfast.journal.persistent_memory import Confirmations
from holdfast.journal.scan import Walk, load_segment
from holdfast.message import Message, encode
from tests.journal.small_journal import SMALL, TINY, Shell, open_small, payload_for

FLIPS = 150


class Spot(NamedTuple):
    """A stretch of a segment that a checksum covers, and the lsn that it starts with."""

    name: str
    start: int
    end: int
    lsn: int
    kind: str


def work_on(shell: Shell, random: Random, rounds: int) -> None:
    """Record and confirm in random order; a few records are never confirmed, so that old segments stay in use."""
    held = [lsn for _, lsn in shell.journal.replay_order()]
    for number in range(rounds):
        for _ in range(random.randrange(1, 8)):
            try:
                held.append(shell.record(payload_for(number, random.randrange(1, 900))))
            except JournalFull:
                break
        shell.flush()
        chosen = [lsn for lsn in held if lsn % 97 > 3 and random.random() < 0.6]
        if chosen:
            shell.confirm(*chosen)
        held = [lsn for lsn in held if lsn not in chosen]
        if random.random() < 0.3:
            shell.run(shell.journal.begin_attestation())
        shell.keep_house()


def make_worn(directory: Path, *, starts: int = 4, seed: int = 5) -> None:
    """A journal that has rolled through its segments many times, in several runs, most of them cut off."""
    with FileStorage(directory) as storage:
        random = Random(seed)
        for _ in range(starts):
            work_on(open_small(storage, TINY), random, rounds=60)


def make_fresh(directory: Path, *, messages: int = 30) -> None:
    """A journal within its first segment, closed in good order."""
    with FileStorage(directory) as storage:
        shell = open_small(storage, SMALL)
        for number in range(messages):
            shell.record(encode([Message(time_us=1, source="s", type=f"t{number % 2}", body=b"b" * 90)] * 2))
            if number % 5 == 4:
                shell.flush()
        shell.confirm(1, 2, 3)
        shell.close()


def findings_of(directory: Path) -> list[Finding]:
    with FileStorage(directory, lock=False) as storage:
        return verify(storage)


def rehearsal_of(directory: Path) -> tuple[Rehearsal, list[Spot]]:
    """What recovery finds, and everything in the segments in use that a flipped bit can hit."""
    spots = []
    with FileStorage(directory, lock=False) as storage:
        view, rehearsal = look(storage, Confirmations)
        for generation, (name, header) in sorted(rehearsal.catalogue.by_generation.items()):
            if not rehearsal.is_in_use(generation):
                continue
            image = load_segment(view, name, header, salt=rehearsal.node_state.salt)
            lsn = header.base_lsn
            walk = Walk(image, rehearsal.lineage, offset=SEGMENT_HEADER_BYTES, next_lsn=lsn, newest_run=0)
            spots.append(Spot(name, 0, SEGMENT_HEADER_BYTES, lsn, "segment"))
            for group, records in walk.groups():
                kind = "group" if records else "marker"
                end = group.offset + GROUP_HEADER_BYTES
                spots.append(Spot(name, group.offset, end, group.first_lsn, kind))
                for record in records:
                    start = offset_of(record.place)
                    end = start + record_bytes(record.payload_bytes)
                    kind = "moved" if record.flags & FLAG_MOVED else "record"
                    spots.append(Spot(name, start, end, record.lsn, kind))
    return rehearsal, spots


def flip(path: Path, offset: int, bit: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))


class TestWholeJournals:
    def test_a_fresh_journal_is_clean(self, tmp_path: Path) -> None:
        make_fresh(tmp_path)

        assert findings_of(tmp_path) == []

    @pytest.mark.parametrize("seed", [5, 6, 7])
    def test_a_journal_with_holes_moved_records_and_several_runs_is_clean(
        self, tmp_path: Path, seed: int
    ) -> None:
        make_worn(tmp_path, seed=seed)

        assert findings_of(tmp_path) == []
        rehearsal, _ = rehearsal_of(tmp_path)
        bounds = [bound_of(generation, rehearsal.bases()) for generation in rehearsal.held]
        assert any(bound is not None and not bound.is_exact for bound in bounds), "there are no holes"
        assert rehearsal.node_state.run == 4
        assert rehearsal.last_generation > 2 * TINY.segments_max

    def test_records_that_were_moved_are_looked_for_at_their_new_place(self, tmp_path: Path) -> None:
        make_worn(tmp_path)
        _, spots = rehearsal_of(tmp_path)
        moved = next(spot for spot in spots if spot.kind == "moved")

        flip(tmp_path / moved.name, moved.end - 9)

        (finding,) = findings_of(tmp_path)
        assert (finding.file, finding.offset, finding.first_lsn) == (moved.name, moved.start, moved.lsn)

    def test_looking_changes_nothing(self, tmp_path: Path) -> None:
        make_worn(tmp_path)
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

        with FileStorage(tmp_path, lock=False) as storage:
            inspect(storage)
            verify(storage)

        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before

    @pytest.mark.parametrize(
        "change",
        [
            lambda view: view.write("boot", 0, b""),
            lambda view: view.sync("boot"),
            lambda view: view.delete("boot"),
            lambda view: view.allocate("more", 1),
        ],
    )
    def test_the_view_refuses_every_change(
        self, tmp_path: Path, change: Callable[[ReadOnlyView], None]
    ) -> None:
        make_fresh(tmp_path)

        with FileStorage(tmp_path) as storage, pytest.raises(UsageError):
            change(ReadOnlyView(storage))

    def test_without_a_journal_there_is_nothing_to_look_at(self, tmp_path: Path) -> None:
        with FileStorage(tmp_path, lock=False) as storage:
            with pytest.raises(UsageError, match="no journal"):
                verify(storage)
            with pytest.raises(UsageError, match="no journal"):
                inspect(storage)


class TestInspection:
    def test_it_shows_the_journal_as_the_node_knows_it(self, tmp_path: Path) -> None:
        with FileStorage(tmp_path) as storage:
            shell = open_small(storage, TINY)
            work_on(shell, Random(5), rounds=60)
            journal = shell.journal
            shell.run(journal.begin_attestation())
            seen = inspect(storage)

        assert (seen.site, seen.node, seen.run, seen.problem) == (1, 2, 1, None)
        assert (seen.last_lsn, seen.held_records) == (journal.durable_lsn, journal.held.count)
        assert seen.attested_lsn == journal.attested_lsn
        in_use = {
            s.name: (s.live_records, s.live_bytes) for s in seen.segments if s.state is SegmentState.IN_USE
        }
        assert in_use == {s.name: (s.live_records, s.live_bytes) for s in journal.segments}
        (newest,) = [slot for slot in seen.checkpoints if slot.is_newest]
        assert newest.number == journal.checkpoint_number
        assert not seen.stopped_in_good_order

    def test_it_shows_a_new_journal(self, tmp_path: Path) -> None:
        with FileStorage(tmp_path) as storage:
            shell = open_small(storage, SMALL)
            boot = BootSection(storage, salt=shell.journal.node_state.salt)
            boot.record(b"event")
            seen = inspect(storage)
            assert verify(storage) == []

        assert [slot.state for slot in seen.checkpoints] == [SlotState.WHOLE, SlotState.EMPTY]
        assert [(event.sequence, event.payload_bytes) for event in seen.boot.events] == [(1, 5)]
        assert {segment.state for segment in seen.segments} == {SegmentState.IN_USE, SegmentState.UNUSED}

    def test_records_are_shown_with_their_batches(self, tmp_path: Path) -> None:
        make_fresh(tmp_path)

        with FileStorage(tmp_path, lock=False) as storage:
            groups = list(inspect_segment(storage, "segment-000000"))
            with pytest.raises(UsageError, match="no segment"):
                list(inspect_segment(storage, "segment-000099"))
            assert list(inspect_segment(storage, "segment-000001")) == []

        records = [record for group in groups for record in group.records]
        first, last = records[3], records[-1]
        assert [record.lsn for record in records] == list(range(1, 32))
        assert (first.section, first.kind, first.rows, first.types) == ("messages", "message", 2, ("t1",))
        assert [record.is_live for record in records[:4]] == [False, False, False, True]
        assert (last.kind, last.is_held, last.rows, last.payload_bytes) == ("confirm", False, None, 16)

    def test_damage_does_not_keep_it_from_showing_the_rest(self, tmp_path: Path) -> None:
        make_worn(tmp_path)
        rehearsal, _ = rehearsal_of(tmp_path)
        name = rehearsal.catalogue.by_generation[rehearsal.last_generation][0]
        flip(tmp_path / name, 20)

        with FileStorage(tmp_path, lock=False) as storage:
            seen = inspect(storage)
            with pytest.raises(UsageError, match="damaged"):
                list(inspect_segment(storage, name))

        assert seen.problem is not None
        assert [s.name for s in seen.segments if s.state is SegmentState.DAMAGED] == [name]


class TestFlippedBits:
    @pytest.mark.parametrize("seed", [5, 8])
    def test_every_flip_in_a_segment_in_use_is_found_where_it_is(self, tmp_path: Path, seed: int) -> None:
        make_worn(tmp_path, seed=seed)
        _, spots = rehearsal_of(tmp_path)
        with FileStorage(tmp_path, lock=False) as storage:
            attested_lsn = inspect(storage).attested_lsn
        random = Random(seed)
        for _ in range(FLIPS):
            spot = random.choice(spots)
            offset, bit = random.randrange(spot.start, spot.end), random.randrange(8)
            flip(tmp_path / spot.name, offset, bit)
            try:
                (finding,) = findings_of(tmp_path)
            finally:
                flip(tmp_path / spot.name, offset, bit)
            assert finding.file == spot.name, (spot, offset, bit)
            assert spot.start <= finding.offset < spot.end, (spot, offset, bit)
            if spot.kind != "marker" and spot.lsn <= attested_lsn:
                assert finding.first_lsn == spot.lsn
                is_padding = "filling" in finding.meaning
                assert finding.severity is (Severity.WARNING if is_padding else Severity.ERROR)

        assert findings_of(tmp_path) == []

    def test_several_damages_of_one_segment_are_all_listed(self, tmp_path: Path) -> None:
        make_fresh(tmp_path)
        _, spots = rehearsal_of(tmp_path)
        records = {spot.lsn: spot for spot in spots if spot.kind == "record"}
        group = next(spot for spot in spots if spot.kind == "group" and spot.lsn == 16)
        for spot in (records[7], records[9], group, records[28]):
            flip(tmp_path / spot.name, spot.start + 30)

        found = [(finding.first_lsn, finding.last_lsn) for finding in findings_of(tmp_path)]

        assert found == [(7, 7), (9, 9), (16, 20), (28, 28)]

    def test_a_damaged_held_record_is_called_that(self, tmp_path: Path) -> None:
        make_fresh(tmp_path)
        _, spots = rehearsal_of(tmp_path)
        records = {spot.lsn: spot for spot in spots if spot.kind == "record"}
        for lsn in (2, 4):  # confirmed; held
            flip(tmp_path / records[lsn].name, records[lsn].start + 30)

        confirmed, held = findings_of(tmp_path)

        assert "None of the held records" in confirmed.meaning
        assert "A held record is concerned, from lsn 4" in held.meaning
        assert held.offset == records[4].start
