from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.disk import FileStorage


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def storage(directory: Path) -> Iterator[FileStorage]:
    with FileStorage(directory) as storage:
        yield storage


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount program, so no small disk to fill")
    if mounted.returncode != 0:
        pytest.skip(f"mounting a small disk is not permitted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)
