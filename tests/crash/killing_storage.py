"""Real files, in a process that kills itself with -9 at a chosen operation on them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from holdfast.disk import FileStorage
from holdfast.journal.storage import Buffer


class KillingStorage(FileStorage):
    """Real files, and kill -9 of this very process before or after the n-th operation of some kind."""

    def __init__(self, directory: Path, *, operation: str, file: str, moment: str, nth: int) -> None:
        super().__init__(directory)
        self._point = (operation, file, moment)
        self._left = nth

    def _at(self, operation: str, name: str, moment: str) -> None:
        wanted_operation, wanted_file, wanted_moment = self._point
        if (
            wanted_operation in (operation, "any")
            and name.startswith(wanted_file)
            and moment == wanted_moment
        ):
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def _around(self, operation: str, name: str, act: Callable[[], None]) -> None:
        self._at(operation, name, "before")
        act()
        self._at(operation, name, "after")

    def allocate(self, name: str, size_bytes: int, *, head: bytes = b"") -> None:
        allocate = super().allocate
        self._around("allocate", name, lambda: allocate(name, size_bytes, head=head))

    def write(self, name: str, offset: int, data: Buffer) -> None:
        write = super().write
        self._around("write", name, lambda: write(name, offset, data))

    def sync(self, name: str) -> None:
        sync = super().sync
        self._around("sync", name, lambda: sync(name))
