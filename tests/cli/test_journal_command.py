"""`holdfast journal`: what it prints, for people and for programs, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from holdfast.cli.main import app
from holdfast.disk import FileStorage
from holdfast.message import Message, encode
from tests.journal.small_journal import SMALL, open_small

PAYLOAD_OFFSET = 64 + 40 + 24  # of the first record of a segment


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A small journal with ten messages, the first of them confirmed, closed in good order."""
    made = tmp_path / "journal"
    with FileStorage(made) as storage:
        shell = open_small(storage, SMALL)
        for number in range(10):
            shell.record(
                encode([Message(time_us=1, source="meter", type=f"[type {number}]", body=b"b" * 50)])
            )
            shell.flush()
        shell.confirm(1)
        shell.close()
    return made


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["journal", *map(str, arguments)])


def run_json(*arguments: object) -> Any:
    return json.loads(run(*arguments, "--json").stdout)


def damage(directory: Path, name: str = "segment-000000", offset: int = 0) -> None:
    with (directory / name).open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


def second_group_payload(directory: Path) -> int:
    """Where the payload of the second message starts."""
    groups = run_json("inspect", directory, "--segment", "segment-000000")
    records = [record for group in groups for record in group["records"]]
    return int(records[1]["offset"]) + 24


class TestInspect:
    def test_people_see_tables_and_a_summary(self, directory: Path) -> None:
        result = run("inspect", directory)

        assert result.exit_code == 0
        assert "stopped in good order" in result.stdout
        assert "9 records" in result.stdout
        assert "segment-000000" in result.stdout
        assert "segments of 65,536 bytes: 5 unused, 1 in use." in result.stdout

    def test_programs_see_stable_keys(self, directory: Path) -> None:
        seen = run_json("inspect", directory)

        assert seen["problem"] is None
        assert (seen["site"], seen["node"], seen["run"], seen["last_lsn"]) == (1, 2, 1, 11)
        assert [slot["state"] for slot in seen["checkpoints"]] == ["whole", "whole"]
        assert seen["boot"]["events"] == []
        assert {segment["name"]: segment["live_records"] for segment in seen["segments"]}[
            "segment-000000"
        ] == 9
        assert "salt" not in seen, "whoever has the salt can forge groups"

    def test_the_groups_and_records_of_one_segment(self, directory: Path) -> None:
        groups = run("inspect", directory, "--segment", "segment-000000")
        records = run("inspect", directory, "--segment", "segment-000000", "--records")

        assert groups.exit_code == records.exit_code == 0
        assert "marker" in groups.stdout
        assert "[type 3]" in records.stdout
        assert "11 records in 12 groups; 9 of them are live." in records.stdout

    def test_a_journal_that_would_not_open(self, directory: Path) -> None:
        damage(directory, offset=20)

        result = run("inspect", directory)

        assert result.exit_code == 1
        assert "The next start would refuse" in result.stdout

    def test_a_running_node_is_named(self, directory: Path) -> None:
        assert run_json("inspect", directory)["in_use_by"] is None
        with FileStorage(directory):
            result = run("inspect", directory)
        if not Path("/proc/locks").exists():
            pytest.skip("this system does not tell who holds a lock")
        assert "in use by process" in result.stdout


class TestVerify:
    def test_a_whole_journal(self, directory: Path) -> None:
        result = run("verify", directory)

        assert result.exit_code == 0
        assert "all is as it was written" in result.stdout
        assert run_json("verify", directory)["findings"] == []

    def test_damage_is_named_by_file_byte_and_lsn(self, directory: Path) -> None:
        offset = second_group_payload(directory)
        damage(directory, offset=offset)

        people, programs = run("verify", directory), run_json("verify", directory)

        assert people.exit_code == 1
        assert "1 error and 0 warnings" in people.stdout
        (finding,) = programs["findings"]
        assert (programs["errors"], programs["warnings"]) == (1, 0)
        assert (finding["severity"], finding["file"], finding["offset"]) == (
            "error",
            "segment-000000",
            offset - 24,
        )
        assert (finding["first_lsn"], finding["last_lsn"]) == (2, 2)
        assert {"meaning", "advice"} < finding.keys()

    def test_warnings_are_no_failure(self, directory: Path) -> None:
        damage(directory, "node-state", 40)

        result = run("verify", directory)

        assert result.exit_code == 0
        assert "no errors, 1 warning." in result.stdout

    def test_the_command_itself(self, directory: Path) -> None:
        command = [str(Path(sys.executable).with_name("holdfast")), "journal", "verify", str(directory)]
        whole = subprocess.run(command, capture_output=True, text=True, timeout=60)
        damage(directory, offset=PAYLOAD_OFFSET + 40)
        broken = subprocess.run(command, capture_output=True, text=True, timeout=60)

        assert (whole.returncode, whole.stderr) == (0, "")
        assert (broken.returncode, broken.stderr) == (1, "")
        assert "segment-000000" in broken.stdout


class TestWhatCannotBeRead:
    @pytest.mark.parametrize("command", ["inspect", "verify"])
    def test_no_directory_no_journal_no_directory_at_all(self, tmp_path: Path, command: str) -> None:
        (tmp_path / "empty").mkdir()
        (tmp_path / "file").write_text("not a directory")

        for name, words in (
            ("nowhere", "no directory"),
            ("empty", "no journal"),
            ("file", "not a directory"),
        ):
            result = run(command, tmp_path / name)
            assert result.exit_code == 2, name
            assert result.stderr.startswith("holdfast: ")
            assert words in result.stderr
            assert result.stdout == ""
        assert not (tmp_path / "nowhere").exists()

    def test_records_of_no_segment(self, directory: Path) -> None:
        result = run("inspect", directory, "--records")

        assert result.exit_code == 2
        assert "--segment NAME" in result.stderr

    def test_a_segment_that_is_not_there(self, directory: Path) -> None:
        result = run("inspect", directory, "--segment", "segment-000077")

        assert result.exit_code == 2
        assert "no segment" in result.stderr

    def test_help_tells_the_exit_codes_and_gives_an_example(self) -> None:
        for command in ("inspect", "verify"):
            result = run(command, "--help")
            assert result.exit_code == 0
            assert "Exit code:" in result.stdout
            assert "Example: holdfast journal" in result.stdout
