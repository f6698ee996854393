from __future__ import annotations

import pytest

from holdfast.client.batching import encode_batches
from holdfast.errors import LimitExceeded, UsageError
from holdfast.message import Batch, Message


def bodies(batches: list[tuple[bytes, int]]) -> list[bytes]:
    return [message.body for batch, _ in batches for message in Batch.parse(batch).messages()]


def test_what_fits_is_one_batch() -> None:
    messages = [Message(body=b"%d" % number) for number in range(100)]
    batches = encode_batches(messages, batch_bytes_max=10_000)

    assert [count for _, count in batches] == [100]
    assert bodies(batches) == [message.body for message in messages]


def test_what_does_not_is_halved_in_order() -> None:
    messages = [Message(body=b"%03d" % number * 10) for number in range(100)]
    batches = encode_batches(messages, batch_bytes_max=1000)

    assert all(len(batch) <= 1000 for batch, _ in batches)
    assert sum(count for _, count in batches) == 100
    assert bodies(batches) == [message.body for message in messages]


def test_more_rows_than_a_batch_can_have() -> None:
    assert [count for _, count in encode_batches([Message()] * 70_000, batch_bytes_max=1 << 20)] == [
        65_535,
        4465,
    ]


def test_a_message_that_no_frame_holds_is_refused() -> None:
    with pytest.raises(LimitExceeded, match="FRAME_BYTES_MAX"):
        encode_batches([Message(), Message(body=bytes(2000))], batch_bytes_max=1000)


def test_nothing_is_no_batch() -> None:
    with pytest.raises(UsageError):
        encode_batches([], batch_bytes_max=1000)
