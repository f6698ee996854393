"""Frames come out whole, however the bytes come in; a header that breaks a rule ends it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ProtocolError, UsageError
from holdfast.wire import (
    CLIENT_FRAMES,
    FRAME_BYTES_MAX,
    FRAME_BYTES_MIN,
    SERVER_FRAMES,
    Deliver,
    Frame,
    FrameDecoder,
    FrameType,
    Ping,
    Send,
    encode_frame,
)
from holdfast.wire.layout import CONNECTION_FRAMES, HEADER_BYTES, SESSION_FRAMES
from tests.wire.frame_cases import EVERY_FRAME, channel_of, fault_of, framed, raw


def fed_in_pieces(data: bytes, cuts: list[int]) -> list[tuple[int, Frame]]:
    decoder = FrameDecoder()
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [frame for start, end in pairwise(places) for frame in decoder.feed(data[start:end])]


# ---- pieces ------------------------------------------------------------------------------------------------
@given(st.lists(framed(), max_size=8), st.lists(st.integers(0, 10_000), max_size=12))
def test_any_pieces_give_the_same_frames(cases: list[tuple[int, Frame]], cuts: list[int]) -> None:
    data = b"".join(encode_frame(*case) for case in cases)

    assert fed_in_pieces(data, cuts) == cases


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 31])
def test_pieces_of_one_size_give_the_same_frames(size: int) -> None:
    cases = [(channel_of(frame), frame) for frame in EVERY_FRAME]
    data = b"".join(encode_frame(*case) for case in cases)

    assert fed_in_pieces(data, list(range(0, len(data), size))) == cases


def test_nothing_comes_of_nothing() -> None:
    assert FrameDecoder().feed(b"") == []


def test_what_is_pending_can_be_asked() -> None:
    decoder = FrameDecoder()
    frame = encode_frame(0, Ping(7))

    counts = []
    for byte in frame:
        decoder.feed(bytes((byte,)))
        counts.append(decoder.pending_bytes)

    assert counts == [*range(1, len(frame)), 0]


def test_a_batch_within_one_piece_is_not_copied() -> None:
    data = encode_frame(1, Send(1, 0, 1, b"first")) + encode_frame(1, Deliver(1, 0, 0, 1, b"second"))

    for _, frame in FrameDecoder().feed(data):
        assert isinstance(frame, Send | Deliver)
        assert isinstance(frame.batch, memoryview)
        assert frame.batch.obj is data


def test_a_batch_in_pieces_keeps_its_bytes_and_cannot_be_changed() -> None:
    decoder = FrameDecoder()
    data = encode_frame(1, Send(1, 0, 1, b"first")) + encode_frame(1, Send(1, 0, 2, b"second"))
    frames = [frame for byte in data for _, frame in decoder.feed(bytes((byte,)))]

    assert frames == [Send(1, 0, 1, b"first"), Send(1, 0, 2, b"second")]
    assert all(isinstance(frame, Send) and memoryview(frame.batch).readonly for frame in frames)


def test_only_the_frame_in_pieces_is_gathered() -> None:
    decoder = FrameDecoder()
    one = encode_frame(1, Send(1, 0, 1, b"batch"))
    decoder.feed(one[:-2])
    rest = one[-2:] + one + one[:5]

    [(_, first), (_, second)] = decoder.feed(rest)

    assert isinstance(first, Send)
    assert isinstance(second, Send)
    assert memoryview(first.batch).obj is not rest
    assert memoryview(second.batch).obj is rest
    assert decoder.pending_bytes == 5


# ---- sizes -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("limit", [FRAME_BYTES_MIN, 5000])
def test_the_longest_frame_is_taken_and_one_byte_more_is_not(limit: int) -> None:
    overhead = len(encode_frame(1, Send(1, 0, 1, b"")))
    longest = encode_frame(1, Send(1, 0, 1, bytes(limit - overhead)))
    longer = encode_frame(1, Send(1, 0, 1, bytes(limit - overhead + 1)))

    assert len(FrameDecoder(limit).feed(longest)) == 1
    error = fault_of(longer, FrameDecoder(limit))
    assert str(error) == f"a frame of {limit + 1} bytes is above the maximum of {limit}"
    assert error.reason_code == "limit.frame"


def test_a_long_frame_is_refused_by_its_header() -> None:
    """Before its bytes are held; in one piece or in several."""
    header = encode_frame(1, Send(1, 0, 1, bytes(2000)))[:HEADER_BYTES]
    decoder = FrameDecoder(FRAME_BYTES_MIN)
    decoder.feed(header[:-1])

    assert fault_of(header, FrameDecoder(FRAME_BYTES_MIN)).reason_code == "limit.frame"
    assert fault_of(header[-1:], decoder).reason_code == "limit.frame"


def test_the_limit_may_be_changed_on_the_way() -> None:
    decoder = FrameDecoder(FRAME_BYTES_MIN)
    decoder.frame_bytes_max = 4096
    long = encode_frame(1, Send(1, 0, 1, bytes(2000)))

    assert decoder.frame_bytes_max == 4096
    assert len(decoder.feed(long)) == 1


@pytest.mark.parametrize("limit", [0, FRAME_BYTES_MIN - 1, FRAME_BYTES_MAX + 1])
def test_a_limit_out_of_range_is_misuse(limit: int) -> None:
    with pytest.raises(UsageError, match="frame_bytes_max"):
        FrameDecoder(limit)


def test_what_is_held_stays_within_one_frame() -> None:
    """A peer that sends all but the last byte of the longest frame, in any pieces."""
    decoder = FrameDecoder(FRAME_BYTES_MIN)
    frame = encode_frame(1, Send(1, 0, 1, bytes(FRAME_BYTES_MIN - 24)))
    for place in range(0, len(frame) - 1, 100):
        decoder.feed(frame[place : min(place + 100, len(frame) - 1)])

    assert decoder.pending_bytes == FRAME_BYTES_MIN - 1
    assert len(decoder.feed(frame[-1:] + frame * 5)) == 6
    assert decoder.pending_bytes == 0


# ---- headers -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("length", range(4))
def test_a_length_below_that_of_the_header_is_malformed(length: int) -> None:
    error = fault_of(length.to_bytes(4, "little") + bytes((38, 0, 1, 0)))

    assert (str(error), error.reason_code) == (f"a frame of length {length}", "protocol.malformed")


def test_flags_are_malformed() -> None:
    error = fault_of(raw(FrameType.PING, bytes(8), flags=0x80))

    assert (str(error), error.reason_code) == ("flags 0x80: there are none yet", "protocol.malformed")


@pytest.mark.parametrize("number", sorted(set(range(256)) - set(FrameType)))
def test_an_unknown_type_is_unexpected(number: int) -> None:
    error = fault_of(raw(number, bytes(8)))

    assert (str(error), error.reason_code) == (f"frame type {number} is not known", "protocol.unexpected")


@pytest.mark.parametrize("frame", EVERY_FRAME, ids=lambda frame: type(frame).__name__)
@pytest.mark.parametrize("accepts", [CLIENT_FRAMES, SERVER_FRAMES], ids=["server", "client"])
def test_only_the_frames_of_the_peer_are_taken(accepts: frozenset[FrameType], frame: Frame) -> None:
    decoder = FrameDecoder(accepts=accepts)
    data = encode_frame(channel_of(frame), frame)

    if frame.frame_type in accepts:
        assert decoder.feed(data) == [(channel_of(frame), frame)]
    else:
        error = fault_of(data, decoder)
        assert str(error) == f"{frame.frame_type.name}: the wrong side sends it"
        assert error.reason_code == "protocol.unexpected"


@pytest.mark.parametrize("frame", EVERY_FRAME, ids=lambda frame: type(frame).__name__)
@pytest.mark.parametrize("channel", [0, 1, 0xFFFF])
def test_a_frame_stands_only_on_its_channel(channel: int, frame: Frame) -> None:
    data = encode_frame(channel, frame)

    if frame.frame_type in (CONNECTION_FRAMES if channel else SESSION_FRAMES):
        error = fault_of(data)
        assert str(error) == f"{frame.frame_type.name}: it does not belong on channel {channel}"
        assert error.reason_code == "protocol.unexpected"
    else:
        assert FrameDecoder().feed(data) == [(channel, frame)]


# ---- after a fault -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("start", [0, 3, 8, 9])
def test_after_a_fault_nothing_more_is_taken(start: int) -> None:
    decoder = FrameDecoder()
    wrong = raw(FrameType.PING, bytes(9))
    decoder.feed(wrong[:start])
    first = fault_of(wrong[start:], decoder)

    for data in (b"", encode_frame(0, Ping(1)), wrong):
        with pytest.raises(ProtocolError) as again:
            decoder.feed(data)
        assert (str(again.value), again.value.reason_code) == (str(first), "protocol.malformed")
    assert decoder.pending_bytes == 0


def test_a_fault_ends_even_what_came_with_it() -> None:
    decoder = FrameDecoder()

    assert fault_of(encode_frame(0, Ping(1)) + raw(FrameType.PING, b""), decoder).reason_code
    assert fault_of(encode_frame(0, Ping(1)), decoder).reason_code
