"""Recovery of many held messages, each step in a process of its own: one fills a journal and dies, one opens it.

The worst moment to die is just before a checkpoint is due: the filler takes its last checkpoint one interval
before the end, so that recovery has a whole interval to read again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter

import msgspec

from bench.report import Row, Section
from bench.scale import Scale
from holdfast.disk import FileStorage
from holdfast.disk.writer import JournalWriter
from holdfast.journal import format as journal_format
from holdfast.journal.config import MIB, JournalConfig
from holdfast.journal.journal import Journal
from holdfast.journal.opening import Identity, open_journal
from holdfast.journal.persistent_memory import Confirmations
from holdfast.message import Message, encode

BODY_BYTES = 256
GROUP_BYTES = 2 * MIB
# Of the interval between checkpoints, what is recorded after the last one: nearly all, and none becomes due.
INTERVAL_SHARE = 0.97


class Opened(msgspec.Struct, frozen=True):
    """What the opening process has to report."""

    ready_s: float
    rss_growth_bytes: int
    rss_peak_growth_bytes: int
    replayed_records: int
    held_records: int
    files_bytes: int


def measure_recovery(directory: Path, scale: Scale) -> Section:
    rows = [_measure(directory, scale, batch_rows) for batch_rows in (1, 256)]
    return Section("Recovery of held messages of 256 B, at the worst moment between checkpoints", rows)


def _measure(directory: Path, scale: Scale, batch_rows: int) -> Row:
    messages = scale.recovery_messages
    config = msgspec.json.encode(scale.recovery_config).decode()
    journal_directory = directory / f"recovery-{batch_rows}"
    _run("fill", str(journal_directory), config, str(-(-messages // batch_rows)), str(batch_rows))
    opened = msgspec.json.decode(_run("open", str(journal_directory), config), type=Opened)
    figures = {
        "ready s": opened.ready_s,
        "replayed": float(opened.replayed_records),
        "RSS MiB": opened.rss_growth_bytes / MIB,
        "peak RSS MiB": opened.rss_peak_growth_bytes / MIB,
        "files MiB": opened.files_bytes / MIB,
    }
    parameters = {"messages": messages, "batch": batch_rows, "records": opened.held_records}
    return Row(case="recovery", parameters=parameters, figures=figures)


def _run(*arguments: str) -> bytes:
    root = Path(__file__).parent.parent
    command = [sys.executable, "-m", "bench.recovery", *arguments]
    return subprocess.run(command, cwd=root, stdout=subprocess.PIPE, check=True).stdout


# -- in the processes of their own ---------------------------------------------------------------------------


def fill(directory: Path, config: JournalConfig, *, records: int, batch_rows: int) -> None:
    """Hold so many records, then die without closing anything."""
    payload = encode([Message(body=os.urandom(BODY_BYTES)) for _ in range(batch_rows)])
    size = journal_format.record_bytes(len(payload))
    storage = FileStorage(directory)
    journal, _ = open_journal(storage, config, Confirmations(), identity=Identity(salt=7))
    notices: SimpleQueue[None] = SimpleQueue()
    writer = JournalWriter(journal, storage, notify=lambda: notices.put(None))
    last_checkpoint_at = records - int(config.checkpoint_interval_bytes * INTERVAL_SHARE) // size
    for begin, end in ((0, max(0, last_checkpoint_at)), (max(0, last_checkpoint_at), records)):
        for first in range(begin, end, GROUP_BYTES // size):
            _append(journal, payload, min(GROUP_BYTES // size, end - first))
            _settle(writer, notices)
        if begin < end < records:
            checkpoint = journal.begin_checkpoint()
            assert checkpoint is not None
            checkpoint.run(storage)
            journal.finish(checkpoint)
    os._exit(0)


def _append(journal: Journal, payload: bytes, count: int) -> None:
    for _ in range(count):
        journal.append(journal_format.Section.MESSAGES, journal_format.Kind.MESSAGE, (payload,), is_held=True)


def _settle(writer: JournalWriter, notices: SimpleQueue[None]) -> None:
    """Until the group is durable and the next segments are there."""
    writer.pump()
    while writer.is_busy:
        notices.get()
        writer.collect()
        writer.pump()


def open_and_report(directory: Path, config: JournalConfig) -> Opened:
    before, peak_before = _rss_bytes("VmRSS"), _rss_bytes("VmHWM")
    start_s = perf_counter()
    storage = FileStorage(directory)
    journal, report = open_journal(storage, config, Confirmations())
    ready_s = perf_counter() - start_s
    opened = Opened(
        ready_s,
        _rss_bytes("VmRSS") - before,
        _rss_bytes("VmHWM") - peak_before,
        report.replayed_records,
        journal.held.count,
        sum(storage.size(name) for name in storage.names()),
    )
    storage.close()
    return opened


def _rss_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def main(step: str, directory: str, config_json: str, *numbers: str) -> None:
    config = msgspec.json.decode(config_json, type=JournalConfig)
    if step == "fill":
        records, batch_rows = map(int, numbers)
        fill(Path(directory), config, records=records, batch_rows=batch_rows)
    else:
        sys.stdout.buffer.write(msgspec.json.encode(open_and_report(Path(directory), config)))


if __name__ == "__main__":
    main(*sys.argv[1:])
