"""Recovery: a torn tail is cut, damage is an error, and a crash at any step loses nothing that was durable."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

import msgspec
import pytest

from holdfast.errors import JournalCorrupt, JournalFailed, JournalMismatch
from holdfast.journal.boot import BOOT_NAME
from holdfast.journal.format import SEGMENT_HEADER_BYTES, generation_of
from holdfast.journal.node_state import NODE_STATE_NAME, Stop
from holdfast.journal.segments import segment_name
from holdfast.journal.work import Flush
from holdfast.simulation.storage import FaultyStorage, SimulatedCrash
from tests.contracts.lying_storage import LyingStorage
from tests.journal.small_journal import (
    SMALL,
    TINY,
    Ledger,
    Shell,
    crashes,
    faulty,
    open_small,
    payload_for,
)


def with_records(count: int = 5, *, seed: int = 1) -> tuple[FaultyStorage, Shell]:
    """A journal with so many records, each durable in a group of its own."""
    storage = faulty(seed)
    shell = open_small(storage)
    for number in range(count):
        shell.record(payload_for(number))
        shell.flush()
    return storage, shell


def damage(storage: FaultyStorage, shell: Shell, lsn: int) -> tuple[str, int]:
    segment, offset, _ = shell.journal.locate(lsn)
    storage.flip_bit_at(segment.name, offset + 30, 1)
    return segment.name, offset


def check_refused(storage: FaultyStorage, match: str) -> JournalCorrupt:
    """Opening is refused as corrupt, and nothing is changed by it."""
    before = storage.digest()
    with pytest.raises(JournalCorrupt, match=match) as caught:
        open_small(storage)
    assert storage.digest() == before
    return caught.value


def test_what_was_recorded_is_there_again_in_order() -> None:
    storage, shell = with_records(20)
    reopened = open_small(storage)
    assert reopened.held() == shell.held() == {n + 1: payload_for(n) for n in range(20)}
    assert (reopened.report.last_lsn, reopened.report.held_records) == (20, 20)
    assert (reopened.report.checkpoint_lsn, reopened.report.replayed_records) == (0, 20)
    assert not reopened.report.is_torn


def test_only_what_follows_the_checkpoint_is_replayed() -> None:
    storage, shell = with_records(20)
    shell.checkpoint()
    shell.record(b"after it")
    shell.flush()
    report = open_small(storage).report
    assert (report.checkpoint_lsn, report.replayed_records, report.held_records) == (20, 1, 21)


def test_damage_to_the_last_group_that_nothing_attests_is_a_torn_tail() -> None:
    storage, shell = with_records(5)
    damage(storage, shell, 5)
    reopened = open_small(storage)
    assert list(reopened.held()) == [1, 2, 3, 4]
    assert reopened.report.is_torn
    assert not open_small(storage).report.is_torn


def test_a_cut_record_never_comes_back_and_its_lsn_is_given_again() -> None:
    storage, shell = with_records(5)
    damage(storage, shell, 5)
    reopened = open_small(storage)
    damage(storage, shell, 5)  # the same bit: the old record is whole again
    assert reopened.record(b"the new fifth") == 5
    reopened.flush()
    assert open_small(storage).held()[5] == b"the new fifth"


def test_damage_that_a_later_group_attests_is_corruption() -> None:
    storage, shell = with_records(5)
    name, offset = damage(storage, shell, 3)
    error = check_refused(storage, "attested to have been durable")
    assert (error.name, error.lsn) == (name, 3)
    assert abs(error.offset - offset) < 100


def test_damage_that_a_marker_attests_is_corruption() -> None:
    storage, shell = with_records(5)
    assert shell.run(shell.journal.begin_attestation())
    damage(storage, shell, 5)
    check_refused(storage, "lsn 5 is attested")


def test_damage_that_the_next_segment_attests_is_corruption() -> None:
    storage, shell = with_records(0)
    while shell.journal.segments.active.generation < 2:
        last_lsn = shell.record(payload_for(1, 1000))
        shell.flush()
    damage(storage, shell, last_lsn - 1)
    check_refused(storage, "attested")


def test_a_lost_segment_is_an_error() -> None:
    storage, _ = with_records(5)
    storage.lose_file(segment_name(1))
    check_refused(storage, "a segment is missing")


def test_a_damaged_header_of_the_segment_where_recovery_starts_is_an_error() -> None:
    storage, _ = with_records(5)
    storage.flip_bit_at(segment_name(0), 20, 1)
    check_refused(storage, "missing or damaged")


def test_a_first_segment_whose_whole_first_sector_is_damaged_is_an_error() -> None:
    storage, _ = with_records(20)
    for offset in (20, SEGMENT_HEADER_BYTES + 10):
        storage.flip_bit_at(segment_name(0), offset, 1)
    check_refused(storage, "damaged")


def test_a_damaged_header_of_a_later_segment_is_an_error() -> None:
    storage, shell = with_records(0)
    while shell.journal.segments.active.generation < 3:
        shell.record(payload_for(1, 1000))
        shell.flush()
    segment = shell.journal.segments.get(2)
    assert segment is not None
    storage.flip_bit_at(segment.name, 20, 1)
    check_refused(storage, "header of a segment is damaged|attested")


def test_held_records_in_a_damaged_segment_behind_the_checkpoint_are_missed() -> None:
    storage, shell = with_records(0)
    while shell.journal.segments.active.generation < 3:
        shell.record(payload_for(1, 1000))
        shell.flush()
    shell.checkpoint()
    storage.flip_bit_at(segment_name(0), 20, 1)
    check_refused(storage, "held records lie in a segment that is missing")


def test_held_records_that_are_missed_when_the_log_is_committed_stop_the_journal_for_good() -> None:
    storage = faulty()
    shell = open_small(storage, TINY, commits_when_durable=False)
    while shell.journal.segments.active.generation < 3:
        shell.record(payload_for(1, 900))
        shell.flush()
    shell.journal.commit_to(shell.journal.durable_lsn)
    shell.close()
    storage.flip_bit_at(segment_name(0), 20, 1)
    for _ in range(2):
        reopened = open_small(storage, TINY, commits_when_durable=False)
        with pytest.raises(JournalCorrupt, match="held records lie in a segment that is missing"):
            reopened.journal.commit_to(reopened.journal.durable_lsn)
        assert isinstance(reopened.journal.failure, JournalCorrupt)
        with pytest.raises(JournalFailed):
            reopened.record(b"new")
        with pytest.raises(JournalFailed):
            reopened.journal.commit_to(reopened.journal.durable_lsn)
        reopened.close()
    assert open_small(storage, TINY, commits_when_durable=False).report.stop is Stop.CUT_OFF


def test_a_free_segment_with_a_damaged_header_is_reported_and_used_again() -> None:
    storage, _ = with_records(5)
    storage.flip_bit_at(segment_name(3), 20, 1)
    reopened = open_small(storage)
    assert reopened.report.damaged_files == (segment_name(3),)
    assert reopened.journal.pool.free_count == SMALL.segments_at_start - 1
    reopened.journal.check_invariants()


def test_a_log_that_is_newer_than_the_node_state_is_refused() -> None:
    storage, _ = with_records(2)
    old = storage.read(NODE_STATE_NAME, 0, 8192)
    open_small(storage)
    storage.write(NODE_STATE_NAME, 0, old)
    with pytest.raises(JournalMismatch, match="older copy"):
        open_small(storage)


def test_a_segment_that_was_entered_but_is_not_part_of_the_log_does_not_confuse_the_next_roll() -> None:
    """A checkpoint is taken while a roll is gathered; then of the group only what is in the new segment lasts."""
    lost_the_old_part = 0
    for seed in range(30):
        storage = faulty(seed)
        shell = open_small(storage)
        while shell.journal.segments.active.generation < 2:
            if shell.journal.next_lsn % 20 == 0:
                shell.flush()
            shell.record(payload_for(1, 1000))
        shell.checkpoint()
        storage.crash_after(3)
        with pytest.raises(SimulatedCrash):
            shell.flush()
        storage.power_loss()
        reopened = open_small(storage)
        lost_the_old_part += bool(reopened.report.cut_segments)
        while reopened.journal.segments.active.generation < 3 and reopened.journal.admits(1000):
            reopened.record(payload_for(2, 1000))
            reopened.flush()
        assert open_small(storage).held() == reopened.held()
    assert lost_the_old_part, "no seed tore the group in this way"


def test_a_segment_entered_but_never_written_does_not_confuse_one_that_commits_later() -> None:
    storage = faulty()
    shell = open_small(storage, commits_when_durable=False)
    while shell.journal.segments.active.generation < 2:
        if shell.journal.next_lsn % 20 == 0:
            shell.flush()
        shell.record(payload_for(1, 1000))
    shell.checkpoint()
    reopened = open_small(storage, commits_when_durable=False)
    assert reopened.journal.segments.active.generation == 1
    for number in range(SMALL.segment_bytes // 1000 + 1):
        reopened.record(payload_for(number, 1000))
        reopened.flush()
    assert reopened.journal.segments.active.generation >= 2
    reopened.journal.commit_to(reopened.journal.durable_lsn)
    assert open_small(storage).held() == reopened.held()


def test_what_a_confirmation_after_the_checkpoint_freed_is_free_after_recovery_too() -> None:
    storage, shell = with_records(0)
    while shell.journal.segments.active.generation < 2:
        shell.record(payload_for(1, 1000))
        shell.flush()
    shell.checkpoint()
    shell.confirm(*(lsn for lsn in shell.held() if lsn < shell.journal.segments.active.base_lsn))
    shell.flush()
    reopened = open_small(storage)
    reopened.journal.check_invariants()
    assert reopened.journal.pool.free_count == SMALL.segments_at_start - 1
    assert reopened.journal.space.free_bytes == shell.journal.space.free_bytes - 40


def test_what_is_replayed_stays_bounded_when_no_run_lives_long_enough_for_a_checkpoint_of_its_own() -> None:
    config = msgspec.structs.replace(SMALL, segments_max=40, held_records_max=20_000)
    records_per_run = 100
    assert records_per_run * 1000 < config.checkpoint_interval_bytes
    storage = faulty()
    replayed = []
    for _ in range(6):
        shell = open_small(storage, config)
        replayed.append(shell.report.replayed_records)
        for number in range(records_per_run):
            shell.record(payload_for(number, 1000))
            shell.flush()
            shell.run(shell.journal.begin_allocation())
            if shell.journal.wants_checkpoint():
                shell.checkpoint()
        storage.kill()
    assert max(replayed) * 1000 < 2 * config.checkpoint_interval_bytes
    assert shell.journal.held.count == 6 * records_per_run


# -- a crash at every step -------------------------------------------------------------------------------


def busy(storage: FaultyStorage, ledger: Ledger) -> None:
    """Records, confirmations, flushes, rolls, checkpoints, allocations and moves, in a fixed mixture."""
    random = Random(11)
    shell = open_small(storage, TINY)
    ledger.journal = shell.journal
    for step in range(60):
        for number in range(random.randint(1, 4)):
            size = random.choice((30, 600, 1000))
            if shell.journal.admits(size):
                ledger.record(shell, payload_for(step * 10 + number, size))
        if random.random() < 0.6:
            shell.flush()
        awaited = ledger.awaited()
        # Every ninth one stays: a straggler in an otherwise dead segment, to be moved.
        ledger.confirm(shell, (lsn for lsn in awaited if lsn % 9 and random.random() < 0.8))
        if step % 3 == 2:
            shell.keep_house()
        if step % 5 == 4:
            shell.flush()
            shell.run(shell.journal.begin_attestation())
        if step == 40:
            shell.close()
            shell = open_small(storage, TINY)
            ledger.journal = shell.journal
    shell.flush()


def check_a_crash_at_every_step_loses_nothing(
    workload: Callable[[FaultyStorage, Ledger], None], *, step: int = 1
) -> None:
    """Whatever was reported durable is held after any crash; and so it is after the next restart."""
    for where, storage, ledger in crashes(workload, step=step):
        shell = open_small(storage, TINY)
        held = shell.held()
        try:
            ledger.check(held)
        except AssertionError as error:
            raise AssertionError(f"{where}: {error}") from error
        shell.journal.check_invariants()
        again = open_small(storage, TINY)
        assert again.held() == held, where
        assert again.journal.next_lsn == shell.journal.next_lsn, where


def test_the_workload_does_all_that_it_is_meant_to() -> None:
    storage, ledger = faulty(), Ledger()
    busy(storage, ledger)
    journal = ledger.journal
    assert journal is not None
    assert journal.segments.active.generation > 7
    assert journal.checkpoint_number > 3
    assert journal.pool.total_count == TINY.segments_max
    assert any(generation_of(place) > 2 for _, lsn, place, _ in journal.held.entries() if lsn < 40), "moved"
    assert any(lsn % 9 == 0 for lsn in ledger.awaited())
    assert len(ledger.confirmed) > 20


@pytest.mark.spec("D")
def test_a_crash_at_every_step_loses_nothing_that_was_durable() -> None:
    check_a_crash_at_every_step_loses_nothing(busy)


def simple(storage: FaultyStorage, ledger: Ledger) -> None:
    """A few durable records in one segment, so that nothing attests to what is missing; and then time goes by."""
    shell = open_small(storage, TINY)
    ledger.journal = shell.journal
    for number in range(4):
        ledger.record(shell, payload_for(number, 700))
    shell.flush()
    for _ in range(8):
        storage.sync(BOOT_NAME)


@pytest.mark.spec("D")
def test_a_crash_after_the_last_step_loses_nothing_either() -> None:
    check_a_crash_at_every_step_loses_nothing(simple)


@pytest.mark.control("D")
def test_a_journal_that_does_not_sync_its_groups_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(self: Flush, storage: object) -> None:
        pass

    monkeypatch.setattr(Flush, "sync", forget)
    with pytest.raises(AssertionError, match="was durable and is lost"):
        check_a_crash_at_every_step_loses_nothing(simple)


def check_durable_survives_power_loss(make_storage: Callable[[Random], FaultyStorage]) -> None:
    """Record, be told that it is durable, lose power: it is there."""
    for seed in range(20):
        storage, ledger = make_storage(Random(seed)), Ledger()
        simple(storage, ledger)
        storage.power_loss()
        ledger.check(open_small(storage, TINY).held())


@pytest.mark.spec("D")
def test_what_was_reported_durable_survives_a_power_loss() -> None:
    check_durable_survives_power_loss(FaultyStorage)


@pytest.mark.control("D")
def test_a_disk_that_lies_about_sync_is_caught() -> None:
    with pytest.raises(AssertionError, match="was durable and is lost"):
        check_durable_survives_power_loss(LyingStorage)


@pytest.mark.spec("D")
def test_a_crash_in_the_recovery_from_a_crash_loses_nothing_either() -> None:
    for index, (where, storage, ledger) in enumerate(crashes(busy, step=5)):
        storage.crash_after(1 + index % 14)
        with suppress(SimulatedCrash):
            open_small(storage, TINY)
        if index % 3:
            storage.power_loss()
        else:
            storage.kill()
        shell = open_small(storage, TINY)
        ledger.check(shell.held())
        shell.journal.check_invariants()
        assert open_small(storage, TINY).held() == shell.held(), where
