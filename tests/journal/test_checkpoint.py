"""Checkpoints: what is written is read, the slots take turns, and a bad one is never believed."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import JournalCorrupt, LimitExceeded
from holdfast.journal.checkpoint import (
    CHECKPOINT_NAMES,
    Checkpoint,
    SegmentEntry,
    read_checkpoint,
    write_checkpoint,
)
from holdfast.journal.memory_storage import MemoryStorage
from holdfast.journal.recovery import newest_checkpoint
from holdfast.simulation.storage import SimulatedCrash
from tests.journal.small_journal import IDENTITY, SMALL, Shell, faulty, open_small, payload_for

SALT = 3
U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
checkpoints = st.builds(
    Checkpoint,
    number=U64,
    lsn=U64,
    scan_generation=U64,
    scan_offset=U64,
    scan_lsn=U64,
    run=U32,
    epoch=U32,
    boot_sequence=U64,
    segment_files=U64,
    segments=st.lists(st.builds(SegmentEntry, U64, U64, U64, U32), max_size=5).map(tuple),
    held=st.lists(st.binary(max_size=50), max_size=3).map(tuple),
    state=st.binary(max_size=100),
)


def two_slots(size_bytes: int = 4096) -> MemoryStorage:
    storage = MemoryStorage()
    for name in CHECKPOINT_NAMES:
        storage.allocate(name, size_bytes)
    return storage


def sample(number: int, **changes: object) -> Checkpoint:
    base = Checkpoint(
        number=number,
        lsn=number,
        scan_generation=1,
        scan_offset=64,
        scan_lsn=1,
        run=1,
        epoch=0,
        boot_sequence=0,
        segment_files=1,
        segments=(SegmentEntry(1, 1, 0, 0),),
        held=(b"held",),
        state=b"state",
    )
    return msgspec.structs.replace(base, **changes)


@given(checkpoints)
def test_a_checkpoint_is_read_as_it_was_written(checkpoint: Checkpoint) -> None:
    storage = two_slots()
    write_checkpoint(storage, checkpoint, salt=SALT)
    found = read_checkpoint(storage, checkpoint.name, salt=SALT)
    assert found is not None
    for name in Checkpoint.__struct_fields__:
        if name not in ("held", "state"):
            assert getattr(found, name) == getattr(checkpoint, name)
    assert b"".join(found.held) == b"".join(checkpoint.held)
    assert bytes(found.state) == checkpoint.state


def test_every_bit_of_a_checkpoint_is_covered() -> None:
    storage = two_slots()
    write_checkpoint(storage, sample(0), salt=SALT)
    total_bytes = sum(map(len, sample(0).blocks(SALT)))
    whole = storage.read(CHECKPOINT_NAMES[0], 0, total_bytes)
    for bit in range(total_bytes * 8):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        storage.write(CHECKPOINT_NAMES[0], 0, changed)
        assert read_checkpoint(storage, CHECKPOINT_NAMES[0], salt=SALT) is None, bit


def test_a_checkpoint_of_another_journal_is_not_one() -> None:
    storage = two_slots()
    write_checkpoint(storage, sample(0), salt=SALT)
    assert read_checkpoint(storage, CHECKPOINT_NAMES[0], salt=SALT + 1) is None


def test_an_empty_slot_holds_no_checkpoint() -> None:
    assert read_checkpoint(two_slots(), CHECKPOINT_NAMES[0], salt=SALT) is None
    assert read_checkpoint(two_slots(100), CHECKPOINT_NAMES[0], salt=SALT) is None


def test_a_checkpoint_larger_than_its_slot_is_refused_and_the_slot_kept() -> None:
    storage = two_slots(300)
    write_checkpoint(storage, sample(0), salt=SALT)
    with pytest.raises(LimitExceeded):
        write_checkpoint(storage, sample(2, state=bytes(300)), salt=SALT)
    found = read_checkpoint(storage, CHECKPOINT_NAMES[0], salt=SALT)
    assert found is not None
    assert found.number == 0


def test_the_slots_take_turns() -> None:
    assert [sample(number).name for number in range(4)] == [*CHECKPOINT_NAMES, *CHECKPOINT_NAMES]


def test_the_newest_whole_one_counts() -> None:
    storage = two_slots()
    for number in (6, 7):
        write_checkpoint(storage, sample(number), salt=SALT)
    assert newest_checkpoint(storage, salt=SALT).number == 7
    storage.write(CHECKPOINT_NAMES[1], 130, b"x")
    assert newest_checkpoint(storage, salt=SALT).number == 6


def test_without_a_whole_checkpoint_nothing_is_believed() -> None:
    with pytest.raises(JournalCorrupt, match="no slot"):
        newest_checkpoint(two_slots(), salt=SALT)


def test_a_journal_never_writes_over_its_newest_checkpoint() -> None:
    storage = faulty()
    shell = open_small(storage)
    for number in range(1, 6):
        shell.record(payload_for(number))
        shell.flush()
        before = {name: storage.read(name, 0, 200) for name in CHECKPOINT_NAMES}
        shell.checkpoint()
        changed = [name for name in CHECKPOINT_NAMES if storage.read(name, 0, 200) != before[name]]
        assert changed == [CHECKPOINT_NAMES[number % 2]]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("operation", [1, 2])
def test_a_torn_checkpoint_falls_back_to_the_one_before(operation: int, seed: int) -> None:
    storage = faulty(seed)
    shell = open_small(storage)
    for number in range(300):
        shell.record(payload_for(number, 30))
        shell.flush()
    shell.checkpoint()
    shell.confirm(*range(1, 100))
    shell.flush()
    expected = shell.held()
    storage.crash_after(operation)
    with pytest.raises(SimulatedCrash):
        shell.checkpoint()
    storage.power_loss()
    reopened = open_small(storage)
    assert reopened.held() == expected
    assert reopened.journal.checkpoint_number in (1, 2)
    reopened.journal.check_invariants()


def roll(shell: Shell, segments: int) -> list[int]:
    """Record until so many more segments are full."""
    lsns: list[int] = []
    target = shell.journal.segments.active.generation + segments
    while shell.journal.segments.active.generation < target:
        lsns.append(shell.record(payload_for(len(lsns), 1000)))
        shell.flush()
        shell.run(shell.journal.begin_allocation())
    return lsns


def test_an_older_checkpoint_that_recycling_has_made_useless_is_an_error() -> None:
    storage = faulty()
    shell = open_small(storage)
    first = roll(shell, 1)
    shell.checkpoint()
    second = roll(shell, 2)
    shell.confirm(*first, *second)
    shell.flush()
    shell.checkpoint()
    freed = {segment.name for segment in shell.journal.segments}
    while not {segment.name for segment in shell.journal.segments} - freed:
        roll(shell, 1)
    while shell.journal.pool.free_count > SMALL.reserve_segments:
        roll(shell, 1)
    digest = storage.digest()
    storage.flip_bit_at(CHECKPOINT_NAMES[shell.journal.checkpoint_number % 2], 200, 3)
    damaged = storage.digest()
    assert damaged != digest
    with pytest.raises(JournalCorrupt):
        open_small(storage)
    assert storage.digest() == damaged, "nothing may be changed by an opening that was refused"


def test_the_empty_checkpoint_of_a_new_journal_does_not_stand_for_a_log_that_has_moved_on() -> None:
    storage = faulty()
    shell = open_small(storage)
    first = roll(shell, 2)
    shell.checkpoint()
    shell.confirm(*first)
    shell.flush()
    assert shell.journal.segments.get(1) is None
    while not any(segment.name == "segment-000000" for segment in shell.journal.segments):
        roll(shell, 1)
    storage.flip_bit_at(CHECKPOINT_NAMES[1], 60, 1)
    damaged = storage.digest()
    with pytest.raises(JournalCorrupt):
        open_small(storage)
    assert storage.digest() == damaged


def test_a_checkpoint_attests_what_it_covers() -> None:
    storage = faulty()
    shell = open_small(storage)
    for number in range(3):
        shell.record(payload_for(number))
        shell.flush()
    shell.checkpoint()
    segment, offset, _ = shell.journal.locate(3)
    reopened_at = newest_checkpoint(storage, salt=IDENTITY.salt)
    assert reopened_at.lsn == 3
    assert reopened_at.scan_lsn == 4
    storage.flip_bit_at(segment.name, offset + 30, 1)
    # What a checkpoint covers is not read again, so its damage is found where the record is used.
    assert open_small(storage).journal.held.count == 3
