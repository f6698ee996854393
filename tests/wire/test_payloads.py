"""Every field has its type and its limits; what breaks them is malformed."""

from __future__ import annotations

import struct

import pytest
from msgspec import msgpack
from msgspec.structs import asdict, fields

from holdfast.errors import ProtocolError
from holdfast.wire import (
    ACKNOWLEDGE_RANGES_MAX,
    FRAME_BYTES_MAX,
    FRAME_BYTES_MIN,
    NUMBER_MAX,
    SEND_BATCH_BYTES_MAX,
    TEXT_CHARACTERS_MAX,
    BinaryFrame,
    ControlFrame,
    FrameDecoder,
    FrameType,
    encode_frame,
)
from holdfast.wire.layout import HEADER_BYTES, U32_MAX
from tests.wire.frame_cases import EVERY_FRAME, channel_of, fault_of, raw

CONTROL = [frame for frame in EVERY_FRAME if isinstance(frame, ControlFrame)]
BINARY = [frame for frame in EVERY_FRAME if isinstance(frame, BinaryFrame)]
NO_NUMBERS: list[object] = ["1", 1.5, 1.0, True, None, [1], {}, b"1"]
NO_TEXTS: list[object] = [1, None, b"x", ["x"], True]

# kind of field: what is taken, what is not
VALUES: dict[str, tuple[list[object], list[object]]] = {
    "text": (["", "x", "é" * TEXT_CHARACTERS_MAX], ["x" * (TEXT_CHARACTERS_MAX + 1), *NO_TEXTS]),
    "any text": (["", "x" * (TEXT_CHARACTERS_MAX + 1)], NO_TEXTS),
    "version": ([1, 0xFFFF], [0, -1, 0x1_0000, *NO_NUMBERS]),
    "frame bytes": (
        [FRAME_BYTES_MIN, FRAME_BYTES_MAX],
        [0, FRAME_BYTES_MIN - 1, FRAME_BYTES_MAX + 1, *NO_NUMBERS],
    ),
    "positive u32": ([1, U32_MAX], [0, -1, U32_MAX + 1, *NO_NUMBERS]),
    "u32": ([0, 1, U32_MAX], [-1, U32_MAX + 1, *NO_NUMBERS]),
    "number": ([0, 1, NUMBER_MAX], [-1, NUMBER_MAX + 1, (1 << 64) - 1, *NO_NUMBERS]),
    "bool": ([False, True], [0, 1, "true", None]),
    "map": ([{}, {"a": [1, {"b": None}]}], [[], None, "x", {1: 2}, {b"a": 1}]),
    "map of numbers": (
        [{}, {"a": 0, "": NUMBER_MAX}],
        [{"a": -1}, {"a": NUMBER_MAX + 1}, {"a": "1"}, {1: 1}, []],
    ),
    "destination kind": (["queue", "topic", ""], ["Queue", "stream", None, 1]),
    "question": (["status", "destinations"], ["", "weather", None, 1]),
}
KINDS = {
    "Hello": {"version": "version", "client": "text", "user": "text", "password": "text"},
    "Welcome": {"version": "version", "server": "text", "node": "text", "frame_bytes_max": "frame bytes"},
    "OpenSession": {"request": "positive u32", "session": "text", "lifetime_s": "u32"},
    "SessionOpened": {
        "request": "positive u32",
        "session": "text",
        "epoch": "number",
        "is_resumed": "bool",
        "confirmed": "map of numbers",
    },
    "CloseSession": {"request": "positive u32"},
    "Done": {"request": "positive u32", "result": "map"},
    "Declare": {"request": "positive u32", "name": "text", "kind": "destination kind"},
    "Subscribe": {
        "request": "positive u32",
        "consumer": "u32",
        "destination": "text",
        "subscription": "text",
        "is_durable": "bool",
        "from_start": "bool",
        "credit": "u32",
    },
    "Error": {"request": "u32", "code": "text", "message": "any text", "is_fatal": "bool"},
    "CloseConsumer": {"request": "positive u32", "consumer": "u32"},
    "Commit": {"request": "positive u32", "transaction": "positive u32"},
    "Rollback": {"request": "positive u32", "transaction": "positive u32"},
    "Browse": {
        "request": "positive u32",
        "destination": "text",
        "from_position": "number",
        "messages_max": "u32",
    },
    "Ask": {"request": "positive u32", "what": "question"},
    "Unsubscribe": {"request": "positive u32", "destination": "text", "subscription": "text"},
}
FIELDS = [(frame, field) for frame in CONTROL for field in fields(frame)]
FIELD_IDS = [f"{type(frame).__name__}.{field.name}" for frame, field in FIELDS]


def is_taken(frame_type: FrameType, payload: bytes) -> bool:
    """Whether it is read. If not, it is malformed, and the message says which frame was."""
    try:
        return len(FrameDecoder().feed(raw(frame_type, payload))) == 1
    except ProtocolError as error:
        fault = error
    assert fault.reason_code == "protocol.malformed"
    assert str(fault).startswith(f"{frame_type.name}: ")
    return False


