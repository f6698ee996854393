"""Batches: round trip, known bytes, reading in place, ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from holdfast.errors import BatchError, UsageError
from holdfast.message import COLUMN_NAMES, Batch, Message, MessageId, Origin, Severity, encode, select_rows
from tests.message.message_cases import EVERY_FIELD, ORIGIN, exact, exact_all, message_lists

Codec = Callable[[Sequence[Message]], list[Message]]

TWO_ROWS = bytes.fromhex(
    "01 00 3110 2100 0200"  # version, flags, present: time_us severity source body; constant: time_us source
    "0300000002000100 0700000000000000"  # origin, first sequence
    "0500000000000000"  # time_us, constant
    "00000000 02000000 03000000"  # offsets of body
    "02 05"  # severity
    "01 73"  # source, constant
    "6162 63"  # bodies
)


def through_a_batch(messages: Sequence[Message]) -> list[Message]:
    return Batch.parse(encode(messages)).validate().messages()


def check_round_trip(codec: Codec, messages: Sequence[Message]) -> None:
    """What goes through the format is what went in, to the last field."""
    assert exact_all(codec(messages)) == exact_all(messages)


@pytest.mark.spec("E1")
@given(message_lists)
def test_any_messages_come_back(messages: list[Message]) -> None:
    check_round_trip(through_a_batch, messages)


@pytest.mark.spec("E1")
def test_every_field_comes_back() -> None:
    check_round_trip(through_a_batch, [EVERY_FIELD])
    check_round_trip(through_a_batch, [EVERY_FIELD, Message(), EVERY_FIELD])
    for name in COLUMN_NAMES:
        single = Message(**{name: getattr(EVERY_FIELD, name)})
        check_round_trip(through_a_batch, [single])
        check_round_trip(through_a_batch, [single, single])
        check_round_trip(through_a_batch, [Message(), single, Message()])


@pytest.mark.control("E1")
@pytest.mark.parametrize("name", COLUMN_NAMES)
def test_a_codec_that_drops_a_field_is_found_out(name: str) -> None:
    def forgetful(messages: Sequence[Message]) -> list[Message]:
        default = getattr(Message(), name)
        return through_a_batch([replace(message, **{name: default}) for message in messages])

    with pytest.raises(AssertionError):
        check_round_trip(forgetful, [EVERY_FIELD, Message(), EVERY_FIELD])


@given(message_lists)
def test_a_message_opened_singly_is_the_same(messages: list[Message]) -> None:
    batch = Batch.parse(encode(messages, origin=ORIGIN, first_sequence=9))
    singly = [batch.message(row) for row in range(len(batch))]
    assert exact_all(singly, with_id=True) == exact_all(batch.messages(), with_id=True)
    assert [bytes(batch.body(row)) for row in range(len(batch))] == [message.body for message in messages]


def test_known_bytes_decode() -> None:
    batch = Batch.parse(TWO_ROWS).validate()
    assert batch.messages() == [
        Message(body=b"ab", time_us=5, source="s", id=MessageId(Origin(site=1, node=2, start=3), 7)),
        Message(
            body=b"c",
            time_us=5,
            source="s",
            severity=Severity.ERROR,
            id=MessageId(Origin(site=1, node=2, start=3), 8),
        ),
    ]


def test_known_messages_have_known_bytes() -> None:
    messages = [
        Message(body=b"ab", time_us=5, source="s"),
        Message(body=b"c", time_us=5, source="s", severity=Severity.ERROR),
    ]
    assert encode(messages, origin=Origin(site=1, node=2, start=3), first_sequence=7) == TWO_ROWS


def test_a_batch_of_one_costs_under_40_bytes() -> None:
    properties_bytes = 50
    message = replace(EVERY_FIELD, properties={"key": "v" * (properties_bytes - 7)})
    texts = ("source", "type", "correlation_id", "reply_to", "group", "content_type")
    values = 3 * 8 + 2 + sum(len(getattr(message, name).encode()) for name in texts)
    values += properties_bytes + len(message.body)
    assert len(encode([message])) - values < 40


def test_fields_that_are_not_given_take_no_room() -> None:
    assert len(encode([Message()])) == 24
    assert len(encode([Message()] * 1000)) == 24
    assert len(encode([Message(source="x" * 10)] * 1000)) == 24 + 11
    assert len(encode([Message(body=b"x" * 10)])) == 24 + 10


def test_columns_are_read_in_place() -> None:
    messages = [Message(body=b"ab", time_us=1, priority=1), Message(body=b"", time_us=2)]
    batch = Batch.parse(encode(messages))
    times, priorities, bodies = batch.column("time_us"), batch.column("priority"), batch.column("body")
    assert times.values is not None
    assert priorities.values is not None
    assert bodies.offsets is not None
    assert (times.values.format, times.values.tolist(), times.at(1)) == ("q", [1, 2], 2)
    assert (priorities.values.format, priorities.to_list()) == ("B", [1, 4])
    assert (bodies.offsets.format, bodies.offsets.tolist(), bytes(bodies.data)) == ("I", [0, 2, 2], b"ab")
    assert all(view.obj is batch.buffer.obj for view in (times.values, bodies.offsets, bodies.data))


def test_a_constant_column_is_one_value() -> None:
    batch = Batch.parse(encode([Message(time_us=7, type="t", severity=Severity.ERROR)] * 3))
    assert (batch.column("time_us").values, batch.column("time_us").constant) == (None, 7)
    assert (batch.column("type").offsets, bytes(batch.column("type").data)) == (None, b"t")
    assert batch.column("severity").to_list() == [5, 5, 5]
    assert batch.column("type").to_texts() == ["t", "t", "t"]


def test_an_absent_column_is_its_default() -> None:
    batch = Batch.parse(encode([Message()] * 3))
    assert batch.stored_columns == ()
    assert batch.column("priority").to_list() == [4, 4, 4]
    assert batch.column("severity").at(0) == Severity.INFO
    assert batch.column("body").to_list() == [b"", b"", b""]
    assert bytes(batch.column("group").at(2)) == b""


def test_there_is_no_column_of_another_name() -> None:
    name: Any = "colour"
    with pytest.raises(UsageError, match="colour"):
        Batch.parse(TWO_ROWS).column(name)


def test_ids_follow_from_the_first_sequence() -> None:
    batch = Batch.parse(TWO_ROWS)
    assert (batch.origin, batch.first_sequence, batch.last_sequence) == (ORIGIN, 7, 8)
    assert [batch.id_of(row) for row in (0, 1)] == [MessageId(ORIGIN, 7), MessageId(ORIGIN, 8)]


def test_ids_of_a_batch_with_holes_follow_its_rows() -> None:
    whole = Batch.parse(encode([Message()] * 9, origin=ORIGIN, first_sequence=100))
    batch = Batch.parse(select_rows(whole, [2, 3, 8])).validate()
    assert [message.id for message in batch.messages()] == [MessageId(ORIGIN, n) for n in (102, 103, 108)]
    assert [batch.id_of(row) for row in range(3)] == [MessageId(ORIGIN, n) for n in (102, 103, 108)]
    assert (batch.first_sequence, batch.last_sequence) == (102, 108)


def test_a_batch_without_an_origin_has_no_ids() -> None:
    batch = Batch.parse(encode([EVERY_FIELD]))
    assert (batch.origin, batch.has_ids, batch.id_of(0), batch.message(0).id) == (None, False, None, None)
    assert (batch.first_sequence, batch.last_sequence) == (0, 0)


@pytest.mark.parametrize("row", [-1, 2])
def test_a_row_that_is_not_there_is_refused(row: int) -> None:
    batch = Batch.parse(TWO_ROWS)
    for read in (batch.message, batch.body, batch.id_of):
        with pytest.raises(UsageError, match="row"):
            read(row)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda raw: memoryview(b"?" + raw)[1:]])
def test_any_buffer_will_do(kind: Callable[[bytes], bytes]) -> None:
    batch = Batch.parse(kind(TWO_ROWS)).validate()
    assert len(batch) == 2
    assert batch.nbytes == len(TWO_ROWS)
    assert bytes(batch.buffer) == TWO_ROWS
    assert batch.messages() == Batch.parse(TWO_ROWS).messages()


def test_a_buffer_of_another_item_type_is_read_as_bytes() -> None:
    raw = encode([Message(body=b"12345678")])
    assert Batch.parse(memoryview(raw).cast("I")).message(0).body == b"12345678"


def test_a_buffer_with_gaps_is_refused() -> None:
    with pytest.raises(BatchError):
        Batch.parse(memoryview(TWO_ROWS + TWO_ROWS)[::2])


def test_messages_of_one_batch_do_not_share_their_properties() -> None:
    first, second = Batch.parse(encode([EVERY_FIELD] * 2)).messages()
    assert first.properties == second.properties
    assert first.properties is not second.properties


def test_opening_a_damaged_batch_that_was_not_validated_raises_batch_errors() -> None:
    severity = TWO_ROWS.replace(b"\x02\x05\x01s", b"\x02\x09\x01s")
    text = TWO_ROWS.replace(b"\x02\x05\x01s", b"\x02\x05\x01\xff")
    for damaged in (severity, text):
        with pytest.raises(BatchError):
            Batch.parse(damaged).messages()
        with pytest.raises(BatchError):
            Batch.parse(damaged).message(1)


def test_exactness_itself_tells_types_apart() -> None:
    assert exact(Message(properties={"a": 1})) != exact(Message(properties={"a": True}))
    assert exact(Message(properties={"a": 0.0})) != exact(Message(properties={"a": -0.0}))
