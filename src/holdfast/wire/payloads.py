"""The payload of each type of frame, read: one reader for each, and ProtocolError is all that they raise.

A reader gets a view and the place of the payload in it, so that nothing is cut out but the batch. Send and Deliver
are read for every batch, so theirs are written for speed: one unpacking, one comparison for each rule.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeAlias

from msgspec import msgpack

from holdfast.errors import ProtocolError
from holdfast.wire import layout
from holdfast.wire.frames import (
    Acknowledge,
    Acknowledged,
    Ask,
    Browse,
    Browsed,
    CloseConsumer,
    CloseSession,
    Commit,
    Confirm,
    ControlFrame,
    Credit,
    Declare,
    Deliver,
    Done,
    Error,
    Flow,
    Frame,
    Hello,
    OpenSession,
    Ping,
    Pong,
    Rollback,
    Send,
    SessionOpened,
    Subscribe,
    Unsubscribe,
    Welcome,
)
from holdfast.wire.layout import SEND_BATCH_BYTES_MAX, FrameType, Outcome

Reader: TypeAlias = Callable[[memoryview, int, int], Frame]

_SEND_BYTES = layout.SEND.size
_DELIVER_BYTES = layout.DELIVER.size
_unpack_send = layout.SEND.unpack_from
_unpack_deliver = layout.DELIVER.unpack_from
_OUTCOMES = tuple(Outcome)


def malformed(frame_type: FrameType, what: str) -> ProtocolError:
    return ProtocolError(f"{frame_type.name}: {what}", reason_code="protocol.malformed")


# ---- control frames ----------------------------------------------------------------------------------------
def _control_reader(frame: type[ControlFrame]) -> Reader:
    decode = msgpack.Decoder(frame).decode
    frame_type = frame.frame_type

    def read(view: memoryview, start: int, end: int) -> Frame:
        try:
            return decode(view[start:end])
        except (ValueError, RecursionError) as error:  # a wrong map, text or field; nested too deep
            raise malformed(frame_type, f"the map of fields is wrong: {error}") from None

    return read


# ---- binary frames -----------------------------------------------------------------------------------------
def _read_send(view: memoryview, start: int, end: int) -> Frame:
    batch = start + _SEND_BYTES
    if batch > end:
        raise _wrong_size(FrameType.SEND, end - start, f"at least {_SEND_BYTES}")
    if end - batch > SEND_BATCH_BYTES_MAX:
        what = f"SEND: a batch of {end - batch} bytes is above the maximum of {SEND_BATCH_BYTES_MAX}"
        raise ProtocolError(what, reason_code="limit.frame")
    destination, transaction, first_sequence = _unpack_send(view, start)
    if first_sequence < 1:
        raise malformed(FrameType.SEND, "the first sequence is not 1..2^63 - 1")
    return Send(destination, transaction, first_sequence, view[batch:end])


def _read_deliver(view: memoryview, start: int, end: int) -> Frame:
    batch = start + _DELIVER_BYTES
    if batch > end:
        raise _wrong_size(FrameType.DELIVER, end - start, f"at least {_DELIVER_BYTES}")
    consumer, generation, redeliveries, reserved, first_position = _unpack_deliver(view, start)
    if reserved or first_position < 0:
        raise malformed(
            FrameType.DELIVER, "a reserved field is not 0, or the first position is not below 2^63"
        )
    return Deliver(consumer, generation, redeliveries, first_position, view[batch:end])


def _read_confirm(view: memoryview, start: int, end: int) -> Frame:
    destination, reserved, sequence = _unpack(layout.CONFIRM, FrameType.CONFIRM, view, start, end)
    if reserved or sequence < 0:
        raise malformed(FrameType.CONFIRM, "a reserved field is not 0, or the sequence is not below 2^63")
    return Confirm(destination, sequence)


def _read_acknowledge(view: memoryview, start: int, end: int) -> Frame:
    ranges_start = start + layout.ACKNOWLEDGE.size
    range_count, odd_bytes = divmod(end - ranges_start, layout.RANGE.size)
    if range_count < 1 or odd_bytes:
        raise _wrong_size(FrameType.ACKNOWLEDGE, end - start, "24 and 16 for each of 1 or more ranges")
    if range_count > layout.ACKNOWLEDGE_RANGES_MAX:
        raise malformed(
            FrameType.ACKNOWLEDGE,
            f"{range_count} ranges are above the maximum of {layout.ACKNOWLEDGE_RANGES_MAX}",
        )
    consumer, transaction, outcome, reserved, number = layout.ACKNOWLEDGE.unpack_from(view, start)
    if outcome >= len(_OUTCOMES) or reserved or number < 1:
        raise malformed(
            FrameType.ACKNOWLEDGE,
            "the outcome is unknown, a reserved field is not 0, or the number is not 1..2^63 - 1",
        )
    ranges = tuple(layout.RANGE.iter_unpack(view[ranges_start:end]))
    for first, last in ranges:
        if not 0 <= first <= last:
            raise malformed(FrameType.ACKNOWLEDGE, "a range ends before it begins, or is not below 2^63")
    return Acknowledge(consumer, transaction, _OUTCOMES[outcome], number, ranges)


def _read_acknowledged(view: memoryview, start: int, end: int) -> Frame:
    (number,) = _unpack(layout.ACKNOWLEDGED, FrameType.ACKNOWLEDGED, view, start, end)
    if number < 0:
        raise malformed(FrameType.ACKNOWLEDGED, "the number is not below 2^63")
    return Acknowledged(number)


def _read_credit(view: memoryview, start: int, end: int) -> Frame:
    return Credit(*_unpack(layout.CREDIT, FrameType.CREDIT, view, start, end))


def _read_ping(view: memoryview, start: int, end: int) -> Frame:
    return Ping(*_unpack(layout.PING, FrameType.PING, view, start, end))


def _read_pong(view: memoryview, start: int, end: int) -> Frame:
    return Pong(*_unpack(layout.PING, FrameType.PONG, view, start, end))


def _read_browsed(view: memoryview, start: int, end: int) -> Frame:
    batch = start + layout.BROWSED.size
    if batch > end:
        raise _wrong_size(FrameType.BROWSED, end - start, f"at least {layout.BROWSED.size}")
    request, is_last, first_position = layout.BROWSED.unpack_from(view, start)
    if request < 1 or is_last > 1 or first_position < 0:
        raise malformed(
            FrameType.BROWSED, "the request is 0, is_last is not 0 or 1, or the position is not below 2^63"
        )
    if batch == end and not is_last:
        raise malformed(FrameType.BROWSED, "only the last one may be without a batch")
    return Browsed(request, bool(is_last), first_position, view[batch:end])


def _read_flow(view: memoryview, start: int, end: int) -> Frame:
    destination, is_blocked = _unpack(layout.FLOW, FrameType.FLOW, view, start, end)
    if is_blocked > 1:
        raise malformed(FrameType.FLOW, "is_blocked is not 0 or 1")
    return Flow(destination, bool(is_blocked))


def _unpack(
    shape: struct.Struct, frame_type: FrameType, view: memoryview, start: int, end: int
) -> tuple[int, ...]:
    """The fields of a frame that has nothing else."""
    if end - start != shape.size:
        raise _wrong_size(frame_type, end - start, str(shape.size))
    return shape.unpack_from(view, start)


def _wrong_size(frame_type: FrameType, payload_bytes: int, expected: str) -> ProtocolError:
    return malformed(frame_type, f"a payload of {payload_bytes} bytes, where there must be {expected}")


READERS: dict[FrameType, Reader] = {
    **{
        frame.frame_type: _control_reader(frame)
        for frame in (
            *(Hello, Welcome, OpenSession, SessionOpened, CloseSession, Done, Declare, Subscribe, Error),
            *(CloseConsumer, Commit, Rollback, Browse, Ask, Unsubscribe),
        )
    },
    FrameType.SEND: _read_send,
    FrameType.CONFIRM: _read_confirm,
    FrameType.ACKNOWLEDGE: _read_acknowledge,
    FrameType.ACKNOWLEDGED: _read_acknowledged,
    FrameType.CREDIT: _read_credit,
    FrameType.DELIVER: _read_deliver,
    FrameType.PING: _read_ping,
    FrameType.PONG: _read_pong,
    FrameType.BROWSED: _read_browsed,
    FrameType.FLOW: _read_flow,
}
