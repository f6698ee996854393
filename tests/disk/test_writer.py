"""The writer over real files, and over a disk in memory that waits, fails and breaks when told to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from holdfast.disk import FileStorage
from holdfast.disk.writer import JournalWriter
from holdfast.errors import JournalFailed, JournalFull, StorageFailed, StorageFull, UsageError
from holdfast.journal.format import Kind, Section
from holdfast.journal.journal import Journal
from holdfast.journal.opening import Identity, close_journal, open_journal
from holdfast.journal.persistent_memory import Confirmations
from holdfast.journal.storage import Storage
from tests.disk.journal_owner import (
    ALWAYS_INLINE,
    ALWAYS_THREAD,
    BODY,
    CONFIG,
    KIB,
    WAIT_S,
    Owner,
    TroubledStorage,
)


@pytest.fixture
def troubled() -> TroubledStorage:
    return TroubledStorage()


@pytest.fixture
def owner(troubled: TroubledStorage) -> Iterator[Owner]:
    owner = Owner(troubled)
    owner.settle()
    yield owner
    troubled.gate.set()
    owner.writer.close()


def reopened(storage: Storage) -> Journal:
    journal, _ = open_journal(storage, CONFIG, Confirmations())
    return journal


def errors_collected(writer: JournalWriter) -> int:
    """Collect all there is. How often that raised."""
    raised = 0
    while True:
        try:
            if not writer.collect():
                return raised
        except RuntimeError:
            raised += 1


class TestFlushing:
    @pytest.mark.parametrize("inline_bytes_max", [ALWAYS_THREAD, ALWAYS_INLINE])
    def test_what_is_durable_on_real_files_is_found_again(
        self, directory: Path, inline_bytes_max: int
    ) -> None:
        with FileStorage(directory) as storage:
            owner = Owner(storage, inline_bytes_max=inline_bytes_max)
            with owner.writer:
                lsns = []
                for _ in range(50):
                    lsns.append(owner.append())
                    owner.settle()
                    assert owner.journal.durable_lsn >= lsns[-1]
            assert [lsn for _, lsn in reopened(storage).replay_order()] == lsns

    def test_a_group_gathers_while_another_is_written(self, owner: Owner) -> None:
        first = owner.append()
        assert not owner.writer.pump()
        second = owner.append(3)
        assert not owner.writer.pump()
        assert owner.journal.durable_lsn < first
        assert owner.step() == "journal-flushes"
        assert first <= owner.journal.durable_lsn < second
        owner.step()
        assert owner.journal.durable_lsn == second

    def test_nothing_is_durable_before_it_is_collected(self, owner: Owner) -> None:
        lsn = owner.append()
        owner.writer.pump()
        owner.notices.get(timeout=WAIT_S)
        assert owner.journal.durable_lsn < lsn
        assert owner.writer.collect()
        assert owner.journal.durable_lsn == lsn
        assert not owner.writer.collect()

    def test_an_inline_flush_ends_on_the_thread_of_its_owner(
        self, owner: Owner, troubled: TroubledStorage
    ) -> None:
        troubled.sync_threads.clear()
        lsn = owner.append()
        assert owner.writer.flush_inline()
        assert owner.journal.durable_lsn == lsn
        assert troubled.sync_threads == [threading.current_thread().name]
        assert not owner.writer.flush_inline()

    def test_an_inline_flush_waits_its_turn(self, owner: Owner) -> None:
        owner.append()
        owner.writer.pump()
        owner.append()
        assert not owner.writer.flush_inline()
        owner.step()

    def test_a_small_group_is_written_inline_and_a_large_one_is_not(self, troubled: TroubledStorage) -> None:
        owner = Owner(troubled, inline_bytes_max=4 * KIB)
        with owner.writer:
            owner.settle()
            owner.append()
            assert owner.writer.pump()
            owner.append(4)
            assert not owner.writer.pump()
            owner.settle()

    def test_a_slow_disk_is_waited_for_on_its_thread_until_it_is_quick_again(
        self, troubled: TroubledStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now_s = [0.0]
        pace_s = [1.0]

        def clock() -> float:
            now_s[0] += pace_s[0]
            return now_s[0]

        monkeypatch.setattr("holdfast.disk.writer.perf_counter", clock)
        owner = Owner(troubled, inline_bytes_max=ALWAYS_INLINE)
        with owner.writer:
            owner.settle()
            owner.append()
            assert owner.writer.pump()
            pace_s[0] = 0.0
            owner.append()
            assert not owner.writer.pump()
            owner.settle()
            owner.append()
            assert owner.writer.pump()

    def test_an_idle_log_is_attested_once(self, owner: Owner) -> None:
        owner.append()
        owner.settle()
        assert owner.journal.attested_lsn < owner.journal.durable_lsn
        owner.writer.attest()
        owner.step()
        assert owner.journal.attested_lsn == owner.journal.durable_lsn
        assert not owner.writer.attest()
        assert not owner.writer.is_busy


class TestMaintenance:
    def test_a_blocked_allocation_does_not_hold_up_a_flush(
        self, owner: Owner, troubled: TroubledStorage
    ) -> None:
        troubled.gate.clear()
        troubled.has_reached_gate.clear()
        while not troubled.has_reached_gate.is_set():
            owner.append(8)
            owner.writer.pump()
            assert owner.step() == "journal-flushes"
            if owner.journal.pool.is_allocating:
                assert troubled.has_reached_gate.wait(WAIT_S)
        for _ in range(5):
            lsn = owner.append()
            owner.writer.pump()
            assert owner.step() == "journal-flushes"
            assert owner.journal.durable_lsn == lsn
        assert owner.journal.pool.is_allocating
        troubled.gate.set()
        assert owner.step() == "journal-upkeep"

    def test_while_maintenance_runs_a_flush_goes_to_its_thread(self, troubled: TroubledStorage) -> None:
        owner = Owner(troubled, inline_bytes_max=ALWAYS_INLINE)
        with owner.writer:
            owner.settle()
            troubled.gate.clear()
            while not owner.journal.pool.is_allocating:
                owner.append(8)
                owner.writer.pump()
            owner.append()
            assert not owner.writer.pump()
            assert owner.step() == "journal-flushes"
            troubled.gate.set()
            owner.settle()

    def test_segments_are_allocated_ahead_and_checkpoints_written(self, owner: Owner) -> None:
        segments = owner.journal.pool.total_count
        owner.fill(100)
        assert owner.journal.pool.total_count > segments
        assert owner.journal.checkpoint_number > 0
        owner.journal.check_invariants()

    def test_a_log_far_longer_than_its_quota_goes_round(self, owner: Owner) -> None:
        """Most is confirmed at once; one message in thirty stays, and is moved forward when space is short."""
        kept = []
        for number in range(1000):
            lsn = owner.append()
            owner.settle()
            if number % 30:
                owner.memory.confirm([lsn])
            else:
                kept.append(lsn)
        owner.settle()
        assert owner.journal.pool.total_count == CONFIG.segments_max
        assert [lsn for _, lsn in owner.journal.replay_order()] == kept
        oldest = next(iter(owner.journal.segments))
        assert oldest.base_lsn > kept[0]
        owner.journal.check_invariants()

    def test_a_refused_allocation_is_tried_again_when_the_owner_says_so(
        self, owner: Owner, troubled: TroubledStorage
    ) -> None:
        troubled.errors["allocate"] = StorageFull("no room")
        with pytest.raises(JournalFull):
            owner.fill(1000)
        assert owner.journal.pool.is_refused
        assert owner.journal.failure is None
        troubled.errors.clear()
        owner.settle()
        assert owner.journal.pool.is_refused
        owner.writer.retry()
        owner.settle()
        assert not owner.journal.pool.is_refused
        assert owner.append()


class TestErrors:
    @pytest.mark.parametrize("call", ["write", "sync"])
    @pytest.mark.parametrize("start", [JournalWriter.pump, JournalWriter.flush_inline])
    def test_a_failed_flush_stops_the_journal(
        self,
        owner: Owner,
        troubled: TroubledStorage,
        call: str,
        start: Callable[[JournalWriter], bool],
    ) -> None:
        failure = StorageFailed("input/output error")
        troubled.errors[call] = failure
        lsn = owner.append()
        if not start(owner.writer):
            owner.step()
        assert owner.journal.failure is failure
        assert owner.journal.durable_lsn < lsn
        with pytest.raises(JournalFailed):
            owner.append()

    def test_a_failed_checkpoint_stops_the_journal(self, owner: Owner, troubled: TroubledStorage) -> None:
        troubled.errors["write checkpoint"] = StorageFailed("input/output error")
        with pytest.raises(JournalFailed):
            owner.fill(100)

    @pytest.mark.parametrize("broken", [ZeroDivisionError("a bug"), KeyboardInterrupt()])
    def test_any_other_error_of_a_worker_is_raised_where_its_work_is_collected(
        self, owner: Owner, troubled: TroubledStorage, broken: BaseException
    ) -> None:
        troubled.errors["sync"] = broken
        lsn = owner.append()
        owner.writer.pump()
        owner.notices.get(timeout=WAIT_S)
        with pytest.raises(type(broken)) as raised:
            owner.writer.collect()
        assert raised.value is broken
        assert isinstance(owner.journal.failure, StorageFailed)
        assert owner.journal.durable_lsn < lsn
        assert not owner.writer.is_busy

    def test_any_other_error_of_an_inline_flush_is_raised_there(
        self, owner: Owner, troubled: TroubledStorage
    ) -> None:
        troubled.errors["sync"] = ZeroDivisionError("a bug")
        owner.append()
        with pytest.raises(ZeroDivisionError, match="a bug"):
            owner.writer.flush_inline()
        assert isinstance(owner.journal.failure, StorageFailed)

    def test_an_error_leaves_what_else_is_finished_to_be_collected(
        self, owner: Owner, troubled: TroubledStorage
    ) -> None:
        troubled.errors["allocate"] = ZeroDivisionError("a bug")
        troubled.gate.clear()
        while not owner.journal.pool.is_allocating:
            owner.append(8)
            owner.writer.pump()
            owner.step()
        troubled.gate.set()
        owner.notices.get(timeout=WAIT_S)
        lsn = owner.append()
        owner.writer.pump()
        owner.notices.get(timeout=WAIT_S)
        with pytest.raises(ZeroDivisionError):
            owner.writer.collect()
        assert owner.writer.collect()
        assert owner.journal.durable_lsn == lsn

    def test_a_broken_notify_is_raised_and_ends_no_thread(self, troubled: TroubledStorage) -> None:
        journal, _ = open_journal(troubled, CONFIG, Confirmations(), identity=Identity(salt=7))
        notices: SimpleQueue[None] = SimpleQueue()

        def broken() -> None:
            notices.put(None)
            raise RuntimeError("the loop is closed")

        writer = JournalWriter(journal, troubled, notify=broken, inline_bytes_max=ALWAYS_THREAD)
        raised = 0
        for _ in range(3):
            lsn = journal.append(Section.MESSAGES, Kind.MESSAGE, (BODY,), is_held=True)
            writer.pump()
            notices.get(timeout=WAIT_S)
            raised += errors_collected(writer)
            assert journal.durable_lsn == lsn
        writer.close()
        assert raised + errors_collected(writer) == 3


class TestClosing:
    def test_closing_makes_everything_durable(self, directory: Path) -> None:
        with FileStorage(directory) as storage:
            owner = Owner(storage)
            owner.append(3)
            owner.writer.pump()
            last = owner.append(3)
            owner.writer.close()
            assert owner.journal.durable_lsn == last
            close_journal(storage, owner.journal)
            assert reopened(storage).held.count == 6

    def test_closing_ends_the_threads_and_a_second_time_is_harmless(self, troubled: TroubledStorage) -> None:
        before = threading.active_count()
        owner = Owner(troubled)
        assert threading.active_count() == before + 2
        owner.writer.close()
        owner.writer.close()
        assert threading.active_count() == before

    def test_a_closed_writer_starts_nothing(self, troubled: TroubledStorage) -> None:
        owner = Owner(troubled)
        owner.writer.close()
        owner.append()
        for start in (owner.writer.pump, owner.writer.attest, owner.writer.retry, owner.writer.flush_inline):
            with pytest.raises(UsageError, match="closed"):
                start()

    def test_draining_waits_for_maintenance_and_starts_none(
        self, owner: Owner, troubled: TroubledStorage
    ) -> None:
        troubled.gate.clear()
        while not owner.journal.pool.is_allocating:
            owner.append(8)
            owner.writer.pump()
            owner.step()
        opener = threading.Timer(0.05, troubled.gate.set)
        opener.start()
        lsn = owner.append(8)
        owner.writer.drain()
        opener.join()
        assert owner.journal.durable_lsn == lsn
        assert not owner.journal.pool.is_allocating
        assert not owner.writer.is_busy

    def test_closing_a_failed_journal_ends(self, troubled: TroubledStorage) -> None:
        owner = Owner(troubled)
        troubled.errors["sync"] = StorageFailed("input/output error")
        owner.append(2)
        owner.writer.pump()
        owner.append(2)
        owner.writer.close()
        assert isinstance(owner.journal.failure, StorageFailed)

    def test_closing_ends_the_threads_where_draining_raises(self, troubled: TroubledStorage) -> None:
        before = threading.active_count()
        owner = Owner(troubled)
        troubled.errors["sync"] = ZeroDivisionError("a bug")
        owner.append()
        with pytest.raises(ZeroDivisionError):
            owner.writer.close()
        assert threading.active_count() == before
