"""Frames to bytes.

`encode_frame` makes one contiguous frame of anything. Frames with a batch also come as a list of buffers, first
the header with the fields and then the parts of the batch as they were given, for a gathering write: bodies are
not copied. Both raise LimitExceeded for a frame that the peer would refuse for its size, and UsageError for a
value that does not fit its field.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import msgpack

from holdfast.errors import LimitExceeded, UsageError
from holdfast.wire import layout
from holdfast.wire.frames import (
    Acknowledge,
    Acknowledged,
    BinaryFrame,
    Browsed,
    Buffer,
    Confirm,
    ControlFrame,
    Credit,
    Deliver,
    Flow,
    Frame,
    Ping,
    Pong,
    Send,
)
from holdfast.wire.layout import FRAME_BYTES_MAX, HEADER, SEND_BATCH_BYTES_MAX, FrameType

_SEND = struct.Struct(HEADER.format + layout.SEND.format[1:])
_DELIVER = struct.Struct(HEADER.format + layout.DELIVER.format[1:])
_BROWSED = struct.Struct(HEADER.format + layout.BROWSED.format[1:])

_encode_map = msgpack.Encoder().encode


def encode_frame(channel: int, frame: Frame, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> bytes:
    """The frame as it goes over the wire. Copies the batch, where there is one."""
    if isinstance(frame, Send | Deliver | Browsed):
        return b"".join(frame_buffers(channel, frame, frame_bytes_max=frame_bytes_max))
    payload = _encode_fields(frame) if isinstance(frame, ControlFrame) else _pack_fields(frame)
    return _pack(HEADER, frame.frame_type, channel, (), len(payload), frame_bytes_max) + payload


def frame_buffers(
    channel: int, frame: Send | Deliver | Browsed, *, frame_bytes_max: int = FRAME_BYTES_MAX
) -> list[Buffer]:
    """A frame with a batch, without a copy of it."""
    match frame:
        case Send():
            return send_buffers(
                channel,
                destination=frame.destination,
                transaction=frame.transaction,
                first_sequence=frame.first_sequence,
                batch=(frame.batch,),
                frame_bytes_max=frame_bytes_max,
            )
        case Deliver():
            return deliver_buffers(
                channel,
                consumer=frame.consumer,
                generation=frame.generation,
                redeliveries=frame.redeliveries,
                first_position=frame.first_position,
                batch=(frame.batch,),
                frame_bytes_max=frame_bytes_max,
            )
        case Browsed():
            return browsed_buffers(
                channel,
                request=frame.request,
                is_last=frame.is_last,
                first_position=frame.first_position,
                batch=(frame.batch,),
                frame_bytes_max=frame_bytes_max,
            )


def send_buffers(
    channel: int,
    *,
    destination: int,
    transaction: int,
    first_sequence: int,
    batch: Sequence[Buffer],
    frame_bytes_max: int = FRAME_BYTES_MAX,
) -> list[Buffer]:
    """A Send frame, its batch in any number of parts."""
    fields = (destination, transaction, first_sequence)
    batch_bytes = sum(map(len, batch))
    if batch_bytes > SEND_BATCH_BYTES_MAX:
        raise LimitExceeded("SEND_BATCH_BYTES_MAX", value=batch_bytes, maximum=SEND_BATCH_BYTES_MAX)
    return [_pack(_SEND, FrameType.SEND, channel, fields, batch_bytes, frame_bytes_max), *batch]


def deliver_buffers(
    channel: int,
    *,
    consumer: int,
    generation: int,
    redeliveries: int,
    first_position: int,
    batch: Sequence[Buffer],
    frame_bytes_max: int = FRAME_BYTES_MAX,
) -> list[Buffer]:
    """A Deliver frame, its batch in any number of parts."""
    fields = (consumer, generation, redeliveries, 0, first_position)
    batch_bytes = sum(map(len, batch))
    return [_pack(_DELIVER, FrameType.DELIVER, channel, fields, batch_bytes, frame_bytes_max), *batch]


def browsed_buffers(
    channel: int,
    *,
    request: int,
    is_last: bool,
    first_position: int,
    batch: Sequence[Buffer] = (),
    frame_bytes_max: int = FRAME_BYTES_MAX,
) -> list[Buffer]:
    """A Browsed frame, its batch in any number of parts."""
    fields = (request, is_last, first_position)
    batch_bytes = sum(map(len, batch))
    return [_pack(_BROWSED, FrameType.BROWSED, channel, fields, batch_bytes, frame_bytes_max), *batch]


def _pack(
    shape: struct.Struct,
    frame_type: FrameType,
    channel: int,
    fields: tuple[int, ...],
    rest_bytes: int,
    frame_bytes_max: int,
) -> bytes:
    """The header and the fields of a frame, before `rest_bytes` more."""
    frame_bytes = shape.size + rest_bytes
    if frame_bytes > frame_bytes_max:
        raise LimitExceeded("FRAME_BYTES_MAX", value=frame_bytes, maximum=frame_bytes_max)
    try:
        return shape.pack(frame_bytes - 4, frame_type, channel, *fields)
    except struct.error as error:
        raise UsageError(f"{frame_type.name}: a field is out of range: {error}") from None


def _encode_fields(frame: ControlFrame) -> bytes:
    """The payload of a control frame."""
    try:
        return _encode_map(frame)
    except (TypeError, ValueError, OverflowError) as error:  # half a surrogate pair, say, or a huge number
        raise UsageError(f"{frame.frame_type.name}: a field cannot be encoded: {error}") from None


def _pack_fields(frame: BinaryFrame) -> bytes:
    """The payload of a binary frame without a batch."""
    try:
        match frame:
            case Confirm():
                return layout.CONFIRM.pack(frame.destination, 0, frame.sequence)
            case Acknowledge():
                return _pack_acknowledge(frame)
            case Acknowledged():
                return layout.ACKNOWLEDGED.pack(frame.number)
            case Credit():
                return layout.CREDIT.pack(frame.consumer, frame.messages)
            case Ping() | Pong():
                return layout.PING.pack(frame.token)
            case Flow():
                return layout.FLOW.pack(frame.destination, frame.is_blocked)
    except struct.error as error:
        raise UsageError(f"{frame.frame_type.name}: a field is out of range: {error}") from None
    raise UsageError(f"{type(frame).__name__} is no frame")


def _pack_acknowledge(frame: Acknowledge) -> bytes:
    range_count = len(frame.ranges)
    if range_count > layout.ACKNOWLEDGE_RANGES_MAX:
        raise LimitExceeded(
            "ACKNOWLEDGE_RANGES_MAX", value=range_count, maximum=layout.ACKNOWLEDGE_RANGES_MAX
        )
    head = layout.ACKNOWLEDGE.pack(frame.consumer, frame.transaction, frame.outcome, 0, frame.number)
    return head + b"".join([layout.RANGE.pack(first, last) for first, last in frame.ranges])
