"""What every `Storage` must do, whatever it is made of.

A test class inherits `StorageContract` and gives it two fixtures: `make_storage`, which makes an empty
storage, and `restart`, the worst that this storage is said to survive, from which it comes back.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Protocol

import pytest

from holdfast.errors import StorageFull, StorageMissing, UsageError
from holdfast.journal.storage import Buffer, Storage

FILE_BYTES = 8192


class MakeStorage(Protocol):
    def __call__(self, *, capacity_bytes: int | None = None) -> Storage: ...


Restart = Callable[[Storage], Storage]


def check_synced_writes_survive(storage: Storage, restart: Restart, *, rounds: int = 20) -> None:
    """Write, sync and restart, again and again: every file comes back as it was at its last sync."""
    random = Random(7)
    expected = {name: bytearray(FILE_BYTES) for name in ("a", "b", "c")}
    for name in expected:
        storage.allocate(name, FILE_BYTES)
    for _ in range(rounds):
        for name, content in expected.items():
            for _ in range(random.randint(1, 4)):
                _write_somewhere(storage, name, content, random)
            storage.sync(name)
        storage = restart(storage)
        for name, content in expected.items():
            # Compared beforehand: of two long strings of bytes no difference is worth showing, and that takes minutes.
            is_whole = storage.read(name, 0, FILE_BYTES) == content
            assert is_whole, f"{name} lost what had been synced"


def _write_somewhere(storage: Storage, name: str, content: bytearray, random: Random) -> None:
    offset = random.randrange(FILE_BYTES)
    data = random.randbytes(random.randint(1, min(3000, FILE_BYTES - offset)))
    storage.write(name, offset, data)
    content[offset : offset + len(data)] = data


class StorageContract:
    @pytest.fixture
    def storage(self, make_storage: MakeStorage) -> Storage:
        return make_storage()

    def test_an_empty_storage_has_no_files(self, storage: Storage) -> None:
        assert storage.names() == []

    def test_an_allocated_file_is_its_head_and_then_zeros(self, storage: Storage) -> None:
        storage.allocate("segment-1", 5000, head=b"head")
        assert storage.size("segment-1") == 5000
        assert storage.read("segment-1", 0, 5000) == b"head" + bytes(4996)

    def test_a_head_may_fill_the_file(self, storage: Storage) -> None:
        storage.allocate("a", 3, head=b"abc")
        assert storage.read("a", 0, 3) == b"abc"

    def test_a_head_larger_than_the_file_is_refused(self, storage: Storage) -> None:
        with pytest.raises(UsageError):
            storage.allocate("a", 3, head=b"abcd")
        assert storage.names() == []

    def test_names_are_sorted(self, storage: Storage) -> None:
        for name in ("b", "a.1", "c-2"):
            storage.allocate(name, 10)
        assert storage.names() == ["a.1", "b", "c-2"]

    def test_a_name_that_is_taken_is_refused_and_its_file_kept(self, storage: Storage) -> None:
        storage.allocate("a", 10, head=b"first")
        with pytest.raises(UsageError):
            storage.allocate("a", 20, head=b"second")
        assert storage.read("a", 0, 10) == b"first" + bytes(5)

    def test_what_is_written_is_read_and_nothing_around_it_changes(self, storage: Storage) -> None:
        storage.allocate("a", 2000)
        storage.write("a", 700, b"x" * 600)
        storage.write("a", 1000, b"yyy")
        assert storage.read("a", 0, 2000) == bytes(700) + b"x" * 300 + b"yyy" + b"x" * 297 + bytes(700)
        assert storage.size("a") == 2000

    @pytest.mark.parametrize("data", [b"data", bytearray(b"data"), memoryview(b"<data>")[1:5]])
    def test_any_buffer_can_be_written(self, storage: Storage, data: Buffer) -> None:
        storage.allocate("a", 4)
        storage.write("a", 0, data)
        assert storage.read("a", 0, 4) == b"data"

    def test_writing_nothing_changes_nothing(self, storage: Storage) -> None:
        storage.allocate("a", 4, head=b"head")
        storage.write("a", 4, b"")
        storage.sync("a")
        assert storage.read("a", 0, 4) == b"head"

    def test_a_buffer_may_change_after_it_was_written(self, storage: Storage) -> None:
        storage.allocate("a", 4)
        data = bytearray(b"data")
        storage.write("a", 0, data)
        data[:] = b"gone"
        storage.sync("a")
        assert storage.read("a", 0, 4) == b"data"

    def test_read_bytes_do_not_change_when_the_file_does(self, storage: Storage) -> None:
        storage.allocate("a", 4, head=b"head")
        content = storage.read("a", 0, 4)
        storage.write("a", 0, b"tail")
        assert content == b"head"
        assert isinstance(content, bytes)

    @pytest.mark.parametrize("offset", [-1, 7, 10, 1000])
    def test_a_write_that_leaves_the_file_is_refused_whole(self, storage: Storage, offset: int) -> None:
        storage.allocate("a", 10)
        with pytest.raises(UsageError):
            storage.write("a", offset, b"data")
        assert storage.size("a") == 10
        assert storage.read("a", 0, 10) == bytes(10)

    @pytest.mark.parametrize(("offset", "length"), [(0, 11), (9, 2), (10, 1), (1000, 1), (0, 1 << 40)])
    def test_reading_past_the_end_says_that_it_is_missing(
        self, storage: Storage, offset: int, length: int
    ) -> None:
        storage.allocate("a", 10)
        with pytest.raises(StorageMissing):
            storage.read("a", offset, length)

    @pytest.mark.parametrize("offset", [0, 5, 10])
    def test_reading_nothing_gives_nothing(self, storage: Storage, offset: int) -> None:
        storage.allocate("a", 10)
        assert storage.read("a", offset, 0) == b""

    @pytest.mark.parametrize(
        "use",
        [
            lambda storage: storage.size("a"),
            lambda storage: storage.read("a", 0, 1),
            lambda storage: storage.write("a", 0, b"x"),
            lambda storage: storage.sync("a"),
            lambda storage: storage.settle("a"),
            lambda storage: storage.delete("a"),
        ],
        ids=["size", "read", "write", "sync", "settle", "delete"],
    )
    @pytest.mark.parametrize("deleted", [False, True], ids=["never there", "deleted"])
    def test_a_file_that_is_not_there_is_missing(
        self, storage: Storage, use: Callable[[Storage], object], deleted: bool
    ) -> None:
        if deleted:
            storage.allocate("a", 10)
            storage.write("a", 0, b"x")
            storage.delete("a")
        with pytest.raises(StorageMissing):
            use(storage)
        assert storage.names() == []

    def test_a_deleted_name_can_be_allocated_again_and_holds_nothing_old(self, storage: Storage) -> None:
        storage.allocate("a", 10)
        storage.write("a", 0, b"old")
        storage.delete("a")
        storage.allocate("a", 20)
        assert storage.read("a", 0, 20) == bytes(20)

    def test_a_full_storage_refuses_a_file_and_keeps_those_it_has(self, make_storage: MakeStorage) -> None:
        storage = make_storage(capacity_bytes=10_000)
        storage.allocate("a", 6000)
        with pytest.raises(StorageFull):
            storage.allocate("b", 4001)
        assert storage.names() == ["a"]
        storage.write("a", 0, b"x" * 6000)
        storage.sync("a")
        assert storage.read("a", 0, 6000) == b"x" * 6000
        storage.allocate("b", 4000)

    def test_deleting_makes_room(self, make_storage: MakeStorage) -> None:
        storage = make_storage(capacity_bytes=10_000)
        storage.allocate("a", 10_000)
        storage.delete("a")
        storage.allocate("b", 10_000)
        assert storage.names() == ["b"]

    def test_different_files_may_be_used_from_different_threads(self, storage: Storage) -> None:
        def use(number: int) -> bool:
            name, content = f"file-{number}", bytearray(FILE_BYTES)
            storage.allocate(name, FILE_BYTES)
            random = Random(number)
            for _ in range(50):
                _write_somewhere(storage, name, content, random)
                storage.sync(name)
            return storage.read(name, 0, FILE_BYTES) == content

        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(use, range(8)))
        assert len(storage.names()) == 8

    def test_a_settled_file_reads_as_before_if_no_sync_failed(self, storage: Storage) -> None:
        storage.allocate("a", FILE_BYTES, head=b"head")
        storage.write("a", 100, b"data")
        storage.settle("a")
        assert storage.read("a", 0, 104) == b"head" + bytes(96) + b"data"

    @pytest.mark.parametrize("seed", range(5))
    def test_any_history_reads_as_in_a_simple_model(self, storage: Storage, seed: int) -> None:
        random = Random(seed)
        model: dict[str, bytearray] = {}
        for _ in range(300):
            name = random.choice("abcd")
            action = random.choice(("write", "write", "write", "sync", "settle", "delete"))
            if name not in model:
                head = random.randbytes(random.randrange(100))
                storage.allocate(name, FILE_BYTES, head=head)
                model[name] = bytearray(head.ljust(FILE_BYTES, b"\0"))
            elif action == "write":
                _write_somewhere(storage, name, model[name], random)
            elif action == "delete":
                storage.delete(name)
                del model[name]
            else:
                {"sync": storage.sync, "settle": storage.settle}[action](name)
            assert storage.names() == sorted(model)
            assert {each: storage.read(each, 0, FILE_BYTES) for each in model} == model

    def test_what_was_synced_survives(self, storage: Storage, restart: Restart) -> None:
        check_synced_writes_survive(storage, restart)

    def test_what_was_settled_survives(self, storage: Storage, restart: Restart) -> None:
        storage.allocate("a", FILE_BYTES)
        storage.write("a", 0, b"x" * FILE_BYTES)
        storage.settle("a")
        assert restart(storage).read("a", 0, FILE_BYTES) == b"x" * FILE_BYTES

    def test_an_allocated_file_survives_without_a_sync(self, storage: Storage, restart: Restart) -> None:
        storage.allocate("a", 5000, head=b"head")
        storage = restart(storage)
        assert storage.names() == ["a"]
        assert storage.read("a", 0, storage.size("a")) == b"head" + bytes(4996)

    def test_a_deleted_file_does_not_come_back(self, storage: Storage, restart: Restart) -> None:
        storage.allocate("a", 10)
        storage.allocate("b", 10)
        storage.delete("a")
        assert restart(storage).names() == ["b"]
