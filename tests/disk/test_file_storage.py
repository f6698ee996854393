"""Real files and real full disks."""

from __future__ import annotations

import errno
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.disk import FileStorage
from holdfast.errors import (
    StorageError,
    StorageFailed,
    StorageFull,
    StorageMissing,
    UsageError,
)

MIB = 1024 * 1024


def failing(number: int) -> Callable[..., int]:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    return fail


def failing_on_call(number: int, *, call: int, then: Callable[[int], None]) -> Callable[[int], None]:
    """As `then`, but its n-th call fails."""
    calls = 0

    def use(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            raise OSError(number, os.strerror(number))
        then(descriptor)

    return use


def files_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name != "lock")


def test_allocated_space_is_really_there_and_overwriting_takes_no_more(
    storage: FileStorage, directory: Path
) -> None:
    size_bytes = 3 * MIB + 4096
    storage.allocate("a", size_bytes, head=b"head")
    os.sync()
    status = (directory / "a").stat()
    assert status.st_size == size_bytes
    assert status.st_blocks * 512 >= size_bytes
    for offset in range(0, size_bytes, 65536):
        storage.write("a", offset, os.urandom(min(65536, size_bytes - offset)))
    storage.sync("a")
    assert (directory / "a").stat().st_blocks == status.st_blocks
    assert (directory / "a").stat().st_size == size_bytes


