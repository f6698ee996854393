"""Who the node is and how often it has started: two copies, of which one is always whole."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import JournalCorrupt, JournalMismatch
from holdfast.journal.memory_storage import MemoryStorage
from holdfast.journal.node_state import (
    NODE_STATE_NAME,
    NodeState,
    Stop,
    create_node_state,
    read_node_state,
    write_node_state,
)
from holdfast.simulation.storage import FaultyStorage, SimulatedCrash
from tests.journal.small_journal import faulty

U16 = st.integers(0, 2**16 - 1)
U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
FIRST = NodeState(segment_bytes=65536, salt=1, site=2, node=3)
SECOND_COPY_OFFSET = 4096
states = st.builds(
    NodeState,
    segment_bytes=U32,
    salt=U64,
    site=U16,
    node=U16,
    sequence=U64,
    run=U32,
    start_lsn=U64,
    epoch=U32,
    is_made=st.booleans(),
    stop=st.sampled_from(Stop),
)


def next_state(state: NodeState) -> NodeState:
    return msgspec.structs.replace(state, sequence=state.sequence + 1, run=state.run + 1)


def in_memory(state: NodeState = FIRST) -> MemoryStorage:
    storage = MemoryStorage()
    create_node_state(storage, state)
    return storage


@given(states)
def test_a_state_is_read_as_it_was_created(state: NodeState) -> None:
    assert read_node_state(in_memory(state)) == state


@given(states)
def test_a_state_is_read_as_it_was_written(state: NodeState) -> None:
    storage = in_memory(msgspec.structs.replace(FIRST, sequence=0))
    write_node_state(storage, state)
    if state.sequence:
        assert read_node_state(storage) == state


def test_where_no_journal_is_there_is_no_state() -> None:
    assert read_node_state(MemoryStorage()) is None


@pytest.mark.parametrize("bad_offset", [0, SECOND_COPY_OFFSET])
def test_one_damaged_copy_costs_nothing(bad_offset: int) -> None:
    storage = in_memory()
    state = next_state(FIRST)
    write_node_state(storage, state)
    storage.write(NODE_STATE_NAME, bad_offset + 20, b"damage")
    assert read_node_state(storage) == state


def test_two_damaged_copies_are_an_error() -> None:
    storage = in_memory()
    write_node_state(storage, next_state(FIRST))
    for offset in (0, SECOND_COPY_OFFSET):
        storage.write(NODE_STATE_NAME, offset + 20, b"damage")
    with pytest.raises(JournalCorrupt, match="both copies"):
        read_node_state(storage)


def test_a_state_file_that_lost_its_end_is_read_from_its_first_copy() -> None:
    storage = faulty()
    create_node_state(storage, FIRST)
    write_node_state(storage, next_state(FIRST))
    storage.truncate_file(NODE_STATE_NAME, 1000)
    assert read_node_state(storage) == next_state(FIRST)


def test_each_bit_of_a_copy_is_covered() -> None:
    data = FIRST.pack()
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        storage = MemoryStorage()
        storage.allocate(NODE_STATE_NAME, 8192, head=bytes(changed))
        with pytest.raises(JournalCorrupt):
            read_node_state(storage)


def test_a_newer_format_is_refused_in_plain_words(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr("holdfast.journal.node_state._VERSION", 2)
        storage = in_memory()
    with pytest.raises(JournalMismatch, match="format version 2"):
        read_node_state(storage)


@pytest.mark.parametrize("death", [FaultyStorage.kill, FaultyStorage.power_loss])
@pytest.mark.parametrize("operation", range(1, 5))
@pytest.mark.parametrize("seed", range(5))
def test_a_crash_in_any_step_of_a_change_leaves_the_old_state_or_the_new(
    seed: int, operation: int, death: Callable[[FaultyStorage], None]
) -> None:
    storage = faulty(seed)
    create_node_state(storage, FIRST)
    old = next_state(FIRST)
    write_node_state(storage, old)
    storage.crash_after(operation)
    with pytest.raises(SimulatedCrash):
        write_node_state(storage, next_state(old))
    death(storage)
    found = read_node_state(storage)
    assert found in (old, next_state(old))
    if operation > 2:
        assert found == next_state(old), "the first copy was durable"
