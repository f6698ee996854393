"""What a program gets: received messages and receipts, as values. The shells add what one can do with them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from holdfast.client.incoming import Waiting
from holdfast.errors import UsageError
from holdfast.message import Message, MessageId, PropertyValue, Severity


class Receipt(Struct, frozen=True):
    """A send that is durable. `sequence` counts what the session has sent to the destination, up to its last message.

    In a transaction nothing is durable before the commit, and the sequence is 0.
    """

    destination: str
    sequence: int


class Received:
    """A message, where it stood in its destination, and how often it has come back before."""

    __slots__ = ("destination", "message", "position", "redeliveries")

    def __init__(self, destination: str, waiting: Waiting) -> None:
        self.destination = destination
        self.position, self.redeliveries, self.message = waiting

    @property
    def body(self) -> bytes:
        return self.message.body

    @property
    def properties(self) -> dict[str, PropertyValue]:
        return self.message.properties

    @property
    def id(self) -> MessageId | None:
        return self.message.id

    @property
    def time_us(self) -> int:
        return self.message.time_us

    @property
    def source(self) -> str:
        return self.message.source

    @property
    def type(self) -> str:
        return self.message.type

    @property
    def severity(self) -> Severity:
        return self.message.severity

    @property
    def correlation_id(self) -> str:
        return self.message.correlation_id

    @property
    def reply_to(self) -> str:
        return self.message.reply_to

    @property
    def group(self) -> str:
        return self.message.group

    @property
    def content_type(self) -> str:
        return self.message.content_type

    @property
    def priority(self) -> int:
        return self.message.priority

    @property
    def expiration_us(self) -> int:
        return self.message.expiration_us

    @property
    def deliver_at_us(self) -> int:
        return self.message.deliver_at_us

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.destination}:{self.position} id={self.id}>"


class BrowsedMessage(Received):
    """A message that was only looked at: it stays where it is."""

    __slots__ = ()


def as_message(body: bytes | bytearray | memoryview | Message, fields: dict[str, Any]) -> Message:
    """What `send` was given, as a message: either one, or a body and fields of one."""
    if isinstance(body, Message):
        if fields:
            raise UsageError(f"send: {', '.join(fields)} given next to a Message; put them into it")
        return body
    if not isinstance(body, bytes | bytearray | memoryview):
        raise UsageError(f"send: a body is bytes, not {type(body).__name__}; encode it first")
    try:
        return Message(body=bytes(body), **fields)
    except TypeError:
        known = set(Message.__struct_fields__) - {"body", "id"}
        unknown = sorted(fields.keys() - known)
        raise UsageError(f"send: a message has no {', '.join(unknown)}") from None
