"""A client's socket, and the connection behind it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from holdfast.gateways.native import NativeConnection

if TYPE_CHECKING:
    from holdfast.server.server import Server

# What a transport may hold unwritten before it says so; with the connection's own output, the memory of one client.
WRITE_BYTES_HIGH = 1024 * 1024
WRITE_BYTES_LOW = 256 * 1024


class ClientProtocol(asyncio.Protocol):
    """Bytes in and out; everything else is the server's."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._is_reading = True
        self.connection: NativeConnection = server.new_connection(self)
        self.transport: asyncio.Transport
        # When it came, or when it was told to go: for the deadlines of both.
        self.since_s = 0.0
        self.is_told_to_go = False

    # -- called by the loop ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # those of uvloop are not derived from it
        self.transport.set_write_buffer_limits(high=WRITE_BYTES_HIGH, low=WRITE_BYTES_LOW)
        self._server.joined(self)

    def data_received(self, data: bytes) -> None:
        self._server.received(self, data)

    def pause_writing(self) -> None:
        self.connection.congested()
        self.look_at_reading()

    def resume_writing(self) -> None:
        self.connection.drained()
        self._server.waits(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._server.left(self)

    # -- called by the server ----------------------------------------------------------------------------

    def look_at_reading(self) -> None:
        """Read, or stop reading, as the connection wishes."""
        wants_reading = not self.connection.is_paused
        if wants_reading is not self._is_reading and not self.transport.is_closing():
            self._is_reading = wants_reading
            if wants_reading:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def write_output(self) -> None:
        """One call for all that a turn of the loop has gathered."""
        buffers = self.connection.take_output()
        if buffers and not self.transport.is_closing():
            self.transport.writelines(buffers)
        if self.connection.is_closing:
            self.transport.close()