def test_a_full_disk_refuses_a_file_leaves_nothing_and_can_still_be_written(small_disk: Path) -> None:
    with FileStorage(small_disk / "journal") as storage:
        storage.allocate("a", MIB // 2)
        with pytest.raises(StorageFull, match=r"No space left.*ENOSPC.*are kept.*Free some space"):
            storage.allocate("b", MIB)
        assert files_in(small_disk / "journal") == ["a"]
        (small_disk / "filler").write_bytes(bytes(os.statvfs(small_disk).f_bavail * 4096))
        assert os.statvfs(small_disk).f_bavail == 0
        storage.write("a", 0, b"x" * (MIB // 2))
        storage.sync("a")
        assert storage.read("a", 0, MIB // 2) == b"x" * (MIB // 2)


def test_a_storage_opens_on_a_full_disk_and_allocates_when_there_is_room(small_disk: Path) -> None:
    with FileStorage(small_disk / "journal") as storage:
        storage.allocate("a", 1000, head=b"head")
    (small_disk / "filler").write_bytes(bytes(os.statvfs(small_disk).f_bavail * 4096))
    with FileStorage(small_disk / "journal") as storage:
        assert storage.read("a", 0, 4) == b"head"
        with pytest.raises(StorageFull):
            storage.allocate("b", 5000)
        (small_disk / "filler").unlink()
        storage.allocate("b", 5000)
        assert storage.names() == ["a", "b"]


def test_the_quota_counts_what_earlier_processes_allocated(directory: Path) -> None:
    with FileStorage(directory) as storage:
        storage.allocate("a", 6000)
    with FileStorage(directory, quota_bytes=10_000) as storage:
        with pytest.raises(StorageFull, match=r"6000 of the quota of 10000 in use.*Raise the quota"):
            storage.allocate("b", 4001)
        storage.allocate("b", 4000)


@pytest.mark.parametrize(
    ("number", "raised"),
    [(errno.ENOSPC, StorageFull), (errno.EDQUOT, StorageFull), (errno.EIO, StorageFailed)],
)
@pytest.mark.parametrize("call", [1, 2], ids=["of the file", "of the directory"])
def test_an_allocation_whose_sync_fails_leaves_nothing(
    storage: FileStorage,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    raised: type[StorageError],
    call: int,
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing_on_call(number, call=call, then=os.fsync))
        with pytest.raises(raised, match=errno.errorcode[number]):
            storage.allocate("a", 10)
    assert files_in(directory) == []
    assert len(os.listdir("/proc/self/fd")) == before
    storage.allocate("a", 10)


def test_an_interrupted_allocation_leaves_nothing(
    storage: FileStorage, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        storage.allocate("a", 10)
    assert files_in(directory) == []


def test_a_file_has_its_name_only_when_its_content_is_durable(
    storage: FileStorage, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[list[str], int]] = []
    sync = os.fsync

    def watch(descriptor: int) -> None:
        seen.append((files_in(directory), os.fstat(descriptor).st_mode))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watch)
    storage.allocate("a", 10)
    assert [names for names, _ in seen] == [["a.new"], ["a"]]
    assert stat.S_ISREG(seen[0][1])
    assert stat.S_ISDIR(seen[1][1])


def test_partial_writes_and_reads_are_continued(
    storage: FileStorage, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite, pread = os.pwrite, os.pread
    data = os.urandom(1000)
    monkeypatch.setattr(os, "pwrite", lambda file, data, offset: pwrite(file, data[:7], offset))
    monkeypatch.setattr(os, "pread", lambda file, length, offset: pread(file, min(length, 9), offset))
    storage.allocate("a", 3000, head=b"head" * 5)
    storage.write("a", 1000, data)
    assert storage.read("a", 0, 3000) == b"head" * 5 + bytes(980) + data + bytes(1000)


def test_a_kernel_that_writes_nothing_is_a_failure_and_no_endless_loop(
    storage: FileStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.allocate("a", 10)
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with pytest.raises(StorageFailed, match="EIO"):
        storage.write("a", 0, b"data")


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize(
    ("call", "action", "use"),
    [
        ("pwrite", "write", lambda storage: storage.write("a", 0, b"x")),
        ("pread", "read", lambda storage: storage.read("a", 0, 1)),
        ("fdatasync", "sync", lambda storage: storage.sync("a")),
        ("fdatasync", "settle", lambda storage: storage.settle("a")),
        ("unlink", "delete", lambda storage: storage.delete("a")),
    ],
)
def test_an_error_of_the_disk_is_a_failure_that_names_the_file_and_the_reason(
    storage: FileStorage,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    call: str,
    action: str,
    use: Callable[[FileStorage], object],
) -> None:
    storage.allocate("a", 10)
    monkeypatch.setattr(os, call, failing(number))
    expected = f"cannot {action} {directory / 'a'}: {os.strerror(number)} ({errno.errorcode[number]})"
    with pytest.raises(StorageFailed, match=re.escape(expected)):
        use(storage)


def test_settling_syncs_and_then_forgets_the_cache(
    storage: FileStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.allocate("a", 10)
    calls: list[object] = []
    monkeypatch.setattr(os, "fdatasync", lambda _: calls.append("sync"))
    monkeypatch.setattr(os, "posix_fadvise", lambda _, *advice: calls.append(advice))
    storage.settle("a")
    assert calls == ["sync", (0, 0, os.POSIX_FADV_DONTNEED)]


def test_a_file_that_lost_its_end_is_missing_there_and_is_not_grown(
    storage: FileStorage, directory: Path
) -> None:
    storage.allocate("a", 1000, head=b"head")
    os.truncate(directory / "a", 100)
    assert storage.size("a") == 100
    assert storage.read("a", 0, 4) == b"head"
    with pytest.raises(StorageMissing, match="ends at byte 100, 104 were asked for"):
        storage.read("a", 100, 4)
    with pytest.raises(StorageMissing):
        storage.write("a", 98, b"data")
    assert (directory / "a").stat().st_size == 100


def test_a_file_that_ends_while_it_is_read_is_missing(
    storage: FileStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.allocate("a", 1000)
    monkeypatch.setattr(os, "pread", lambda *_: b"")
    with pytest.raises(StorageMissing):
        storage.read("a", 0, 10)


def test_a_file_removed_behind_our_back_is_missing_although_it_is_still_open(
    storage: FileStorage, directory: Path
) -> None:
    storage.allocate("a", 10)
    (directory / "a").unlink()
    for use in (
        lambda: storage.write("a", 0, b"x"),
        lambda: storage.sync("a"),
        lambda: storage.read("a", 0, 1),
    ):
        with pytest.raises(StorageMissing):
            use()


@pytest.mark.parametrize(("offset", "length"), [(-1, 1), (0, -1)])
def test_a_negative_range_can_not_be_read(storage: FileStorage, offset: int, length: int) -> None:
    storage.allocate("a", 10)
    with pytest.raises(UsageError):
        storage.read("a", offset, length)


def test_what_one_process_wrote_the_next_one_reads(directory: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from holdfast.disk import FileStorage\n"
        "storage = FileStorage(Path(sys.argv[1])); storage.allocate('a', 5000)\n"
        "storage.write('a', 4000, b'data'); os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(directory)], check=False)
    with FileStorage(directory) as storage:
        storage.settle("a")
        assert storage.read("a", 3999, 6) == b"\0data\0"


def test_closing_closes_every_descriptor_and_twice_is_harmless(directory: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    storage = FileStorage(directory)
    for name in "abc":
        storage.allocate(name, 10)
    storage.close()
    storage.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    "use",
    [
        lambda storage: storage.names(),
        lambda storage: storage.size("a"),
        lambda storage: storage.read("a", 0, 1),
        lambda storage: storage.write("a", 0, b"x"),
        lambda storage: storage.sync("a"),
        lambda storage: storage.allocate("b", 1),
        lambda storage: storage.delete("a"),
    ],
)
def test_a_closed_storage_can_not_be_used(directory: Path, use: Callable[[FileStorage], object]) -> None:
    with FileStorage(directory) as storage:
        storage.allocate("a", 10)
    with pytest.raises(UsageError, match="closed"):
        use(storage)
