"""Where the journal's bytes live: a few named files, each allocated once, at a fixed size.

This is the seam between the journal and the disk. The journal never opens, extends or renames a file:
it allocates whole files ahead of need, and then only overwrites them. Implementations: `MemoryStorage` (here,
below it), `FileStorage` (`holdfast.disk`), `FaultyStorage` (`holdfast.simulation`). One contract suite,
`tests/contracts/`, runs over all of them.

What each call promises to survive:

| after                  | a killed process | a power loss                        |
|------------------------|------------------|-------------------------------------|
| `allocate` returned    | yes              | yes: size, zeros and `head`         |
| `write` returned       | yes              | perhaps, in part, in any order      |
| `sync` returned        | yes              | yes: all writes to that file before |
| `sync` raised          | unknown          | unknown: see `settle`               |
| `delete` returned      | yes              | yes                                 |
"""

from __future__ import annotations

from typing import Protocol

Buffer = bytes | bytearray | memoryview


class Storage(Protocol):
    """Named files of fixed size. Calls block; different files may be used from different threads."""

    def names(self) -> list[str]:
        """The files that are there, sorted. A file whose allocation never finished is not among them."""

    def size(self, name: str) -> int:
        """The size in bytes. Raises `StorageMissing`."""

    def allocate(self, name: str, size_bytes: int, *, head: bytes = b"") -> None:
        """Make a file of `size_bytes`: `head`, then zeros, really written, durable with its name.

        All or nothing: raises `StorageFull` or `StorageFailed` and leaves no file behind.
        Raises `UsageError` if the name is taken.
        """

    def delete(self, name: str) -> None:
        """Remove the file, durably. Raises `StorageMissing`."""

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Exactly `length` bytes. Raises `StorageMissing` if the file ends before that, `StorageFailed`."""

    def write(self, name: str, offset: int, data: Buffer) -> None:
        """Overwrite inside the allocated size; beyond it is a `UsageError`.

        Raises `StorageFailed`, `StorageMissing`.
        """

    def sync(self, name: str) -> None:
        """Return only when all earlier writes to this file are durable (fdatasync). Raises `StorageFailed`.

        After it raised, those writes may be lost although they can still be read, and a later `sync` that
        returns says nothing about them: the caller must stop and recover.
        """

    def settle(self, name: str) -> None:
        """Make what is read equal to what is durable: sync, then forget cached pages. Used by recovery.

        A killed process leaves writes that can be read and were never synced; a failed sync leaves writes
        that can be read and never will be.
        """
