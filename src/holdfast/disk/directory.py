"""The directory of a `FileStorage`: its making, its lock, and which names in it are files of ours."""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.errors import StorageError, StorageFull, StorageLocked, StorageMissing

LOCK_NAME = "lock"
UNFINISHED = ".new"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_NAME = re.compile(r"[a-z0-9.-]+")
_PROCESS_ID_BYTES = 20


def is_file_name(name: str) -> bool:
    # "." and ".." fit the pattern and are not files.
    return (
        _NAME.fullmatch(name) is not None
        and name not in (LOCK_NAME, ".", "..")
        and not name.endswith(UNFINISHED)
    )


def file_sizes(directory: Path) -> dict[str, int]:
    """The size of every file that is ours; links, directories and strange names are not."""
    sizes: dict[str, int] = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            if is_file_name(entry.name) and entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):  # deleted since it was listed
                    sizes[entry.name] = entry.stat(follow_symlinks=False).st_size
    return sizes


def make_directory(directory: Path) -> None:
    """Make the directory and what is missing of its path, durably. One that is there is left as it is."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
        # A durable file in a directory whose own name is not durable would be lost with it.
        parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)


def take_lock(directory: Path) -> int:
    """The descriptor that holds the lock. The kernel frees it when this process ends, however it ends."""
    descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = _holder(descriptor)
        os.close(descriptor)
        raise StorageLocked(
            f"{directory} is in use by {holder}. Nothing was changed. Stop that process, or give this one "
            f"a directory of its own; the lock goes away with the process that holds it."
        ) from error
    except BaseException:
        os.close(descriptor)
        raise
    # The id only serves the message above. It overwrites the same bytes each time, and a failure does not
    # count: a node must start on a full disk.
    with suppress(OSError):
        os.pwrite(descriptor, str(os.getpid()).ljust(_PROCESS_ID_BYTES).encode(), 0)
    return descriptor


def _holder(descriptor: int) -> str:
    process_id = os.pread(descriptor, _PROCESS_ID_BYTES, 0).decode("ascii", "replace").strip()
    if process_id == str(os.getpid()):
        return f"this process ({process_id}), which opened it before"
    return f"process {process_id}" if process_id else "another process"


def remove_unfinished(directory: Path) -> None:
    for path in directory.iterdir():
        if path.name.endswith(UNFINISHED) and _NAME.fullmatch(path.name) and not path.is_dir():
            path.unlink()


@contextmanager
def explained(directory: Path) -> Iterator[None]:
    """Tell a person why the directory cannot be used."""
    try:
        yield
    except FileNotFoundError as error:
        raise StorageMissing(
            f"there is no directory {directory}. Nothing was made. Check the path."
        ) from error
    except (NotADirectoryError, FileExistsError) as error:
        raise StorageError(
            f"{directory} cannot be used: {error.filename or directory} is not a directory, or a part "
            f"of its path is not one. Nothing was changed. Move that file away, or choose another directory."
        ) from error
    except PermissionError as error:
        raise StorageError(
            f"{directory} cannot be used: user {os.geteuid()} is not permitted to open "
            f"{error.filename or directory}. Nothing was changed. Run as the owner of the directory, "
            f"give it to this user with chown, or choose another directory."
        ) from error
    except OSError as error:
        kind = StorageFull if error.errno in NO_ROOM else StorageError
        raise kind(
            f"{directory} cannot be used: {reason(error)}. Make it a writable directory on a local file "
            f"system with free space, or choose another."
        ) from error


def reason(error: OSError) -> str:
    name = errno.errorcode.get(error.errno or 0, "no error number")
    return f"{error.strerror or error} ({name})"
