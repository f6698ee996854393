"""Readers: ranges, the growing end, pins, and damage."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest

from holdfast.errors import JournalCorrupt, JournalFull, NotHeld
from holdfast.journal import reader as reader_module
from holdfast.journal.format import Kind, Record
from holdfast.journal.opening import truncate_journal
from holdfast.journal.reader import Reader
from holdfast.journal.segments import segment_name
from holdfast.simulation.storage import FaultyStorage, SimulatedCrash
from tests.journal.small_journal import (
    TIME_US,
    TINY,
    Shell,
    faulty,
    fill_disk,
    fill_memory,
    open_small,
    payload_for,
)


def with_records(count: int, *, size: int = 1000, per_group: int = 3) -> tuple[FaultyStorage, Shell]:
    storage = faulty()
    shell = open_small(storage)
    for number in range(1, count + 1):
        shell.record(payload_for(number, size))
        if number % per_group == 0:
            shell.flush()
            shell.run(shell.journal.begin_allocation())
    shell.flush()
    return storage, shell


def read_all(reader: Reader, storage: FaultyStorage, *, max_bytes: int = 5000) -> list[Record]:
    records: list[Record] = []
    while True:
        found = reader.read(storage, max_bytes=max_bytes)
        if not found:
            return records
        records += found


def read_into(records: list[Record], reader: Reader, storage: FaultyStorage) -> None:
    """Read little by little, and keep what came before an error."""
    while found := reader.read(storage, max_bytes=1):
        records += found


def lsns_of(records: list[Record]) -> list[int]:
    return [record.lsn for record in records]


@pytest.mark.parametrize("max_bytes", [1, 5000, 1_000_000])
@pytest.mark.parametrize(("first", "last"), [(1, None), (1, 200), (70, 130), (64, 64), (2, 1), (200, None)])
def test_a_range_is_read_whole_and_in_order_over_segments(
    first: int, last: int | None, max_bytes: int
) -> None:
    storage, shell = with_records(200)
    assert len(shell.journal.segments) > 3
    reader = Reader(shell.journal, from_lsn=first, to_lsn=last)
    records = read_all(reader, storage, max_bytes=max_bytes)
    assert lsns_of(records) == list(range(first, (last or 200) + 1))
    assert all(bytes(record.payload) == payload_for(record.lsn, 1000) for record in records)


def test_one_read_takes_about_what_was_asked_for() -> None:
    storage, shell = with_records(200)
    records = Reader(shell.journal, from_lsn=1).read(storage, max_bytes=5000)
    assert 5 <= len(records) <= 8


def test_the_tail_is_followed_as_it_is_committed() -> None:
    storage, shell = with_records(3)
    reader = Reader(shell.journal, from_lsn=1)
    assert lsns_of(read_all(reader, storage)) == [1, 2, 3]
    for number in range(4, 150):
        shell.record(payload_for(number, 1000))
        assert reader.extend() == number - 1
        assert read_all(reader, storage) == []
        shell.flush()
        assert read_all(reader, storage) == [], "not before it is allowed"
        assert reader.extend() == number
        assert lsns_of(read_all(reader, storage)) == [number]


def test_only_what_is_committed_is_read_be_it_half_a_group() -> None:
    storage = faulty()
    shell = open_small(storage, commits_when_durable=False)
    for number in range(1, 9):
        shell.record(payload_for(number))
        if number == 3:
            shell.flush()
    shell.flush()
    reader = Reader(shell.journal, from_lsn=2)
    assert read_all(reader, storage) == []
    for committed, expected in ((1, []), (2, [2]), (5, [3, 4, 5]), (6, [6]), (8, [7, 8])):
        shell.journal.commit_to(committed)
        reader.extend()
        assert lsns_of(read_all(reader, storage)) == expected


def test_a_reader_may_wait_at_the_very_end() -> None:
    storage, shell = with_records(3)
    reader = Reader(shell.journal, from_lsn=4)
    assert read_all(reader, storage) == []
    shell.record(b"four")
    shell.flush()
    reader.extend()
    assert lsns_of(read_all(reader, storage)) == [4]


@pytest.mark.parametrize("from_lsn", [0, 5, 99])
def test_a_start_outside_the_log_is_not_held(from_lsn: int) -> None:
    _, shell = with_records(3)
    with pytest.raises(NotHeld):
        Reader(shell.journal, from_lsn=from_lsn)


def test_a_start_that_was_reused_since_is_not_held() -> None:
    _, shell = with_records(200)
    shell.confirm(*range(1, 101))
    shell.flush()
    shell.checkpoint()
    first_lsn = shell.journal.segments.first_unbroken.base_lsn
    assert first_lsn > 60
    with pytest.raises(NotHeld, match=f"unbroken log is {first_lsn}"):
        Reader(shell.journal, from_lsn=first_lsn - 1)
    assert Reader(shell.journal, from_lsn=first_lsn).next_lsn == first_lsn


def test_a_segment_between_held_ones_that_was_reused_breaks_the_log() -> None:
    storage, shell = with_records(200)
    shell.confirm(*range(2, 150))
    shell.flush()
    shell.checkpoint()
    with pytest.raises(NotHeld):
        Reader(shell.journal, from_lsn=1)
    assert shell.journal.segments.get(1) is not None
    first_lsn = shell.journal.segments.first_unbroken.base_lsn
    assert lsns_of(read_all(Reader(shell.journal, from_lsn=first_lsn), storage))[0] == first_lsn


def test_a_segment_that_was_reused_before_a_restart_is_no_part_of_the_unbroken_log() -> None:
    config = msgspec.structs.replace(TINY, segments_max=12)
    storage = faulty()
    shell = open_small(storage, config, commits_when_durable=False)

    def commit() -> None:
        shell.flush()
        shell.journal.commit_to(shell.journal.durable_lsn)
        shell.run(shell.journal.begin_allocation())

    lsns: list[int] = []
    while shell.journal.segments.active.generation < 3:
        lsns.append(shell.record(payload_for(1, 900)))
        commit()
    shell.checkpoint()
    base_lsn = shell.journal.segments.active.base_lsn
    shell.confirm(*(lsn for lsn in lsns if lsn < base_lsn))
    commit()
    files = {segment_name(0), segment_name(1)}
    while not files <= {segment.name for segment in shell.journal.segments}:
        lsn = shell.record(payload_for(2, 900))
        commit()
        shell.confirm(lsn)
        commit()
    storage.kill()
    shell = open_small(storage, config, commits_when_durable=False)
    assert shell.journal.segments.first_unbroken.base_lsn == base_lsn
    with pytest.raises(NotHeld):
        Reader(shell.journal, from_lsn=1)
    reader = Reader(shell.journal, from_lsn=base_lsn)
    shell.journal.commit_to(shell.journal.durable_lsn)
    reader.extend()
    assert lsns_of(read_all(reader, storage)) == list(range(base_lsn, shell.journal.durable_lsn + 1))


def test_a_reader_that_lags_finds_segments_that_were_entered_and_emptied_meanwhile() -> None:
    storage = faulty()
    shell = open_small(storage, msgspec.structs.replace(TINY, segments_max=12))
    shell.record(b"one")
    shell.flush()
    reader = Reader(shell.journal, from_lsn=1)
    while shell.journal.segments.active.generation < 4:
        lsn = shell.record(payload_for(1, 900))
        shell.flush()
        shell.confirm(lsn)
        shell.flush()
        shell.run(shell.journal.begin_allocation())
    shell.checkpoint()
    reader.extend()
    assert lsns_of(read_all(reader, storage)) == list(range(1, shell.journal.commit_lsn + 1))
    reader.close()
    shell.checkpoint()
    assert len(shell.journal.segments) < 4, "what was pinned is free again"
    shell.journal.check_invariants()


def test_pinned_segments_are_not_reused_until_they_are_read_or_the_reader_closed() -> None:
    storage, shell = with_records(200)
    reader = Reader(shell.journal, from_lsn=1)
    shell.confirm(*range(1, 201))
    shell.flush()
    shell.checkpoint()
    free = shell.journal.pool.free_count
    assert lsns_of(read_all(reader, storage)) == list(range(1, 201))
    assert shell.journal.pool.free_count == free
    reader.extend()
    shell.record(b"anything")
    shell.flush()
    assert shell.journal.pool.free_count > free
    free = shell.journal.pool.free_count
    again = Reader(shell.journal, from_lsn=201)
    again.close()
    assert all(segment.pins <= 1 for segment in shell.journal.segments)
    reader.close()
    assert all(segment.pins == 0 for segment in shell.journal.segments)


def test_segments_are_reused_after_the_reader_was_closed() -> None:
    _, shell = with_records(200)
    reader = Reader(shell.journal, from_lsn=1)
    shell.confirm(*range(1, 201))
    shell.flush()
    shell.checkpoint()
    assert shell.journal.segments.get(1) is not None
    reader.close()
    shell.record(b"anything")
    shell.flush()
    assert shell.journal.segments.get(1) is None
    shell.journal.check_invariants()


def test_two_readers_pin_for_themselves() -> None:
    _, shell = with_records(100)
    one, two = Reader(shell.journal, from_lsn=1), Reader(shell.journal, from_lsn=1)
    one.close()
    shell.confirm(*range(1, 101))
    shell.flush()
    shell.checkpoint()
    assert shell.journal.segments.get(1) is not None
    two.close()


def test_space_that_only_a_reader_held_comes_back_by_itself_when_it_closes() -> None:
    storage = faulty()
    shell = open_small(storage)
    lsns = fill_disk(shell)
    reader = Reader(shell.journal, from_lsn=1)
    shell.confirm(*lsns)
    shell.keep_house()
    shell.run(shell.journal.begin_attestation())
    shell.memory.watch(time_us=TIME_US)
    assert shell.memory.is_paused, "the reader holds all the space"
    reader.close()
    shell.keep_house()
    shell.run(shell.journal.begin_attestation())
    shell.memory.watch(time_us=TIME_US)
    assert not shell.memory.is_paused


@pytest.mark.parametrize("lsn", [1, 2, 50, 64, 199])
def test_a_damaged_record_is_corruption_and_what_is_before_it_is_read(lsn: int) -> None:
    storage, shell = with_records(200)
    segment, offset, _ = shell.journal.locate(lsn)
    storage.flip_bit_at(segment.name, offset + 40, 2)
    reader = Reader(shell.journal, from_lsn=1)
    records: list[Record] = []
    with pytest.raises(JournalCorrupt) as caught:
        read_into(records, reader, storage)
    assert caught.value.lsn == lsn
    assert caught.value.name == segment.name
    assert lsns_of(records) == list(range(1, lsn))


def test_a_damaged_group_header_is_corruption() -> None:
    storage, shell = with_records(9)
    segment, offset, _ = shell.journal.locate(4)
    storage.flip_bit_at(segment.name, offset - 20, 2)
    with pytest.raises(JournalCorrupt):
        read_all(Reader(shell.journal, from_lsn=1), storage)


@pytest.mark.parametrize("window_bytes", [64, 200, 1100, 4096])
def test_groups_larger_than_the_window_are_read(window_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "WINDOW_BYTES", window_bytes)
    storage, shell = with_records(150, per_group=7)
    reader = Reader(shell.journal, from_lsn=1)
    assert lsns_of(read_all(reader, storage)) == list(range(1, 151))


def test_a_damaged_group_larger_than_the_window_is_corruption(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "WINDOW_BYTES", 200)
    storage, shell = with_records(14, per_group=7)
    segment, offset, _ = shell.journal.locate(8)
    storage.flip_bit_at(segment.name, offset + 40, 2)
    reader = Reader(shell.journal, from_lsn=1)
    with pytest.raises(JournalCorrupt):
        read_all(reader, storage, max_bytes=1)


def test_markers_between_groups_are_passed_over() -> None:
    storage = faulty()
    shell = open_small(storage)
    for number in range(1, 100):
        shell.record(payload_for(number, 1000))
        shell.flush()
        shell.run(shell.journal.begin_attestation())
        shell.run(shell.journal.begin_allocation())
    reader = Reader(shell.journal, from_lsn=1)
    assert lsns_of(read_all(reader, storage)) == list(range(1, 100))


def test_groups_that_a_crash_cut_are_read_over_as_if_nothing_had_been() -> None:
    storage = faulty(5)
    shell = open_small(storage)
    expected: dict[int, bytes] = {}
    for life in range(12):
        for number in range(5):
            shell.record(payload_for(100 * life + number, 1000))
        storage.crash_after(1 + life % 2)
        with suppress(SimulatedCrash):
            shell.flush()
        storage.power_loss()
        shell = open_small(storage)
        expected = shell.held()
        reader = Reader(shell.journal, from_lsn=1)
        assert {record.lsn: bytes(record.payload) for record in read_all(reader, storage)} == expected
        reader.close()
    assert 10 < len(expected) < 60, "some groups were cut and some were not"


@pytest.mark.parametrize("after_lsn", [5, 63, 64, 65, 100])
def test_what_was_truncated_is_not_read(after_lsn: int) -> None:
    storage, _ = with_records(200)
    truncate_journal(storage, after_lsn=after_lsn)
    shell = open_small(storage)
    new_lsn = shell.record(b"new")
    shell.flush()
    records = read_all(Reader(shell.journal, from_lsn=1), storage)
    assert lsns_of(records) == list(range(1, new_lsn + 1))
    assert bytes(records[-1].payload) == b"new"


def test_confirmations_and_events_are_read_too() -> None:
    storage, shell = with_records(3)
    shell.confirm(1, 2)
    shell.flush()
    with pytest.raises(JournalFull):
        fill_memory(shell)
    shell.flush()
    kinds = {record.kind for record in read_all(Reader(shell.journal, from_lsn=1), storage)}
    assert kinds == {Kind.MESSAGE, Kind.CONFIRM, Kind.SYSTEM_EVENT}
