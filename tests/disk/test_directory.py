"""Who may use a directory, and which names in it are files."""

from __future__ import annotations

import errno
import os
import re
import signal
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
    StorageLocked,
    StorageMissing,
    UsageError,
)


def files_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name != "lock")


def run(program: str, directory: Path) -> str:
    """What a process of its own prints."""
    command = [sys.executable, "-c", program, str(directory)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_directory_and_its_files_are_for_the_owner_alone(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "journal"
    with FileStorage(directory) as storage:
        storage.allocate("a", 10)
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert stat.S_IMODE((directory / "a").stat().st_mode) == 0o600
        assert stat.S_IMODE((directory / "lock").stat().st_mode) == 0o600


def test_a_directory_that_is_there_keeps_its_mode(directory: Path) -> None:
    directory.mkdir(mode=0o750)
    with FileStorage(directory):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o750


def test_a_relative_directory_stays_the_same_when_the_process_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with FileStorage(Path("journal")) as storage:
        monkeypatch.chdir("/")
        storage.allocate("a", 10)
    assert files_in(tmp_path / "journal") == ["a"]


def test_a_second_process_is_told_who_holds_the_directory_and_gets_it_when_that_one_is_killed(
    directory: Path,
) -> None:
    program = (
        "import sys; from pathlib import Path; from holdfast.disk import FileStorage; "
        "storage = FileStorage(Path(sys.argv[1])); print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(StorageLocked, match=rf"{directory} is in use by process {holder.pid}\. .*Stop"):
            FileStorage(directory)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    FileStorage(directory).close()


def test_one_process_can_not_open_a_directory_twice(storage: FileStorage, directory: Path) -> None:
    with pytest.raises(StorageLocked, match=rf"this process \({os.getpid()}\)"):
        FileStorage(directory)


def test_a_lock_without_a_process_id_still_locks(storage: FileStorage, directory: Path) -> None:
    os.truncate(directory / "lock", 0)
    with pytest.raises(StorageLocked, match="in use by another process"):
        FileStorage(directory)


def test_closing_gives_the_lock_back_even_if_a_forked_child_lives(directory: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from holdfast.disk import FileStorage\n"
        "storage = FileStorage(Path(sys.argv[1])); child = os.fork()\n"
        "if child == 0: signal.pause()\n"
        "storage.close()\n"
        "try: FileStorage(Path(sys.argv[1])).close(); print('open')\n"
        "finally: os.kill(child, signal.SIGKILL); os.waitpid(child, 0)\n"
    )
    assert run(program, directory) == "open\n"


def test_a_storage_that_could_not_be_opened_keeps_no_descriptors(
    storage: FileStorage, directory: Path
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(StorageLocked):
            FileStorage(directory)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_reader_without_the_lock_reads_beside_the_holder_and_changes_nothing(
    storage: FileStorage, directory: Path
) -> None:
    storage.allocate("a", 10, head=b"head")
    (directory / "b.new").write_bytes(b"being made")
    with FileStorage(directory, lock=False) as reader:
        assert reader.names() == ["a"]
        assert reader.read("a", 0, 4) == b"head"
        reader.settle("a")
        changes: list[Callable[[], None]] = [
            lambda: reader.allocate("c", 1),
            lambda: reader.write("a", 0, b"x"),
            lambda: reader.delete("a"),
        ]
        for change in changes:
            with pytest.raises(UsageError, match="only for reading"):
                change()
    assert files_in(directory) == ["a", "b.new"]


def test_a_reader_makes_no_directory(directory: Path) -> None:
    with pytest.raises(StorageMissing, match=f"there is no directory {directory}"):
        FileStorage(directory, lock=False)
    assert not directory.exists()


def test_what_a_killed_process_left_unfinished_is_removed(directory: Path) -> None:
    directory.mkdir()
    (directory / "segment-1.new").write_bytes(b"half")
    (directory / "directory.new").mkdir()
    with FileStorage(directory) as storage:
        assert storage.names() == []
        storage.allocate("segment-1", 10)
        assert storage.read("segment-1", 0, 10) == bytes(10)
    assert files_in(directory) == ["directory.new", "segment-1"]


@pytest.mark.parametrize("below", ["", "sub"], ids=["the directory", "a part of the path"])
@pytest.mark.parametrize("lock", [True, False])
def test_a_file_where_the_directory_should_be_is_explained(directory: Path, below: str, lock: bool) -> None:
    directory.write_text("precious")
    with pytest.raises(StorageError, match=r"not a directory.*Nothing was changed.*choose another"):
        FileStorage(directory / below, lock=lock)
    assert directory.read_text() == "precious"


@pytest.mark.parametrize("name", ["", "sub"], ids=["in it", "below it"])
def test_a_directory_of_another_user_is_explained(tmp_path: Path, name: str) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700 if os.geteuid() == 0 else 0o000)
    program = (
        "import os, sys; from pathlib import Path; from holdfast.disk import FileStorage\n"
        "from holdfast.errors import StorageError\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: FileStorage(Path(sys.argv[1]))\n"
        "except StorageError as error: print(error)\n"
    )
    told = run(program, private / name)
    assert re.search(rf"{private / name} cannot be used: user \d+ is not permitted", told)
    assert "Run as the owner" in told
    assert "chown" in told


def test_a_directory_that_can_not_be_made_on_a_full_disk_is_explained(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "mkdir", no_space)
    with pytest.raises(StorageFull, match="No space left"):
        FileStorage(directory)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../a", "a/b", "/a", "A", "a b", "a\n", "é", "a\0", "lock", "a.new", ".new"]
)
def test_strange_names_are_refused(storage: FileStorage, tmp_path: Path, name: str) -> None:
    for use in (
        lambda: storage.allocate(name, 1),
        lambda: storage.read(name, 0, 1),
        lambda: storage.write(name, 0, b"x"),
        lambda: storage.delete(name),
        lambda: storage.sync(name),
        lambda: storage.size(name),
    ):
        with pytest.raises(UsageError, match="no file name here"):
            use()
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]


def test_only_regular_files_with_proper_names_are_listed(
    storage: FileStorage, directory: Path, tmp_path: Path
) -> None:
    storage.allocate("a", 10)
    (directory / "README").write_text("by a person")
    (directory / "directory").mkdir()
    (directory / "link").symlink_to(directory / "a")
    assert storage.names() == ["a"]


def test_a_symbolic_link_is_not_followed(storage: FileStorage, directory: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    (directory / "a").symlink_to(outside)
    for use in (
        lambda: storage.read("a", 0, 1),
        lambda: storage.write("a", 0, b"x"),
        lambda: storage.sync("a"),
    ):
        with pytest.raises(StorageFailed):
            use()
    with pytest.raises(UsageError):
        storage.allocate("a", 10)
    (directory / "b.new").symlink_to(outside)
    with pytest.raises(StorageFailed):
        storage.allocate("b", 10)
    assert outside.read_bytes() == b"precious"