# ---- control frames ----------------------------------------------------------------------------------------
def test_every_field_of_a_control_frame_is_listed() -> None:
    listed = [(name, field) for name, kinds in KINDS.items() for field in kinds]

    assert listed == [(type(frame).__name__, field.name) for frame, field in FIELDS]


@pytest.mark.parametrize(("frame", "name"), [(frame, field.name) for frame, field in FIELDS], ids=FIELD_IDS)
def test_a_field_of_a_control_frame_keeps_its_limits(frame: ControlFrame, name: str) -> None:
    taken, refused = VALUES[KINDS[type(frame).__name__][name]]

    for value in taken:
        assert is_taken(frame.frame_type, msgpack.encode({**asdict(frame), name: value})), value
    for value in refused:
        assert not is_taken(frame.frame_type, msgpack.encode({**asdict(frame), name: value})), value


@pytest.mark.parametrize(
    ("frame", "name", "is_required"),
    [(frame, field.name, field.required) for frame, field in FIELDS],
    ids=FIELD_IDS,
)
def test_a_field_is_left_out_only_where_it_has_a_default(
    frame: ControlFrame, name: str, is_required: bool
) -> None:
    rest = {key: value for key, value in asdict(frame).items() if key != name}

    assert is_taken(frame.frame_type, msgpack.encode(rest)) is not is_required


@pytest.mark.parametrize("frame", CONTROL, ids=lambda frame: type(frame).__name__)
def test_a_field_that_is_not_known_is_skipped(frame: ControlFrame) -> None:
    payload = msgpack.encode({"from": "a newer release", **asdict(frame), "more": [{"x": 1}]})

    assert FrameDecoder().feed(raw(frame.frame_type, payload)) == [(channel_of(frame), frame)]


@pytest.mark.parametrize("frame", CONTROL, ids=lambda frame: type(frame).__name__)
def test_bad_msgpack_is_malformed(frame: ControlFrame) -> None:
    payload = msgpack.encode(frame)
    wrong = [payload + b"\0", b"", b"\xc1", b"\xc0", msgpack.encode([1]), payload * 2]
    wrong += [payload[:size] for size in range(len(payload))]

    assert [data for data in wrong if is_taken(frame.frame_type, data)] == []


@pytest.mark.parametrize(
    "tail",
    [
        b"\xa4more" + b"\x91" * 100_000,
        b"\xa6result\x81\xa1a" + b"\x91" * 100_000,
        b"\xa6result\x81\xa1a\xdd\xff\xff\xff\xff",
        b"\xa6result\x81\xa1a\xa1\xff",
        b"\xa6result\x81\xa1a\x81\x80\x01",
        b"\xa6result\x81\xa1a\xc7\x0c\xff" + b"\xff" * 12,
    ],
    ids=["deep and skipped", "deep", "huge by its length", "not utf-8", "a map as a key", "no such time"],
)
def test_hostile_msgpack_is_malformed(tail: bytes) -> None:
    assert not is_taken(FrameType.DONE, b"\x82\xa7request\x01" + tail)


def test_a_fault_says_what_is_wrong_and_no_secrets() -> None:
    payload = {"version": 1, "client": 7, "password": "secret"}
    error = fault_of(raw(FrameType.HELLO, msgpack.encode(payload)))

    assert str(error) == "HELLO: the map of fields is wrong: Expected `str`, got `int` - at `$.client`"


# ---- binary frames -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("frame", BINARY, ids=lambda frame: type(frame).__name__)
def test_a_binary_frame_of_the_wrong_size_is_malformed(frame: BinaryFrame) -> None:
    payload = encode_frame(channel_of(frame), frame)[HEADER_BYTES:]
    is_open = frame.frame_type in {FrameType.SEND, FrameType.DELIVER, FrameType.BROWSED}
    fixed_bytes = {FrameType.SEND: 16, FrameType.DELIVER: 24, FrameType.BROWSED: 16}.get(
        frame.frame_type, len(payload)
    )
    step = 16 if frame.frame_type is FrameType.ACKNOWLEDGE else fixed_bytes

    for size in range(fixed_bytes):
        is_whole = frame.frame_type is FrameType.ACKNOWLEDGE and size == fixed_bytes - step
        assert is_taken(frame.frame_type, payload[:size]) is is_whole, size
    assert is_taken(frame.frame_type, payload[:fixed_bytes])
    assert is_taken(frame.frame_type, payload + b"\0") is is_open


