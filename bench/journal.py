"""The journal against the bare disk: group commit, one record at a time, recovery.

The bare side writes the same payloads, already joined to groups, into files written before, and syncs: the most
that this disk gives to anyone. All sides run in turns, round by round; the ratio is the median over the rounds
of (journal / bare) within one round.

Sides: `inline` waits for the disk on the owner's thread, `thread` hands every group over and gathers the next one
meanwhile, `writer` is `JournalWriter.pump` as it ships, which chooses between them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from time import perf_counter

import msgspec

from bench.recovery import measure_recovery
from bench.report import Goal, Row, Section
from bench.scale import Scale
from holdfast.disk import FileStorage
from holdfast.disk.writer import JournalWriter
from holdfast.journal import format as journal_format
from holdfast.journal.config import JournalConfig
from holdfast.journal.opening import Identity, close_journal, open_journal, run_work
from holdfast.journal.persistent_memory import Confirmations, PersistentMemory
from holdfast.message import Message, encode

BARE_FILES = 8
STEP_S_MAX = 60.0  # a disk that needs longer for one group is not worth measuring

BANDWIDTH_GOAL = Goal("ratio", at_least=0.7)
WAIT_GOAL = Goal("ratio", at_most=1.5)

Round = Callable[[], float]


def run(directory: Path, scale: Scale) -> list[Section]:
    with FileStorage(directory / "journal") as storage:
        bed = JournalBed(storage, scale.config)
        bare = BareDisk(directory / "bare", scale.config.segment_bytes)
        try:
            sections = [measure_group_commit(bed, bare, scale), measure_light_load(bed, bare, scale)]
        finally:
            bed.close()
            bare.close()
    sections.append(measure_recovery(directory, scale))
    return sections


def batch(rows: int, body_bytes: int) -> bytes:
    return encode([Message(body=os.urandom(body_bytes)) for _ in range(rows)])


class BareDisk:
    """pwrite and fdatasync over files written before, round and round."""

    def __init__(self, directory: Path, file_bytes: int) -> None:
        self._file_bytes = file_bytes
        directory.mkdir()
        self._descriptors = []
        for number in range(BARE_FILES):
            descriptor = os.open(directory / f"{number}", os.O_RDWR | os.O_CREAT, 0o600)
            os.pwrite(descriptor, bytes(file_bytes), 0)
            os.fsync(descriptor)
            self._descriptors.append(descriptor)
        self._offset = 0

    def commit(self, group: bytes) -> None:
        if self._offset + len(group) > self._file_bytes:
            self._descriptors.append(self._descriptors.pop(0))
            self._offset = 0
        descriptor = self._descriptors[0]
        os.pwrite(descriptor, group, self._offset)
        os.fdatasync(descriptor)
        self._offset += len(group)

    def close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)


class JournalBed:
    """An open journal, and the writers under test: they share it, one at a time."""

    def __init__(self, storage: FileStorage, config: JournalConfig) -> None:
        confirmations = Confirmations()
        self._storage = storage
        self._notices: SimpleQueue[None] = SimpleQueue()
        made, _ = open_journal(storage, config, Confirmations(), identity=Identity(salt=7))
        close_journal(storage, made)
        # The segments are there. As long as some are free nothing is moved: that would be measured too.
        steady = msgspec.structs.replace(config, segments_ahead=1)
        self.journal, _ = open_journal(storage, steady, confirmations)
        self._memory = PersistentMemory(self.journal, confirmations)
        notify = self._notify
        self.inline = JournalWriter(self.journal, storage, notify=notify)
        self.thread = JournalWriter(self.journal, storage, notify=notify, inline_bytes_max=0)
        self.writer = JournalWriter(self.journal, storage, notify=notify)

    def _notify(self) -> None:
        self._notices.put(None)

    def append(self, payload: bytes, count: int) -> None:
        append, section, kind = (
            self.journal.append,
            journal_format.Section.MESSAGES,
            journal_format.Kind.MESSAGE,
        )
        for _ in range(count):
            append(section, kind, (payload,), is_held=True)

    def commit(self, writer: JournalWriter, payload: bytes, count: int) -> None:
        """One group. Returns when all but this one, or this one too, are durable."""
        self.append(payload, count)
        if writer is self.inline:
            writer.flush_inline()
            return
        writer.pump()
        while self.journal.next_lsn - 1 - self.journal.durable_lsn > count:
            self._step(writer)

    def finish(self, writer: JournalWriter) -> None:
        """Until everything is durable."""
        while self.journal.durable_lsn < self.journal.next_lsn - 1:
            self._step(writer)

    def _step(self, writer: JournalWriter) -> None:
        self._notices.get(timeout=STEP_S_MAX)
        writer.collect()
        writer.pump()
        if self.journal.failure is not None:
            raise self.journal.failure

    def release(self, writer: JournalWriter) -> None:
        """Not measured: let go of all that is held, so that every round finds the same free space."""
        writer.drain()
        while not self._notices.empty():
            self._notices.get()
        self._memory.confirm([lsn for _, lsn in self.journal.replay_order()])
        writer.flush_inline()
        checkpoint = self.journal.begin_checkpoint()
        assert checkpoint is not None
        run_work(self._storage, self.journal, checkpoint)

    def close(self) -> None:
        for writer in (self.inline, self.thread, self.writer):
            writer.close()

    def sides(self) -> dict[str, JournalWriter]:
        return {"inline": self.inline, "thread": self.thread, "writer": self.writer}


def take_turns(rounds: int, sides: Mapping[str, Round]) -> dict[str, list[float]]:
    """Every side once in each round, another one first each time; a first round is not counted."""
    results: dict[str, list[float]] = {name: [] for name in sides}
    order = list(sides)
    for number in range(rounds + 1):
        order.append(order.pop(0))
        for name in order:
            result = sides[name]()
            if number:
                results[name].append(result)
    return results


def median_ratio(values: list[float], bare: list[float]) -> float:
    return median(value / base for value, base in zip(values, bare, strict=True))


# -- group commit --------------------------------------------------------------------------------------------


def measure_group_commit(bed: JournalBed, bare: BareDisk, scale: Scale) -> Section:
    rows = []
    for body_bytes in scale.bodies:
        for batch_rows in scale.batches:
            payload = batch(batch_rows, body_bytes)
            for waiting in scale.waiting:
                # More than a buffer holds goes in several groups.
                room_bytes = scale.config.group_bytes_max - scale.config.group_reserve_bytes - 1024
                group = min(waiting, room_bytes // journal_format.record_bytes(len(payload)))
                results = _rounds_of_groups(bed, bare, payload, group, scale)
                parameters = {"body": body_bytes, "batch": batch_rows, "waiting": waiting, "group": group}
                rows.append(_bandwidth_row(parameters, len(payload), results))
    return Section("Group commit: MB/s of batches made durable", rows)


def _rounds_of_groups(
    bed: JournalBed, bare: BareDisk, payload: bytes, group: int, scale: Scale
) -> dict[str, list[float]]:
    """Records per second of every side, round by round."""
    joined = payload * group
    groups_max = max(2, scale.round_bytes_max // len(joined))

    def bare_round() -> float:
        return _rate(scale.round_s, groups_max, group, lambda: bare.commit(joined), lambda: None)

    def journal_round(writer: JournalWriter) -> float:
        rate = _rate(
            scale.round_s,
            groups_max,
            group,
            lambda: bed.commit(writer, payload, group),
            lambda: bed.finish(writer),
        )
        bed.release(writer)
        return rate

    sides: dict[str, Round] = {"bare": bare_round}
    for name, writer in bed.sides().items():
        sides[name] = lambda writer=writer: journal_round(writer)  # type: ignore[misc]
    return take_turns(scale.rounds, sides)


def _rate(
    round_s: float, groups_max: int, group: int, commit: Callable[[], None], finish: Callable[[], None]
) -> float:
    start_s = perf_counter()
    count = 0
    while perf_counter() - start_s < round_s and count < groups_max:
        commit()
        count += 1
    finish()
    return count * group / (perf_counter() - start_s)


def _bandwidth_row(parameters: dict[str, int], payload_bytes: int, results: dict[str, list[float]]) -> Row:
    figures = {name: median(rates) * payload_bytes / 1e6 for name, rates in results.items()}
    figures["messages/s"] = median(results["writer"]) * parameters["batch"]
    figures["inline ratio"] = median_ratio(results["inline"], results["bare"])
    figures["thread ratio"] = median_ratio(results["thread"], results["bare"])
    figures["ratio"] = median_ratio(results["writer"], results["bare"])
    goal = BANDWIDTH_GOAL if parameters["batch"] > 1 else None
    return Row(case="group commit", parameters=parameters, figures=figures, goal=goal)


# -- light load ----------------------------------------------------------------------------------------------


def measure_light_load(bed: JournalBed, bare: BareDisk, scale: Scale) -> Section:
    payload = batch(1, 256)

    def one(writer: JournalWriter) -> None:
        bed.commit(writer, payload, 1)
        bed.finish(writer)

    def journal_round(writer: JournalWriter) -> float:
        wait_s = _median_wait_s(scale.light_records, lambda: one(writer))
        bed.release(writer)
        return wait_s

    sides: dict[str, Round] = {
        "bare": lambda: _median_wait_s(scale.light_records, lambda: bare.commit(payload))
    }
    for name, writer in bed.sides().items():
        sides[name] = lambda writer=writer: journal_round(writer)  # type: ignore[misc]
    results = take_turns(scale.rounds, sides)
    rows = []
    for name, writer_goal in (("inline", None), ("thread", None), ("writer", WAIT_GOAL)):
        figures = {
            "wait µs": median(results[name]) * 1e6,
            "bare µs": median(results["bare"]) * 1e6,
            "ratio": median_ratio(results[name], results["bare"]),
        }
        rows.append(Row(case=name, parameters={"body": 256}, figures=figures, goal=writer_goal))
    return Section("Light load: median wait of one record of 256 B at a time", rows)


def _median_wait_s(count: int, commit: Callable[[], None]) -> float:
    waits_s = []
    for _ in range(count):
        start_s = perf_counter()
        commit()
        waits_s.append(perf_counter() - start_s)
    return median(waits_s)
