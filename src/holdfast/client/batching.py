"""Messages of one `send_batch` to batches that fit a frame. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import LimitExceeded
from holdfast.message import BATCH_ROWS_MAX, Message, encode


def encode_batches(messages: Sequence[Message], *, batch_bytes_max: int) -> list[tuple[bytes, int]]:
    """Batches, with their row counts, of all messages in order: as few as halving finds.

    Raises UsageError for values that do not fit, and LimitExceeded for a message that no frame can hold.
    """
    if len(messages) > BATCH_ROWS_MAX:
        return [
            batch
            for start in range(0, len(messages), BATCH_ROWS_MAX)
            for batch in encode_batches(
                messages[start : start + BATCH_ROWS_MAX], batch_bytes_max=batch_bytes_max
            )
        ]
    try:
        batch = encode(messages)
        if len(batch) <= batch_bytes_max:
            return [(batch, len(messages))]
        error = LimitExceeded("FRAME_BYTES_MAX", value=len(batch), maximum=batch_bytes_max)
    except LimitExceeded as too_much:
        error = too_much
    if len(messages) <= 1:
        raise error
    half = len(messages) // 2
    return [
        *encode_batches(messages[:half], batch_bytes_max=batch_bytes_max),
        *encode_batches(messages[half:], batch_bytes_max=batch_bytes_max),
    ]
