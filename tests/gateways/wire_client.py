"""A client made of frames, on a connection without a socket, over a node in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from holdfast.gateways.native import ConnectionLimits, NativeConnection, NodeFacts
from holdfast.journal.storage import Storage
from holdfast.message import Batch, Message, encode
from holdfast.wire import (
    PROTOCOL_VERSION,
    SERVER_FRAMES,
    Acknowledge,
    Commit,
    Declare,
    Deliver,
    Done,
    Error,
    Frame,
    FrameDecoder,
    Hello,
    OpenSession,
    Outcome,
    Send,
    SessionOpened,
    Subscribe,
    encode_frame,
)
from tests.node.harness import Node

Kind = TypeVar("Kind", bound=Frame)
LIMITS = ConnectionLimits(frame_bytes_max=64 * 1024)


class WireClient:
    """Sends frames, and writes down those that come back."""

    def __init__(self, served: ServedNode, limits: ConnectionLimits) -> None:
        self._served = served
        self._decoder = FrameDecoder(accepts=SERVER_FRAMES)
        self.frames: list[tuple[int, Frame]] = []
        self.output_calls = 0
        facts = NodeFacts(name="here", server="test", status=lambda: {"node": "here"})
        self.connection = NativeConnection(
            served.node.manager, facts, limits=limits, has_output=self._has_output
        )
        self._request = 0

    def _has_output(self, connection: NativeConnection) -> None:
        self.output_calls += 1

    # -- sending -----------------------------------------------------------------------------------------

    def give(self, *frames: tuple[int, Frame]) -> None:
        """Frames in one piece, and nothing more happens."""
        self.connection.receive(b"".join(encode_frame(channel, frame) for channel, frame in frames))

    def say(self, *frames: tuple[int, Frame]) -> None:
        """Frames in one piece, and all that follows from them."""
        self.give(*frames)
        self._served.turn()

    def request(self, channel: int, frame_class: type[Frame], **fields: Any) -> int:
        self._request += 1
        self.say((channel, frame_class(request=self._request, **fields)))
        return self._request

    def read(self) -> None:
        """Take what is there to be read."""
        for buffer in self.connection.take_output():
            self.frames += self._decoder.feed(bytes(buffer))

    # -- conversations -----------------------------------------------------------------------------------

    def greet(self) -> None:
        self.say((0, Hello(version=PROTOCOL_VERSION, client="test")))

    def open(self, channel: int = 1, session: str = "", lifetime_s: int = 60) -> SessionOpened:
        self.request(channel, OpenSession, session=session, lifetime_s=lifetime_s)
        return self.last(SessionOpened)

    def declare(self, name: str, kind: str = "queue", channel: int = 0) -> int:
        request = self.request(channel, Declare, name=name, kind=kind)
        number = self.result(request)["number"]
        assert isinstance(number, int)
        return number

    def consume(self, destination: str, *, channel: int = 1, credit: int = 100, **fields: Any) -> int:
        fields = {"consumer": 1} | fields
        return self.request(channel, Subscribe, destination=destination, credit=credit, **fields)

    def commit(self, transaction: int) -> str:
        request = self.request(1, Commit, transaction=transaction)
        outcome = self.result(request)["outcome"]
        assert isinstance(outcome, str)
        return outcome

    # -- what came ---------------------------------------------------------------------------------------

    def all(self, kind: type[Kind], channel: int | None = None) -> list[Kind]:
        return [f for number, f in self.frames if isinstance(f, kind) and channel in (None, number)]

    def last(self, kind: type[Kind]) -> Kind:
        return self.all(kind)[-1]

    def result(self, request: int) -> dict[str, Any]:
        (done,) = [frame for frame in self.all(Done) if frame.request == request]
        return done.result

    def error_codes(self) -> list[str]:
        return [error.code for error in self.all(Error)]

    def positions(self) -> list[int]:
        return [
            frame.first_position + row
            for frame in self.all(Deliver)
            for row in range(len(Batch.parse(frame.batch)))
        ]

    def bodies(self, channel: int | None = None) -> list[bytes]:
        delivered = self.all(Deliver, channel)
        return [m.body for frame in delivered for m in Batch.parse(frame.batch).validate().messages()]


class ServedNode:
    """A node and the clients on it: the turns of a server, by hand."""

    def __init__(self, storage: Storage | None = None) -> None:
        self.node = Node(storage) if storage is not None else Node()
        self.clients: list[WireClient] = []
        self.unread: set[int] = set()

    def connect(self, limits: ConnectionLimits = LIMITS, *, greet: bool = True) -> WireClient:
        client = WireClient(self, limits)
        self.clients.append(client)
        if greet:
            client.greet()
        return client

    def session(self, limits: ConnectionLimits = LIMITS) -> WireClient:
        client = self.connect(limits)
        client.open()
        return client

    def turn(self) -> None:
        """Until nothing changes any more; clients that do not read are left alone."""
        for _ in range(20):
            self.node.turn()
            for client in self.clients:
                client.connection.resume()
                if id(client) not in self.unread:
                    client.read()


def batch_of(*bodies: bytes) -> bytes:
    return encode([Message(body=body) for body in bodies])


def send(destination: int, first_sequence: int, *bodies: bytes, transaction: int = 0) -> Send:
    return Send(destination, transaction, first_sequence, batch_of(*bodies))


def accept(number: int, ranges: Sequence[tuple[int, int]], *, transaction: int = 0) -> Acknowledge:
    return Acknowledge(1, transaction, Outcome.ACCEPTED, number, tuple(ranges))
