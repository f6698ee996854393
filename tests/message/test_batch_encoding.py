"""Encoding: what is refused, and how it is said."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import LimitExceeded, UsageError
from holdfast.message import BATCH_BYTES_MAX, BATCH_ROWS_MAX, Batch, Message, encode
from holdfast.message.ids import SEQUENCE_MAX
from tests.message.message_cases import EVERY_FIELD, ORIGIN, exact_all

UNFIT: list[tuple[str, Any]] = [
    ("time_us", -1),
    ("time_us", 2**63),
    ("time_us", 1.5),
    ("time_us", "1"),
    ("time_us", None),
    ("time_us", 10**5000),
    ("expiration_us", -1),
    ("deliver_at_us", 2**64),
    ("priority", 10),
    ("priority", -1),
    ("priority", 256),
    ("priority", 1.5),
    ("severity", 0),
    ("severity", 9),
    ("severity", None),
    ("source", None),
    ("source", b"x"),
    ("type", 1),
    ("correlation_id", "\ud800"),
    ("reply_to", ["x"]),
    ("group", b""),
    ("content_type", 0),
    ("body", "text"),
    ("body", None),
    ("body", bytearray(b"x")),
    ("properties", None),
    ("properties", [("a", 1)]),
    ("properties", {"a": 2**63}),
    ("properties", {"a": None}),
]


@pytest.mark.parametrize(("field", "value"), UNFIT, ids=range(len(UNFIT)))
@pytest.mark.parametrize("others", [[], [Message()], [EVERY_FIELD, Message()]])
def test_a_value_that_does_not_fit_is_named_by_row_and_field(
    field: str, value: Any, others: list[Message]
) -> None:
    with pytest.raises(UsageError, match=f"row {len(others)}: {field}"):
        encode([*others, Message(**{field: value}), *others])
    with pytest.raises(UsageError, match=f"row 0: {field}"):
        encode([Message(**{field: value})] * 3)


def test_what_is_not_a_message_is_named_by_its_row() -> None:
    messages: Any = [Message(), b"body"]
    with pytest.raises(UsageError, match="row 1: bytes is not a Message"):
        encode(messages)


def test_a_batch_has_at_least_one_message() -> None:
    with pytest.raises(UsageError):
        encode([])


def test_a_full_batch_comes_back() -> None:
    messages = [Message(body=str(number).encode(), time_us=number) for number in range(BATCH_ROWS_MAX)]
    assert exact_all(Batch.parse(encode(messages)).validate().messages()) == exact_all(messages)


def test_too_many_messages_are_refused() -> None:
    with pytest.raises(LimitExceeded, match="BATCH_ROWS_MAX"):
        encode([Message()] * (BATCH_ROWS_MAX + 1))


def test_too_many_bytes_are_refused() -> None:
    body = bytes(BATCH_BYTES_MAX - 24)
    assert len(Batch.parse(encode([Message(body=body)])).body(0)) == len(body)
    for messages in ([Message(body=body + b"x")], [Message(body=body)] * 2, [Message(body=body)] * 100):
        with pytest.raises(LimitExceeded, match="BATCH_BYTES_MAX"):
            encode(messages)


def test_a_constant_counts_as_often_as_there_are_rows() -> None:
    text = "x" * (BATCH_BYTES_MAX // 1000)
    Batch.parse(encode([Message(source=text)] * 999)).validate()
    with pytest.raises(LimitExceeded, match="BATCH_BYTES_MAX"):
        encode([Message(source=text)] * 1001)


def test_equal_properties_of_different_types_are_kept_apart() -> None:
    messages = [Message(properties={"a": value}) for value in (1, True, 1.0)]
    assert exact_all(Batch.parse(encode(messages)).messages()) == exact_all(messages)


def test_rows_of_neighbouring_characters_are_kept_apart() -> None:
    messages = [Message(source=text) for text in ("é", "", "e", "日本", "é")]
    assert exact_all(Batch.parse(encode(messages)).validate().messages()) == exact_all(messages)


@pytest.mark.parametrize("first_sequence", [-1, SEQUENCE_MAX, 2**64])
def test_sequences_that_do_not_fit_are_refused(first_sequence: int) -> None:
    with pytest.raises(UsageError, match="first_sequence"):
        encode([Message()] * 2, origin=ORIGIN, first_sequence=first_sequence)


def test_the_last_sequence_of_all_can_be_used() -> None:
    batch = Batch.parse(encode([Message()] * 2, origin=ORIGIN, first_sequence=SEQUENCE_MAX - 1)).validate()
    assert batch.last_sequence == SEQUENCE_MAX


def test_a_sequence_needs_an_origin() -> None:
    with pytest.raises(UsageError, match="origin"):
        encode([Message()], first_sequence=1)
