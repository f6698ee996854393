"""A real process is killed with -9 at every step that it takes on its disk; nothing confirmed is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from holdfast.disk import FileStorage
from holdfast.journal.format import Section
from holdfast.journal.lookup import read_held
from holdfast.journal.opening import open_journal
from holdfast.journal.persistent_memory import Confirmations
from tests.crash.journal_process import CONFIG, IDENTITY

# Each names a step: what is done to which file, and on which side of it the process dies.
POINTS = {
    "while the journal is made": "allocate:segment:before:3",
    "while the node's state is written": "write:node-state:before:3",
    "between the copies of the node's state": "sync:node-state:after:3",
    "while a boot event is recorded": "write:boot:after:1",
    "after the boot events are in the log": "write:boot:before:3",
    "before append": "write:segment:before:20",
    "after append, before fdatasync": "write:segment:after:20",
    "after fdatasync, before confirm": "sync:segment:after:20",
    "before a checkpoint": "write:checkpoint:before:3",
    "in a checkpoint": "write:checkpoint:after:3",
    "after a checkpoint, before segments are recycled": "sync:checkpoint:after:3",
    "while a segment is allocated": "allocate:segment:before:7",
    "after a segment is allocated": "allocate:segment:after:7",
    "long after segments were recycled": "write:segment:after:600",
}


class Told:
    """What the killed processes said, over all their lives."""

    def __init__(self) -> None:
        self.tokens: dict[int, bytes] = {}
        self.durable_lsn = 0
        self.acknowledging: dict[int, int] = {}
        self.runs: list[int] = []

    def hear(self, output: bytes) -> None:
        pending: list[int] = []
        for line in output.decode().splitlines():
            word, *rest = line.split()
            if word == "opened":
                self._opened(run=int(rest[0]), last_lsn=int(rest[1]))
            elif word == "send":
                self.tokens[int(rest[0])] = rest[1].encode()
            elif word == "refused":
                self.tokens = {lsn: token for lsn, token in self.tokens.items() if token != rest[0].encode()}
            elif word == "acknowledging":
                pending = [int(lsn) for lsn in rest]
                self.acknowledging.update(dict.fromkeys(pending, 0))
            elif word == "durable":
                self.durable_lsn = int(rest[0])
                self.acknowledging.update(dict.fromkeys(pending, 1))
                pending = []

    def _opened(self, *, run: int, last_lsn: int) -> None:
        assert last_lsn >= self.durable_lsn, (
            f"lsn {self.durable_lsn} was confirmed, the log ends at {last_lsn}"
        )
        assert not self.runs or run > self.runs[-1], "a start counter was used twice"
        self.runs.append(run)
        self.tokens = {lsn: token for lsn, token in self.tokens.items() if lsn <= last_lsn}


def kill_at(directory: Path, point: str, nth: int) -> bytes:
    """Run the process until it kills itself; what it said."""
    process = subprocess.run(
        [sys.executable, "-m", "tests.crash.journal_process", str(directory), point, str(nth)],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == -9, process.stderr.decode()
    return process.stdout


def check_nothing_lost(directory: Path, told: Told) -> None:
    """All that was confirmed and not acknowledged is held as it was sent; what was acknowledged is gone."""
    confirmations = Confirmations()
    with FileStorage(directory) as storage:
        journal, report = open_journal(storage, CONFIG, confirmations, identity=IDENTITY)
        assert report.last_lsn >= told.durable_lsn
        held = {lsn for section, lsn in journal.replay_order() if section is Section.MESSAGES}
        for lsn, token in told.tokens.items():
            is_acknowledged = told.acknowledging.get(lsn)
            if lsn in held:
                assert bytes(read_held(journal, storage, lsn).payload).startswith(token)
                assert is_acknowledged != 1, f"lsn {lsn} came back after its acknowledgement was durable"
            elif lsn <= told.durable_lsn:
                assert is_acknowledged is not None, f"lsn {lsn} was confirmed, and is lost"
        journal.check_invariants()


@pytest.mark.spec("D", "E6")
@pytest.mark.parametrize("name", POINTS)
def test_a_process_killed_at_any_step_loses_nothing(name: str, tmp_path: Path) -> None:
    point, _, nth = POINTS[name].rpartition(":")
    told = Told()
    told.hear(kill_at(tmp_path, point, int(nth)))
    check_nothing_lost(tmp_path, told)


def test_the_judge_finds_a_lost_record(tmp_path: Path) -> None:
    told = Told()
    told.hear(kill_at(tmp_path, "sync:segment:after", 20))
    told.tokens[told.durable_lsn + 1] = b"never recorded"
    told.durable_lsn += 1
    with pytest.raises(AssertionError):
        check_nothing_lost(tmp_path, told)


@pytest.mark.soak
def test_hundreds_of_kills_of_one_journal_lose_nothing(tmp_path: Path) -> None:
    random = Random(1)
    told = Told()
    for _ in range(400):
        moment = random.choice(("before", "after"))
        told.hear(kill_at(tmp_path, f"any::{moment}", random.randint(1, 400)))
