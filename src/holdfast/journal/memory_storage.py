"""Storage in memory: for tests, and for a node that is told to keep nothing."""

from __future__ import annotations

from holdfast.errors import StorageFull, StorageMissing, UsageError
from holdfast.journal.storage import Buffer


class MemoryStorage:
    """A `Storage` whose every write is at once as durable as it will ever be."""

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self._files: dict[str, bytearray] = {}
        self._capacity_bytes = capacity_bytes

    def names(self) -> list[str]:
        return sorted(self._files)

    def size(self, name: str) -> int:
        return len(self._file(name))

    def allocate(self, name: str, size_bytes: int, *, head: bytes = b"") -> None:
        if name in self._files:
            raise UsageError(f"the file {name} is already allocated")
        if len(head) > size_bytes:
            raise UsageError(f"a head of {len(head)} bytes does not fit into {size_bytes}")
        if self._capacity_bytes is not None:
            used_bytes = sum(map(len, self._files.values()))
            if used_bytes + size_bytes > self._capacity_bytes:
                raise StorageFull(f"no room for {name}: {size_bytes} bytes asked, {used_bytes} in use")
        self._files[name] = bytearray(head) + bytes(size_bytes - len(head))

    def delete(self, name: str) -> None:
        self._file(name)
        del self._files[name]

    def read(self, name: str, offset: int, length: int) -> bytes:
        data = self._file(name)[offset : offset + length]
        if len(data) != length:
            raise StorageMissing(
                f"{name} ends at byte {offset + len(data)}, {offset + length} were asked for"
            )
        return bytes(data)

    def write(self, name: str, offset: int, data: Buffer) -> None:
        file = self._file(name)
        if offset < 0 or offset + len(data) > len(file):
            raise UsageError(
                f"a write to {name} at {offset} of {len(data)} bytes leaves its {len(file)} bytes"
            )
        file[offset : offset + len(data)] = data

    def sync(self, name: str) -> None:
        self._file(name)

    def settle(self, name: str) -> None:
        self._file(name)

    def _file(self, name: str) -> bytearray:
        try:
            return self._files[name]
        except KeyError:
            raise StorageMissing(f"there is no file {name}") from None
