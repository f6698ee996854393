from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from holdfast.cli.main import app
from holdfast.journal.segments import Segment, Segments


@pytest.mark.parametrize("world", ["journal", "node"])
def test_people_see_a_summary_and_programs_see_json(world: str) -> None:
    arguments = ["simulate", "--world", world, "--seed", "5", "--runs", "3"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "every promise held" in result.output
    result = CliRunner().invoke(app, [*arguments, "--json"])
    report = json.loads(result.output)
    assert report["runs"] == 3
    assert report["broken"] == []


def test_a_broken_promise_gives_the_seed_and_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def leak(self: Segments) -> list[Segment]:
        return []

    monkeypatch.setattr(Segments, "take_reclaimable", leak)
    result = CliRunner().invoke(app, ["simulate", "--runs", "15"])
    assert result.exit_code == 1
    assert "repeat it: holdfast simulate --world journal --seed " in result.output


def test_an_unknown_fault_is_a_usage_error() -> None:
    assert CliRunner().invoke(app, ["simulate", "--without", "gremlins"]).exit_code == 2
