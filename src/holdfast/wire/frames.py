"""The frames of the native protocol as frozen values.

A control frame is a msgpack map on the wire, and the types of its fields are what the decoder checks. A binary
frame has fixed fields, here in the order of their bytes (`layout` has the table); its batch is a buffer that is
borrowed, never copied. Nothing is checked when a frame is made: the peer's decoder finds what is out of range.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from msgspec import Meta, Struct

from holdfast.wire.layout import (
    FRAME_BYTES_MAX,
    FRAME_BYTES_MIN,
    NUMBER_MAX,
    TEXT_CHARACTERS_MAX,
    U32_MAX,
    FrameType,
    Outcome,
)

Buffer: TypeAlias = bytes | bytearray | memoryview
Text: TypeAlias = Annotated[str, Meta(max_length=TEXT_CHARACTERS_MAX)]
Version: TypeAlias = Annotated[int, Meta(ge=1, le=0xFFFF)]
Request: TypeAlias = Annotated[int, Meta(ge=1, le=U32_MAX)]
RequestOrNone: TypeAlias = Annotated[int, Meta(ge=0, le=U32_MAX)]
TransactionNumber: TypeAlias = Annotated[int, Meta(ge=1, le=U32_MAX)]
U32: TypeAlias = Annotated[int, Meta(ge=0, le=U32_MAX)]
Number: TypeAlias = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
FrameBytes: TypeAlias = Annotated[int, Meta(ge=FRAME_BYTES_MIN, le=FRAME_BYTES_MAX)]


# ---- control frames ----------------------------------------------------------------------------------------
class ControlFrame(Struct, frozen=True, omit_defaults=True):
    """A frame whose payload is one msgpack map."""

    frame_type: ClassVar[FrameType]


class Hello(ControlFrame, frozen=True, kw_only=True):
    """The first frame of a client."""

    frame_type = FrameType.HELLO
    version: Version
    client: Text
    user: Text = ""
    password: Text = ""


class Welcome(ControlFrame, frozen=True, kw_only=True):
    """The answer to Hello, once the node has replayed."""

    frame_type = FrameType.WELCOME
    version: Version
    server: Text
    node: Text
    frame_bytes_max: FrameBytes


class OpenSession(ControlFrame, frozen=True, kw_only=True):
    """Open a session on this channel, or resume the one that is named."""

    frame_type = FrameType.OPEN_SESSION
    request: Request
    session: Text = ""
    lifetime_s: U32 = 3600


class SessionOpened(ControlFrame, frozen=True, kw_only=True):
    """`confirmed` is, for each destination, the last contiguous sequence that is recorded."""

    frame_type = FrameType.SESSION_OPENED
    request: Request
    session: Text
    epoch: Number
    is_resumed: bool
    confirmed: dict[str, Number]


class CloseSession(ControlFrame, frozen=True, kw_only=True):
    """End the session of this channel for good."""

    frame_type = FrameType.CLOSE_SESSION
    request: Request


class Done(ControlFrame, frozen=True, kw_only=True):
    """The answer to a request."""

    frame_type = FrameType.DONE
    request: Request
    result: dict[str, Any] = {}


class Declare(ControlFrame, frozen=True, kw_only=True):
    """Make sure that a destination exists: create it, or, where kind is empty, only look."""

    frame_type = FrameType.DECLARE
    request: Request
    name: Text
    kind: Literal["queue", "topic", ""] = ""


class Subscribe(ControlFrame, frozen=True, kw_only=True):
    """Open a consumer. On a topic the empty subscription is private and non-durable; others are shared by name."""

    frame_type = FrameType.SUBSCRIBE
    request: Request
    consumer: U32
    destination: Text
    subscription: Text = ""
    is_durable: bool = False
    from_start: bool = False
    credit: U32


class Error(ControlFrame, frozen=True, kw_only=True):
    """A request (0: none in particular) failed. Where it is fatal, the session or connection ends with it."""

    frame_type = FrameType.ERROR
    request: RequestOrNone = 0
    code: Text
    message: str
    is_fatal: bool = False


class CloseConsumer(ControlFrame, frozen=True, kw_only=True):
    """Close a consumer; what it has not acknowledged returns."""

    frame_type = FrameType.CLOSE_CONSUMER
    request: Request
    consumer: U32


class Commit(ControlFrame, frozen=True, kw_only=True):
    """Commit a transaction. May be asked again: the outcome is remembered."""

    frame_type = FrameType.COMMIT
    request: Request
    transaction: TransactionNumber


class Rollback(ControlFrame, frozen=True, kw_only=True):
    """End a transaction: what it sent vanishes, what it received returns."""

    frame_type = FrameType.ROLLBACK
    request: Request
    transaction: TransactionNumber


class Browse(ControlFrame, frozen=True, kw_only=True):
    """Look at messages without receiving them; answered by Browsed frames."""

    frame_type = FrameType.BROWSE
    request: Request
    destination: Text
    from_position: Number = 0
    messages_max: U32 = 100


class Ask(ControlFrame, frozen=True, kw_only=True):
    """Ask what the node knows about itself."""

    frame_type = FrameType.ASK
    request: Request
    what: Literal["status", "destinations"]


class Unsubscribe(ControlFrame, frozen=True, kw_only=True):
    """Remove a named subscription, with all that it holds."""

    frame_type = FrameType.UNSUBSCRIBE
    request: Request
    destination: Text
    subscription: Text


# ---- binary frames: fields in the order of their bytes -----------------------------------------------------
class BinaryFrame(Struct, frozen=True, gc=False):
    """A frame of fixed fields. It holds numbers and buffers only, so the garbage collector need not look."""

    frame_type: ClassVar[FrameType]


class Send(BinaryFrame, frozen=True, gc=False):
    """Messages with sequences first_sequence.. of this session and destination; transaction 0 is none."""

    frame_type = FrameType.SEND
    destination: int
    transaction: int
    first_sequence: int
    batch: Buffer


class Confirm(BinaryFrame, frozen=True, gc=False):
    """All up to this sequence of this session and destination is durable."""

    frame_type = FrameType.CONFIRM
    destination: int
    sequence: int


class Acknowledge(BinaryFrame, frozen=True, gc=False):
    """What became of messages, by ranges of positions, both ends included."""

    frame_type = FrameType.ACKNOWLEDGE
    consumer: int
    transaction: int
    outcome: Outcome
    number: int
    ranges: tuple[tuple[int, int], ...]


class Acknowledged(BinaryFrame, frozen=True, gc=False):
    """All acknowledgements of this session up to this number are durable."""

    frame_type = FrameType.ACKNOWLEDGED
    number: int


class Credit(BinaryFrame, frozen=True, gc=False):
    """The server may deliver so many messages more."""

    frame_type = FrameType.CREDIT
    consumer: int
    messages: int


class Deliver(BinaryFrame, frozen=True, gc=False):
    """Messages with positions first_position.. for a consumer."""

    frame_type = FrameType.DELIVER
    consumer: int
    generation: int
    redeliveries: int
    first_position: int
    batch: Buffer


class Ping(BinaryFrame, frozen=True, gc=False):
    """Asks the peer for a Pong with the same token."""

    frame_type = FrameType.PING
    token: int


class Pong(BinaryFrame, frozen=True, gc=False):
    """The answer to a Ping."""

    frame_type = FrameType.PONG
    token: int


class Browsed(BinaryFrame, frozen=True, gc=False):
    """Messages found by a Browse; the batch may be empty in the last one."""

    frame_type = FrameType.BROWSED
    request: int
    is_last: bool
    first_position: int
    batch: Buffer


class Flow(BinaryFrame, frozen=True, gc=False):
    """A destination (0: all) takes no messages for now, or does again."""

    frame_type = FrameType.FLOW
    destination: int
    is_blocked: bool


Frame: TypeAlias = ControlFrame | BinaryFrame
