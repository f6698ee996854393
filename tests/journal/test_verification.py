"""Verification of everything around the records: whole files, headers, slots, copies; torn is not damaged."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from holdfast.disk import FileStorage
from holdfast.errors import JournalCorrupt, JournalFull, StorageFailed
from holdfast.journal.boot import BootSection
from holdfast.journal.inspection import Severity, inspect, verify
from holdfast.journal.node_state import NODE_STATE_NAME, read_node_state
from holdfast.journal.opening import truncate_journal
from holdfast.simulation.storage import FaultyStorage, SimulatedCrash
from tests.journal.small_journal import SMALL, TINY, Shell, open_small, payload_for
from tests.journal.test_inspection import (
    findings_of,
    flip,
    make_fresh,
    make_worn,
    rehearsal_of,
    work_on,
)


def fill(shell: Shell, *, count: int = 200) -> list[int]:
    """Record without taking checkpoints, until there is no room."""
    lsns = []
    with suppress(JournalFull):
        for number in range(count):
            lsns.append(shell.record(payload_for(number, 900)))
            shell.flush()
    return lsns


def reuse_segments(shell: Shell) -> None:
    """Free the first segments by one checkpoint, and write over them."""
    while shell.journal.segments.active.generation < 6:
        shell.confirm(fill(shell, count=1)[0])
        shell.run(shell.journal.begin_allocation())
    shell.flush()
    shell.checkpoint()
    fill(shell)


class TestSegmentFiles:
    def test_a_damaged_header_of_a_held_segment(self, tmp_path: Path) -> None:
        make_worn(tmp_path)
        rehearsal, _ = rehearsal_of(tmp_path)
        generation = min(rehearsal.held)
        name, header = rehearsal.catalogue.by_generation[generation]
        flip(tmp_path / name, 17)

        (finding,) = findings_of(tmp_path)

        assert (finding.severity, finding.file, finding.offset) == (Severity.ERROR, name, 0)
        assert finding.first_lsn == header.base_lsn

    def test_a_truncated_segment(self, tmp_path: Path) -> None:
        make_worn(tmp_path)
        rehearsal, spots = rehearsal_of(tmp_path)
        generation = min(rehearsal.held)
        name, _ = rehearsal.catalogue.by_generation[generation]
        groups = [spot for spot in spots if spot.name == name and spot.kind == "group"]
        cut = groups[2].start + 100
        with (tmp_path / name).open("r+b") as file:
            file.truncate(cut)

        (finding,) = findings_of(tmp_path)

        assert (finding.severity, finding.file, finding.offset) == (Severity.ERROR, name, cut)
        assert finding.first_lsn == groups[2].lsn

    @pytest.mark.parametrize("which", ["oldest held", "last"])
    def test_a_deleted_segment_in_use(self, tmp_path: Path, which: str) -> None:
        make_worn(tmp_path)
        rehearsal, _ = rehearsal_of(tmp_path)
        generation = min(rehearsal.held) if which == "oldest held" else rehearsal.last_generation
        name, header = rehearsal.catalogue.by_generation[generation]
        (tmp_path / name).unlink()

        findings = findings_of(tmp_path)

        assert [finding.file for finding in findings if finding.file == name] == [name]
        assert findings[0].severity is Severity.ERROR
        if which == "oldest held":
            assert findings[0].first_lsn == header.base_lsn

    def test_a_deleted_segment_that_was_reusable_keeps_the_node_from_starting(self, tmp_path: Path) -> None:
        make_fresh(tmp_path)
        (tmp_path / "segment-000002").unlink()

        (finding,) = findings_of(tmp_path)

        assert (finding.severity, finding.file) == (Severity.ERROR, "segment-000002")

    def test_a_damaged_header_of_an_unused_segment_is_harmless(self, tmp_path: Path) -> None:
        make_fresh(tmp_path)
        flip(tmp_path / "segment-000002", 17)

        (finding,) = findings_of(tmp_path)

        assert (finding.severity, finding.file) == (Severity.WARNING, "segment-000002")

    def test_a_copy_beside_the_original_is_not_taken_for_a_segment(self, tmp_path: Path) -> None:
        make_fresh(tmp_path)
        shutil.copy(tmp_path / "segment-000000", tmp_path / "segment-000000.bak")

        (finding,) = findings_of(tmp_path)

        assert (finding.severity, finding.file) == (Severity.ERROR, "segment-000000.bak")

    def test_two_files_of_one_generation(self, tmp_path: Path) -> None:
        make_fresh(tmp_path)
        shutil.copy(tmp_path / "segment-000000", tmp_path / "segment-000003")

        (finding,) = findings_of(tmp_path)

        assert (finding.severity, finding.file) == (Severity.ERROR, "segment-000003")
        assert "segment-000000" in finding.meaning

    def test_blocks_that_the_disk_cannot_read(self, tmp_path: Path) -> None:
        make_fresh(tmp_path)

        class BadSector(FileStorage):
            def read(self, name: str, offset: int, length: int) -> bytes:
                if name == "segment-000000" and offset < 5000 < offset + length:
                    raise StorageFailed("input/output error")
                return super().read(name, offset, length)

        with BadSector(tmp_path, lock=False) as storage:
            findings = verify(storage)

        assert findings[0].offset == 4096
        assert "input/output error" in findings[0].meaning
        assert {finding.severity for finding in findings} == {Severity.ERROR}
        assert findings[1].first_lsn is not None


class TestCheckpoints:
    def test_either_slot_alone_can_be_lost_when_the_log_is_complete(self, tmp_path: Path) -> None:
        with FileStorage(tmp_path) as storage:
            shell = open_small(storage, SMALL)
            for _ in range(3):
                shell.record(payload_for(1))
                shell.flush()
                shell.checkpoint()
        for name in ("checkpoint-0", "checkpoint-1"):
            flip(tmp_path / name, 33)
            (finding,) = findings_of(tmp_path)
            flip(tmp_path / name, 33)
            assert (finding.severity, finding.file, finding.offset) == (Severity.WARNING, name, 0)

    def test_both_slots_lost(self, tmp_path: Path) -> None:
        make_worn(tmp_path)
        for name in ("checkpoint-0", "checkpoint-1"):
            flip(tmp_path / name, 33)

        findings = findings_of(tmp_path)

        assert [finding.file for finding in findings] == ["checkpoint-0", "checkpoint-1"]
        assert {finding.severity for finding in findings} == {Severity.ERROR}

    def test_the_newest_slot_is_an_error_when_the_older_one_no_longer_suffices(self, tmp_path: Path) -> None:
        with FileStorage(tmp_path) as storage:
            shell = open_small(storage, TINY)
            shell.checkpoint()
            shell.checkpoint()
            reuse_segments(shell)
            newest = next(slot.name for slot in inspect(storage).checkpoints if slot.is_newest)
        flip(tmp_path / newest, 33)

        errors = [f for f in findings_of(tmp_path) if f.severity is Severity.ERROR]

        assert newest in [finding.file for finding in errors]
        assert "Do not start the node" in next(f.advice for f in errors if f.file == newest)

    def test_a_lost_first_checkpoint_does_not_pass_for_an_empty_journal(self, tmp_path: Path) -> None:
        with FileStorage(tmp_path) as storage:
            shell = open_small(storage, TINY)
            reuse_segments(shell)
            assert shell.journal.checkpoint_number == 1
            assert 1 not in {s.generation for s in inspect(storage).segments}
        flip(tmp_path / "checkpoint-1", 33)

        findings = findings_of(tmp_path)

        assert (findings[0].severity, findings[0].file) == (Severity.ERROR, "checkpoint-1")
        assert "Do not start the node" in findings[0].advice


class TestNodeStateAndBootSection:
    @pytest.mark.parametrize("offset", [0, 4096])
    def test_one_copy_of_the_node_state_is_enough(self, tmp_path: Path, offset: int) -> None:
        make_fresh(tmp_path)
        flip(tmp_path / NODE_STATE_NAME, offset + 40)

        (finding,) = findings_of(tmp_path)

        assert (finding.severity, finding.file, finding.offset) == (Severity.WARNING, NODE_STATE_NAME, offset)

    def test_without_any_copy_nothing_else_can_be_checked(self, tmp_path: Path) -> None:
        make_fresh(tmp_path)
        for offset in (0, 4096):
            flip(tmp_path / NODE_STATE_NAME, offset + 40)

        (finding,) = findings_of(tmp_path)

        assert (finding.severity, finding.file) == (Severity.ERROR, NODE_STATE_NAME)
        with FileStorage(tmp_path, lock=False) as storage, pytest.raises(JournalCorrupt):
            inspect(storage)

    def test_a_lost_node_state_is_not_the_same_as_no_journal(self, tmp_path: Path) -> None:
        make_fresh(tmp_path)
        (tmp_path / NODE_STATE_NAME).unlink()

        (finding,) = findings_of(tmp_path)

        assert (finding.severity, finding.file) == (Severity.ERROR, NODE_STATE_NAME)

    def test_the_boot_section(self, tmp_path: Path) -> None:
        make_fresh(tmp_path)
        with FileStorage(tmp_path) as storage:
            state = read_node_state(storage)
            assert state is not None
            boot = BootSection(storage, salt=state.salt)
            for event in (b"first event", b"second event"):
                assert boot.record(event)
        assert findings_of(tmp_path) == []
        places = {
            10: (Severity.ERROR, 0),
            512 + 20: (Severity.ERROR, 512),
            512 + 32 + 20: (Severity.WARNING, 544),
        }
        for offset, (severity, named_offset) in places.items():
            flip(tmp_path / "boot", offset)
            (finding,) = findings_of(tmp_path)
            flip(tmp_path / "boot", offset)
            assert (finding.severity, finding.file, finding.offset) == (severity, "boot", named_offset)


class TestTornTails:
    def test_a_group_that_was_never_attested_is_torn_and_not_damaged(self, tmp_path: Path) -> None:
        with FileStorage(tmp_path) as storage:
            shell = open_small(storage, SMALL)
            shell.record(payload_for(1))
            shell.flush()
            for number in range(3):
                shell.record(payload_for(number))
            shell.flush()
        _, spots = rehearsal_of(tmp_path)
        spot = next(spot for spot in spots if spot.kind == "record" and spot.lsn == 3)
        flip(tmp_path / spot.name, spot.start + 40)

        (finding,) = findings_of(tmp_path)

        assert (finding.severity, finding.file, finding.offset) == (Severity.WARNING, spot.name, spot.start)
        assert finding.first_lsn == 3
        with FileStorage(tmp_path) as storage:
            assert open_small(storage, SMALL).report.is_torn
            assert verify(storage) == []

    def test_what_was_cut_on_purpose_is_not_missed(self, tmp_path: Path) -> None:
        with FileStorage(tmp_path) as storage:
            shell = open_small(storage, SMALL)
            for number in range(9):
                shell.record(payload_for(number))
                if number % 3 == 2:
                    shell.flush()
            truncate_journal(storage, after_lsn=5)
            assert verify(storage) == []
            shell = open_small(storage, SMALL)
            assert verify(storage) == []
            for number in range(20):
                shell.record(payload_for(number))
                shell.flush()
            assert verify(storage) == []

    @pytest.mark.parametrize("death", ["kill", "power loss"])
    def test_no_crash_leaves_anything_that_looks_like_damage(self, death: str) -> None:
        for operations in range(3, 260, 4):
            storage = FaultyStorage(Random(operations))
            shell = open_small(storage, TINY)
            storage.crash_after(operations)
            with suppress(SimulatedCrash):
                work_on(shell, Random(3), rounds=40)
                work_on(open_small(storage, TINY), Random(4), rounds=40)
            if death == "kill":
                storage.kill()
            else:
                storage.power_loss()
            errors = [finding for finding in verify(storage) if finding.severity is Severity.ERROR]
            assert not errors, f"{death} after {operations} operations"
