"""The bench of the journal runs, and keeps all its rows. What it measures here is of no worth."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from bench.__main__ import main, run_bench
from bench.report import Goal
from bench.scale import Scale
from holdfast.journal.config import JournalConfig

SMALL_JOURNAL = JournalConfig(
    segment_bytes=256 * 1024,
    segments_ahead=6,
    record_bytes_max=128 * 1024,
    group_bytes_max=512 * 1024,
    group_reserve_bytes=64 * 1024,
    held_records_max=1000,
    reserve_acknowledgements=100,
    state_bytes_max=1024,
)
TINY = Scale(
    rounds=1,
    round_s=0.001,
    light_records=2,
    recovery_messages=600,
    bodies=(256,),
    batches=(1, 16),
    waiting=(1, 3),
    config=SMALL_JOURNAL,
    recovery_config=SMALL_JOURNAL,
)


def test_the_bench_runs_and_keeps_every_row_with_its_conditions(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=170)
    path = run_bench("journal", scale=TINY, date="2001-02-03", results=tmp_path, console=console)

    assert path == tmp_path / "journal-1.json"
    kept = msgspec.json.decode(path.read_bytes())
    group_commit, light_load, recovery = (section["rows"] for section in kept["sections"])
    assert [(row["parameters"]["batch"], row["parameters"]["waiting"]) for row in group_commit] == [
        (1, 1),
        (1, 3),
        (16, 1),
        (16, 3),
    ]
    assert [row["case"] for row in light_load] == ["inline", "thread", "writer"]
    assert [row["parameters"]["records"] for row in recovery] == [600, 3]
    assert kept["conditions"]["date"] == "2001-02-03"
    assert kept["conditions"].keys() >= {"machine", "kernel", "python", "file_system", "scale"}
    assert kept["conditions"]["scale"]["config"]["segment_bytes"] == SMALL_JOURNAL.segment_bytes
    assert list(tmp_path.iterdir()) == [path]


def test_a_bench_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["jornal"])
    assert "there are: journal" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("goal", "value", "is_met"),
    [
        (Goal("ratio", at_least=0.7), 0.7, True),
        (Goal("ratio", at_least=0.7), 0.69, False),
        (Goal("ratio", at_most=1.5), 1.5, True),
        (Goal("ratio", at_most=1.5), 1.51, False),
    ],
)
def test_a_goal_is_met_or_missed(goal: Goal, value: float, is_met: bool) -> None:
    assert goal.is_met({"ratio": value}) is is_met
