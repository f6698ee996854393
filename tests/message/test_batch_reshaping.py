"""Stamp, slice, select and gather do to batches what the same would do to lists of messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import LimitExceeded, UsageError
from holdfast.message import (
    BATCH_BYTES_MAX,
    BATCH_ROWS_MAX,
    Batch,
    Message,
    Origin,
    encode,
    gather,
    select_rows,
    slice_rows,
    stamp,
)
from tests.message.message_cases import EVERY_FIELD, ORIGIN, exact_all, message_lists

starts = st.none() | st.integers(0, 2**40)


def batch_of(messages: list[Message], first_sequence: int | None = None) -> Batch:
    if first_sequence is None:
        return Batch.parse(encode(messages)).validate()
    return Batch.parse(encode(messages, origin=ORIGIN, first_sequence=first_sequence)).validate()


def opened(raw: bytes) -> list[tuple[object, ...]]:
    return exact_all(Batch.parse(raw).validate().messages(), with_id=True)


@given(message_lists, starts, st.data())
def test_a_slice_is_the_slice_of_the_messages(
    messages: list[Message], first_sequence: int | None, data: st.DataObject
) -> None:
    batch = batch_of(messages, first_sequence)
    start = data.draw(st.integers(0, len(messages) - 1))
    stop = data.draw(st.integers(start + 1, len(messages)))
    expected = exact_all(batch.messages(), with_id=True)[start:stop]
    assert opened(slice_rows(batch, start, stop)) == expected


@given(message_lists, starts, st.data())
def test_a_selection_is_the_selection_of_the_messages(
    messages: list[Message], first_sequence: int | None, data: st.DataObject
) -> None:
    batch = batch_of(messages, first_sequence)
    indexes = st.sets(st.integers(0, len(messages) - 1), min_size=1).map(sorted)
    rows = data.draw(indexes)
    expected = exact_all(batch.messages(), with_id=True)
    selected = Batch.parse(select_rows(batch, rows)).validate()
    assert exact_all(selected.messages(), with_id=True) == [expected[row] for row in rows]
    again = data.draw(st.sets(st.integers(0, len(rows) - 1), min_size=1).map(sorted))
    assert opened(select_rows(selected, again)) == [expected[rows[row]] for row in again]
    assert opened(slice_rows(selected, again[0], again[-1] + 1)) == [
        expected[row] for row in rows[again[0] : again[-1] + 1]
    ]


@given(st.lists(message_lists, min_size=1, max_size=4))
def test_gathered_batches_hold_all_messages_in_order(lists: list[list[Message]]) -> None:
    expected = [row for messages in lists for row in exact_all(messages)]
    assert opened(gather([batch_of(messages) for messages in lists])) == expected


@given(st.lists(st.tuples(message_lists, st.sampled_from([0, 0, 1, 70_000])), min_size=1, max_size=4))
def test_gathered_batches_keep_their_ids(lists: list[tuple[list[Message], int]]) -> None:
    batches, next_sequence = [], 5
    for messages, hole in lists:
        batches.append(batch_of(messages, next_sequence + hole))
        next_sequence = batches[-1].last_sequence + 1
    expected = [row for batch in batches for row in exact_all(batch.messages(), with_id=True)]
    gathered = Batch.parse(gather(batches)).validate()
    assert exact_all(gathered.messages(), with_id=True) == expected
    assert (gathered.rows is None) == all(hole == 0 for _, hole in lists[1:])


@given(message_lists, starts, st.data())
def test_what_was_cut_apart_gathers_to_the_same(
    messages: list[Message], first_sequence: int | None, data: st.DataObject
) -> None:
    batch = batch_of(messages, first_sequence)
    cut = data.draw(st.integers(0, len(messages)))
    parts = [(0, cut), (cut, len(messages))]
    raw = [Batch.parse(slice_rows(batch, start, stop)) for start, stop in parts if start < stop]
    assert opened(gather(raw)) == opened(bytes(batch.buffer))


def test_a_slice_of_everything_is_the_same_bytes() -> None:
    batch = batch_of([EVERY_FIELD, Message()])
    assert slice_rows(batch, 0, 2) == bytes(batch.buffer)
    assert gather([batch]) == bytes(batch.buffer)


def test_columns_keep_their_places_when_a_slice_makes_them_constant() -> None:
    messages = [Message(time_us=1, expiration_us=number // 2, deliver_at_us=3) for number in range(4)]
    assert opened(slice_rows(batch_of(messages), 2, 4)) == exact_all(messages[2:])
    assert slice_rows(batch_of(messages), 2, 4) == encode(messages[2:])


def test_single_messages_gather_to_what_would_have_been_encoded() -> None:
    messages = [Message(body=str(n).encode(), time_us=n, source="s", priority=3) for n in range(50)]
    assert gather([batch_of([message]) for message in messages]) == encode(messages)


def test_holes_that_are_filled_again_leave_no_rows_column() -> None:
    batch = batch_of([Message()] * 6, 10)
    selected = Batch.parse(select_rows(batch, [0, 3, 4, 5]))
    assert Batch.parse(slice_rows(selected, 1, 4)).rows is None
    assert Batch.parse(slice_rows(selected, 1, 4)).first_sequence == 13


def test_a_stamp_gives_ids_and_copies_nothing() -> None:
    raw = encode([EVERY_FIELD, Message(body=b"x")])
    header, rest = stamp(Batch.parse(raw), ORIGIN, 77)
    assert len(header) == 24
    assert rest.obj is raw
    assert header + bytes(rest) == encode([EVERY_FIELD, Message(body=b"x")], origin=ORIGIN, first_sequence=77)


def test_an_id_is_never_changed() -> None:
    with pytest.raises(UsageError, match="ids"):
        stamp(batch_of([Message()], 5), ORIGIN, 6)


@pytest.mark.parametrize("first_sequence", [-1, 2**64 - 1, 2**64])
def test_a_stamp_beyond_the_sequences_is_refused(first_sequence: int) -> None:
    with pytest.raises(UsageError, match="first_sequence"):
        stamp(batch_of([Message()] * 2), ORIGIN, first_sequence)


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (1, 1), (2, 1), (-1, 1), (0, 3), (-2, -1)])
def test_a_slice_out_of_range_is_refused(start: int, stop: int) -> None:
    with pytest.raises(UsageError, match="rows"):
        slice_rows(batch_of([Message()] * 2), start, stop)


@pytest.mark.parametrize("rows", [[], [1, 0], [0, 0], [0, 0, 2], [-1, 1], [0, 3], [2, 0, 1]])
def test_a_selection_that_does_not_rise_within_the_batch_is_refused(rows: list[int]) -> None:
    with pytest.raises(UsageError, match="rows"):
        select_rows(batch_of([Message()] * 3), rows)


def test_batches_that_do_not_belong_together_are_refused() -> None:
    bare, stamped = batch_of([Message()]), batch_of([Message()] * 3, 10)
    other = Batch.parse(encode([Message()], origin=Origin(site=9, node=9, start=9), first_sequence=20))
    far = batch_of([Message()], 10 + 2**32)
    overlapping, earlier = batch_of([Message()], 12), batch_of([Message()], 5)
    for stranger in (bare, other, far, overlapping, earlier, stamped):
        with pytest.raises(UsageError, match="batches"):
            gather([stamped, stranger])
    with pytest.raises(UsageError, match="batches"):
        gather([bare, stamped])
    with pytest.raises(UsageError, match="batches"):
        gather([])


def test_the_farthest_row_number_fits() -> None:
    batches = [batch_of([Message()], 10), batch_of([Message()], 10 + 2**32 - 1)]
    assert Batch.parse(gather(batches)).validate().last_sequence == 10 + 2**32 - 1


def test_too_many_rows_are_not_gathered() -> None:
    batch = batch_of([Message()] * BATCH_ROWS_MAX)
    with pytest.raises(LimitExceeded, match="BATCH_ROWS_MAX"):
        gather([batch, batch_of([Message()])])


def test_too_many_bytes_are_not_gathered() -> None:
    half = bytes(BATCH_BYTES_MAX // 2)
    single, several = batch_of([Message(body=half)]), batch_of([Message(body=half), Message()])
    constant = batch_of([Message(source="x" * 2000)] * 30_000)
    other = batch_of([Message(source="y" * 2000), Message()] * 10_000)
    for batches in ([single] * 2, [several] * 2, [several, single] * 200, [constant, other]):
        with pytest.raises(LimitExceeded, match="BATCH_BYTES_MAX"):
            gather(batches)


def test_rows_of_the_largest_batch_can_be_selected() -> None:
    count = 60_000
    size = (BATCH_BYTES_MAX - 24) // count - 4
    batch = batch_of([Message(body=bytes(size))] * count, 0)
    assert batch.nbytes > BATCH_BYTES_MAX - count
    selected = Batch.parse(select_rows(batch, [*range(count - 2), count - 1])).validate()
    assert len(selected) == count - 1
