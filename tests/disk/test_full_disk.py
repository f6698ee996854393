"""A real disk, filled for real by somebody else's file (E4)."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from holdfast.disk import FileStorage
from holdfast.errors import JournalFull, StorageError, StorageFull
from holdfast.journal.config import KIB, JournalConfig
from holdfast.journal.exhaustion import EXHAUSTED_TYPE, RESUMED_TYPE
from holdfast.journal.format import Kind
from holdfast.journal.journal import Journal
from holdfast.journal.lookup import read_held
from holdfast.journal.opening import Identity, open_journal, run_work
from holdfast.journal.persistent_memory import Confirmations, PersistentMemory
from holdfast.journal.work import Work
from holdfast.message import Batch

CONFIG = JournalConfig(
    segment_bytes=64 * KIB,
    segments_max=1_000,
    segments_ahead=2,
    record_bytes_max=4 * KIB,
    group_bytes_max=32 * KIB,
    group_reserve_bytes=4 * KIB,
    held_records_max=1_000,
    reserve_acknowledgements=1_100,
    reserve_system_events=4,
    state_bytes_max=64,
    checkpoint_interval_bytes=256 * KIB,
    boot_bytes=8 * KIB,
)


class Node:
    """Drives a journal as a node would, in one thread."""

    def __init__(self, storage: FileStorage, config: JournalConfig = CONFIG) -> None:
        self.storage = storage
        confirmations = Confirmations()
        self.journal, _ = open_journal(storage, config, confirmations, identity=Identity(salt=5))
        self.memory = PersistentMemory(self.journal, confirmations)

    def turn(self) -> None:
        """Write what is gathered, and do whatever else the journal wants."""
        self._do(self.journal.begin_flush())
        if self.journal.wants_checkpoint():
            self._do(self.journal.begin_checkpoint())
        self._do(self.journal.begin_move())
        self._do(self.journal.begin_allocation())
        self.memory.watch(time_us=2)

    def _do(self, work: Work | None) -> None:
        if work is None:
            return
        try:
            run_work(self.storage, self.journal, work)
        except StorageError as error:
            self.journal.abort(work, error)

    def produce_until_full(self) -> None:
        """Large messages, then small ones, so that not even these fit."""
        for size in (2_000, 16):
            for _ in range(20_000):
                try:
                    self.memory.record((bytes(size),), time_us=1)
                except JournalFull:
                    self.turn()
                    if not self.journal.admits(size):
                        break
                self.turn()
            else:
                raise AssertionError("the journal never filled")

    def confirm_all(self) -> None:
        for _ in range(100):
            held = [lsn for _, lsn in self.journal.replay_order()]
            for start in range(0, len(held), 10):
                self.memory.confirm(held[start : start + 10])
                self.turn()
            self.turn()
            if not self.memory.is_paused:
                return

    def held_events(self) -> list[str]:
        return event_types(self.journal, self.storage)


def event_types(journal: Journal, storage: FileStorage) -> list[str]:
    records = [read_held(journal, storage, lsn) for _, lsn in journal.replay_order()]
    return [
        Batch.parse(record.payload).message(0).type for record in records if record.kind == Kind.SYSTEM_EVENT
    ]


def check_exhaustion_is_survived(disk: Path, config: JournalConfig = CONFIG, *, fill: bool = True) -> None:
    """The whole of E4, on the disk that is mounted at `disk`."""
    directory, filler = disk / "journal", disk / "filler"
    with FileStorage(directory) as storage:
        node = Node(storage, config)
        if fill:
            fill_disk(filler)
        node.produce_until_full()
        node.turn()
        held_before = list(node.journal.replay_order())
        assert node.held_events() == [EXHAUSTED_TYPE]
    with FileStorage(directory) as storage:
        node = Node(storage, config)
        assert list(node.journal.replay_order()) == held_before, "something was lost"
        assert node.held_events() == [EXHAUSTED_TYPE], "the event that says so must survive a restart"
        with pytest.raises(JournalFull):
            node.memory.record((bytes(4_000),), time_us=3)
        node.confirm_all()
        assert not node.memory.is_paused, "space came back, but flow did not resume"
        assert RESUMED_TYPE in node.held_events()
        node.memory.record((b"after",), time_us=4)
        node.turn()
        segments_before = node.journal.pool.total_count
        filler.unlink(missing_ok=True)
        node.journal.retry_allocation()
        for _ in range(400):
            node.memory.record((bytes(1_000),), time_us=5)
            node.turn()
        if fill:
            assert node.journal.pool.total_count > segments_before, "the pool did not grow on the free disk"


def fill_disk(path: Path) -> None:
    """Write until there is really no room for another byte."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        for size in (65_536, 4_096, 1):
            while True:
                try:
                    os.write(descriptor, bytes(size))
                except OSError:
                    break
    finally:
        os.close(descriptor)


@pytest.mark.spec("E4")
def test_a_full_disk_is_recorded_survived_and_left_behind(small_disk: Path) -> None:
    check_exhaustion_is_survived(small_disk)


@pytest.mark.spec("E4")
def test_a_used_up_quota_is_recorded_survived_and_left_behind(tmp_path: Path) -> None:
    config = msgspec.structs.replace(CONFIG, segments_max=CONFIG.segments_at_start + 4)
    check_exhaustion_is_survived(tmp_path, config, fill=False)


@pytest.mark.control("E4")
def test_without_the_reserve_the_exhaustion_is_not_survived(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("acknowledgements", "moves", "system_events"):
        monkeypatch.setattr(JournalConfig, f"{name}_budget_bytes", 0)
    with pytest.raises((AssertionError, JournalFull)):
        check_exhaustion_is_survived(small_disk)


def test_a_node_does_not_start_without_room_for_its_reserve(small_disk: Path) -> None:
    fill_disk(small_disk / "filler")
    with FileStorage(small_disk) as storage, pytest.raises(StorageFull, match="reserve"):
        Node(storage)
