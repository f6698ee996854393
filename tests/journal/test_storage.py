"""One contract over every storage, and a storage that breaks it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from holdfast.disk import FileStorage
from holdfast.journal.memory_storage import MemoryStorage
from holdfast.journal.storage import Storage
from holdfast.simulation.storage import FaultyStorage
from tests.contracts.lying_storage import LyingStorage
from tests.contracts.storage_contract import (
    MakeStorage,
    Restart,
    StorageContract,
    check_synced_writes_survive,
)


def lose_power(storage: Storage) -> Storage:
    assert isinstance(storage, FaultyStorage)
    storage.power_loss()
    return storage


class TestMemoryStorage(StorageContract):
    @pytest.fixture
    def make_storage(self) -> MakeStorage:
        return MemoryStorage

    @pytest.fixture
    def restart(self) -> Restart:
        return lambda storage: storage


class TestFileStorage(StorageContract):
    @pytest.fixture
    def opened(self) -> Iterator[ExitStack]:
        with ExitStack() as stack:
            yield stack

    @pytest.fixture
    def make_storage(self, tmp_path: Path, opened: ExitStack) -> MakeStorage:
        def make(*, capacity_bytes: int | None = None) -> Storage:
            return opened.enter_context(FileStorage(tmp_path / "journal", quota_bytes=capacity_bytes))

        return make

    @pytest.fixture
    def restart(self, make_storage: MakeStorage, opened: ExitStack) -> Restart:
        def reopen(_: Storage) -> Storage:
            opened.close()
            return make_storage()

        return reopen


class TestFaultyStorage(StorageContract):
    @pytest.fixture
    def make_storage(self) -> MakeStorage:
        def make(*, capacity_bytes: int | None = None) -> Storage:
            return FaultyStorage(Random(1), capacity_bytes=capacity_bytes)

        return make

    @pytest.fixture
    def restart(self) -> Restart:
        return lose_power

    @pytest.mark.spec("D")
    def test_what_was_synced_survives(self, storage: Storage, restart: Restart) -> None:
        super().test_what_was_synced_survives(storage, restart)


@pytest.mark.control("D")
@pytest.mark.parametrize("seed", range(5))
def test_a_storage_that_lies_about_sync_is_caught(seed: int) -> None:
    with pytest.raises(AssertionError, match="lost what had been synced"):
        check_synced_writes_survive(LyingStorage(Random(seed)), lose_power)
