from __future__ import annotations

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
