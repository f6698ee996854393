"""The boot section by itself: events, their sequence, cycles, and what a crash leaves."""

from __future__ import annotations

import pytest

from holdfast.errors import JournalCorrupt
from holdfast.journal.boot import BOOT_EVENT_BYTES_MAX, BOOT_NAME, BootSection
from holdfast.journal.storage import Storage
from holdfast.simulation.storage import FaultyStorage, SimulatedCrash
from tests.journal.small_journal import SMALL, faulty

SALT = 4


def created(seed: int = 1, size_bytes: int = SMALL.boot_bytes) -> FaultyStorage:
    storage = faulty(seed)
    BootSection.create(storage, size_bytes)
    return storage


def opened(storage: Storage) -> BootSection:
    return BootSection(storage, salt=SALT)


def test_a_new_section_is_empty() -> None:
    boot = opened(created())
    assert (boot.entries, boot.next_sequence, boot.unrecorded) == ([], 1, 0)


def test_events_are_there_at_once_and_after_a_restart_in_their_order() -> None:
    storage = created()
    boot = opened(storage)
    for payload in (b"one", b"", b"three"):
        assert boot.record(payload)
    expected = [(1, b"one"), (2, b""), (3, b"three")]
    assert boot.entries == expected
    storage.power_loss()
    assert opened(storage).entries == expected
    assert opened(storage).next_sequence == 4


def test_recording_allocates_nothing() -> None:
    storage = created()
    boot, before = opened(storage), storage.operations["allocate"]
    while boot.record(b"event"):
        pass
    assert storage.operations["allocate"] == before


def test_a_full_section_counts_what_it_could_not_record() -> None:
    storage = created()
    boot = opened(storage)
    count = 0
    while boot.record(bytes(1000)):
        count += 1
    assert count == (SMALL.boot_bytes - 512) // 1016
    assert boot.unrecorded == 1
    assert not boot.record(bytes(1000))
    assert boot.unrecorded == 2
    assert len(opened(storage).entries) == count


def test_the_last_entry_may_end_with_the_file() -> None:
    storage = created(size_bytes=512 + 16 + 104)
    assert opened(storage).record(bytes(104))
    assert opened(storage).entries == [(1, bytes(104))]
    assert not opened(storage).record(b"")


def test_an_event_above_the_limit_is_not_recorded() -> None:
    boot = opened(created())
    assert not boot.record(bytes(BOOT_EVENT_BYTES_MAX + 1))
    assert boot.record(bytes(BOOT_EVENT_BYTES_MAX))
    assert boot.unrecorded == 1


def test_a_cleared_section_is_empty_and_its_sequence_goes_on() -> None:
    storage = created()
    boot = opened(storage)
    boot.record(b"one")
    boot.record(b"two")
    boot.clear()
    assert boot.entries == []
    assert boot.record(b"three")
    assert boot.entries == [(3, b"three")]
    assert opened(storage).entries == [(3, b"three")]


def test_what_an_earlier_cycle_left_behind_never_comes_back() -> None:
    storage = created()
    boot = opened(storage)
    for _ in range(5):
        boot.record(b"same size")
    boot.clear()
    boot.record(b"same size")
    assert opened(storage).entries == [(6, b"same size")]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("power", [False, True])
def test_a_crash_in_any_step_keeps_what_was_recorded_and_invents_nothing(seed: int, power: bool) -> None:
    for operation in range(1, 40):
        storage = created(seed * 100 + operation)
        boot = opened(storage)
        recorded: list[tuple[int, bytes]] = []
        tried: list[tuple[int, bytes]] = []
        storage.crash_after(operation)
        try:
            for number in range(1, 6):
                payload = f"event {number}".encode() * number * 20
                tried.append((number, payload))
                assert boot.record(payload)
                recorded.append((number, payload))
        except SimulatedCrash:
            pass
        else:
            return
        storage.power_loss() if power else storage.kill()
        found = opened(storage)
        assert found.entries in (recorded, tried)
        assert found.record(b"after the crash")
        assert opened(storage).entries == [*found.entries]
    raise AssertionError("the workload has no end")


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("operation", [1, 2])
def test_a_crash_while_clearing_leaves_all_or_nothing(operation: int, seed: int) -> None:
    storage = created(seed)
    boot = opened(storage)
    for payload in (b"one", b"two"):
        boot.record(payload)
    storage.crash_after(operation)
    with pytest.raises(SimulatedCrash):
        boot.clear()
    storage.power_loss()
    found = opened(storage)
    assert found.entries in ([(1, b"one"), (2, b"two")], [])
    assert found.next_sequence == 3


def test_a_damaged_header_is_an_error() -> None:
    storage = created()
    storage.flip_bit_at(BOOT_NAME, 9, 1)
    with pytest.raises(JournalCorrupt, match="boot section"):
        opened(storage)


def test_entries_of_another_journal_are_not_read() -> None:
    storage = created()
    opened(storage).record(b"event")
    assert BootSection(storage, salt=SALT + 1).entries == []
