"""A storage to look at: everything can be read, nothing can be changed, and what is not there is told apart.

Inspection and verification run beside the process that writes the journal, and over journals that are damaged.
So this view refuses every change, does not sync, and lets reading go on where files are lost:

- a segment file that is gone, as the numbering says, stands in as an empty one;
- a file that only looks like a segment (`segment-000003.bak`) is left out, and named in `strays`;
- blocks of a segment that the disk cannot read are shown as zeros, and named in `unreadable`.
"""

from __future__ import annotations

from holdfast.errors import StorageFailed, StorageMissing, UsageError
from holdfast.journal.segments import SEGMENT_PREFIX, is_segment, segment_name, segment_number
from holdfast.journal.storage import Buffer, Storage

# What the disk refuses is looked for in steps of the smallest unit that file systems read.
BLOCK_BYTES = 4096


class ReadOnlyView:
    """A `Storage` over another, for reading only. The list of files is that of the moment it was made."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        names = storage.names()
        numbers = {number for name in names if (number := segment_number(name)) is not None}
        self.missing = tuple(
            segment_name(number) for number in range(max(numbers, default=-1) + 1) if number not in numbers
        )
        self.strays = tuple(n for n in names if n.startswith(SEGMENT_PREFIX) and not is_segment(n))
        self.unreadable: dict[tuple[str, int], str] = {}
        self._names = sorted({*names, *self.missing} - {*self.strays})

    def names(self) -> list[str]:
        return list(self._names)

    def size(self, name: str) -> int:
        return 0 if name in self.missing else self._storage.size(name)

    def read(self, name: str, offset: int, length: int) -> bytes:
        if name in self.missing:
            if length:
                raise StorageMissing(f"there is no file {name}")
            return b""
        try:
            return self._storage.read(name, offset, length)
        except StorageFailed:
            if not is_segment(name):
                raise
            return self._read_blocks(name, offset, length)

    def _read_blocks(self, name: str, offset: int, length: int) -> bytes:
        """What can be read, block by block. Raises `StorageFailed` if that is nothing."""
        blocks = []
        failures = {}
        for start in range(offset, offset + length, BLOCK_BYTES):
            block_bytes = min(BLOCK_BYTES, offset + length - start)
            try:
                blocks.append(self._storage.read(name, start, block_bytes))
            except StorageFailed as error:
                failures[name, start] = str(error)
                blocks.append(bytes(block_bytes))
                last_error = error
        if len(failures) == len(blocks) and length:
            raise last_error
        self.unreadable.update(failures)
        return b"".join(blocks)

    def settle(self, name: str) -> None:
        """Nothing: a look must not make the disk of a running node busy."""

    def allocate(self, name: str, size_bytes: int, *, head: bytes = b"") -> None:
        raise _refused(name)

    def delete(self, name: str) -> None:
        raise _refused(name)

    def write(self, name: str, offset: int, data: Buffer) -> None:
        raise _refused(name)

    def sync(self, name: str) -> None:
        raise _refused(name)


class OneCopy(ReadOnlyView):
    """A view in which only one place of a file can be read: one copy of what is stored twice."""

    def __init__(self, storage: Storage, offset: int) -> None:
        super().__init__(storage)
        self._offset = offset

    def read(self, name: str, offset: int, length: int) -> bytes:
        if offset != self._offset:
            raise StorageMissing(f"only the copy at byte {self._offset} of {name} is looked at")
        return super().read(name, offset, length)


def _refused(name: str) -> UsageError:
    return UsageError(f"{name} cannot be changed: the journal is only looked at")
