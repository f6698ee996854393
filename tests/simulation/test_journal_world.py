"""Hundreds of seeded runs hold every promise; and with something broken on purpose, they do not."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from holdfast.journal import opening, recovery, scan, segments, work
from holdfast.journal.boot import BootSection
from holdfast.journal.scan import Lineage
from holdfast.journal.segments import Segment, Segments
from holdfast.journal.storage import Storage
from holdfast.simulation.journal_world import Fault, JournalWorld, MakeStorage, Outcome
from holdfast.simulation.runner import run_seed
from holdfast.simulation.storage import FaultyStorage
from tests.contracts.lying_storage import LyingStorage

SEEDS_IN_GATE = 400
SEEDS_A_TEST = 50
# The first seed that shows it ends a control; most need a few, the rarest some hundreds.
CONTROL_SEEDS = range(3_000)


def check_promises(seeds: Iterable[int], make_storage: MakeStorage = FaultyStorage) -> None:
    """Every run of these seeds holds every promise."""
    for seed in seeds:
        outcome = run_seed(seed, make_storage=make_storage)
        assert not outcome.broken, f"holdfast simulate --seed {seed} --runs 1: {outcome.broken}"


@pytest.mark.spec("D", "E3", "E6")
@pytest.mark.parametrize("first", range(0, SEEDS_IN_GATE, SEEDS_A_TEST))
def test_every_promise_holds_through_crashes_damage_and_full_disks(first: int) -> None:
    check_promises(range(first, first + SEEDS_A_TEST))


def test_the_runs_meet_what_they_are_meant_to_meet() -> None:
    outcomes = [run_seed(seed) for seed in range(100)]
    assert sum(outcome.torn_tails for outcome in outcomes) > 5
    assert sum(outcome.refused for outcome in outcomes) > 100
    assert sum(bool(outcome.reported) for outcome in outcomes) > 5
    assert sum(outcome.records for outcome in outcomes) > 10_000
    assert sum(outcome.lives for outcome in outcomes) > 250


def test_a_seed_gives_the_same_run_every_time() -> None:
    def trace(seed: int) -> Outcome:
        return JournalWorld(seed).run()

    assert trace(7) == trace(7)
    assert trace(7).digest != trace(8).digest


def test_faults_that_are_left_out_do_not_come() -> None:
    everything = frozenset(Fault)
    for seed in range(30):
        outcome = run_seed(seed, without=everything)
        assert not outcome.broken
        assert not outcome.reported


# -- controls: what each rule is for ---------------------------------------------------------------------


@pytest.mark.control("D")
def test_a_disk_that_lies_about_sync_is_found_out() -> None:
    with pytest.raises(AssertionError):
        check_promises(CONTROL_SEEDS, make_storage=LyingStorage)


@pytest.mark.control("D")
def test_confirming_before_the_sync_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_sync(self: work.Flush, storage: Storage) -> None:
        return

    monkeypatch.setattr(work.Flush, "sync", no_sync)
    with pytest.raises(AssertionError):
        check_promises(CONTROL_SEEDS)


@pytest.mark.control("D")
def test_believing_what_was_never_settled_is_found_out() -> None:
    class Gullible(FaultyStorage):
        def settle(self, name: str) -> None:
            self.size(name)

    with pytest.raises(AssertionError):
        check_promises(CONTROL_SEEDS, make_storage=Gullible)


@pytest.mark.control("D")
def test_taking_damage_for_a_torn_tail_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing_attested(self: recovery.Replay, walk: scan.Walk) -> int:
        return 0

    monkeypatch.setattr(recovery.Replay, "_attested_beyond", nothing_attested)
    with pytest.raises(AssertionError):
        check_promises(CONTROL_SEEDS)


@pytest.mark.control("D")
def test_reviving_what_a_crash_cut_off_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def never_dead(self: Lineage, group: object, *, newest_run: int) -> bool:
        return False

    monkeypatch.setattr(Lineage, "is_dead_group", never_dead)
    with pytest.raises(AssertionError):
        check_promises(CONTROL_SEEDS)


@pytest.mark.control("E6")
def test_reusing_a_segment_before_a_checkpoint_covers_it_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def without_second_criterion(self: Segments) -> list[Segment]:
        found = [segment for segment in self if self.is_dead(segment)]
        for segment in found:
            del self._by_generation[segment.generation]
        return found

    monkeypatch.setattr(segments.Segments, "take_reclaimable", without_second_criterion)
    with pytest.raises(AssertionError):
        check_promises(CONTROL_SEEDS)


@pytest.mark.control("E6")
def test_leaking_space_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(self: Segments) -> list[Segment]:
        return []

    monkeypatch.setattr(segments.Segments, "take_reclaimable", never)
    with pytest.raises(AssertionError):
        check_promises(CONTROL_SEEDS)


@pytest.mark.control("E3")
def test_a_checkpoint_that_is_not_synced_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unsynced(FaultyStorage):
        def sync(self, name: str) -> None:
            if not name.startswith("checkpoint"):
                super().sync(name)

    with pytest.raises(AssertionError):
        check_promises(CONTROL_SEEDS, make_storage=Unsynced)


def test_losing_boot_events_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(self: BootSection, payload: bytes) -> bool:
        return True

    monkeypatch.setattr(BootSection, "record", forget)
    with pytest.raises(AssertionError):
        check_promises(CONTROL_SEEDS)


def test_a_start_counter_that_stands_still_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(storage: Storage, state: object) -> None:
        return

    monkeypatch.setattr(opening, "write_node_state", forget)
    with pytest.raises(AssertionError):
        check_promises(CONTROL_SEEDS)


@pytest.mark.soak
def test_many_thousand_runs_hold_every_promise() -> None:
    check_promises(range(10_000, 40_000))
