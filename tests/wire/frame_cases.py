"""Frames to test with: one of each type, strategies for all of them, and the decoder's answer to bytes."""

from __future__ import annotations

from hypothesis import strategies as st

from holdfast.errors import ProtocolError
from holdfast.wire import (
    FRAME_BYTES_MAX,
    FRAME_BYTES_MIN,
    NUMBER_MAX,
    Acknowledge,
    Acknowledged,
    Ask,
    Browse,
    Browsed,
    CloseConsumer,
    CloseSession,
    Commit,
    Confirm,
    Credit,
    Declare,
    Deliver,
    Done,
    Error,
    Flow,
    Frame,
    FrameDecoder,
    Hello,
    OpenSession,
    Outcome,
    Ping,
    Pong,
    Rollback,
    Send,
    SessionOpened,
    Subscribe,
    Unsubscribe,
    Welcome,
)
from holdfast.wire.layout import CONNECTION_FRAMES, HEADER, FrameType

EVERY_FRAME: list[Frame] = [
    Hello(version=1, client="test 1.0", user="ada", password="secret"),
    Welcome(version=1, server="holdfast", node="a", frame_bytes_max=FRAME_BYTES_MAX),
    OpenSession(request=1, session="s-1", lifetime_s=60),
    SessionOpened(request=1, session="s-1", epoch=2, is_resumed=True, confirmed={"orders": 7, "prices": 0}),
    CloseSession(request=2),
    Done(request=3, result={"number": 4, "kind": "queue", "list": [1, 2.5, None, {"deep": b"x"}]}),
    Declare(request=4, name="orders", kind="queue"),
    Subscribe(
        request=5,
        consumer=1,
        destination="prices",
        subscription="all",
        is_durable=True,
        from_start=True,
        credit=100,
    ),
    Error(request=6, code="session.gap", message="resend from 3", is_fatal=True),
    CloseConsumer(request=7, consumer=1),
    Commit(request=8, transaction=1),
    Rollback(request=9, transaction=2),
    Browse(request=10, destination="orders", from_position=5, messages_max=10),
    Ask(request=11, what="status"),
    Unsubscribe(request=12, destination="prices", subscription="all"),
    Send(5, 1, 7, b"a batch"),
    Confirm(5, 7),
    Acknowledge(1, 2, Outcome.RETURNED, 3, ((1, 4), (6, 6))),
    Acknowledged(3),
    Credit(1, 50),
    Deliver(1, 2, 3, 4, b"a batch"),
    Ping(1 << 63),
    Pong(1 << 63),
    Browsed(10, True, 5, b""),
    Flow(5, True),
]


def channel_of(frame: Frame) -> int:
    """Some channel on which the frame may stand."""
    return 0 if frame.frame_type in CONNECTION_FRAMES else 3


def raw(frame_type: int, payload: bytes, *, channel: int | None = None, flags: int = 0) -> bytes:
    """A frame of these bytes, sound or not."""
    if channel is None:
        channel = 0 if frame_type in CONNECTION_FRAMES else 3
    return HEADER.pack(4 + len(payload), frame_type | flags << 8, channel) + payload


def fault_of(data: bytes, decoder: FrameDecoder | None = None) -> ProtocolError:
    """The error that the decoder raises for these bytes."""
    try:
        frames = (decoder or FrameDecoder()).feed(data)
    except ProtocolError as error:
        return error
    raise AssertionError(f"no error, but {frames}")


# ---- strategies --------------------------------------------------------------------------------------------
texts = st.text(max_size=20)
u32 = st.integers(0, 0xFFFF_FFFF)
u64 = st.integers(0, (1 << 64) - 1)
positive_u32 = st.integers(1, 0xFFFF_FFFF)
numbers = st.integers(0, NUMBER_MAX)
positive_numbers = st.integers(1, NUMBER_MAX)
batches = st.binary(max_size=50)
ranges = st.lists(
    st.tuples(numbers, numbers).map(lambda pair: (min(pair), max(pair))), min_size=1, max_size=4
)
plain_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | texts | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)

frames: st.SearchStrategy[Frame] = st.one_of(
    st.builds(Hello, version=st.integers(1, 0xFFFF), client=texts, user=texts, password=texts),
    st.builds(
        Welcome,
        version=st.integers(1, 0xFFFF),
        server=texts,
        node=texts,
        frame_bytes_max=st.integers(FRAME_BYTES_MIN, FRAME_BYTES_MAX),
    ),
    st.builds(OpenSession, request=positive_u32, session=texts, lifetime_s=u32),
    st.builds(
        SessionOpened,
        request=positive_u32,
        session=texts,
        epoch=numbers,
        is_resumed=st.booleans(),
        confirmed=st.dictionaries(texts, numbers, max_size=4),
    ),
    st.builds(CloseSession, request=positive_u32),
    st.builds(Done, request=positive_u32, result=st.dictionaries(texts, plain_values, max_size=4)),
    st.builds(Declare, request=positive_u32, name=texts, kind=st.sampled_from(("queue", "topic", ""))),
    st.builds(
        Subscribe,
        request=positive_u32,
        consumer=u32,
        destination=texts,
        subscription=texts,
        is_durable=st.booleans(),
        from_start=st.booleans(),
        credit=u32,
    ),
    st.builds(Error, request=u32, code=texts, message=texts, is_fatal=st.booleans()),
    st.builds(CloseConsumer, request=positive_u32, consumer=u32),
    st.builds(Commit, request=positive_u32, transaction=positive_u32),
    st.builds(Rollback, request=positive_u32, transaction=positive_u32),
    st.builds(Browse, request=positive_u32, destination=texts, from_position=numbers, messages_max=u32),
    st.builds(Ask, request=positive_u32, what=st.sampled_from(("status", "destinations"))),
    st.builds(Unsubscribe, request=positive_u32, destination=texts, subscription=texts),
    st.builds(Send, u32, u32, positive_numbers, batches),
    st.builds(Confirm, u32, numbers),
    st.builds(Acknowledge, u32, u32, st.sampled_from(Outcome), positive_numbers, ranges.map(tuple)),
    st.builds(Acknowledged, numbers),
    st.builds(Credit, u32, u32),
    st.builds(Deliver, u32, u32, u32, numbers, batches),
    st.builds(Ping, u64),
    st.builds(Pong, u64),
    st.builds(Browsed, positive_u32, st.just(True), numbers, batches),
    st.builds(Browsed, positive_u32, st.just(False), numbers, st.binary(min_size=1, max_size=50)),
    st.builds(Flow, u32, st.booleans()),
)


@st.composite
def framed(draw: st.DrawFn) -> tuple[int, Frame]:
    """A frame and a channel where it may stand."""
    frame = draw(frames)
    if frame.frame_type in CONNECTION_FRAMES:
        return 0, frame
    return draw(st.integers(1, 0xFFFF)), frame


assert {frame.frame_type for frame in EVERY_FRAME} == set(FrameType)
