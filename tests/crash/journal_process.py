"""A process that works on a journal until it kills itself with -9 at a chosen moment.

It tells its parent what it does, line by line, before and after: what it sent, what was confirmed to it, what it
confirmed as a recipient, what of that is durable. The parent judges by these lines alone.

Usage: journal_process DIRECTORY POINT NTH, where POINT is `operation:file:moment`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random

from holdfast.disk import FileStorage
from holdfast.errors import JournalFull
from holdfast.journal.boot import BootSection
from holdfast.journal.config import KIB, JournalConfig
from holdfast.journal.opening import Identity, open_journal, prepare_journal, run_work
from holdfast.journal.persistent_memory import Confirmations, PersistentMemory
from holdfast.journal.work import Work
from tests.crash.killing_storage import KillingStorage

CONFIG = JournalConfig(
    segment_bytes=32 * KIB,
    segments_max=14,
    segments_ahead=2,
    record_bytes_max=2 * KIB,
    group_bytes_max=16 * KIB,
    group_reserve_bytes=4 * KIB,
    held_records_max=400,
    reserve_acknowledgements=450,
    reserve_system_events=4,
    state_bytes_max=64,
    checkpoint_interval_bytes=48 * KIB,
    boot_bytes=4 * KIB,
)
IDENTITY = Identity(salt=99, site=1, node=1)
ROUNDS_MAX = 5_000


def tell(line: str) -> None:
    os.write(1, f"{line}\n".encode())


class Worker:
    """Records, confirms, flushes and maintains, for as long as it lives."""

    def __init__(self, storage: FileStorage, random: Random) -> None:
        self._storage = storage
        self._random = random
        state = prepare_journal(storage, CONFIG, IDENTITY)
        self._boot = BootSection(storage, salt=state.salt)
        self._boot.record(b"started")
        confirmations = Confirmations()
        self._journal, _ = open_journal(storage, CONFIG, confirmations, identity=IDENTITY)
        self._memory = PersistentMemory(self._journal, confirmations)
        tell(f"opened {self._journal.run} {self._journal.next_lsn - 1}")
        self._memory.take_over_boot_events(self._boot)
        self._flush()
        self._boot.clear()

    def run(self) -> None:
        for _ in range(ROUNDS_MAX):
            self._produce()
            self._consume()
            self._flush()
            self._maintain()

    def _produce(self) -> None:
        for _ in range(self._random.randint(1, 8)):
            token = f"{self._journal.run}-{self._journal.next_lsn}".encode()
            tell(f"send {self._journal.next_lsn} {token.decode()}")
            try:
                self._memory.record((token, bytes(self._random.randint(0, 900))), time_us=1)
            except JournalFull:
                tell(f"refused {token.decode()}")

    def _consume(self) -> None:
        held = [lsn for _, lsn in self._memory.journal.replay_order()]
        chosen = [lsn for lsn in held[:40] if self._random.random() < 0.5]
        if chosen and (len(held) > 150 or self._random.random() < 0.3):
            tell("acknowledging " + " ".join(map(str, chosen)))
            self._memory.confirm(chosen)

    def _flush(self) -> None:
        self._do(self._journal.begin_flush())
        tell(f"durable {self._journal.durable_lsn}")

    def _maintain(self) -> None:
        self._memory.watch(time_us=1)
        if self._journal.wants_checkpoint():
            self._do(self._journal.begin_checkpoint())
        self._do(self._journal.begin_move())
        self._do(self._journal.begin_allocation())
        if self._random.random() < 0.1:
            self._do(self._journal.begin_attestation())

    def _do(self, work: Work | None) -> None:
        if work is not None:
            run_work(self._storage, self._journal, work)


def main() -> None:
    directory, point, nth = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    operation, file, moment = point.split(":")
    storage = KillingStorage(directory, operation=operation, file=file, moment=moment, nth=nth)
    Worker(storage, Random(nth)).run()


if __name__ == "__main__":
    main()
