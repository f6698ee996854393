"""The fake server behind a real socket on the loopback interface, in the test's own event loop or in a
thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from tests.client.fake_server import FakeConnection, FakeServer

T = TypeVar("T")


class _Socket(asyncio.Protocol):
    def __init__(self, loopback: Loopback) -> None:
        self._loopback = loopback
        self._connection = FakeConnection(loopback.server)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._loopback.sockets.append(self)

    def data_received(self, data: bytes) -> None:
        for channel, frame in self._connection.decode(data):
            self._connection.handle(channel, frame)
            if self._loopback.cut_when is not None and self._loopback.cut_when(frame):
                self._loopback.cut_when = None
                self.cut()
                return
        self._loopback.write_all()

    def write(self) -> None:
        data = self._connection.take_bytes()
        if data and self._transport is not None:
            self._transport.write(data)

    def release(self) -> None:
        self._connection.release_confirms()
        self.write()

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self in self._loopback.sockets:
            self._loopback.sockets.remove(self)
        self._connection.lost()


class Loopback:
    """`async with Loopback() as loopback`: then `loopback.url`."""

    def __init__(self, server: FakeServer | None = None) -> None:
        self.server = server or FakeServer()
        self.sockets: list[_Socket] = []
        self.port = 0
        self.cut_when: Callable[[Any], bool] | None = None
        self._listening: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"holdfast://127.0.0.1:{self.port}/"

    async def listen(self) -> None:
        """Take connections: at first, and again after `go_down`, on the same port."""
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(lambda: _Socket(self), "127.0.0.1", self.port)
        self.port = self._listening.sockets[0].getsockname()[1]

    def write_all(self) -> None:
        for socket in self.sockets:
            socket.write()

    def put(self, name: str, *bodies: bytes) -> None:
        self.server.put(name, *bodies)
        self.write_all()

    def release(self) -> None:
        """Send the confirmations that were held."""
        for socket in self.sockets:
            socket.release()

    def cut(self) -> None:
        for socket in list(self.sockets):
            socket.cut()

    def go_down(self) -> None:
        assert self._listening is not None
        self._listening.close()
        self.cut()

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.go_down()


class ThreadedLoopback:
    """`with ThreadedLoopback() as loopback`: for blocking clients. `call` does something over there."""

    def __init__(self) -> None:
        self.loopback = Loopback()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def url(self) -> str:
        return self.loopback.url

    @property
    def server(self) -> FakeServer:
        return self.loopback.server

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        async def call() -> T:
            return function(*arguments)

        return self.run(call())

    def __enter__(self) -> Self:
        self._thread.start()
        self.run(self.loopback.listen())
        return self

    def __exit__(self, *_: object) -> None:
        self.call(self.loopback.go_down)
        self.run(asyncio.sleep(0))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
