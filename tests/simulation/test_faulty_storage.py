"""The simulated disk: it loses what a real one may lose, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from holdfast.errors import StorageFailed, StorageFull, StorageMissing, UsageError
from holdfast.simulation.storage import FaultyStorage, SimulatedCrash

SECTOR_BYTES = 8
FILE_BYTES = 45  # the last sector is short
SEEDS = range(300)


def make_storage(seed: int = 1, *, head: bytes = b"") -> FaultyStorage:
    storage = FaultyStorage(Random(seed), sector_bytes=SECTOR_BYTES)
    storage.allocate("a", FILE_BYTES, head=head)
    return storage


def content(storage: FaultyStorage, name: str = "a") -> bytes:
    return storage.read(name, 0, storage.size(name))


def outcomes(act: Callable[[FaultyStorage], None]) -> set[bytes]:
    """What can be read after `act`, over many seeds."""
    found = set()
    for seed in SEEDS:
        storage = make_storage(seed)
        act(storage)
        found.add(content(storage))
    return found


def test_a_killed_process_leaves_writes_that_are_read_and_can_still_be_lost() -> None:
    def kill_and_lose_power(storage: FaultyStorage) -> None:
        storage.write("a", 0, b"data")
        storage.kill()
        assert content(storage)[:4] == b"data"
        storage.power_loss()

    assert {image[:4] for image in outcomes(kill_and_lose_power)} == {bytes(4), b"data"}


def test_the_next_process_can_sync_what_the_killed_one_wrote() -> None:
    for seed in SEEDS:
        storage = make_storage(seed)
        storage.write("a", 0, b"data")
        storage.kill()
        storage.sync("a")
        storage.power_loss()
        assert content(storage)[:4] == b"data"


def test_a_crash_comes_in_the_nth_operation_and_no_call_works_until_the_restart() -> None:
    storage = make_storage()
    storage.crash_after(3)
    storage.write("a", 0, b"x")
    storage.read("a", 0, 1)
    storage.sync("a")
    assert not storage.crashed
    with pytest.raises(SimulatedCrash):
        storage.write("a", 1, b"y")
    assert storage.crashed
    uses: list[Callable[[], object]] = [
        storage.names,
        lambda: storage.size("a"),
        lambda: storage.allocate("b", 1),
        lambda: storage.read("a", 0, 1),
        lambda: storage.write("a", 0, b"x"),
        lambda: storage.sync("a"),
        lambda: storage.settle("a"),
        lambda: storage.delete("a"),
    ]
    for use in uses:
        with pytest.raises(SimulatedCrash):
            use()
    storage.kill()
    assert storage.names() == ["a"]


def test_a_crash_is_not_swallowed_with_ordinary_errors() -> None:
    assert not issubclass(SimulatedCrash, Exception)


def test_a_crash_can_not_be_ordered_for_the_past() -> None:
    with pytest.raises(UsageError):
        make_storage().crash_after(0)


def test_a_crash_in_a_write_leaves_whole_sectors_from_its_start() -> None:
    def crash_in_write(storage: FaultyStorage) -> None:
        storage.crash_after(1)
        with pytest.raises(SimulatedCrash):
            storage.write("a", 5, b"x" * 14)
        storage.kill()

    expected = {bytes(5) + b"x" * reached + bytes(FILE_BYTES - 5 - reached) for reached in (0, 3, 11, 14)}
    assert outcomes(crash_in_write) == expected


def test_a_crash_in_a_sync_makes_some_of_it_durable() -> None:
    def crash_in_sync(storage: FaultyStorage) -> None:
        storage.write("a", 0, b"1" * 16)
        storage.crash_after(1)
        with pytest.raises(SimulatedCrash):
            storage.sync("a")
        storage.power_loss()

    assert len({image[:16] for image in outcomes(crash_in_sync)}) == 4


def test_a_crash_in_an_allocation_leaves_all_of_the_file_or_nothing() -> None:
    found = set()
    for seed in SEEDS:
        storage = FaultyStorage(Random(seed))
        storage.crash_after(1)
        with pytest.raises(SimulatedCrash):
            storage.allocate("a", 10, head=b"head")
        storage.power_loss()
        found.add(tuple(content(storage, name) for name in storage.names()))
    assert found == {(), (b"head" + bytes(6),)}


def test_a_crash_in_a_delete_leaves_all_of_the_file_or_nothing() -> None:
    found = set()
    for seed in SEEDS:
        storage = make_storage(seed, head=b"head")
        storage.crash_after(1)
        with pytest.raises(SimulatedCrash):
            storage.delete("a")
        storage.kill()
        found.add(tuple(content(storage, name)[:4] for name in storage.names()))
    assert found == {(), (b"head",)}


def test_a_restart_disarms_a_crash_that_has_not_come() -> None:
    storage = make_storage()
    storage.crash_after(1)
    storage.power_loss()
    storage.write("a", 0, b"x")


def test_after_a_failed_sync_the_writes_are_read_and_a_later_sync_does_not_save_them() -> None:
    def fail_then_sync(storage: FaultyStorage) -> None:
        storage.write("a", 0, b"1" * 8)
        storage.fail_sync()
        with pytest.raises(StorageFailed):
            storage.sync("a")
        assert content(storage)[:8] == b"1" * 8
        storage.write("a", 16, b"2" * 8)
        storage.sync("a")
        assert storage.durable_image("a")[16:24] == b"2" * 8
        storage.power_loss()

    found = outcomes(fail_then_sync)
    assert {image[:8] for image in found} == {bytes(8), b"1" * 8}
    assert {image[16:24] for image in found} == {b"2" * 8}


def test_settling_shows_what_a_failed_sync_left() -> None:
    for seed in SEEDS:
        storage = make_storage(seed)
        storage.write("a", 0, b"1" * 24)
        storage.fail_sync()
        with pytest.raises(StorageFailed):
            storage.sync("a")
        durable = storage.durable_image("a")
        storage.settle("a")
        assert content(storage) == durable
        storage.power_loss()
        assert content(storage) == durable


def test_as_many_syncs_fail_as_were_ordered_also_over_a_restart() -> None:
    storage = make_storage()
    storage.fail_sync(times=2)
    with pytest.raises(StorageFailed):
        storage.sync("a")
    storage.power_loss()
    with pytest.raises(StorageFailed):
        storage.settle("a")
    storage.sync("a")


def test_a_failed_write_may_have_written_some_sectors() -> None:
    def fail(storage: FaultyStorage) -> None:
        storage.fail_write()
        with pytest.raises(StorageFailed):
            storage.write("a", 0, b"x" * 16)

    assert {image[:16] for image in outcomes(fail)} == {bytes(16), b"x" * 8 + bytes(8), b"x" * 16}


def test_a_write_after_the_failed_one_is_whole() -> None:
    storage = make_storage()
    storage.fail_write()
    with pytest.raises(StorageFailed):
        storage.write("a", 0, b"x")
    storage.write("a", 0, b"y")
    assert content(storage)[:1] == b"y"


def test_flipped_bits_are_where_they_are_said_to_be_and_survive_everything() -> None:
    for seed in SEEDS:
        storage = make_storage(seed)
        storage.allocate("b", 100)
        storage.write("a", 0, bytes(20))
        flipped = storage.flip_bits(count=5)
        storage.power_loss()
        assert len(set(flipped)) == 5
        damaged = [
            (name, offset)
            for name in storage.names()
            for offset, byte in enumerate(content(storage, name))
            if byte
        ]
        assert damaged == sorted(flipped)
        assert all(content(storage, name)[offset].bit_count() == 1 for name, offset in flipped)


def test_bits_can_be_flipped_in_one_file_and_at_one_place() -> None:
    storage = make_storage()
    storage.allocate("b", 100)
    assert {name for name, _ in storage.flip_bits("b", count=10)} == {"b"}
    storage.flip_bit_at("a", 7, 3)
    assert content(storage) == bytes(7) + b"\x08" + bytes(FILE_BYTES - 8)


def test_more_bits_than_bytes_can_not_be_flipped() -> None:
    with pytest.raises(UsageError):
        make_storage().flip_bits(count=FILE_BYTES + 1)


def test_the_lost_end_of_a_file_is_missing_for_reads_and_writes() -> None:
    storage = make_storage()
    storage.write("a", 0, b"x" * FILE_BYTES)
    storage.truncate_file("a", 10)
    assert storage.size("a") == 10
    with pytest.raises(StorageMissing):
        storage.read("a", 0, 11)
    with pytest.raises(StorageMissing):
        storage.write("a", 8, b"data")
    with pytest.raises(UsageError):
        storage.write("a", FILE_BYTES, b"data")
    storage.sync("a")
    storage.power_loss()
    assert content(storage) == b"x" * 10


def test_a_lost_end_does_not_come_back_with_power_losses() -> None:
    for seed in SEEDS:
        storage = make_storage(seed)
        storage.write("a", 0, b"1" * FILE_BYTES)
        storage.fail_sync()
        with pytest.raises(StorageFailed):
            storage.sync("a")
        storage.write("a", 5, b"2" * 20)
        storage.truncate_file("a", 13)
        storage.power_loss()
        assert storage.size("a") == 13
        assert storage.durable_image("a") == content(storage)


def test_a_lost_file_is_missing() -> None:
    storage = make_storage()
    storage.lose_file("a")
    assert storage.names() == []
    with pytest.raises(StorageMissing):
        storage.read("a", 0, 1)


def test_the_disk_can_fill_and_grow_while_it_runs() -> None:
    storage = make_storage()
    storage.set_capacity(FILE_BYTES + 10)
    with pytest.raises(StorageFull):
        storage.allocate("b", 11)
    storage.allocate("b", 10)
    storage.set_capacity(0)
    with pytest.raises(StorageFull):
        storage.allocate("c", 1)
    storage.write("a", 0, b"x")
    storage.sync("a")
    storage.set_capacity(None)
    storage.allocate("c", 1000)
    assert storage.allocated_bytes == FILE_BYTES + 1010


def test_operations_are_counted_by_kind() -> None:
    storage = make_storage()
    storage.write("a", 0, b"x")
    storage.write("a", 0, b"x")
    storage.sync("a")
    storage.settle("a")
    storage.read("a", 0, 1)
    storage.delete("a")
    assert storage.operations == {"allocate": 1, "write": 2, "sync": 2, "read": 1, "delete": 1}


def test_a_snapshot_can_be_restored_again_and_again() -> None:
    storage = make_storage()
    storage.write("a", 0, b"1" * 16)
    storage.fail_write()
    storage.crash_after(3)
    before, digest = storage.snapshot(), storage.digest()
    for _ in range(20):
        with pytest.raises(StorageFailed):
            storage.write("a", 0, b"2" * 16)
        storage.sync("a")
        with pytest.raises(SimulatedCrash):
            storage.delete("a")
        storage.restore(before)
        assert storage.digest() == digest
        assert storage.operations == {"allocate": 1, "write": 1}
    assert not storage.crashed


def test_each_restore_may_lose_something_else() -> None:
    storage = make_storage()
    storage.write("a", 0, b"1" * 16)
    before = storage.snapshot()
    found = set()
    for _ in SEEDS:
        storage.restore(before)
        storage.power_loss()
        found.add(content(storage)[:16])
    assert len(found) == 4


def test_the_digest_tells_durable_from_cached() -> None:
    storage = make_storage()
    storage.write("a", 0, b"x")
    before = storage.digest()
    storage.sync("a")
    assert storage.digest() != before


def history_digests(seed: int) -> list[str]:
    """The digest after each step of a long random history with every kind of fault."""
    choices, digests = Random(99), []
    storage = FaultyStorage(Random(seed), sector_bytes=16, capacity_bytes=4000)
    for _ in range(400):
        try:
            _random_step(storage, choices)
        except SimulatedCrash:
            choices.choice((storage.kill, storage.power_loss))()
        except (StorageFailed, StorageFull):
            pass
        digests.append(storage.digest())
    return digests


def _random_step(storage: FaultyStorage, choices: Random) -> None:
    name = choices.choice("abc")
    if name not in storage.names():
        storage.allocate(name, 500)
        return
    data = choices.randbytes(choices.randint(1, 100))
    step = choices.choice(
        (
            lambda: storage.write(name, choices.randrange(400), data),
            lambda: storage.sync(name),
            lambda: storage.settle(name),
            storage.fail_sync,
            storage.fail_write,
            storage.power_loss,
            lambda: storage.crash_after(choices.randint(1, 5)),
            lambda: storage.flip_bits(),
        )
    )
    step()


def test_one_seed_gives_one_history() -> None:
    assert history_digests(5) == history_digests(5)
    assert history_digests(5) != history_digests(6)
