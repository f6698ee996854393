"""A disk that fails as real ones do, in memory, from a seed.

What one file goes through is in `cached_file`; here are the files, the faults, and when they come.
Everything random comes from the `Random` handed in, so that one seed gives one history (in one thread).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from random import Random

from holdfast.errors import StorageFailed, StorageFull, StorageMissing, UsageError
from holdfast.journal.storage import Buffer
from holdfast.simulation.cached_file import CachedFile


class SimulatedCrash(BaseException):
    """The process, or the machine, died here. No `except Exception` may survive it."""


@dataclass(frozen=True, slots=True)
class StorageSnapshot:
    """A `FaultyStorage` at one moment. Opaque: made by `snapshot`, used by `restore`, any number of times."""

    files: dict[str, CachedFile]
    operations: Counter[str]
    capacity_bytes: int | None
    crash_in: int | None
    crashed: bool
    good_syncs: int
    failing_syncs: int
    failing_writes: int


class FaultyStorage:
    """A `Storage` with faults to order.

    `operations` counts the calls by kind ("allocate", "delete", "write", "sync", "read"; `settle` counts as a
    sync); the first four are the operations of `crash_after`. `random` may be replaced at any time.
    """

    def __init__(self, random: Random, *, sector_bytes: int = 512, capacity_bytes: int | None = None) -> None:
        self.random = random
        self.operations: Counter[str] = Counter()
        self._sector_bytes = sector_bytes
        self._capacity_bytes = capacity_bytes
        self._files: dict[str, CachedFile] = {}
        self._crash_in: int | None = None
        self._crashed = False
        self._good_syncs = 0
        self._failing_syncs = 0
        self._failing_writes = 0

    # The storage

    def names(self) -> list[str]:
        self._require_running()
        return sorted(self._files)

    def size(self, name: str) -> int:
        return len(self._file(name).cached)

    def allocate(self, name: str, size_bytes: int, *, head: bytes = b"") -> None:
        self._require_running()
        if name in self._files:
            raise UsageError(f"the file {name} is already allocated")
        if len(head) > size_bytes:
            raise UsageError(f"a head of {len(head)} bytes does not fit into {size_bytes}")
        crash = self._begin("allocate")
        if self._capacity_bytes is not None and self.allocated_bytes + size_bytes > self._capacity_bytes:
            if crash:
                raise SimulatedCrash
            raise StorageFull(f"no room for {name}: {size_bytes} bytes asked, {self.allocated_bytes} in use")
        if not crash or self.random.random() < 0.5:
            image = bytearray(size_bytes)
            image[: len(head)] = head
            self._files[name] = CachedFile(self._sector_bytes, size_bytes, image, bytearray(image))
        if crash:
            raise SimulatedCrash

    def delete(self, name: str) -> None:
        self._file(name)
        crash = self._begin("delete")
        if not crash or self.random.random() < 0.5:
            del self._files[name]
        if crash:
            raise SimulatedCrash

    def read(self, name: str, offset: int, length: int) -> bytes:
        file = self._file(name)
        if offset < 0 or length < 0:
            raise UsageError(f"cannot read {length} bytes of {name} at {offset}")
        self.operations["read"] += 1
        if length and offset + length > len(file.cached):
            raise _too_short(name, size_bytes=len(file.cached), needed_bytes=offset + length)
        return bytes(memoryview(file.cached)[offset : offset + length])

    def write(self, name: str, offset: int, data: Buffer) -> None:
        file = self._file(name)
        view = memoryview(data).cast("B")
        end = offset + len(view)
        if offset < 0 or end > file.allocated_bytes:
            raise UsageError(
                f"a write to {name} at {offset} of {len(view)} bytes leaves its {file.allocated_bytes} bytes"
            )
        if end > len(file.cached):
            raise _too_short(name, size_bytes=len(file.cached), needed_bytes=end)
        crash = self._begin("write")
        failing = self._failing_writes > 0
        if crash or failing:
            view = view[: self._reached_bytes(offset, len(view))]
        file.write(offset, view)
        if crash:
            raise SimulatedCrash
        if failing:
            self._failing_writes -= 1
            raise StorageFailed(f"cannot write {name}: simulated input/output error")

    def sync(self, name: str) -> None:
        file = self._file(name)
        if self._begin("sync"):
            # What had reached the disk when it stopped is some of what is pending: just what a power loss
            # leaves. So it is chosen there; until then, all of it is still pending.
            raise SimulatedCrash
        if self._good_syncs > 0:
            self._good_syncs -= 1
        elif self._failing_syncs > 0:
            self._failing_syncs -= 1
            file.sync_in_part(self.random)
            raise StorageFailed(f"cannot sync {name}: simulated input/output error")
        file.sync()

    def settle(self, name: str) -> None:
        self.sync(name)
        self._file(name).drop_cache()

    # The death of the process or of the machine

    def crash_after(self, operations: int) -> None:
        """Raise `SimulatedCrash` in the middle of the n-th operation from now, and in every call after it."""
        if operations < 1:
            raise UsageError(f"a crash is in the 1st operation or a later one, not in number {operations}")
        self._crash_in = operations

    def kill(self) -> None:
        """The process died: everything can be read, nothing more is durable. A new process may go on."""
        self._crashed = False
        self._crash_in = None

    def power_loss(self) -> None:
        """The machine died: of the unsynced writes, some sectors are there and others not. It is up again."""
        for file in self._files.values():
            file.sync_in_part(self.random)
            file.drop_cache()
        self.kill()

    # The faults of the device; they stay ordered over `kill` and `power_loss`, until they have come

    def fail_sync(self, times: int = 1, *, after: int = 0) -> None:
        """Let the next syncs fail, of whatever file, once `after` more have succeeded."""
        self._failing_syncs += times
        self._good_syncs = after

    def fail_write(self, times: int = 1) -> None:
        """Let the next writes fail, having written some of their sectors."""
        self._failing_writes += times

    def disarm(self) -> None:
        """Call off every fault that was ordered and has not come yet."""
        self._crash_in = None
        self._good_syncs = self._failing_syncs = self._failing_writes = 0

    def flip_bits(self, name: str | None = None, count: int = 1) -> list[tuple[str, int]]:
        """Flip one bit in each of `count` bytes, anywhere or in one file; says where: (name, byte offset)."""
        sizes = {each: len(file.cached) for each, file in self._files.items() if name in (None, each)}
        total_bytes = sum(sizes.values())
        if count > total_bytes:
            raise UsageError(f"there are {total_bytes} bytes, not {count}, to flip bits in")
        flipped: list[tuple[str, int]] = []
        for offset in self.random.sample(range(total_bytes), count):
            for each, size_bytes in sizes.items():
                if offset < size_bytes:
                    self.flip_bit_at(each, offset, self.random.randrange(8))
                    flipped.append((each, offset))
                    break
                offset -= size_bytes
        return flipped

    def flip_bit_at(self, name: str, offset: int, bit: int) -> None:
        self._file_on_disk(name).flip_bit(offset, bit)

    def truncate_file(self, name: str, size: int) -> None:
        """Lose the end of a file. To write there is `StorageMissing`, as it is to read."""
        self._file_on_disk(name).truncate(size)

    def lose_file(self, name: str) -> None:
        self._file_on_disk(name)
        del self._files[name]

    def set_capacity(self, capacity_bytes: int | None) -> None:
        """Change the size of the disk; below what is allocated, it is full."""
        self._capacity_bytes = capacity_bytes

    # What an observer sees, also after a crash

    @property
    def allocated_bytes(self) -> int:
        return sum(len(file.cached) for file in self._files.values())

    @property
    def crashed(self) -> bool:
        return self._crashed

    def durable_image(self, name: str) -> bytes:
        """What of this file is certain to survive a power loss now."""
        return bytes(self._file_on_disk(name).durable)

    def digest(self) -> str:
        """Equal for equal files: names, and the bytes of both images."""
        state = hashlib.blake2b(digest_size=16)
        for name, file in sorted(self._files.items()):
            state.update(f"{name} {len(file.cached)}\n".encode())
            state.update(file.durable)
            state.update(file.cached)
        return state.hexdigest()

    def snapshot(self) -> StorageSnapshot:
        """A copy of files, ordered faults and counts; not of `random`, so that each restore may differ."""
        return StorageSnapshot(
            files={name: file.copy() for name, file in self._files.items()},
            operations=self.operations.copy(),
            capacity_bytes=self._capacity_bytes,
            crash_in=self._crash_in,
            crashed=self._crashed,
            good_syncs=self._good_syncs,
            failing_syncs=self._failing_syncs,
            failing_writes=self._failing_writes,
        )

    def restore(self, snapshot: StorageSnapshot) -> None:
        self._files = {name: file.copy() for name, file in snapshot.files.items()}
        self.operations = snapshot.operations.copy()
        self._capacity_bytes = snapshot.capacity_bytes
        self._crash_in = snapshot.crash_in
        self._crashed = snapshot.crashed
        self._good_syncs = snapshot.good_syncs
        self._failing_syncs = snapshot.failing_syncs
        self._failing_writes = snapshot.failing_writes

    def _begin(self, kind: str) -> bool:
        """Count an operation. True if the crash comes in the middle of it: the caller raises it."""
        self.operations[kind] += 1
        if self._crash_in is not None:
            self._crash_in -= 1
            self._crashed = self._crash_in == 0
        return self._crashed

    def _reached_bytes(self, offset: int, length: int) -> int:
        """How much of a broken write reached the cache: it is copied in order, up to some sector's end."""
        first = offset // self._sector_bytes
        last = -(-(offset + length) // self._sector_bytes)
        stop = self.random.randint(first, last) * self._sector_bytes
        return min(max(stop - offset, 0), length)

    def _require_running(self) -> None:
        if self._crashed:
            raise SimulatedCrash

    def _file(self, name: str) -> CachedFile:
        self._require_running()
        return self._file_on_disk(name)

    def _file_on_disk(self, name: str) -> CachedFile:
        try:
            return self._files[name]
        except KeyError:
            raise StorageMissing(f"there is no file {name}") from None


def _too_short(name: str, *, size_bytes: int, needed_bytes: int) -> StorageMissing:
    return StorageMissing(f"{name} ends at byte {size_bytes}, {needed_bytes} were asked for")
