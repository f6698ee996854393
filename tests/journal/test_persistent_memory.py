"""The persistent memory: exhaustion (E4), boot events (E5), the FIFO (E6), replay (E10), steady state (E3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import msgspec
import pytest

from holdfast.errors import JournalError, JournalFull, NotHeld
from holdfast.journal.boot import BootSection
from holdfast.journal.config import JournalConfig
from holdfast.journal.exhaustion import EXHAUSTED_TYPE, RESUMED_TYPE, Flow
from holdfast.journal.format import Kind, Section
from holdfast.journal.held import HeldRecords
from holdfast.journal.journal import Journal
from holdfast.journal.persistent_memory import PersistentMemory, ranges
from holdfast.journal.segments import Segments
from holdfast.journal.space import Budget, Space
from holdfast.simulation.storage import FaultyStorage
from tests.journal.small_journal import (
    IDENTITY,
    SMALL,
    TIME_US,
    TINY,
    Ledger,
    Shell,
    crashes,
    faulty,
    fill_disk,
    fill_memory,
    open_small,
    payload_for,
)


def events(shell: Shell, type_name: str) -> list[int]:
    """The held events of this type, as they are read from the disk."""
    return [lsn for lsn, payload in shell.held().items() if type_name.encode() in payload]


def boot_of(storage: FaultyStorage) -> BootSection:
    return BootSection(storage, salt=IDENTITY.salt)


# -- E3: nothing is allocated in the steady state --------------------------------------------------------


def check_steady_state_allocates_nothing(config: JournalConfig) -> None:
    """After a while of recording and confirming, the journal lives in what it has."""
    storage = faulty()
    shell = open_small(storage, config)

    def live(rounds: int) -> None:
        for number in range(rounds):
            lsns = [shell.record(payload_for(number, 900)) for _ in range(5)]
            shell.flush()
            shell.confirm(*lsns)
            shell.keep_house()

    live(60)
    allocations, allocated_bytes = storage.operations["allocate"], storage.allocated_bytes
    generation = shell.journal.segments.active.generation
    live(150)
    assert shell.journal.segments.active.generation > generation + 5, "many segments were filled"
    assert storage.operations["allocate"] == allocations, "recording allocated disk space"
    assert storage.allocated_bytes == allocated_bytes


@pytest.mark.spec("E3")
def test_recording_allocates_no_disk_space_in_the_steady_state() -> None:
    check_steady_state_allocates_nothing(SMALL)


@pytest.mark.spec("E3")
def test_a_journal_that_may_still_grow_does_not_either() -> None:
    check_steady_state_allocates_nothing(msgspec.structs.replace(SMALL, segments_max=1000))


@pytest.mark.control("E3")
def test_a_journal_that_allocates_anew_what_it_could_reuse_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def throw_away(self: Journal) -> None:
        self.segments.take_reclaimable()

    monkeypatch.setattr(Journal, "reclaim", throw_away)
    with pytest.raises(AssertionError, match="recording allocated disk space"):
        check_steady_state_allocates_nothing(msgspec.structs.replace(SMALL, segments_max=1000))


@pytest.mark.spec("E3")
def test_the_memory_to_record_a_message_is_there_before_the_message() -> None:
    shell = open_small(faulty())
    buffers = {id(shell.journal._tail._gathering), id(shell.journal._tail._spare)}
    for number in range(50):
        shell.record(payload_for(number))
        shell.flush()
    assert {id(shell.journal._tail._gathering), id(shell.journal._tail._spare)} == buffers


# -- E4: exhaustion is survivable ------------------------------------------------------------------------


def check_exhaustion_is_survived(storage: FaultyStorage, config: JournalConfig) -> None:
    """Fill the disk: the event says so, confirmations fit, space comes back, flow resumes, nothing is lost."""
    shell = open_small(storage, config)
    try:
        lsns = fill_disk(shell, size=900)
    except JournalFull as error:
        raise AssertionError("the event that says so could not be recorded") from error
    assert shell.memory.is_paused
    assert len(lsns) > 20
    for _ in range(5):
        with pytest.raises(JournalFull):
            shell.record(payload_for(0, 900))
    shell.flush()
    assert len(events(shell, EXHAUSTED_TYPE)) == 1, "the event that says so is there, once"
    storage.power_loss()
    shell = open_small(storage, config)
    exhausted = events(shell, EXHAUSTED_TYPE)
    assert len(exhausted) == 1, "the event that says so can be read after a restart"
    assert set(lsns) <= set(shell.held()), "nothing confirmed is lost"
    with pytest.raises(JournalFull):
        shell.record(payload_for(0, 900))
    shell.flush()
    try:
        for lsn in lsns[: config.reserve_acknowledgements]:
            shell.confirm(lsn)
            shell.flush()
    except JournalFull as error:
        raise AssertionError("a confirmation did not fit") from error
    shell.confirm(*(lsn for lsn in shell.held() if lsn in lsns))
    shell.keep_house()
    shell.memory.watch(time_us=TIME_US)
    assert not shell.memory.is_paused, "flow resumes by itself"
    shell.flush()
    assert len(events(shell, RESUMED_TYPE)) == 1
    shell.confirm(*exhausted)
    shell.record(payload_for(1, 900))
    shell.flush()
    shell.journal.check_invariants()
    assert open_small(storage, config).held() == shell.held()


@pytest.mark.spec("E4")
@pytest.mark.parametrize("config", [SMALL, TINY])
def test_a_journal_at_its_quota_survives_its_exhaustion(config: JournalConfig) -> None:
    check_exhaustion_is_survived(faulty(), config)


@pytest.mark.spec("E4")
def test_a_full_disk_is_survived() -> None:
    storage = faulty()
    open_small(storage)
    storage.set_capacity(storage.allocated_bytes + SMALL.segment_bytes)
    check_exhaustion_is_survived(storage, SMALL)


@pytest.mark.control("E4")
def test_a_journal_without_a_reserve_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    class WithoutReserve(Space):
        def __init__(self, config: JournalConfig) -> None:
            super().__init__(config)
            self._sizes = [0, 0, 0, 0]

    monkeypatch.setattr("holdfast.journal.journal.Space", WithoutReserve)
    with pytest.raises(AssertionError, match=r"the event that says so|a confirmation did not fit"):
        check_exhaustion_is_survived(faulty(), SMALL)


@pytest.mark.spec("E4")
def test_memory_at_its_limit_is_survived() -> None:
    shell = open_small(faulty())
    with pytest.raises(JournalFull) as caught:
        fill_memory(shell)
    assert caught.value.reason == "memory"
    assert shell.memory.is_paused
    shell.memory.watch(time_us=TIME_US)
    assert shell.memory.is_paused
    shell.flush()
    assert len(events(shell, EXHAUSTED_TYPE)) == 1
    shell.memory.watch(time_us=TIME_US)
    assert not shell.memory.is_paused
    shell.flush()
    assert len(events(shell, RESUMED_TYPE)) == 1


@pytest.mark.spec("E4")
def test_memory_that_confirmations_have_filled_still_takes_the_event_that_says_so() -> None:
    shell = open_small(faulty())
    lsns: list[int] = []
    for _ in range(12):
        lsns += [shell.record(b"small") for _ in range(100)]
        shell.flush()
    with suppress(JournalFull):
        for lsn in lsns:
            shell.confirm(lsn)
    with pytest.raises(JournalFull):
        shell.record(payload_for(1, 1000))
    shell.flush()
    assert len(events(shell, EXHAUSTED_TYPE)) == 1


@pytest.mark.spec("E4")
def test_the_held_records_at_their_limit_are_survived() -> None:
    config = msgspec.structs.replace(SMALL, held_records_max=100)
    storage = faulty()
    shell = open_small(storage, config)
    lsns = fill_disk(shell, size=10)
    assert len(lsns) == 100 - config.reserve_system_events
    assert shell.memory.exhaustion.reason == "held records"
    shell = open_small(storage, config)
    assert len(events(shell, EXHAUSTED_TYPE)) == 1
    with pytest.raises(JournalFull):
        shell.record(b"one more")
    shell.flush()
    shell.confirm(*lsns[:3])
    shell.flush()
    shell.memory.watch(time_us=TIME_US)
    assert shell.memory.is_paused, "flow would stutter at the edge"
    shell.confirm(*lsns[3:20])
    shell.flush()
    shell.memory.watch(time_us=TIME_US)
    assert shell.memory.exhaustion.flow is Flow.NORMAL
    shell.record(b"one more")


@pytest.mark.spec("E4")
def test_markers_of_an_idle_log_do_not_use_up_what_system_events_need() -> None:
    shell = open_small(faulty())
    lsns = fill_disk(shell)
    stay = {segment.base_lsn for segment in shell.journal.segments}
    for lsn in [lsn for lsn in lsns if lsn not in stay][: SMALL.reserve_acknowledgements - 50]:
        shell.confirm(lsn)
        shell.flush()
        shell.run(shell.journal.begin_attestation())
    shell.journal.append(
        Section.MESSAGES,
        Kind.SYSTEM_EVENT,
        (bytes(SMALL.system_event_bytes_max),),
        is_held=True,
        budget=Budget.SYSTEM_EVENTS,
    )


@pytest.mark.spec("E4")
def test_each_acknowledgement_of_the_reserve_fits_alone_in_its_group() -> None:
    shell = open_small(faulty())
    lsns = fill_disk(shell)
    stay = {segment.base_lsn for segment in shell.journal.segments}
    before = shell.journal.pool.free_count
    for lsn in [lsn for lsn in lsns if lsn not in stay][: SMALL.reserve_acknowledgements]:
        shell.confirm(lsn)
        shell.flush()
    assert shell.journal.pool.free_count <= before, "no space came back meanwhile"
    shell.journal.check_invariants()


@pytest.mark.spec("E4")
def test_a_full_disk_is_emptied_by_single_confirmations_in_any_order() -> None:
    config = msgspec.structs.replace(
        SMALL, reserve_acknowledgements=300, segments_max=24, held_records_max=8000
    )
    shell = open_small(faulty(), config)
    lsns = fill_disk(shell, size=300)
    stride = 101  # Every segment keeps something until nearly the end: none is freed by its messages alone.
    for number, lsn in enumerate(lsn for first in range(stride) for lsn in lsns[first::stride]):
        try:
            shell.confirm(lsn)
        except JournalFull as error:
            raise AssertionError(f"confirmation {number} of {len(lsns)} did not fit") from error
        shell.flush()
        if number % 10 == 9:
            shell.keep_house()
    shell.keep_house()
    assert not set(lsns) & set(shell.held())
    assert shell.journal.space.is_reserve_whole
    assert shell.journal.admits(config.record_bytes_max)


# -- E5: events of a node that still boots ---------------------------------------------------------------


def take_over(shell: Shell, storage: FaultyStorage) -> None:
    """What the node does with its boot section once the journal is ready."""
    boot = boot_of(storage)
    lsn = shell.memory.take_over_boot_events(boot)
    if lsn is None:
        return
    shell.flush()
    assert shell.journal.commit_lsn >= lsn
    boot.clear()


def clear_too_early(shell: Shell, storage: FaultyStorage) -> None:
    boot = boot_of(storage)
    shell.memory.take_over_boot_events(boot)
    boot.clear()
    shell.flush()


def check_boot_events_come_once_and_first(taking_over: Callable[[Shell, FaultyStorage], None]) -> None:
    """Whatever step the node dies in, each event that was recorded while it booted is replayed once, and first."""
    start = faulty()
    before = open_small(start, TINY)
    before.record(b"an older message")
    before.flush()

    def boot(storage: FaultyStorage, ledger: Ledger) -> None:
        section = boot_of(storage)
        for number in (1, 2):
            payload = b"boot event %d" % number
            section.record(payload)
            ledger.recorded[number] = payload
        shell = open_small(storage, TINY)
        taking_over(shell, storage)
        shell.record(b"a newer message")
        shell.flush()

    for where, storage, ledger in crashes(boot, start=start):
        for _ in range(2):
            shell = open_small(storage, TINY)
            take_over(shell, storage)
        replayed = [(section, payload[8:]) for section, _, payload in shell.replayed()]
        found = [payload for section, payload in replayed if section is Section.BOOT]
        assert found[: len(ledger.recorded)] == list(ledger.recorded.values()), f"{where}: an event is lost"
        assert len(found) == len(set(found)) <= 2, f"{where}: an event came twice"
        assert [section for section, _ in replayed] == sorted(section for section, _ in replayed), where
        assert boot_of(storage).entries == []
        shell.journal.check_invariants()


@pytest.mark.spec("E5")
def test_boot_events_come_first_and_once_whatever_step_the_node_dies_in() -> None:
    check_boot_events_come_once_and_first(take_over)


@pytest.mark.control("E5")
def test_a_boot_section_that_is_cleared_before_its_events_are_durable_is_caught() -> None:
    with pytest.raises(AssertionError, match="an event is lost"):
        check_boot_events_come_once_and_first(clear_too_early)


@pytest.mark.control("E5")
def test_a_journal_that_forgets_which_events_it_has_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(self: Journal) -> int:
        return 0

    monkeypatch.setattr(Journal, "boot_sequence", property(forget, lambda self, value: None), raising=False)
    with pytest.raises(AssertionError, match="an event came twice"):
        check_boot_events_come_once_and_first(take_over)


@pytest.mark.spec("E5")
def test_boot_events_are_taken_over_on_a_full_disk() -> None:
    storage = faulty()
    fill_disk(open_small(storage))
    boot = boot_of(storage)
    while boot.record(b"event"):
        pass
    shell = open_small(storage)
    take_over(shell, storage)
    assert len(list(shell.journal.held.lsns(Section.BOOT))) == len(boot.entries) > 100
    assert [lsn for _, lsn, _ in shell.replayed()] == list(shell.memory.replay())


@pytest.mark.spec("E5")
def test_boot_events_come_once_where_commits_wait_for_other_nodes() -> None:
    storage = faulty()
    boot_of_new = open_small(storage, commits_when_durable=False)
    boot = boot_of(storage)
    boot.record(b"boot event")
    boot_of_new.memory.take_over_boot_events(boot)
    boot_of_new.flush()
    shell = open_small(storage, commits_when_durable=False)
    shell.memory.take_over_boot_events(boot_of(storage))
    shell.flush()
    shell.journal.commit_to(shell.journal.durable_lsn)
    assert [payload[8:] for payload in shell.held().values()] == [b"boot event"]


def test_taking_over_twice_before_the_flush_gives_each_event_once() -> None:
    storage = faulty()
    shell = open_small(storage)
    boot = boot_of(storage)
    boot.record(b"boot event")
    shell.memory.take_over_boot_events(boot)
    shell.memory.take_over_boot_events(boot)
    shell.flush()
    assert len(shell.held()) == 1


def test_an_event_as_large_as_the_boot_section_takes_it_can_be_taken_over() -> None:
    storage = faulty()
    shell = open_small(storage, TINY)
    boot = boot_of(storage)
    if boot.record(bytes(1500)):
        assert shell.memory.take_over_boot_events(boot) is not None


# -- E6: a FIFO in named sections whose space is reused --------------------------------------------------


def check_space_is_reused(rounds: int = 400) -> None:
    """Run many times the capacity of the journal through it."""
    storage = faulty()
    shell = open_small(storage)
    capacity_bytes = SMALL.segments_max * SMALL.segment_bytes
    passed_bytes = 0
    held: list[int] = []
    for number in range(rounds):
        try:
            held += [shell.record(payload_for(number, 4000)) for _ in range(5)]
        except JournalFull as error:
            raise AssertionError(f"no room after {passed_bytes} bytes, although all is confirmed") from error
        passed_bytes += 5 * 4000
        shell.flush()
        shell.confirm(*held[:-3])
        held = held[-3:]
        shell.keep_house()
    assert passed_bytes > 8 * capacity_bytes
    assert list(shell.held()) == held
    assert storage.allocated_bytes < 2 * capacity_bytes
    shell.journal.check_invariants()
    assert list(open_small(storage).held()) == held


@pytest.mark.spec("E6")
def test_many_times_the_capacity_runs_through_the_journal() -> None:
    check_space_is_reused()


@pytest.mark.control("E6")
def test_a_journal_that_never_reclaims_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(self: Segments) -> list[object]:
        return []

    monkeypatch.setattr(Segments, "take_reclaimable", never)
    monkeypatch.setattr(Segments, "waiting_for_checkpoint", lambda self, before_generation: 0)
    with pytest.raises(AssertionError, match="although all is confirmed"):
        check_space_is_reused()


def check_sections_are_fifos() -> None:
    """Each section has its own head and tail; what is confirmed leaves, in any order, and nothing else does."""
    storage = faulty()
    shell = open_small(storage)
    expected: dict[Section, list[int]] = {section: [] for section in Section}
    for number in range(60):
        section = list(Section)[number % len(Section)]
        expected[section].append(shell.record(payload_for(number), section=section))
        shell.flush()
        if number % 4 == 3:
            lsns = expected[list(Section)[number % 3]]
            shell.confirm(lsns.pop(len(lsns) // 2 if number % 8 == 3 else 0))
            shell.flush()
    for opened in (shell, open_small(storage)):
        held = opened.journal.held
        for section, lsns in expected.items():
            assert list(held.lsns(section)) == lsns, "a section is not the FIFO that it should be"
            assert (held.head_lsn(section), held.tail_lsn(section)) == (lsns[0], lsns[-1])


@pytest.mark.spec("E6")
def test_each_section_is_a_fifo_with_a_head_and_a_tail() -> None:
    check_sections_are_fifos()


@pytest.mark.control("E6")
def test_a_memory_that_does_not_remove_what_is_confirmed_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeldRecords, "release", lambda self, lsn: (1 << 32, 0))
    monkeypatch.setattr(Segments, "release", lambda self, place, size: None)
    with pytest.raises(AssertionError, match="not the FIFO"):
        check_sections_are_fifos()


# -- E10: the order of replay ----------------------------------------------------------------------------


def check_replay_order() -> None:
    """After a crash: what the node said while it booted, then what is not wholly distributed, oldest first."""
    storage = faulty()
    shell = open_small(storage)
    for number in range(6):
        shell.record(payload_for(number), section=Section.NODE if number % 3 == 0 else Section.MESSAGES)
    shell.flush()
    boot_of(storage).record(b"the last start was cut off")
    storage.power_loss()
    shell = open_small(storage)
    take_over(shell, storage)
    shell.record(b"new")
    shell.flush()
    shell.confirm(2)
    shell.flush()
    replayed = list(open_small(storage).memory.replay())
    boot_lsn, new_lsn = 7, 8
    assert replayed == [boot_lsn, 3, 5, 6, new_lsn, 1, 4], "not in the order of replay"


@pytest.mark.spec("E10")
def test_replay_gives_boot_events_first_then_the_rest_in_their_order() -> None:
    check_replay_order()


@pytest.mark.control("E10")
def test_a_replay_in_the_order_of_the_lsn_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_lsn(self: PersistentMemory) -> Iterator[int]:
        return iter(sorted(lsn for _, lsn in self.journal.replay_order()))

    monkeypatch.setattr(PersistentMemory, "replay", by_lsn)
    with pytest.raises(AssertionError, match="not in the order of replay"):
        check_replay_order()


# -- confirming ------------------------------------------------------------------------------------------


def test_what_is_not_held_cannot_be_confirmed() -> None:
    shell = open_small(faulty())
    lsn = shell.record(b"one")
    for wrong in (lsn, lsn + 1, 0):
        with pytest.raises(NotHeld):
            shell.confirm(wrong)
    shell.flush()
    shell.confirm(lsn)
    with pytest.raises(NotHeld):
        shell.confirm(lsn)
    shell.flush()
    with pytest.raises(NotHeld):
        shell.confirm(lsn)
    assert shell.held() == {}


def test_a_refused_confirmation_changes_nothing() -> None:
    shell = open_small(faulty())
    lsn = shell.record(b"one")
    shell.flush()
    next_lsn = shell.journal.next_lsn
    with pytest.raises(NotHeld):
        shell.confirm(lsn, 99)
    assert shell.journal.next_lsn == next_lsn
    shell.confirm(lsn)


def test_an_lsn_that_is_named_twice_in_one_confirmation_does_not_poison_the_log() -> None:
    storage = faulty()
    shell = open_small(storage)
    lsn = shell.record(b"one")
    shell.flush()
    with suppress(NotHeld):
        shell.confirm(lsn, lsn)
    try:
        shell.flush()
        assert open_small(storage).held() in ({}, {lsn: b"one"})
    except JournalError as error:
        raise AssertionError(f"the log cannot be replayed: {error}") from error


def test_a_confirmation_repeated_after_a_restart_does_not_poison_a_log_that_commits_later() -> None:
    storage = faulty()
    shell = open_small(storage, commits_when_durable=False)
    lsn = shell.record(b"one")
    shell.flush()
    shell.journal.commit_to(lsn)
    shell.checkpoint()
    shell.confirm(lsn)
    shell.flush()
    shell = open_small(storage, commits_when_durable=False)
    assert shell.held() == {lsn: b"one"}
    with suppress(NotHeld):
        shell.confirm(lsn)
    shell.flush()
    try:
        shell.journal.commit_to(shell.journal.durable_lsn)
        assert open_small(storage).held() == {}
    except JournalError as error:
        raise AssertionError(f"the log cannot be replayed: {error}") from error


@pytest.mark.parametrize(
    ("lsns", "expected"),
    [
        ([], []),
        ([5], [(5, 5)]),
        ([1, 2, 3], [(1, 3)]),
        ([1, 3, 4, 9], [(1, 1), (3, 4), (9, 9)]),
    ],
)
def test_runs_of_consecutive_numbers_become_ranges(lsns: list[int], expected: list[tuple[int, int]]) -> None:
    assert list(ranges(lsns)) == expected
