"""What is encoded is decoded; bodies are not copied; what cannot be sent is refused here."""

from __future__ import annotations

import pytest
from hypothesis import given
from msgspec.structs import replace

from holdfast.errors import LimitExceeded, UsageError
from holdfast.wire import (
    ACKNOWLEDGE_RANGES_MAX,
    FRAME_BYTES_MAX,
    SEND_BATCH_BYTES_MAX,
    Acknowledge,
    BinaryFrame,
    Browsed,
    Buffer,
    Credit,
    Declare,
    Deliver,
    Done,
    Frame,
    FrameDecoder,
    Outcome,
    Ping,
    Send,
    browsed_buffers,
    deliver_buffers,
    encode_frame,
    frame_buffers,
    send_buffers,
)
from tests.wire.frame_cases import EVERY_FRAME, channel_of, framed


@given(framed())
def test_what_is_encoded_is_decoded(case: tuple[int, Frame]) -> None:
    assert FrameDecoder().feed(encode_frame(*case)) == [case]


@pytest.mark.parametrize("frame", EVERY_FRAME, ids=lambda frame: type(frame).__name__)
def test_every_type_is_decoded_as_itself(frame: Frame) -> None:
    [(channel, decoded)] = FrameDecoder().feed(encode_frame(channel_of(frame), frame))

    assert (channel, type(decoded), decoded) == (channel_of(frame), type(frame), frame)


def test_a_send_in_parts_is_the_same_frame() -> None:
    parts: list[Buffer] = [b"head", memoryview(b"body"), bytearray(b"tail")]
    buffers = send_buffers(3, destination=5, transaction=6, first_sequence=7, batch=parts)

    assert all(given is sent for given, sent in zip(parts, buffers[1:], strict=True))
    assert b"".join(buffers) == encode_frame(3, Send(5, 6, 7, b"headbodytail"))


def test_a_delivery_in_parts_is_the_same_frame() -> None:
    parts: list[Buffer] = [b"head", memoryview(b"body")]
    buffers = deliver_buffers(3, consumer=1, generation=2, redeliveries=3, first_position=4, batch=parts)

    assert all(given is sent for given, sent in zip(parts, buffers[1:], strict=True))
    assert b"".join(buffers) == encode_frame(3, Deliver(1, 2, 3, 4, b"headbody"))


def test_browsed_messages_in_parts_are_the_same_frame() -> None:
    buffers = browsed_buffers(3, request=1, is_last=False, first_position=9, batch=[b"head", b"body"])

    assert b"".join(buffers) == encode_frame(3, Browsed(1, False, 9, b"headbody"))


def test_the_end_of_browsing_needs_no_batch() -> None:
    [only] = browsed_buffers(3, request=1, is_last=True, first_position=9)

    assert only == encode_frame(3, Browsed(1, True, 9, b""))


@pytest.mark.parametrize(
    "frame", [Send(1, 2, 3, b"x"), Deliver(1, 2, 3, 4, b"x"), Browsed(1, False, 3, b"x")]
)
def test_a_frame_gives_its_own_batch(frame: Send | Deliver | Browsed) -> None:
    head, batch = frame_buffers(3, frame)

    assert batch is frame.batch
    assert bytes(head) + bytes(batch) == encode_frame(3, frame)


def test_what_can_be_sent_can_be_delivered() -> None:
    longest = bytes(SEND_BATCH_BYTES_MAX)
    delivery = Deliver(1, 0, 0, 1, longest)

    assert len(encode_frame(1, Send(1, 0, 1, longest))) < FRAME_BYTES_MAX
    assert len(encode_frame(1, delivery)) == FRAME_BYTES_MAX
    assert FrameDecoder().feed(encode_frame(1, delivery)) == [(1, delivery)]
    with pytest.raises(LimitExceeded, match="SEND_BATCH_BYTES_MAX"):
        encode_frame(1, Send(1, 0, 1, longest + b"x"))


@pytest.mark.parametrize("frame", EVERY_FRAME, ids=lambda frame: type(frame).__name__)
def test_a_frame_above_the_limit_is_not_made(frame: Frame) -> None:
    channel = channel_of(frame)
    size = len(encode_frame(channel, frame))

    assert len(encode_frame(channel, frame, frame_bytes_max=size)) == size
    with pytest.raises(LimitExceeded, match=f"FRAME_BYTES_MAX: {size} is above the maximum of {size - 1}"):
        encode_frame(channel, frame, frame_bytes_max=size - 1)


def test_too_many_ranges_are_not_made() -> None:
    most = Acknowledge(1, 0, Outcome.ACCEPTED, 1, ((1, 1),) * ACKNOWLEDGE_RANGES_MAX)

    assert FrameDecoder().feed(encode_frame(1, most)) == [(1, most)]
    with pytest.raises(LimitExceeded, match="ACKNOWLEDGE_RANGES_MAX"):
        encode_frame(1, replace(most, ranges=(*most.ranges, (1, 1))))


@pytest.mark.parametrize("channel", [-1, 0x1_0000])
def test_a_channel_that_does_not_fit_is_misuse(channel: int) -> None:
    with pytest.raises(UsageError, match="PING: a field is out of range"):
        encode_frame(channel, Ping(1))


@pytest.mark.parametrize(
    "frame",
    [
        Ping(-1),
        Ping(1 << 64),
        Credit(1 << 32, 1),
        Credit(1, -1),
        Send(1, 0, 1 << 63, b""),
        Send(-1, 0, 1, b""),
    ],
    ids=str,
)
def test_a_number_that_does_not_fit_is_misuse(frame: Frame) -> None:
    with pytest.raises(UsageError, match="a field is out of range"):
        encode_frame(1, frame)


@pytest.mark.parametrize(
    "frame",
    [
        Declare(request=1, name="\ud800"),
        Declare(request=1 << 64, name="a"),
        Done(request=1, result={"a": object()}),
    ],
    ids=["half a character", "a huge number", "not a plain value"],
)
def test_a_value_that_cannot_be_encoded_is_misuse(frame: Frame) -> None:
    with pytest.raises(UsageError, match="a field cannot be encoded"):
        encode_frame(1, frame)


def test_a_frame_that_is_none_is_misuse() -> None:
    class Stray(BinaryFrame, frozen=True):
        frame_type = Ping.frame_type

    with pytest.raises(UsageError, match="Stray is no frame"):
        encode_frame(1, Stray())
