"""The journal itself: durable and committed, failures, limits, admission."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pytest

from holdfast.errors import (
    JournalCorrupt,
    JournalFailed,
    JournalFull,
    LimitExceeded,
    NotHeld,
    StorageFailed,
    UsageError,
)
from holdfast.journal.config import JournalConfig
from holdfast.journal.format import Kind, Record, Section
from holdfast.journal.persistent_memory import Confirmations
from holdfast.journal.space import Budget
from holdfast.journal.storage import Storage
from tests.journal.small_journal import (
    SMALL,
    TINY,
    Shell,
    faulty,
    fill_disk,
    fill_memory,
    open_small,
    payload_for,
)


class Recorder(Confirmations):
    """A state that remembers what was applied."""

    def __init__(self, snapshot: bytes = b"") -> None:
        super().__init__()
        self.applied: list[int] = []
        self._snapshot = snapshot

    def apply(self, record: Record) -> list[int]:
        self.applied.append(record.lsn)
        return list(super().apply(record))

    def snapshot(self) -> bytes:
        return self._snapshot


def opened(*, seed: int = 1, config: JournalConfig = SMALL, commits_when_durable: bool = True) -> Shell:
    return open_small(faulty(seed), config, commits_when_durable=commits_when_durable)


# -- durable and committed -------------------------------------------------------------------------------


def test_a_record_is_durable_only_after_its_flush_has_finished() -> None:
    shell = opened()
    lsn = shell.record(b"one")
    assert shell.journal.durable_lsn < lsn
    flush = shell.journal.begin_flush()
    assert flush is not None
    flush.run(shell.storage)
    assert shell.journal.durable_lsn < lsn
    assert shell.journal.held.count == 0
    shell.journal.finish(flush)
    assert shell.journal.durable_lsn == shell.journal.commit_lsn == lsn
    assert shell.held() == {lsn: b"one"}


def test_what_is_appended_during_a_flush_waits_for_the_next() -> None:
    shell = opened()
    first = shell.record(b"one")
    flush = shell.journal.begin_flush()
    assert flush is not None
    second = shell.record(b"two")
    assert shell.journal.begin_flush() is None
    shell.run(flush)
    assert shell.journal.durable_lsn == first
    assert shell.flush() == second


def test_an_idle_journal_has_nothing_to_flush() -> None:
    assert opened().journal.begin_flush() is None


def test_durable_is_not_committed_until_it_is_said_so() -> None:
    storage, state = faulty(), Recorder()
    shell = open_small(storage, commits_when_durable=False, state=state)
    for number in range(4):
        shell.record(payload_for(number))
    shell.flush()
    assert (shell.journal.durable_lsn, shell.journal.commit_lsn, state.applied) == (4, 0, [])
    assert shell.held() == {}
    shell.journal.commit_to(2)
    assert (shell.journal.commit_lsn, state.applied) == (2, [1, 2])
    assert list(shell.held()) == [1, 2]
    shell.journal.check_invariants()


def test_what_is_not_durable_cannot_be_committed() -> None:
    shell = opened(commits_when_durable=False)
    shell.record(b"one")
    with pytest.raises(UsageError, match="only 0 is durable"):
        shell.journal.commit_to(1)


def test_committing_what_was_committed_changes_nothing() -> None:
    shell = opened(commits_when_durable=False)
    for _ in range(3):
        shell.record(b"one")
    shell.flush()
    shell.journal.commit_to(2)
    shell.journal.commit_to(1)
    assert shell.journal.commit_lsn == 2


def test_a_checkpoint_holds_only_what_is_committed() -> None:
    storage, state = faulty(), Recorder()
    shell = open_small(storage, commits_when_durable=False)
    for number in range(6):
        shell.record(payload_for(number))
        if number % 2:
            shell.flush()
    shell.journal.commit_to(3)
    shell.checkpoint()
    reopened = open_small(storage, commits_when_durable=False, state=state)
    assert reopened.journal.commit_lsn == 3
    assert list(reopened.held()) == [1, 2, 3]
    assert reopened.journal.durable_lsn == 6
    reopened.journal.commit_to(6)
    assert state.applied == [4, 5, 6]
    assert list(reopened.held()) == [1, 2, 3, 4, 5, 6]
    reopened.journal.check_invariants()


def test_segments_of_what_is_not_committed_do_not_wait_for_a_checkpoint() -> None:
    shell = opened(commits_when_durable=False)
    while shell.journal.admits(1000):
        shell.record(payload_for(1, 1000))
        shell.flush()
    shell.checkpoint()
    assert not shell.journal.wants_checkpoint(), (
        "a checkpoint that frees nothing is asked for again and again"
    )


def test_the_state_is_built_by_the_same_calls_in_recovery() -> None:
    storage, before, after = faulty(), Recorder(), Recorder()
    shell = open_small(storage, state=before)
    for number in range(30):
        shell.record(payload_for(number))
        if number % 4 == 0:
            shell.flush()
    shell.flush()
    open_small(storage, state=after)
    assert after.applied == before.applied == list(range(1, 31))


def test_the_state_above_is_restored_from_the_checkpoint() -> None:
    class Restored(Recorder):
        def restore(self, snapshot: object) -> None:
            super().restore(b"")
            self.found = bytes(snapshot)  # type: ignore[call-overload]

    storage = faulty()
    shell = open_small(storage, state=Recorder(b"the state above"))
    shell.record(b"one")
    shell.flush()
    shell.checkpoint()
    state = Restored()
    open_small(storage, state=state)
    assert state.found == b"the state above"


def test_a_state_above_its_limit_gives_no_checkpoint_and_says_why_and_the_log_goes_on() -> None:
    storage = faulty()
    state = Recorder(bytes(SMALL.state_bytes_max + 1))
    shell = open_small(storage, state=state)
    assert shell.journal.begin_checkpoint() is None
    assert "state_bytes_max" in shell.journal.checkpoint_problem
    assert not shell.journal.wants_checkpoint()
    assert shell.journal.failure is None


# -- failures --------------------------------------------------------------------------------------------


def check_refuses_everything(shell: Shell) -> None:
    journal = shell.journal
    for budget in Budget:
        with pytest.raises(JournalFailed):
            journal.append(Section.MESSAGES, Kind.MESSAGE, (b"x",), budget=budget)
    assert journal.begin_flush() is None
    assert journal.begin_attestation() is None
    assert journal.begin_checkpoint() is None
    assert journal.begin_allocation() is None
    assert journal.begin_move() is None
    assert not journal.wants_checkpoint()
    assert not journal.admits(1)


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("fault", ["sync", "write"])
def test_a_failed_flush_confirms_nothing_stops_the_journal_and_leaves_what_is_really_there(
    fault: str, seed: int
) -> None:
    storage = faulty(seed)
    shell = open_small(storage)
    kept = shell.record(payload_for(0))
    shell.flush()
    doubtful = [shell.record(payload_for(number, 900)) for number in range(1, 10)]
    storage.fail_sync() if fault == "sync" else storage.fail_write()
    shell.flush()
    assert isinstance(shell.journal.failure, StorageFailed)
    assert shell.journal.durable_lsn == shell.journal.commit_lsn == kept
    assert list(shell.held()) == [kept]
    check_refuses_everything(shell)
    reopened = open_small(storage)
    held = reopened.held()
    assert held[kept] == payload_for(0)
    assert list(held) == [kept, *doubtful][: len(held)], "what is there is a prefix of what was recorded"
    storage.power_loss()
    assert open_small(storage).held() == held, "what was found after the failure was not durable"


@pytest.mark.parametrize("seed", range(15))
def test_a_segment_header_that_a_failed_sync_lost_is_not_believed(seed: int) -> None:
    storage = faulty(seed)
    shell = open_small(storage)
    while shell.journal.segments.active.generation < 2:
        shell.flush()
        shell.record(payload_for(1, 1000))
    storage.fail_sync()
    shell.flush()
    reopened = open_small(storage)
    reopened.record(b"after the failure")
    reopened.flush()
    held = reopened.held()
    storage.power_loss()
    assert open_small(storage).held() == held


def test_work_that_ends_after_a_failure_confirms_nothing_more() -> None:
    shell = opened()
    shell.record(b"one")
    flush = shell.journal.begin_flush()
    checkpoint = shell.journal.begin_checkpoint()
    assert flush is not None
    assert checkpoint is not None
    shell.journal.abort(checkpoint, StorageFailed("the disk is gone"))
    flush.run(shell.storage)
    shell.journal.finish(flush)
    assert shell.journal.durable_lsn == 0
    check_refuses_everything(shell)


@pytest.mark.parametrize(
    ("epoch", "kind", "parts"),
    [
        pytest.param(0, Kind.MESSAGE, ("text",), id="parts that are no bytes"),
        pytest.param(0, 256, (b"x",), id="a kind too large for its field"),
        pytest.param(2**32, Kind.MESSAGE, (b"x",), id="an epoch too large for its field"),
    ],
)
def test_a_record_that_is_broken_off_while_it_is_encoded_stops_the_journal(
    epoch: int, kind: int, parts: tuple[Any, ...]
) -> None:
    storage = faulty()
    shell = open_small(storage)
    kept = shell.record(b"one")
    shell.flush()
    shell.journal.begin_epoch(epoch)
    with pytest.raises((TypeError, struct.error)):
        shell.journal.append(Section.MESSAGES, kind, parts, is_held=True)
    check_refuses_everything(shell)
    assert shell.journal.durable_lsn == kept
    storage.power_loss()
    assert open_small(storage).held() == {kept: b"one"}


def test_a_record_that_cannot_be_applied_stops_the_journal_and_is_applied_by_the_next_start() -> None:
    class OutOfMemory(Recorder):
        def apply(self, record: Record) -> list[int]:
            if record.lsn == 2:
                raise MemoryError
            return super().apply(record)

    storage = faulty()
    shell = open_small(storage, state=OutOfMemory())
    for number in range(3):
        shell.record(payload_for(number))
    with pytest.raises(MemoryError):
        shell.flush()
    assert isinstance(shell.journal.failure, JournalFailed)
    check_refuses_everything(shell)
    with pytest.raises(JournalFailed):
        shell.journal.commit_to(shell.journal.durable_lsn)
    shell.close()
    state = Recorder()
    assert list(open_small(storage, state=state).held()) == [1, 2, 3]
    assert state.applied == [1, 2, 3]


def test_a_failed_allocation_stops_only_the_allocating() -> None:
    storage = faulty()
    shell = open_small(storage)
    storage.set_capacity(storage.allocated_bytes)
    while shell.journal.begin_allocation() is None:
        shell.record(payload_for(1, 1000))
        shell.flush()
    shell.journal.pool.is_allocating = False
    assert shell.run(shell.journal.begin_allocation())
    assert shell.journal.failure is None
    assert shell.journal.begin_allocation() is None
    storage.set_capacity(None)
    shell.journal.retry_allocation()
    before = shell.journal.space.free_bytes
    assert shell.run(shell.journal.begin_allocation())
    assert shell.journal.space.free_bytes == before + SMALL.usable_bytes
    shell.journal.check_invariants()


def test_work_of_another_kind_is_a_mistake() -> None:
    class Other:
        def run(self, storage: Storage) -> None:
            pass

    with pytest.raises(UsageError, match="Other"):
        opened().journal.finish(Other())


# -- limits and admission --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "maximum"),
    [
        (Budget.MESSAGES, SMALL.record_bytes_max),
        (Budget.ACKNOWLEDGEMENTS, SMALL.acknowledgement_record_bytes_max),
        (Budget.SYSTEM_EVENTS, SMALL.system_event_bytes_max),
    ],
)
def test_a_record_above_its_limit_is_refused_and_leaves_no_trace(budget: Budget, maximum: int) -> None:
    shell = opened()
    with pytest.raises(LimitExceeded):
        shell.journal.append(Section.NODE, 9, (bytes(maximum), b"x"), budget=budget)
    assert shell.journal.next_lsn == 1
    shell.journal.check_invariants()
    assert shell.journal.append(Section.NODE, 9, (bytes(maximum - 1), b"x"), budget=budget) == 1


def test_the_payload_may_come_in_parts_or_be_empty() -> None:
    shell = opened()
    for parts in ((b"one ", bytearray(b"two "), memoryview(b"three")), (), (b"",)):
        shell.journal.append(Section.SESSIONS, 9, parts, is_held=True)
    shell.flush()
    assert list(shell.held().values()) == [b"one two three", b"", b""]


def test_memory_at_its_limit_refuses_messages_and_keeps_room_for_the_rest() -> None:
    shell = opened()
    with pytest.raises(JournalFull) as caught:
        fill_memory(shell)
    assert caught.value.reason == "memory"
    assert not shell.journal.admits(1000)
    for budget in (Budget.ACKNOWLEDGEMENTS, Budget.SYSTEM_EVENTS):
        shell.journal.append(Section.MESSAGES, 9, (bytes(1000),), budget=budget)
    shell.flush()
    assert shell.journal.admits(1000)
    shell.journal.check_invariants()


def test_held_records_at_their_limit_refuse_messages_but_not_system_events() -> None:
    shell = opened()
    limit = SMALL.held_records_max - SMALL.reserve_system_events
    for number in range(limit):
        shell.journal.append(Section.MESSAGES, Kind.MESSAGE, (b"x",), is_held=True)
        if number % 100 == 0:
            shell.flush()
    with pytest.raises(JournalFull) as caught:
        shell.journal.append(Section.MESSAGES, Kind.MESSAGE, (b"x",), is_held=True)
    assert caught.value.reason == "held records"
    assert not shell.journal.admits(1)
    shell.journal.append(Section.MESSAGES, Kind.MESSAGE, (b"not held",))
    shell.journal.append(
        Section.MESSAGES, Kind.SYSTEM_EVENT, (b"event",), is_held=True, budget=Budget.SYSTEM_EVENTS
    )
    shell.flush()
    assert shell.journal.held.count == limit + 1
    shell.confirm(*range(1, 4))
    shell.flush()
    assert shell.journal.admits(1)


def fill_with_system_events(shell: Shell) -> None:
    """Record small events, and flush each. Raises `JournalFull`."""
    while True:
        shell.journal.append(
            Section.MESSAGES, Kind.SYSTEM_EVENT, (b"event",), is_held=True, budget=Budget.SYSTEM_EVENTS
        )
        shell.flush()


def test_system_events_never_fill_the_index_beyond_what_a_checkpoint_holds() -> None:
    config = msgspec.structs.replace(SMALL, held_records_max=200, state_bytes_max=0)
    storage = faulty()
    shell = open_small(storage, config)
    with pytest.raises(JournalFull) as caught:
        fill_with_system_events(shell)
    held = shell.held()
    shell.checkpoint()
    shell.close()
    assert caught.value.reason == "held records"
    assert len(held) >= config.held_records_max
    reopened = open_small(storage, config)
    assert reopened.report.replayed_records == 0
    assert reopened.held() == held


@pytest.mark.parametrize("size", [0, 1, 1000, 4096])
def test_admission_says_before_what_recording_does_then(size: int) -> None:
    shell = opened(config=TINY) if size <= TINY.record_bytes_max else opened()
    refusals = 0
    for _ in range(3000):
        admitted = shell.journal.admits(size)
        try:
            shell.journal.append(Section.MESSAGES, Kind.MESSAGE, (bytes(size),), is_held=True)
        except JournalFull:
            refusals += 1
            assert not admitted
            shell.flush()
        else:
            assert admitted
    assert refusals
    shell.journal.check_invariants()


def test_the_account_of_free_space_is_straight_after_every_step() -> None:
    shell = opened(config=TINY)
    for number in range(300):
        if shell.journal.admits(number % 900):
            shell.record(payload_for(number, number % 900))
        if number % 3 == 0:
            shell.flush()
            shell.run(shell.journal.begin_attestation())
        if number % 17 == 0:
            held = list(shell.journal.held.lsns(Section.MESSAGES))
            if held:
                shell.confirm(*held[: len(held) // 2 + 1])
        if number % 23 == 0:
            shell.keep_house()
        shell.journal.check_invariants()


def test_a_record_is_found_where_it_lies_until_it_is_released() -> None:
    shell = opened()
    lsn = shell.record(b"payload")
    with pytest.raises(NotHeld):
        shell.journal.locate(lsn)
    shell.flush()
    segment, offset, size = shell.journal.locate(lsn)
    assert b"payload" in shell.storage.read(segment.name, offset, size)
    shell.confirm(lsn)
    shell.flush()
    with pytest.raises(NotHeld):
        shell.journal.locate(lsn)


# -- attestation -----------------------------------------------------------------------------------------


def test_an_idle_log_attests_its_last_group_once() -> None:
    shell = opened()
    shell.record(b"one")
    assert shell.journal.begin_attestation() is None, "not idle"
    shell.flush()
    assert shell.journal.attested_lsn == 0
    assert shell.run(shell.journal.begin_attestation())
    assert shell.journal.attested_lsn == 1
    assert shell.journal.begin_attestation() is None
    shell.journal.check_invariants()


def test_a_held_segment_that_cannot_be_read_stops_the_journal_before_it_is_moved() -> None:
    shell = opened()
    storage = shell.storage
    lsns = fill_disk(shell)
    base = shell.journal.segments.first_unbroken
    inside = [lsn for lsn in lsns if lsn < base.base_lsn + 50]
    shell.confirm(*inside[2:])
    shell.flush()
    _, offset, _ = shell.journal.locate(inside[1])
    storage.write(base.name, offset + 30, b"damage")
    for _ in range(5):
        shell.run(shell.journal.begin_move())
        shell.flush()
    assert isinstance(shell.journal.failure, JournalCorrupt)
    check_refuses_everything(shell)
