"""Reading segments: where the log ends, who attests to it, and that this is the same for the next one who asks."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.journal.format import (
    GROUP_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    GroupHeader,
    Record,
    SegmentHeader,
    generation_seed,
    record_bytes,
)
from holdfast.journal.memory_storage import MemoryStorage
from holdfast.journal.node_state import read_node_state, write_node_state
from holdfast.journal.opening import truncate_journal
from holdfast.journal.recovery import LogEnd, Replay, newest_checkpoint
from holdfast.journal.scan import Catalogue, Lineage, SegmentImage, Walk, attested_after, witnesses
from holdfast.journal.segments import Segment, segment_name
from holdfast.journal.storage import Storage
from holdfast.journal.tail import Tail
from holdfast.simulation.storage import FaultyStorage, SimulatedCrash
from tests.journal.small_journal import IDENTITY, SMALL, TINY, open_small, payload_for

SALT = 9
GENERATION = 4


class Drawing:
    """A segment drawn group by group, as starts of the node would have written it."""

    def __init__(self) -> None:
        self.data = bytearray(SMALL.segment_bytes)
        self.offset = SEGMENT_HEADER_BYTES

    def group(
        self, *, run: int, first_lsn: int, count: int, durable_lsn: int = 0, at: int | None = None
    ) -> int:
        """Write one group, at the end of the last or over it. Its offset."""
        offset = self.offset if at is None else at
        tail = Tail(SMALL, salt=SALT, run=run, epoch=0)
        tail.enter("segment", GENERATION, offset)
        for lsn in range(first_lsn, first_lsn + count):
            payload = f"run {run} lsn {lsn}".encode()
            size = record_bytes(len(payload))
            tail.put(
                lsn=lsn, section=1, kind=1, flags=0, parts=(payload,), payload_bytes=len(payload), size=size
            )
        if not count:
            tail.put_marker(next_lsn=first_lsn)
        buffer = tail.seal(durable_lsn=durable_lsn)
        self.data[offset : offset + buffer.fill] = buffer.view[: buffer.fill]
        self.offset = offset + buffer.fill
        return offset

    @property
    def image(self) -> SegmentImage:
        header = SegmentHeader(SMALL.segment_bytes, GENERATION, base_lsn=1, run=1, durable_lsn=0)
        return SegmentImage("segment", header, memoryview(bytes(self.data)), SALT)

    def walked(self, lineage: Lineage, *, next_lsn: int = 1) -> tuple[Walk, list[str]]:
        walk = Walk(self.image, lineage, offset=SEGMENT_HEADER_BYTES, next_lsn=next_lsn, newest_run=0)
        found = [bytes(record.payload).decode() for _, records in walk.groups() for record in records]
        return walk, found


def named(run: int, *lsns: int) -> list[str]:
    return [f"run {run} lsn {lsn}" for lsn in lsns]


def test_groups_and_markers_are_read_one_after_another() -> None:
    drawing = Drawing()
    drawing.group(run=1, first_lsn=1, count=2)
    drawing.group(run=1, first_lsn=3, count=0, durable_lsn=2)
    drawing.group(run=1, first_lsn=3, count=1)
    walk, found = drawing.walked(Lineage(1, 1))
    assert found == named(1, 1, 2, 3)
    assert (walk.next_lsn, walk.offset, walk.newest_run, walk.attested_lsn) == (4, drawing.offset, 1, 2)
    assert not walk.is_torn


def test_a_group_ends_at_its_first_record_that_is_not_whole() -> None:
    drawing = Drawing()
    start = drawing.group(run=1, first_lsn=1, count=3)
    third = start + GROUP_HEADER_BYTES + 2 * record_bytes(len("run 1 lsn 1"))
    drawing.data[third + 30] ^= 1
    walk, found = drawing.walked(Lineage(1, 1))
    assert found == named(1, 1, 2)
    assert (walk.next_lsn, walk.offset, walk.is_torn) == (3, third, True)


def test_a_group_without_a_single_whole_record_leaves_nothing() -> None:
    drawing = Drawing()
    drawing.group(run=1, first_lsn=1, count=1)
    start = drawing.group(run=1, first_lsn=2, count=2)
    drawing.data[start + GROUP_HEADER_BYTES + 30] ^= 1
    walk, found = drawing.walked(Lineage(1, 1))
    assert found == named(1, 1)
    assert (walk.next_lsn, walk.offset, walk.is_torn) == (2, start, True)


def test_a_later_start_goes_on_in_the_middle_of_a_torn_group() -> None:
    drawing = Drawing()
    start = drawing.group(run=1, first_lsn=1, count=3)
    cut = start + GROUP_HEADER_BYTES + record_bytes(len("run 1 lsn 1"))
    drawing.group(run=2, first_lsn=2, count=2, at=cut)
    walk, found = drawing.walked(Lineage(3, 4))
    assert found == named(1, 1) + named(2, 2, 3)
    assert (walk.next_lsn, walk.newest_run) == (4, 2)


def test_a_group_of_an_older_start_behind_a_newer_one_is_dead() -> None:
    drawing = Drawing()
    drawing.group(run=1, first_lsn=1, count=1)
    drawing.group(run=2, first_lsn=2, count=1)
    drawing.group(run=1, first_lsn=3, count=1)
    walk, found = drawing.walked(Lineage(2, 2))
    assert found == named(1, 1) + named(2, 2)
    assert walk.next_lsn == 3


@pytest.mark.parametrize(
    ("start_lsn", "expected"), [(1, []), (2, [1]), (3, [1, 2]), (4, [1, 2, 3]), (9, [1, 2, 3])]
)
def test_what_an_older_start_wrote_ends_before_the_newest_start_began(
    start_lsn: int, expected: list[int]
) -> None:
    drawing = Drawing()
    drawing.group(run=1, first_lsn=1, count=3)
    walk, found = drawing.walked(Lineage(2, start_lsn))
    assert found == named(1, *expected)
    assert walk.next_lsn == len(expected) + 1
    assert not walk.is_torn


def test_a_marker_exactly_at_the_cut_stays_and_a_group_of_records_does_not() -> None:
    drawing = Drawing()
    drawing.group(run=1, first_lsn=1, count=2)
    drawing.group(run=1, first_lsn=3, count=0)
    after_marker = drawing.offset
    drawing.group(run=1, first_lsn=3, count=1)
    walk, found = drawing.walked(Lineage(2, 3))
    assert found == named(1, 1, 2)
    assert walk.offset == after_marker


def test_a_group_that_does_not_continue_the_log_ends_it() -> None:
    drawing = Drawing()
    drawing.group(run=1, first_lsn=1, count=1)
    drawing.group(run=1, first_lsn=3, count=1)
    assert drawing.walked(Lineage(1, 1))[1] == named(1, 1)


def test_every_whole_group_header_is_a_witness_whatever_lies_between() -> None:
    drawing = Drawing()
    drawing.group(run=1, first_lsn=1, count=1)
    drawing.offset += 400
    drawing.group(run=1, first_lsn=5, count=1, durable_lsn=4)
    drawing.group(run=1, first_lsn=6, count=0, durable_lsn=5)
    assert [group.first_lsn for group in witnesses(drawing.image, 0)] == [1, 5, 6]
    assert attested_after(drawing.image, 0, Lineage(1, 1), newest_run=1) == 5


def test_a_group_that_a_later_start_cut_off_is_no_witness() -> None:
    drawing = Drawing()
    drawing.group(run=1, first_lsn=5, count=1, durable_lsn=4)
    assert attested_after(drawing.image, 0, Lineage(1, 1), newest_run=1) == 4
    assert attested_after(drawing.image, 0, Lineage(2, 3), newest_run=1) == 0
    assert attested_after(drawing.image, 0, Lineage(2, 9), newest_run=2) == 0


def test_a_payload_that_looks_like_a_group_of_another_place_is_no_witness() -> None:
    drawing = Drawing()
    forged = bytearray(GROUP_HEADER_BYTES)
    GroupHeader(64, 1, 0, 99, 98, 40).pack_into(forged, 0, generation_seed(SALT, GENERATION))
    drawing.data[800 : 800 + len(forged)] = forged
    assert list(witnesses(drawing.image, 0)) == []


@pytest.mark.parametrize(
    ("run", "base_lsn", "newest_run", "dead"),
    [(1, 5, 1, False), (1, 6, 1, True), (2, 6, 1, False), (1, 4, 2, True), (1, 4, 1, False)],
)
def test_a_segment_that_a_later_start_cut_off_is_dead(
    run: int, base_lsn: int, newest_run: int, dead: bool
) -> None:
    header = SegmentHeader(SMALL.segment_bytes, 2, base_lsn, run, 0)
    assert Lineage(2, 5).is_dead_segment(header, newest_run=newest_run) is dead


def catalogue_of(storage: Storage) -> Catalogue:
    return Catalogue.read(storage, salt=IDENTITY.salt, segment_bytes=SMALL.segment_bytes, settle_from=0)


def test_the_catalogue_tells_used_unused_and_damaged_segments_apart() -> None:
    storage = MemoryStorage()
    open_small(storage)
    storage.write(segment_name(1), 20, b"x")
    catalogue = catalogue_of(storage)
    assert {generation: name for generation, (name, _) in catalogue.by_generation.items()} == {
        1: segment_name(0)
    }
    assert catalogue.damaged == [segment_name(1)]
    assert catalogue.unused == [segment_name(number) for number in range(2, SMALL.segments_at_start)]


def test_of_two_segments_of_one_generation_one_counts_as_damaged() -> None:
    storage = MemoryStorage()
    open_small(storage)
    storage.write(segment_name(1), 0, storage.read(segment_name(0), 0, SEGMENT_HEADER_BYTES))
    assert catalogue_of(storage).damaged == [segment_name(1)]


# -- recovery is idempotent ------------------------------------------------------------------------------


def walked_log(storage: Storage) -> tuple[LogEnd, list[tuple[int, int, bytes]]]:
    """Where the log ends under the lineage that is on the disk, and every record up to there."""
    state = read_node_state(storage)
    assert state is not None
    records: list[tuple[int, int, bytes]] = []

    def take(record: Record) -> None:
        records.append((record.lsn, record.place, bytes(record.payload)))

    def visit(_: Segment) -> None:
        pass

    checkpoint = newest_checkpoint(storage, salt=state.salt)
    return Replay(storage, state, checkpoint).run(visit, take), records


def check_the_end_is_the_same_for_the_next_start(storage: FaultyStorage) -> None:
    """Walk, then begin a new start as far as its first write, then wholly: the log ends in one place."""
    end, records = walked_log(storage)
    state = read_node_state(storage)
    assert state is not None
    begun = msgspec.structs.replace(
        state, run=state.run + 1, start_lsn=end.next_lsn, sequence=state.sequence + 1
    )
    write_node_state(storage, begun)
    end_begun, records_begun = walked_log(storage)
    assert (end_begun.generation, end_begun.offset) == (end.generation, end.offset)
    assert (end_begun.next_lsn, records_begun) == (end.next_lsn, records)
    open_small(storage, TINY)
    end_opened, records_opened = walked_log(storage)
    assert (end_opened.generation, end_opened.next_lsn) == (end.generation, end.next_lsn)
    assert records_opened == records


actions = st.tuples(
    st.sampled_from(("flush", "flush", "torn", "marker", "truncate", "reopen")),
    st.integers(1, 12),
    st.integers(0, 900),
)


@settings(max_examples=120, deadline=None)
@given(st.lists(actions, min_size=1, max_size=8), st.integers(0, 1000))
def test_recovery_is_idempotent(history: list[tuple[str, int, int]], seed: int) -> None:
    storage = FaultyStorage(Random(seed))
    shell = open_small(storage, TINY)
    for action, count, size in history:
        for number in range(min(count, 6_000 // (size + 100))):
            if shell.journal.admits(size):
                shell.record(payload_for(number, size))
        if action == "flush":
            shell.flush()
        elif action == "marker":
            shell.flush()
            shell.run(shell.journal.begin_attestation())
        elif action == "torn":
            storage.crash_after(1 + count % 3)
            with suppress(SimulatedCrash):
                for _ in range(4):
                    shell.flush()
                    shell.run(shell.journal.begin_marker())
            storage.power_loss()
        elif action == "truncate":
            try:
                truncate_journal(storage, after_lsn=max(0, shell.journal.durable_lsn - count))
            except UsageError:
                continue
        if action in ("torn", "truncate", "reopen"):
            check_the_end_is_the_same_for_the_next_start(storage)
            shell = open_small(storage, TINY)
            shell.journal.check_invariants()
