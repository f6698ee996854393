"""A client of one blocking socket and the frames of the wire: as little as possible between a test and the server."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any, Self, TypeVar

from holdfast.message import Batch
from holdfast.wire import (
    PROTOCOL_VERSION,
    SERVER_FRAMES,
    Acknowledge,
    Confirm,
    Declare,
    Deliver,
    Done,
    Error,
    Frame,
    FrameDecoder,
    Hello,
    OpenSession,
    Outcome,
    SessionOpened,
    Subscribe,
    Welcome,
    encode_frame,
)

WAIT_S = 30.0
READ_BYTES = 256 * 1024
Kind = TypeVar("Kind", bound=Frame)


class ServerSaysNo(Exception):
    """An Error frame, where none was expected."""


class RawClient:
    def __init__(self, port: int, *, greet: bool = True) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self._decoder = FrameDecoder(accepts=SERVER_FRAMES)
        self._frames: list[tuple[int, Frame]] = []
        self._request = 0
        if greet:
            self.say(0, Hello(version=PROTOCOL_VERSION, client="raw"))
            self.welcome = self.wait_for(Welcome)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def say(self, channel: int, *frames: Frame) -> None:
        self.send_bytes(b"".join(encode_frame(channel, frame) for frame in frames))

    def wait_for(self, kind: type[Kind]) -> Kind:
        """The next frame of this kind; others before it are dropped, but an Error is raised."""
        while True:
            while self._frames:
                _, frame = self._frames.pop(0)
                if isinstance(frame, kind):
                    return frame
                if isinstance(frame, Error):
                    raise ServerSaysNo(f"{frame.code}: {frame.message}")
            self._read()

    def _read(self) -> None:
        data = self._socket.recv(READ_BYTES)
        if not data:
            raise ConnectionError("the server has closed the connection")
        self._frames += self._decoder.feed(data)

    def wait_for_end(self) -> None:
        """Until the server closes."""
        try:
            while self._socket.recv(READ_BYTES):
                pass
        except ConnectionResetError:
            pass

    def request(self, channel: int, frame_class: type[Frame], **fields: Any) -> dict[str, Any]:
        self._request += 1
        self.say(channel, frame_class(request=self._request, **fields))
        return self.wait_for(Done).result

    def open(self, session: str = "", *, lifetime_s: int = 3600) -> SessionOpened:
        self._request += 1
        self.say(1, OpenSession(request=self._request, session=session, lifetime_s=lifetime_s))
        return self.wait_for(SessionOpened)

    def declare(self, name: str, kind: str = "queue") -> int:
        number = self.request(1, Declare, name=name, kind=kind)["number"]
        assert isinstance(number, int)
        return number

    def wait_for_confirm(self, sequence: int) -> None:
        while self.wait_for(Confirm).sequence < sequence:
            pass

    def consume(self, destination: str, *, credit: int = 100, **fields: Any) -> None:
        self.request(1, Subscribe, consumer=1, destination=destination, credit=credit, **fields)

    def receive(self, count: int) -> list[tuple[int, bytes]]:
        """Position and body of so many messages."""
        received: list[tuple[int, bytes]] = []
        while len(received) < count:
            frame = self.wait_for(Deliver)
            bodies = [message.body for message in Batch.parse(frame.batch).validate().messages()]
            received += [(frame.first_position + row, body) for row, body in enumerate(bodies)]
        return received

    def accept(self, number: int, first: int, last: int) -> None:
        self.say(1, Acknowledge(1, 0, Outcome.ACCEPTED, number, ((first, last),)))
