"""What a power loss may leave of unsynced writes, and what it must leave."""

from __future__ import annotations

from itertools import product
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.simulation.storage import FaultyStorage

SECTOR_BYTES = 8
FILE_BYTES = 45  # the last sector is short


def make_storage(seed: int) -> FaultyStorage:
    storage = FaultyStorage(Random(seed), sector_bytes=SECTOR_BYTES)
    storage.allocate("a", FILE_BYTES)
    return storage


def sectors(image: bytes) -> list[bytes]:
    return [image[start : start + SECTOR_BYTES] for start in range(0, len(image), SECTOR_BYTES)]


def left_by_power_losses(*writes: tuple[int, bytes]) -> set[bytes]:
    """What power losses after these writes leave, over many seeds."""
    left = set()
    for seed in range(1500):
        storage = make_storage(seed)
        for offset, data in writes:
            storage.write("a", offset, data)
        storage.power_loss()
        left.add(storage.read("a", 0, FILE_BYTES))
    return left


class Reference:
    """For each sector, every content that a power loss may leave: the last synced, and all written since."""

    def __init__(self) -> None:
        self.cached = bytearray(FILE_BYTES)
        self.possible = [{sector} for sector in sectors(bytes(FILE_BYTES))]

    def write(self, offset: int, data: bytes) -> None:
        self.cached[offset : offset + len(data)] = data
        for possible, sector in zip(self.possible, sectors(bytes(self.cached)), strict=True):
            possible.add(sector)

    def sync(self) -> None:
        self.possible = [{sector} for sector in sectors(bytes(self.cached))]

    def power_loss(self, found: bytes) -> None:
        for possible, sector in zip(self.possible, sectors(found), strict=True):
            assert sector in possible
        self.cached[:] = found
        self.sync()


writes = st.tuples(
    st.just("write"), st.integers(0, FILE_BYTES - 1), st.binary(min_size=1, max_size=3 * SECTOR_BYTES)
)
steps = st.one_of(writes, writes, st.sampled_from([("sync",), ("settle",), ("kill",), ("power loss",)]))


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32), st.lists(steps, max_size=30))
def test_a_power_loss_leaves_each_sector_as_synced_or_as_written_since(
    seed: int, history: list[tuple[str] | tuple[str, int, bytes]]
) -> None:
    storage, reference = make_storage(seed), Reference()
    for step in [*history, ("power loss",)]:
        if len(step) == 3:
            _, offset, data = step
            data = data[: FILE_BYTES - offset]
            storage.write("a", offset, data)
            reference.write(offset, data)
        elif step[0] == "kill":
            storage.kill()
        elif step[0] == "power loss":
            storage.power_loss()
            reference.power_loss(storage.read("a", 0, FILE_BYTES))
        else:
            {"sync": storage.sync, "settle": storage.settle}[step[0]]("a")
            reference.sync()
        assert storage.read("a", 0, FILE_BYTES) == reference.cached
    assert storage.durable_image("a") == storage.read("a", 0, FILE_BYTES)


def test_a_power_loss_may_lose_tear_reorder_or_keep_unsynced_writes() -> None:
    left = left_by_power_losses((0, b"1" * 16), (24, b"2" * 16))
    one, two = (bytes(8), b"1" * 8), (bytes(8), b"2" * 8)
    every_subset = {
        b"".join((*first, bytes(8), *second, bytes(5)))
        for first in product(one, one)
        for second in product(two, two)
    }
    assert left == every_subset


def test_a_power_loss_may_leave_what_was_written_and_then_overwritten() -> None:
    left = left_by_power_losses((0, b"old"), (0, b"new"))
    assert {image[:3] for image in left} == {b"\0\0\0", b"old", b"new"}


def test_a_power_loss_never_leaves_a_later_part_of_a_sector_without_the_earlier() -> None:
    left = left_by_power_losses((0, b"one"), (3, b"two"))
    assert {image[:6] for image in left} == {bytes(6), b"one\0\0\0", b"onetwo"}


def test_a_power_loss_treats_each_file_for_itself() -> None:
    left = set()
    for seed in range(100):
        storage = make_storage(seed)
        storage.allocate("b", 4)
        storage.write("a", 0, b"data")
        storage.write("b", 0, b"data")
        storage.power_loss()
        left.add((storage.read("a", 0, 4) == b"data", storage.read("b", 0, 4) == b"data"))
    assert len(left) == 4
