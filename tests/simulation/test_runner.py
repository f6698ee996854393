from __future__ import annotations

import pytest

from holdfast.journal.segments import Segment, Segments
from holdfast.simulation.journal_world import Fault
from holdfast.simulation.runner import Totals, repeat_command, run_seed, run_seeds, shrink


def test_runs_are_added_up() -> None:
    totals = Totals()
    for outcome in run_seeds(range(5)):
        totals.add(outcome)
    assert totals.runs == 5
    assert totals.failed == 0
    assert totals.records > 0
    assert totals.lives >= 10


def test_a_failing_run_is_made_smaller_and_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    def leak(self: Segments) -> list[Segment]:
        return []

    monkeypatch.setattr(Segments, "take_reclaimable", leak)
    failed = next(outcome for outcome in run_seeds(range(50)) if outcome.broken)
    smallest, without = shrink(failed)
    assert smallest.broken
    assert without
    assert run_seed(smallest.seed, without=without).broken == smallest.broken
    command = repeat_command(smallest, without)
    assert command.startswith(f"holdfast simulate --world journal --seed {failed.seed} --runs 1 --without ")
    assert all(f"--without {fault.value}" in command for fault in Fault if fault in without)
