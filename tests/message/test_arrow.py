"""Arrow over the memory of a batch."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from holdfast.errors import BatchError, UsageError
from holdfast.message import COLUMN_NAMES, Batch, Message, Severity, encode, encode_properties
from holdfast.message.arrow import record_batch, schema
from tests.message.message_cases import EVERY_FIELD, message_lists

TIMES = ("time_us", "expiration_us", "deliver_at_us")


def expected_column(messages: list[Message], name: str) -> list[Any]:
    if name == "properties":
        return [encode_properties(message.properties) for message in messages]
    return [getattr(message, name) for message in messages]


def check_columns(batch: Batch, messages: list[Message]) -> None:
    shown = record_batch(batch)
    shown.validate(full=True)
    assert shown.schema == schema()
    assert shown.schema.names == list(COLUMN_NAMES)
    for name in COLUMN_NAMES:
        column = shown.column(name)
        if name in TIMES:
            column = column.cast(pa.int64())
        assert column.to_pylist() == expected_column(messages, name), name
        assert column.null_count == 0


def varied(count: int) -> list[Message]:
    """Messages of which no two have a field in common, so that every column is stored row by row."""
    return [
        Message(
            body=b"body" * number,
            time_us=number,
            source=f"s{number}",
            type=f"t{number}",
            correlation_id=f"c{number}",
            reply_to=f"r{number}",
            group=f"g{number}",
            content_type=f"x{number}",
            priority=number % 10,
            severity=Severity(number % 8 + 1),
            expiration_us=number + 1,
            deliver_at_us=number + 2,
            properties={"n": number},
        )
        for number in range(count)
    ]


@given(message_lists)
def test_every_column_holds_what_the_messages_hold(messages: list[Message]) -> None:
    check_columns(Batch.parse(encode(messages)).validate(), messages)


@pytest.mark.parametrize("count", [1, 2, 3, 100])
def test_per_row_columns_are_shown_in_place(count: int) -> None:
    raw = encode(varied(count))
    start = pa.py_buffer(raw).address
    shown = record_batch(Batch.parse(raw).validate())
    for name in COLUMN_NAMES if count > 1 else ["body"]:
        buffers = [buffer for buffer in shown.column(name).buffers() if buffer is not None]
        in_place = buffers if count > 1 else buffers[-1:]
        for buffer in in_place:
            assert start <= buffer.address, name
            assert buffer.address + buffer.size <= start + len(raw), name


def test_the_record_batch_keeps_the_bytes_alive() -> None:
    shown = record_batch(Batch.parse(encode(varied(50))).validate())
    bytes(10_000)
    assert shown.column("body").to_pylist() == [message.body for message in varied(50)]


@pytest.mark.parametrize("shift", range(8))
def test_numbers_are_aligned_wherever_the_batch_stands(shift: int) -> None:
    messages = varied(7)
    raw = encode(messages)
    container = bytes(shift) + raw
    batch = Batch.parse(memoryview(container)[shift:]).validate()
    check_columns(batch, messages)
    shown = record_batch(batch)
    start = pa.py_buffer(container).address
    assert shown.column("time_us").buffers()[1].address % 8 == 0
    assert shown.column("body").buffers()[1].address % 4 == 0
    assert start <= shown.column("body").buffers()[2].address < start + len(container)


def test_constants_and_defaults_are_repeated() -> None:
    messages = [EVERY_FIELD] * 3
    check_columns(Batch.parse(encode(messages)).validate(), messages)
    check_columns(Batch.parse(encode([Message()] * 3)).validate(), [Message()] * 3)


def test_columns_are_chosen_by_name_in_the_order_asked_for() -> None:
    batch = Batch.parse(encode(varied(3)))
    assert record_batch(batch, ["type", "time_us"]).schema.names == ["type", "time_us"]
    assert "body" not in record_batch(batch, body=False).schema.names
    assert record_batch(batch, ["body", "type"], body=False).schema.names == ["type"]
    assert schema(["type", "time_us"]) == record_batch(batch, ["type", "time_us"]).schema


def test_no_columns_at_all_still_count_their_rows() -> None:
    assert record_batch(Batch.parse(encode(varied(3))), []).num_rows == 3


def test_there_is_no_column_of_another_name() -> None:
    with pytest.raises(UsageError, match="colour"):
        record_batch(Batch.parse(encode([Message()])), ["colour"])


def test_types_are_those_of_the_memory() -> None:
    types = {field.name: field.type for field in schema()}
    assert types["time_us"] == pa.timestamp("us", tz="UTC")
    assert types["severity"] == pa.uint8()
    assert types["source"] == pa.string()
    assert types["body"] == types["properties"] == pa.binary()
    assert not any(field.nullable for field in schema())


@pytest.mark.parametrize("name", ["source", "properties", "body"])
def test_validate_stops_every_offset_that_would_lead_arrow_astray(name: str) -> None:
    values: dict[str, list[Any]] = {
        "source": ["ab", "cd", "ef"],
        "properties": [{"a": True}, {"b": True}, {"c": True}],
        "body": [b"ab", b"cd", b"ef"],
    }
    raw = encode([Message(**{name: value}) for value in values[name]])
    column: Any = Batch.parse(raw).column(name)  # type: ignore[call-overload]
    size = len(column.data)
    place = len(raw) - size - 4 * 4
    good = [int.from_bytes(raw[at : at + 4], "little") for at in range(place, place + 16, 4)]
    for index in range(4):
        for wrong in (0, 1, size - 1, size, size + 1, 2**31 - 1, 2**31, 2**32 - 1):
            damaged = raw[: place + 4 * index] + wrong.to_bytes(4, "little") + raw[place + 4 * index + 4 :]
            offsets = [*good[:index], wrong, *good[index + 1 :]]
            safe = offsets[0] == 0 and offsets[-1] == size and offsets == sorted(offsets)
            try:
                batch = Batch.parse(damaged).validate()
            except BatchError:
                assert not safe or name == "properties"
            else:
                assert safe
                record_batch(batch).validate(full=True)
