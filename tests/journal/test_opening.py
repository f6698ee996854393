"""Making, opening, cutting and closing a journal, and a crash or a fault in each step of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import msgspec
import pytest

from holdfast.errors import (
    JournalCorrupt,
    JournalFull,
    JournalMismatch,
    StorageFailed,
    StorageFull,
    UsageError,
)
from holdfast.journal.boot import BOOT_NAME
from holdfast.journal.checkpoint import CHECKPOINT_NAMES
from holdfast.journal.format import GROUP_HEADER_BYTES, Kind, Section
from holdfast.journal.memory_storage import MemoryStorage
from holdfast.journal.node_state import NODE_STATE_NAME, Stop, read_node_state
from holdfast.journal.opening import Identity, open_journal, truncate_journal
from holdfast.journal.persistent_memory import Confirmations
from holdfast.journal.reader import Reader
from holdfast.journal.segments import segment_name
from holdfast.journal.space import Budget
from holdfast.simulation.storage import FaultyStorage, SimulatedCrash
from tests.journal.small_journal import (
    IDENTITY,
    SMALL,
    TINY,
    Ledger,
    Shell,
    crashes,
    faulty,
    open_small,
    payload_for,
)

NEEDED_BYTES = (
    SMALL.segments_at_start * SMALL.segment_bytes + 2 * SMALL.checkpoint_bytes + SMALL.boot_bytes + 8192
)
ALL_FILES = sorted(
    [BOOT_NAME, *CHECKPOINT_NAMES, NODE_STATE_NAME, *map(segment_name, range(SMALL.segments_at_start))]
)


def create(storage: FaultyStorage, ledger: Ledger) -> None:
    ledger.journal = open_small(storage).journal


def read_stop(storage: FaultyStorage) -> Stop:
    """How the last run ended, as the disk says."""
    state = read_node_state(storage)
    assert state is not None
    return state.stop


def append_event(shell: Shell, payload: bytes) -> int:
    lsn = shell.journal.append(
        Section.MESSAGES, Kind.SYSTEM_EVENT, (payload,), is_held=True, budget=Budget.SYSTEM_EVENTS
    )
    shell.flush()
    return lsn


def with_records(count: int, *, commits_when_durable: bool = True) -> tuple[FaultyStorage, Shell]:
    storage = faulty()
    shell = open_small(storage, commits_when_durable=commits_when_durable)
    for number in range(count):
        shell.record(payload_for(number))
        if number % 3 == 2:
            shell.flush()
    shell.flush()
    return storage, shell


# -- making ----------------------------------------------------------------------------------------------


def test_a_new_journal_has_all_its_files_and_nothing_in_it() -> None:
    storage = faulty()
    shell = open_small(storage)
    assert storage.names() == ALL_FILES
    assert storage.allocated_bytes == NEEDED_BYTES
    assert (shell.held(), shell.journal.next_lsn, shell.journal.run) == ({}, 1, 1)
    assert shell.report.is_first_start
    assert not open_small(storage).report.is_first_start


def test_a_creation_that_crashed_at_any_step_is_completed_by_the_next_start() -> None:
    for where, storage, _ in crashes(create):
        shell = open_small(storage)
        assert storage.names() == ALL_FILES, where
        assert shell.held() == {}
        shell.journal.check_invariants()
        lsn = shell.record(b"the first")
        shell.flush()
        assert lsn == 1
        storage.power_loss()
        assert open_small(storage).held() == {1: b"the first"}, where


def test_without_an_identity_no_journal_is_made() -> None:
    storage = faulty()
    with pytest.raises(UsageError, match="no identity"):
        open_journal(storage, SMALL, Confirmations())
    assert storage.names() == []


def test_a_disk_too_small_for_the_reserve_is_refused_in_plain_words() -> None:
    storage = faulty()
    storage.set_capacity(NEEDED_BYTES - 1)
    with pytest.raises(StorageFull, match="are its reserve"):
        open_small(storage)
    storage.set_capacity(NEEDED_BYTES)
    assert open_small(storage).journal.pool.free_count == SMALL.segments_at_start - 1


def test_a_reserve_that_was_made_larger_comes_before_any_message() -> None:
    storage, _ = with_records(3)
    storage.set_capacity(storage.allocated_bytes)
    larger = msgspec.structs.replace(SMALL, reserve_acknowledgements=3000)
    with suppress(StorageFull):
        assert not open_small(storage, larger).journal.admits(1)
    storage.set_capacity(None)
    shell = open_small(storage, larger)
    shell.keep_house()
    assert shell.journal.space.is_reserve_whole
    assert shell.journal.admits(1)
    assert len(shell.held()) == 3


def test_another_segment_size_is_refused_and_changes_nothing() -> None:
    storage, _ = with_records(3)
    before = storage.digest()
    with pytest.raises(JournalMismatch, match="segment_bytes = 65536"):
        open_small(storage, msgspec.structs.replace(SMALL, segment_bytes=128 * 1024))
    assert storage.digest() == before


def test_limits_other_than_the_segment_size_may_be_raised_later() -> None:
    storage, shell = with_records(3)
    shell.close()
    larger = msgspec.structs.replace(SMALL, held_records_max=20_000)
    reopened = open_small(storage, larger)
    for number in range(3500):
        reopened.record(b"small")
        if number % 100 == 0:
            reopened.flush()
    reopened.flush()
    reopened.checkpoint()
    assert open_small(storage, larger).journal.held.count == 3503


@pytest.mark.parametrize("lost_too", [(), CHECKPOINT_NAMES, (*CHECKPOINT_NAMES, BOOT_NAME)])
def test_a_journal_that_lost_its_node_state_is_refused_and_not_begun_anew(lost_too: tuple[str, ...]) -> None:
    storage, shell = with_records(3)
    shell.close()
    for name in (NODE_STATE_NAME, *lost_too):
        storage.lose_file(name)
    before = storage.digest()
    another = Identity(salt=IDENTITY.salt + 1, site=IDENTITY.site, node=IDENTITY.node)
    with pytest.raises(JournalCorrupt, match="the node's state is lost") as caught:
        open_journal(storage, SMALL, Confirmations(), identity=another)
    assert caught.value.name == NODE_STATE_NAME
    assert storage.digest() == before


# -- the start counter -----------------------------------------------------------------------------------


def check_start_counter_never_repeats(rest: Callable[[FaultyStorage, int], None]) -> None:
    """Start again and again, dying in a different step each time: no start has a number that was used before."""
    storage = faulty()
    used = []
    for number in range(60):
        if number % 4:
            storage.crash_after(number // 2 + 1)
        with suppress(SimulatedCrash):
            shell = open_small(storage, TINY)
            used.append(shell.journal.run)
            shell.record(payload_for(number))
            shell.flush()
        if number % 3:
            storage.power_loss()
        else:
            storage.kill()
        rest(storage, number)
    assert len(used) > 20
    assert used == sorted(set(used)), "a start counter was used twice"


@pytest.mark.spec("C15")
def test_the_start_counter_never_repeats_over_any_crash() -> None:
    check_start_counter_never_repeats(lambda storage, number: None)


@pytest.mark.control("C15")
def test_a_disk_set_back_to_an_older_copy_is_caught() -> None:
    copies = []

    def set_back(storage: FaultyStorage, number: int) -> None:
        copies.append(storage.snapshot())
        if number == 40:
            storage.restore(copies[10])

    with pytest.raises(AssertionError, match="used twice"):
        check_start_counter_never_repeats(set_back)


def test_the_start_counter_is_durable_before_anything_of_that_start_is_written() -> None:
    storage = faulty()
    open_small(storage)
    before = storage.operations["write"]
    open_small(storage)
    total = storage.operations["write"] - before
    for operation in range(1, 2 * total + 1):
        storage = faulty(operation)
        first = open_small(storage)
        storage.crash_after(operation)
        with suppress(SimulatedCrash):
            open_small(storage)
        storage.power_loss()
        assert open_small(storage).journal.run > first.journal.run


# -- faults while opening --------------------------------------------------------------------------------


def torn_journal(seed: int) -> tuple[FaultyStorage, dict[int, bytes]]:
    """A journal with a torn group over two segments, so that opening has a segment to cut."""
    for attempt in range(100):
        storage = faulty(1000 * seed + attempt)
        shell = open_small(storage, TINY)
        while shell.journal.segments.active.generation < 3:
            shell.flush()
            for number in range(3):
                shell.record(payload_for(number, 300))
        held = shell.held()
        storage.crash_after(3)
        with pytest.raises(SimulatedCrash):
            shell.flush()
        storage.power_loss()
        copy = storage.snapshot()
        report = open_small(storage, TINY).report
        storage.restore(copy)
        if report.cut_segments:
            return storage, held
    raise AssertionError("no power loss tore the group in this way")


@pytest.mark.parametrize("seed", range(4))
def test_a_sync_that_fails_in_any_step_of_opening_does_no_harm(seed: int) -> None:
    for good_syncs in range(12):
        storage, held = torn_journal(seed)
        storage.fail_sync(after=good_syncs)
        with suppress(StorageFailed):
            open_small(storage, TINY)
        storage.disarm()
        shell = open_small(storage, TINY)
        lsns = []
        while shell.journal.segments.active.generation < 5 and shell.journal.admits(700):
            lsns.append(shell.record(payload_for(9, 700)))
            shell.flush()
        expected = shell.held()
        storage.power_loss()
        reopened = open_small(storage, TINY)
        assert reopened.held() == expected, good_syncs
        assert held.keys() <= expected.keys()
        reopened.journal.check_invariants()


# -- closing ---------------------------------------------------------------------------------------------


def test_an_orderly_stop_is_told_from_one_that_was_cut_off() -> None:
    storage, shell = with_records(3)
    assert open_small(storage).report.stop is Stop.CUT_OFF
    shell = open_small(storage)
    shell.record(b"not flushed yet")
    shell.close()
    reopened = open_small(storage)
    assert reopened.report.stop is Stop.ORDERLY
    assert reopened.report.replayed_records == 0
    assert reopened.held()[4] == b"not flushed yet"
    assert open_small(storage).report.stop is Stop.CUT_OFF


def test_a_journal_that_failed_does_not_say_that_it_stopped_in_good_order() -> None:
    storage, shell = with_records(3)
    storage.fail_sync()
    shell.record(b"lost")
    shell.flush()
    shell.close()
    assert open_small(storage).report.stop is Stop.CUT_OFF


def test_a_journal_is_not_closed_while_a_group_is_being_written() -> None:
    storage, shell = with_records(3)
    shell.record(b"being written")
    flush = shell.journal.begin_flush()
    assert flush is not None
    flush.write(storage)
    shell.record(b"gathered")
    with pytest.raises(UsageError, match="under way"):
        shell.close()
    assert read_stop(storage) is Stop.CUT_OFF
    flush.sync(storage)
    shell.journal.finish(flush)
    shell.close()
    reopened = open_small(storage)
    assert reopened.report.stop is Stop.ORDERLY
    assert list(reopened.held().values())[3:] == [b"being written", b"gathered"]


def test_a_journal_is_not_closed_while_a_checkpoint_is_being_written() -> None:
    storage, shell = with_records(3)
    checkpoint = shell.journal.begin_checkpoint()
    lsn = shell.record(b"after the checkpoint")
    shell.flush()
    with pytest.raises(UsageError, match="under way"):
        shell.close()
    assert read_stop(storage) is Stop.CUT_OFF
    shell.run(checkpoint)
    shell.close()
    reopened = open_small(storage)
    assert reopened.report.stop is Stop.ORDERLY
    assert reopened.report.checkpoint_lsn == lsn, "damage to the last group would be taken for a torn tail"


# -- cutting ---------------------------------------------------------------------------------------------


def append_until_full(shell: Shell, payload: bytes, budget: Budget) -> None:
    """Make it durable each time; none of it is committed."""
    with suppress(JournalFull):
        while True:
            shell.journal.append(
                Section.MESSAGES,
                Kind.MESSAGE,
                (payload,),
                is_held=budget is not Budget.ACKNOWLEDGEMENTS,
                budget=budget,
            )
            shell.flush()
            shell.run(shell.journal.begin_allocation())


def test_what_was_truncated_stays_gone_when_nothing_is_left_for_the_first_marker() -> None:
    storage = faulty()
    shell = open_small(storage, TINY, commits_when_durable=False)
    append_until_full(shell, payload_for(1, 200), Budget.MESSAGES)
    append_until_full(shell, bytes(16), Budget.ACKNOWLEDGEMENTS)
    assert not shell.journal.space.admits(Budget.ACKNOWLEDGEMENTS, GROUP_HEADER_BYTES)
    while shell.journal._tail.room_bytes > 800:
        append_event(shell, payload_for(2, 400))
    cut_lsn = append_event(shell, b"cut")
    storage.kill()
    truncate_journal(storage, after_lsn=cut_lsn - 1)
    shell = open_small(storage, TINY, commits_when_durable=False)
    generation = shell.journal.segments.active.generation
    assert append_event(shell, payload_for(3, 1000)) == cut_lsn
    assert shell.journal.segments.active.generation > generation, "nothing is written over what was cut"
    shell.journal.commit_to(cut_lsn)
    for start in range(3):
        storage.power_loss()
        shell = open_small(storage, TINY, commits_when_durable=False)
        found = {record.lsn: bytes(record.payload) for record in shell.journal.unapplied}
        assert found[cut_lsn] == payload_for(3, 1000), start
        append_event(shell, b"in another run")


@pytest.mark.parametrize("after_lsn", range(11))
def test_what_was_truncated_is_gone_and_never_comes_back(after_lsn: int) -> None:
    storage, _ = with_records(10)
    truncate_journal(storage, after_lsn=after_lsn)
    for start in range(3):
        shell = open_small(storage)
        assert list(shell.held()) == list(range(1, after_lsn + 1))
        assert shell.journal.next_lsn == after_lsn + 1, start
        shell.journal.check_invariants()
    assert shell.record(b"new") == after_lsn + 1
    shell.flush()
    reopened = open_small(storage)
    assert reopened.held() == shell.held()
    assert reopened.held()[after_lsn + 1] == b"new"


def test_a_truncation_may_cut_away_whole_segments() -> None:
    storage = faulty()
    shell = open_small(storage)
    while shell.journal.segments.active.generation < 3:
        shell.record(payload_for(1, 1000))
        shell.flush()
    truncate_journal(storage, after_lsn=10)
    reopened = open_small(storage)
    assert len(reopened.report.cut_segments) == 2
    assert list(reopened.held()) == list(range(1, 11))
    assert reopened.journal.pool.free_count == SMALL.segments_at_start - 1


def test_a_truncation_exactly_where_a_segment_starts_is_one_place_for_all() -> None:
    storage = faulty()
    shell = open_small(storage)
    while shell.journal.segments.active.generation < 2:
        shell.record(payload_for(1, 1000))
        shell.flush()
    base_lsn = shell.journal.segments.active.base_lsn
    truncate_journal(storage, after_lsn=base_lsn - 1)
    for _ in range(3):
        reopened = open_small(storage)
        assert reopened.journal.next_lsn == base_lsn
    reopened.record(b"new")
    reopened.flush()
    assert open_small(storage).held() == reopened.held()


def test_a_backup_that_stopped_in_good_order_can_cut_what_was_never_committed() -> None:
    storage, shell = with_records(10, commits_when_durable=False)
    shell.journal.commit_to(5)
    shell.close()
    truncate_journal(storage, after_lsn=5)
    reopened = open_small(storage)
    assert list(reopened.held()) == [1, 2, 3, 4, 5]


def test_what_a_checkpoint_covers_is_never_cut() -> None:
    storage, shell = with_records(10)
    shell.checkpoint()
    with pytest.raises(UsageError, match="lsn 9 is committed"):
        truncate_journal(storage, after_lsn=9)
    truncate_journal(storage, after_lsn=10)
    assert len(open_small(storage).held()) == 10


def test_a_truncation_behind_the_end_or_without_a_journal_is_a_mistake() -> None:
    storage, _ = with_records(10)
    with pytest.raises(UsageError, match="ends before"):
        truncate_journal(storage, after_lsn=11)
    with pytest.raises(UsageError, match="no journal"):
        truncate_journal(MemoryStorage(), after_lsn=0)


def test_a_crash_in_any_step_of_a_truncation_and_the_next_start_cuts_all_or_nothing() -> None:
    start, _ = with_records(10)

    def cut(storage: FaultyStorage, ledger: Ledger) -> None:
        truncate_journal(storage, after_lsn=4)
        ledger.journal = open_small(storage).journal

    for where, storage, ledger in crashes(cut, start=start):
        shell = open_small(storage)
        expected = ([1, 2, 3, 4],) if ledger.journal else ([1, 2, 3, 4], list(range(1, 11)))
        assert list(shell.held()) in expected, where
        assert open_small(storage).held() == shell.held(), where


# -- epochs ----------------------------------------------------------------------------------------------


def test_records_carry_the_epoch_in_which_they_were_appended() -> None:
    storage, shell = with_records(1)
    shell.journal.begin_epoch(7)
    shell.record(b"in epoch 7")
    shell.flush()
    reader = Reader(shell.journal, from_lsn=1)
    assert [record.epoch for record in reader.read(storage, max_bytes=10_000)] == [0, 7]


def test_an_epoch_never_goes_back() -> None:
    _, shell = with_records(1)
    shell.journal.begin_epoch(7)
    with pytest.raises(UsageError, match="epoch 6"):
        shell.journal.begin_epoch(6)
    shell.journal.begin_epoch(7)


@pytest.mark.parametrize("how", ["record", "checkpoint", "close"])
def test_an_epoch_survives_a_restart(how: str) -> None:
    storage, shell = with_records(1)
    shell.journal.begin_epoch(7)
    if how == "record":
        shell.record(b"in epoch 7")
        shell.flush()
    elif how == "checkpoint":
        shell.checkpoint()
    else:
        shell.close()
    assert open_small(storage).journal.epoch == 7
    assert open_small(storage).journal.epoch == 7