ABOVE = NUMBER_MAX + 1
PACKED: list[tuple[FrameType, str, tuple[int, ...], bool]] = [
    (FrameType.SEND, "<IIQ", (0, 0, 1), True),
    (FrameType.SEND, "<IIQ", (U32_MAX, U32_MAX, NUMBER_MAX), True),
    (FrameType.SEND, "<IIQ", (1, 0, 0), False),
    (FrameType.SEND, "<IIQ", (1, 0, ABOVE), False),
    (FrameType.CONFIRM, "<IIQ", (U32_MAX, 0, NUMBER_MAX), True),
    (FrameType.CONFIRM, "<IIQ", (1, 0, 0), True),
    (FrameType.CONFIRM, "<IIQ", (1, 1, 1), False),
    (FrameType.CONFIRM, "<IIQ", (1, 0, ABOVE), False),
    (FrameType.ACKNOWLEDGE, "<IIIIQQQ", (0, 0, 0, 0, 1, 0, 0), True),
    (FrameType.ACKNOWLEDGE, "<IIIIQQQ", (U32_MAX, U32_MAX, 1, 0, NUMBER_MAX, 1, NUMBER_MAX), True),
    (FrameType.ACKNOWLEDGE, "<IIIIQQQ", (1, 0, 2, 0, 1, 1, 1), False),
    (FrameType.ACKNOWLEDGE, "<IIIIQQQ", (1, 0, U32_MAX, 0, 1, 1, 1), False),
    (FrameType.ACKNOWLEDGE, "<IIIIQQQ", (1, 0, 0, 1, 1, 1, 1), False),
    (FrameType.ACKNOWLEDGE, "<IIIIQQQ", (1, 0, 0, 0, 0, 1, 1), False),
    (FrameType.ACKNOWLEDGE, "<IIIIQQQ", (1, 0, 0, 0, ABOVE, 1, 1), False),
    (FrameType.ACKNOWLEDGE, "<IIIIQQQ", (1, 0, 0, 0, 1, 2, 1), False),
    (FrameType.ACKNOWLEDGE, "<IIIIQQQ", (1, 0, 0, 0, 1, 1, ABOVE), False),
    (FrameType.ACKNOWLEDGE, "<IIIIQQQ", (1, 0, 0, 0, 1, ABOVE, ABOVE), False),
    (FrameType.ACKNOWLEDGE, "<IIIIQQQQQ", (1, 0, 0, 0, 1, 1, 1, 3, 2), False),
    (FrameType.ACKNOWLEDGE, "<IIIIQ", (1, 0, 0, 0, 1), False),
    (FrameType.ACKNOWLEDGED, "<Q", (0,), True),
    (FrameType.ACKNOWLEDGED, "<Q", (NUMBER_MAX,), True),
    (FrameType.ACKNOWLEDGED, "<Q", (ABOVE,), False),
    (FrameType.CREDIT, "<II", (0, 0), True),
    (FrameType.CREDIT, "<II", (U32_MAX, U32_MAX), True),
    (FrameType.DELIVER, "<IIIIQ", (U32_MAX, U32_MAX, U32_MAX, 0, NUMBER_MAX), True),
    (FrameType.DELIVER, "<IIIIQ", (0, 0, 0, 0, 0), True),
    (FrameType.DELIVER, "<IIIIQ", (1, 0, 0, 1, 1), False),
    (FrameType.DELIVER, "<IIIIQ", (1, 0, 0, 0, ABOVE), False),
    (FrameType.PING, "<Q", ((1 << 64) - 1,), True),
    (FrameType.PONG, "<Q", ((1 << 64) - 1,), True),
    (FrameType.BROWSED, "<IIQ", (1, 1, 0), True),
    (FrameType.BROWSED, "<IIQx", (U32_MAX, 0, NUMBER_MAX), True),
    (FrameType.BROWSED, "<IIQ", (1, 0, 1), False),
    (FrameType.BROWSED, "<IIQx", (0, 0, 1), False),
    (FrameType.BROWSED, "<IIQx", (1, 2, 1), False),
    (FrameType.BROWSED, "<IIQx", (1, 0, ABOVE), False),
    (FrameType.FLOW, "<II", (0, 0), True),
    (FrameType.FLOW, "<II", (U32_MAX, 1), True),
    (FrameType.FLOW, "<II", (1, 2), False),
]


@pytest.mark.parametrize(("frame_type", "shape", "values", "taken"), PACKED, ids=lambda part: str(part))
def test_a_field_of_a_binary_frame_keeps_its_limits(
    frame_type: FrameType, shape: str, values: tuple[int, ...], taken: bool
) -> None:
    assert is_taken(frame_type, struct.pack(shape, *values)) is taken


def test_too_many_ranges_are_malformed() -> None:
    head = struct.pack("<IIIIQ", 1, 0, 0, 0, 1)

    assert is_taken(FrameType.ACKNOWLEDGE, head + bytes(16 * ACKNOWLEDGE_RANGES_MAX))
    assert not is_taken(FrameType.ACKNOWLEDGE, head + bytes(16 * (ACKNOWLEDGE_RANGES_MAX + 1)))


def test_a_batch_that_could_not_be_delivered_is_not_taken() -> None:
    head = struct.pack("<IIQ", 1, 0, 1)
    error = fault_of(raw(FrameType.SEND, head + bytes(SEND_BATCH_BYTES_MAX + 1)))

    assert is_taken(FrameType.SEND, head + bytes(SEND_BATCH_BYTES_MAX))
    assert error.reason_code == "limit.frame"
