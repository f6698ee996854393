"""An owner of a journal for the writer's tests, and a disk in memory that waits, fails and breaks when told to."""

from __future__ import annotations

import threading
from queue import SimpleQueue

from holdfast.disk.writer import JournalWriter
from holdfast.journal.config import JournalConfig
from holdfast.journal.format import Kind, Section
from holdfast.journal.memory_storage import MemoryStorage
from holdfast.journal.opening import Identity, open_journal
from holdfast.journal.persistent_memory import Confirmations, PersistentMemory
from holdfast.journal.storage import Buffer, Storage

KIB = 1024
WAIT_S = 20.0
BODY = b"x" * KIB
ALWAYS_THREAD = 0
ALWAYS_INLINE = 1 << 30

CONFIG = JournalConfig(
    segment_bytes=32 * KIB,
    segments_max=12,
    segments_ahead=1,
    record_bytes_max=4 * KIB,
    group_bytes_max=128 * KIB,
    group_reserve_bytes=8 * KIB,
    held_records_max=1000,
    reserve_acknowledgements=16,
    reserve_system_events=2,
    state_bytes_max=KIB,
    checkpoint_interval_bytes=64 * KIB,
    boot_bytes=8 * KIB,
)


class TroubledStorage(MemoryStorage):
    """Memory whose calls can be made to fail, or to wait for a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: dict[str, BaseException] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.has_reached_gate = threading.Event()
        self.sync_threads: list[str] = []

    def _trouble(self, call: str) -> None:
        if call in self.errors:
            raise self.errors[call]

    def allocate(self, name: str, size_bytes: int, *, head: bytes = b"") -> None:
        self.has_reached_gate.set()
        assert self.gate.wait(WAIT_S)
        self._trouble("allocate")
        super().allocate(name, size_bytes, head=head)

    def write(self, name: str, offset: int, data: Buffer) -> None:
        self._trouble("write checkpoint" if name.startswith("checkpoint") else "write")
        super().write(name, offset, data)

    def sync(self, name: str) -> None:
        self.sync_threads.append(threading.current_thread().name)
        self._trouble("sync")
        super().sync(name)


class Owner:
    """The thread of the test as the journal's owner: it waits to be notified, then collects and pumps."""

    def __init__(self, storage: Storage, *, inline_bytes_max: int = ALWAYS_THREAD) -> None:
        self.storage = storage
        self.notices: SimpleQueue[str] = SimpleQueue()
        self.confirmations = Confirmations()
        self.journal, _ = open_journal(storage, CONFIG, self.confirmations, identity=Identity(salt=7))
        self.memory = PersistentMemory(self.journal, self.confirmations)
        self.writer = JournalWriter(
            self.journal, storage, notify=self._notify, inline_bytes_max=inline_bytes_max
        )

    def _notify(self) -> None:
        self.notices.put(threading.current_thread().name)

    def append(self, count: int = 1) -> int:
        lsn = 0
        for _ in range(count):
            lsn = self.journal.append(Section.MESSAGES, Kind.MESSAGE, (BODY,), is_held=True)
        return lsn

    def step(self) -> str:
        """Wait for one notice, take the work back, start what follows. The thread that gave notice."""
        thread = self.notices.get(timeout=WAIT_S)
        assert self.writer.collect()
        self.writer.pump()
        return thread

    def fill(self, count: int) -> None:
        """As many groups of one message, each settled before the next."""
        for _ in range(count):
            self.append()
            self.settle()

    def settle(self) -> None:
        """Until the journal wants nothing more."""
        self.writer.pump()
        while self.writer.is_busy:
            self.notices.get(timeout=WAIT_S)
            self.writer.collect()
            self.writer.pump()
