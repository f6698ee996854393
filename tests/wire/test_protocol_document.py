"""docs/protocol.md says what the code does."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import msgspec
from msgspec.structs import FieldInfo, fields

from holdfast import wire
from holdfast.message import Batch, Message, encode
from holdfast.wire import (
    CLIENT_FRAMES,
    SERVER_FRAMES,
    Confirm,
    ControlFrame,
    Frame,
    FrameDecoder,
    FrameType,
    Hello,
    OpenSession,
    Send,
    encode_frame,
    layout,
)
from tests.wire.frame_cases import EVERY_FRAME

DOCUMENT = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")

EXAMPLE: list[tuple[int, Frame]] = [
    (0, Hello(version=1, client="example-client")),
    (1, OpenSession(request=1)),
    (1, Send(5, 0, 1, encode([Message(body=b"hot!")]))),
    (1, Confirm(5, 1)),
]
FIXED_TYPES = {"u32": "I", "u64": "Q"}


def section(title: str) -> str:
    """What stands under a heading, up to the next one."""
    return re.split(r"^#+ ", DOCUMENT.split(f"# {title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def rows(title: str) -> list[list[str]]:
    """The table of a section, without its head; an empty first cell stands for the one above it."""
    table = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section(title).splitlines()
        if line.startswith("|")
    ][2:]
    for above, row in pairwise(table):
        row[0] = row[0] or above[0]
    return table


def dumped_bytes() -> bytes:
    """The bytes of the dump, each line of which must stand at the place it names."""
    dumped = bytearray()
    for place, data in re.findall(r"^([0-9a-f]{4})  ((?:[0-9a-f]{2} ?)+)", DOCUMENT, re.MULTILINE):
        assert int(place, 16) == len(dumped)
        dumped += bytes.fromhex(data)
    return bytes(dumped)


def test_the_example_is_what_is_written() -> None:
    assert b"".join(encode_frame(*case) for case in EXAMPLE) == dumped_bytes()


def test_the_example_is_what_is_read() -> None:
    frames = FrameDecoder().feed(dumped_bytes())

    assert frames == EXAMPLE
    assert isinstance(frames[2][1], Send)
    assert Batch.parse(frames[2][1].batch).validate().message(0).body == b"hot!"


def test_the_types_are_those_of_the_code() -> None:
    names = {frame.frame_type: type(frame).__name__ for frame in EVERY_FRAME}

    def row(frame_type: FrameType) -> list[str]:
        senders = [
            letter for letter, sent in (("C", CLIENT_FRAMES), ("S", SERVER_FRAMES)) if frame_type in sent
        ]
        where = {frame_type in layout.CONNECTION_FRAMES: "0", frame_type in layout.SESSION_FRAMES: "session"}
        kind = "control" if issubclass(getattr(wire, names[frame_type]), ControlFrame) else "binary"
        return [str(int(frame_type)), names[frame_type], ", ".join(senders), where.get(True, "either"), kind]

    assert rows("Types") == [row(frame_type) for frame_type in FrameType]


def test_the_fields_of_control_frames_are_those_of_the_code() -> None:
    documented = [
        (name, field.strip("`"), default.strip("`")) for name, field, _, default, _ in rows("Control frames")
    ]

    assert documented == [
        (type(frame).__name__, field.name, default_of(field))
        for frame in EVERY_FRAME
        if isinstance(frame, ControlFrame)
        for field in fields(frame)
    ]


def default_of(field: FieldInfo) -> str:
    if field.required:
        return ""
    if field.default is msgspec.NODEFAULT:
        return "empty"
    if field.name == "kind":
        return '""'
    return "empty" if field.default == "" else str(field.default).lower()


def test_the_fields_of_binary_frames_are_those_of_the_code() -> None:
    shapes: dict[str, str] = {}
    for name, offset, kind, _ in rows("Binary frames"):
        if kind in FIXED_TYPES:
            assert int(offset) == sum(4 if code == "I" else 8 for code in shapes.get(name, ""))
            shapes[name] = shapes.get(name, "") + FIXED_TYPES[kind]

    def shape_of(name: str) -> str:
        constant = "PING" if name == "Pong" else name.upper()
        shape: str = getattr(layout, constant).format
        return shape.lstrip("<").upper()

    assert shapes == {name: shape_of(name) for name in shapes}
    assert set(shapes) == {
        type(frame).__name__ for frame in EVERY_FRAME if not isinstance(frame, ControlFrame)
    }


def test_the_limits_are_those_of_the_code() -> None:
    limits = {name.strip("`"): int(value) for name, value, _ in rows("Limits")}

    assert len(limits) == 7
    assert limits == {name: getattr(wire, name) for name in limits}


def test_the_text_names_the_numbers_of_the_code() -> None:
    assert f"port {wire.PORT}" in DOCUMENT
    assert f"version {wire.PROTOCOL_VERSION}" in DOCUMENT.splitlines()[0]
    assert f"at most {wire.TEXT_CHARACTERS_MAX:,} characters" in DOCUMENT
    assert f"{wire.FRAME_BYTES_MIN}..{wire.FRAME_BYTES_MAX}" in DOCUMENT


def test_the_reasons_of_the_decoder_are_listed() -> None:
    listed = {code.strip("`") for code, _ in rows("Errors")}

    assert {"protocol.malformed", "protocol.unexpected", "limit.frame"} <= listed
