"""Sends that come in one piece become one batch, so one record, one index entry, one delivery (decision 4).

It is what makes single sends cheap: a record costs about as much as checking ten messages. Nothing changes for the
client: the rows have the sequences that it gave them, and are confirmed up to the last.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.errors import BatchError, ProtocolError
from holdfast.gateways.native.limits import BORROW_BYTES_MIN, GATHER_ROW_BYTES, GATHER_ROWS_MAX
from holdfast.message import Batch, gather
from holdfast.wire import Buffer, Frame, Send


def gather_sends(
    first: Send, following: Iterable[tuple[int, Frame]], *, channel: int, record_bytes_max: int
) -> list[Batch]:
    """The batch of a send, and those of the sends behind it that carry it on, as far as one record holds them.

    Raises `ProtocolError` if one of them is no batch, or has ids.
    """
    batches = [_checked(first.batch)]
    if first.transaction or not _keeps_its_size(batches[0]):
        return batches
    rows = batches[0].row_count
    room_bytes = record_bytes_max - len(first.batch) - rows * GATHER_ROW_BYTES
    for number, frame in following:
        if (
            number != channel
            or type(frame) is not Send
            or frame.first_sequence != first.first_sequence + rows
            or frame.destination != first.destination
            or frame.transaction
            or len(frame.batch) > room_bytes
        ):
            break
        batch = _checked(frame.batch)
        rows += batch.row_count
        room_bytes -= len(frame.batch) + batch.row_count * GATHER_ROW_BYTES
        if room_bytes < 0 or rows > GATHER_ROWS_MAX or not _keeps_its_size(batch):
            break
        batches.append(batch)
    return batches


def as_one(batches: list[Batch]) -> Batch:
    """All of it as one batch, which does not keep much more than itself in memory."""
    if len(batches) > 1:
        return Batch.parse(gather(batches))
    (batch,) = batches
    return batch if batch.nbytes >= BORROW_BYTES_MIN else Batch.parse(bytes(batch.buffer))


def _checked(data: Buffer) -> Batch:
    """A batch from outside, in place."""
    try:
        batch = Batch.parse(data).validate()
    except BatchError as error:
        raise ProtocolError(f"SEND: {error}", reason_code="protocol.malformed") from None
    if batch.has_ids:
        raise ProtocolError(
            "SEND: the batch has ids, which only nodes give", reason_code="protocol.malformed"
        )
    return batch


def _keeps_its_size(batch: Batch) -> bool:
    """Whether it takes about as much room among others: no value stands for many rows, which would each need it."""
    *_, constant_columns = batch.header
    return batch.row_count == 1 or not constant_columns
