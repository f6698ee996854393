"""Moving forward: a mostly dead segment is emptied, and every record keeps its name."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from holdfast.errors import StorageFailed
from holdfast.journal.boot import BootSection
from holdfast.journal.config import JournalConfig
from holdfast.journal.format import FLAG_HELD, FLAG_MOVED, Section, generation_of, origin_of
from holdfast.journal.memory_storage import MemoryStorage
from holdfast.journal.opening import Identity, open_journal, run_work
from holdfast.journal.persistent_memory import Confirmations, PersistentMemory, boot_event
from holdfast.journal.reader import Reader
from holdfast.journal.space import Budget
from holdfast.simulation.storage import FaultyStorage
from tests.journal.small_journal import (
    IDENTITY,
    SMALL,
    TINY,
    Ledger,
    Shell,
    crashes,
    faulty,
    fill_disk,
    open_small,
    payload_for,
)


def with_stragglers(storage: FaultyStorage, keep: int = 10) -> tuple[Shell, dict[int, bytes]]:
    """A full disk on which all but every so-manieth message is confirmed; nothing was moved yet."""
    shell = open_small(storage)
    lsns = fill_disk(shell)
    confirm_all(shell, [lsn for lsn in shell.held() if lsn % keep or lsn not in lsns])
    return shell, shell.held()


def confirm_all(shell: Shell, lsns: list[int]) -> None:
    """Confirm in records that are not too large."""
    for start in range(0, len(lsns), 200):
        shell.confirm(*lsns[start : start + 200])
        shell.flush()


def push_forward(shell: Shell, lsn: int) -> None:
    """Fill the disk and empty it again, until this record was moved."""
    before = generation_of(place(shell, lsn))
    for _ in range(5):
        shell.confirm(*fill_disk(shell))
        shell.keep_house()
        if generation_of(place(shell, lsn)) > before:
            return
    raise AssertionError("the record was never moved")


def move_once(shell: Shell) -> int | None:
    """Move one segment. Its generation."""
    work = shell.journal.begin_move()
    if work is None:
        return None
    shell.run(work)
    shell.flush()
    return work.header.generation


def place(shell: Shell, lsn: int) -> int:
    found = shell.journal.held.find(lsn)
    assert found is not None
    return found[1]


def test_a_mostly_dead_segment_is_moved_forward_and_freed() -> None:
    shell, held = with_stragglers(faulty())
    generation = move_once(shell)
    assert generation is not None
    assert shell.held() == held, "every record is where the index says, with its payload and its lsn"
    shell.keep_house()
    assert shell.journal.segments.get(generation) is None
    assert shell.held() == held
    shell.journal.check_invariants()


def test_space_comes_back_by_moving() -> None:
    shell, held = with_stragglers(faulty())
    assert not shell.journal.admits(SMALL.record_bytes_max)
    shell.keep_house()
    assert shell.journal.admits(SMALL.record_bytes_max)
    assert shell.journal.space.is_reserve_whole
    assert shell.held() == held


def test_a_moved_record_keeps_lsn_section_and_order() -> None:
    storage = faulty()
    shell = open_small(storage)
    sessions = [shell.record(payload_for(number), section=Section.SESSIONS) for number in range(3)]
    shell.flush()
    replayed = shell.replayed()
    push_forward(shell, sessions[0])
    assert [entry for entry in shell.replayed() if entry[1] in sessions] == replayed
    assert open_small(storage).replayed() == shell.replayed()


def test_a_record_may_be_moved_again_and_again() -> None:
    storage = faulty()
    shell = open_small(storage)
    straggler = shell.record(payload_for(0))
    shell.flush()
    places = set()
    for _ in range(6):
        shell.confirm(*fill_disk(shell))
        shell.keep_house()
        events = [lsn for lsn in shell.held() if lsn != straggler]
        if events:
            shell.confirm(*events)
        shell.keep_house()
        places.add(place(shell, straggler))
        shell = open_small(storage)
        assert shell.held() == {straggler: payload_for(0)}
    assert len(places) >= 3
    reader = Reader(shell.journal, from_lsn=shell.journal.segments.first_unbroken.base_lsn)
    moved = [
        record for record in reader.read(storage, max_bytes=10**6) if record.flags == FLAG_HELD | FLAG_MOVED
    ]
    assert all(origin_of(record) == straggler for record in moved)


def test_a_record_that_is_confirmed_while_it_is_moved_stays_confirmed() -> None:
    storage = faulty()
    shell, held = with_stragglers(storage)
    work = shell.journal.begin_move()
    assert work is not None
    work.run(storage)
    inside = [lsn for lsn in held if generation_of(place(shell, lsn)) == work.header.generation]
    shell.confirm(inside[0])
    shell.journal.finish(work)
    shell.confirm(inside[1])
    shell.flush()
    expected = {lsn: payload for lsn, payload in held.items() if lsn not in inside[:2]}
    assert shell.held() == expected
    assert open_small(storage).held() == expected
    shell.journal.check_invariants()


def test_one_segment_at_a_time_is_moved() -> None:
    shell, _ = with_stragglers(faulty())
    assert shell.journal.begin_move() is not None
    assert shell.journal.begin_move() is None


def test_nothing_is_moved_while_the_pool_can_grow_or_a_checkpoint_would_do() -> None:
    shell = open_small(faulty())
    shell.record(b"straggler")
    while shell.journal.admits(1000):
        shell.record(payload_for(1, 1000))
        shell.flush()
    shell.confirm(*list(shell.held())[1:])
    shell.flush()
    assert shell.journal.pool.wants_segment()
    assert shell.journal.begin_move() is None


def test_a_segment_that_is_not_mostly_dead_stays() -> None:
    shell, held = with_stragglers(faulty(), keep=2)
    places = {lsn: place(shell, lsn) for lsn in held}
    shell.keep_house()
    assert {lsn: place(shell, lsn) for lsn in held} == places


def test_a_segment_is_moved_on_the_budget_of_moves_when_the_disk_is_full() -> None:
    shell, _ = with_stragglers(faulty())
    assert shell.journal.space.open_bytes == 0
    budgets = {budget: shell.journal.space.left_bytes(budget) for budget in Budget}
    work = shell.journal.begin_move()
    assert work is not None
    shell.run(work)
    now = {budget: shell.journal.space.left_bytes(budget) for budget in Budget}
    assert now.pop(Budget.MOVES) < budgets.pop(Budget.MOVES)
    assert now == budgets


@pytest.mark.parametrize("size", [0, 8])
def test_a_segment_of_the_smallest_records_can_be_moved_on_the_budget(size: int) -> None:
    """Each record grows by the lsn that it had at first: that is a third of the smallest ones."""
    config = msgspec.structs.replace(SMALL, held_records_max=100_000)
    shell = open_small(faulty(), config)
    lsns: list[int] = []
    while shell.journal.admits(size) or (shell.flush() and shell.journal.admits(size)):
        lsns.append(shell.record(bytes(size)))
        if len(lsns) % 200 == 0:
            shell.flush()
            shell.run(shell.journal.begin_allocation())
    shell.flush()
    confirm_all(shell, [lsn for lsn in lsns if lsn % 100 >= 24])
    work = shell.journal.begin_move()
    assert work is not None
    shell.run(work)
    shell.flush()
    segment = shell.journal.segments.get(work.header.generation)
    assert segment is None or segment.live_records == 0, "not all of the segment could be moved"
    shell.keep_house()
    assert shell.journal.admits(SMALL.record_bytes_max)


def test_a_boot_event_is_read_as_it_was_recorded_wherever_it_was_moved() -> None:
    storage = faulty()
    shell = open_small(storage)
    boot = BootSection(storage, salt=IDENTITY.salt)
    boot.record(b"the disk is slow")
    lsn = shell.memory.take_over_boot_events(boot)
    assert lsn is not None
    shell.flush()
    push_forward(shell, lsn)
    record = shell.records_by_place()[place(shell, lsn)]
    assert bytes(boot_event(record)) == b"the disk is slow"


@pytest.mark.spec("E5")
def test_a_moved_boot_event_that_is_not_committed_yet_does_not_hide_the_next_ones() -> None:
    storage = faulty()
    shell = open_small(storage, commits_when_durable=False)
    for _ in range(5):
        shell.record(b"its lsn is above every number in the boot section")
    boot = BootSection(storage, salt=IDENTITY.salt)
    boot.record(b"boot 1")
    lsn = shell.memory.take_over_boot_events(boot)
    assert lsn is not None
    shell.flush()
    shell.journal.commit_to(lsn)
    boot.clear()
    shell.journal.append_moved(shell.records_by_place()[place(shell, lsn)])
    shell.flush()
    storage.kill()
    boot = BootSection(storage, salt=IDENTITY.salt)
    boot.record(b"boot 2")
    boot.record(b"boot 3")
    shell = open_small(storage, commits_when_durable=False)
    shell.memory.take_over_boot_events(boot)
    shell.flush()
    shell.journal.commit_to(shell.journal.durable_lsn)
    events = [payload[8:] for section, _, payload in shell.replayed() if section is Section.BOOT]
    assert events == [b"boot 1", b"boot 2", b"boot 3"]


def test_a_record_above_a_limit_that_was_lowered_since_is_still_moved() -> None:
    high = msgspec.structs.replace(
        TINY,
        record_bytes_max=2048,
        group_bytes_max=16 * 1024,
        group_reserve_bytes=2304,
        reserve_system_events=1,
    )
    storage = faulty()
    shell = open_small(storage, high)
    large = shell.record(payload_for(0, 1900))
    shell.flush()
    generation = generation_of(place(shell, large))
    while shell.journal.segments.active.generation == generation:
        lsn = shell.record(payload_for(1, 800))
        shell.flush()
        shell.confirm(lsn)
        shell.flush()
    shell.close()
    shell = open_small(storage, msgspec.structs.replace(high, record_bytes_max=1024))
    fill_disk(shell, size=900)
    assert generation_of(place(shell, large)) > generation
    assert shell.held()[large] == payload_for(0, 1900)
    assert shell.journal.segments.get(generation) is None
    shell.journal.check_invariants()


def test_a_segment_that_was_read_for_a_move_while_the_journal_failed_moves_nothing() -> None:
    storage = faulty()
    shell, held = with_stragglers(storage)
    work = shell.journal.begin_move()
    assert work is not None
    work.run(storage)
    first = next(iter(held))
    shell.confirm(first)
    storage.fail_sync()
    shell.flush()
    next_lsn = shell.journal.next_lsn
    shell.journal.finish(work)
    assert isinstance(shell.journal.failure, StorageFailed), "the first failure is the one that is told"
    assert shell.journal.next_lsn == next_lsn
    assert held.keys() - open_small(storage).held().keys() <= {first}, "only its confirmation is in doubt"


# -- a crash at every step of a move ---------------------------------------------------------------------


def full_of_stragglers() -> FaultyStorage:
    """A small journal, closed, whose every segment is mostly dead."""
    storage = faulty()
    shell = open_small(storage, TINY)
    random = Random(3)
    lsns: list[int] = []
    while shell.journal.admits(700):
        lsns.append(shell.record(payload_for(len(lsns), random.choice((100, 300, 700)))))
        shell.flush()
        shell.run(shell.journal.begin_allocation())
    shell.confirm(*(lsn for lsn in lsns if lsn % 7))
    shell.flush()
    return storage


def test_a_crash_at_every_step_of_moving_keeps_exactly_what_is_held() -> None:
    start = full_of_stragglers()
    held = open_small(start, TINY).held()
    assert len(held) > 3
    moved = 0

    def move(storage: FaultyStorage, ledger: Ledger) -> None:
        nonlocal moved
        shell = open_small(storage, TINY)
        for _ in range(6):
            moved += move_once(shell) is not None
            if shell.journal.wants_checkpoint():
                shell.checkpoint()
            if shell.journal.admits(100):
                ledger.record(shell, payload_for(9, 100))
        shell.flush()

    for where, storage, ledger in crashes(move, start=start):
        shell = open_small(storage, TINY)
        found = shell.held()
        assert {lsn: payload for lsn, payload in found.items() if lsn in held} == held, where
        assert found.keys() - held.keys() <= ledger.recorded.keys(), where
        shell.journal.check_invariants()
        assert open_small(storage, TINY).held() == found, where
    assert moved > 10


def test_a_segment_whose_last_group_is_still_being_written_is_not_moved() -> None:
    config = JournalConfig(
        segment_bytes=32 * 1024,
        segments_max=60,
        segments_ahead=3,
        record_bytes_max=4 * 1024,
        group_bytes_max=128 * 1024,
        group_reserve_bytes=8 * 1024,
        held_records_max=1000,
        reserve_acknowledgements=16,
        reserve_system_events=2,
        state_bytes_max=1024,
        checkpoint_interval_bytes=1 << 30,
        boot_bytes=2 * 1024,
    )
    config = msgspec.structs.replace(config, segments_max=config.segments_at_start)
    storage, confirmations = MemoryStorage(), Confirmations()
    journal, _ = open_journal(storage, config, confirmations, identity=Identity(salt=7))
    memory = PersistentMemory(journal, confirmations)

    def record() -> int:
        return memory.record((bytes(1024),), time_us=1)

    def flush() -> None:
        work = journal.begin_flush()
        assert work is not None
        run_work(storage, journal, work)

    mostly_dead = [record() for _ in range(26)]
    flush()
    memory.confirm(mostly_dead)
    flush()
    record()
    flush()
    generation = journal.segments.active.generation
    while journal.segments.active.generation == generation:
        record()
    under_way = journal.begin_flush()
    assert under_way is not None
    assert journal.needs_segments
    assert journal.begin_move() is None
    run_work(storage, journal, under_way)
    assert journal.failure is None
