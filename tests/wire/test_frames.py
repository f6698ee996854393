"""Frames as values, and what the tables of the layout say of them."""

from __future__ import annotations

import msgspec
import pytest

from holdfast import wire
from holdfast.wire import Done, Frame, OpenSession, frames
from holdfast.wire.layout import (
    BOTH_WAYS,
    CLIENT_FRAMES,
    CONNECTION_FRAMES,
    SERVER_FRAMES,
    SESSION_FRAMES,
    FrameType,
)
from tests.wire.frame_cases import EVERY_FRAME


def test_every_type_has_one_frame_of_its_name() -> None:
    bases = (frames.ControlFrame, frames.BinaryFrame)
    classes = [
        found
        for found in vars(frames).values()
        if isinstance(found, type) and issubclass(found, bases) and found not in bases
    ]

    assert sorted(frame.frame_type for frame in classes) == sorted(FrameType)
    for frame in classes:
        assert frame.__name__.lower() == frame.frame_type.name.lower().replace("_", "")


@pytest.mark.parametrize("frame", EVERY_FRAME, ids=lambda frame: type(frame).__name__)
def test_a_frame_does_not_change(frame: Frame) -> None:
    with pytest.raises(AttributeError):
        setattr(frame, frame.__struct_fields__[0], 1)


def test_every_type_has_a_sender() -> None:
    assert set(FrameType) == CLIENT_FRAMES | SERVER_FRAMES
    assert CLIENT_FRAMES & SERVER_FRAMES == BOTH_WAYS


def test_no_frame_belongs_to_the_connection_and_to_a_session() -> None:
    assert not CONNECTION_FRAMES & SESSION_FRAMES


def test_defaults_take_no_room() -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(OpenSession(request=1))) == {"request": 1}


def test_results_are_not_shared() -> None:
    Done(request=1).result["mine"] = 1

    assert Done(request=2).result == {}


def test_the_room_offers_what_it_names() -> None:
    assert [name for name in wire.__all__ if not hasattr(wire, name)] == []
    assert {frame.__name__ for frame in map(type, EVERY_FRAME)} <= set(wire.__all__)
