"""One connection with its sessions, without I/O.

    inputs    connection_made, receive, connection_lost, time_passed; calls on its sessions
    outputs   take_output (bytes to write), take_events

The program's calls only change state; `take_output` puts on the wire whatever is due. A shell therefore calls
it after every input, once for all calls that were made together, and carries out the events.

    DISCONNECTED   sessions keep what they are given
    GREETING       Hello is sent
    READY          Welcome has come: sessions open, or resume
    ENDED          the program has closed it, or it cannot go on

A connection that breaks a rule of the protocol is dropped like one that is lost: the sessions resume on the
next.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from holdfast.client.events import Event, Ready, Unusable
from holdfast.client.limits import ClientLimits
from holdfast.client.requests import Calls
from holdfast.client.session import SessionCore, SessionState
from holdfast.errors import HoldfastError, LimitExceeded, ProtocolError, Refused
from holdfast.wire import (
    CHANNEL_MAX,
    FRAME_BYTES_MAX,
    PROTOCOL_VERSION,
    SERVER_FRAMES,
    Buffer,
    Done,
    Error,
    Flow,
    Frame,
    FrameDecoder,
    Hello,
    Ping,
    Pong,
    Send,
    Welcome,
    encode_frame,
    send_buffers,
)

SEND_OVERHEAD_BYTES = 24
"""The header and the fixed fields of a Send frame."""
PERMANENT_PREFIXES = ("protocol.", "limit.", "user.")
"""What no other attempt would change: it is told to the program instead of being tried again."""


class ConnectionState(Enum):
    DISCONNECTED = auto()
    GREETING = auto()
    READY = auto()
    ENDED = auto()


class ClientCore:
    """The machine of one connection, over all the sockets that it takes."""

    def __init__(self, *, client: str, user: str = "", password: str = "", limits: ClientLimits) -> None:
        self.state = ConnectionState.DISCONNECTED
        self.error: HoldfastError | None = None
        self.frame_bytes_max = FRAME_BYTES_MAX
        self.server = ""
        self.node = ""
        self.limits = limits
        self._hello = Hello(version=PROTOCOL_VERSION, client=client, user=user, password=password)
        self._decoder = FrameDecoder(accepts=SERVER_FRAMES)
        self._sessions: dict[int, SessionCore] = {}
        self._output: list[Buffer] = []
        self._events: list[Event] = []
        self.calls = Calls(limits, send=self._writer(0), emit=self._events.append)
        self._next_ticket = 1
        self._next_channel = 1
        self._heard_s = 0.0
        self._is_ping_sent = False

    @property
    def batch_bytes_max(self) -> int:
        """The largest batch that fits a frame."""
        return self.frame_bytes_max - SEND_OVERHEAD_BYTES

    # ---- calls of the program --------------------------------------------------------------------------

    def new_ticket(self) -> int:
        ticket = self._next_ticket
        self._next_ticket += 1
        return ticket

    def open_session(self, *, is_transacted: bool, lifetime_s: int) -> SessionCore:
        """A new session; it opens as soon as there is a connection."""
        if len(self._sessions) >= min(self.limits.sessions_max, CHANNEL_MAX):
            maximum = self.limits.sessions_max
            raise LimitExceeded("sessions_max", value=maximum + 1, maximum=maximum)
        channel = self._free_channel()
        session = SessionCore(
            channel,
            limits=self.limits,
            lifetime_s=lifetime_s,
            is_transacted=is_transacted,
            write=self._writer(channel),
            emit=self._events.append,
        )
        self._sessions[channel] = session
        if self.state is ConnectionState.READY:
            session.greeted()
        return session

    def _free_channel(self) -> int:
        """The next in turn: one that has ended may still be in use over there."""
        while self._next_channel in self._sessions:
            self._next_channel = self._next_channel % CHANNEL_MAX + 1
        channel, self._next_channel = self._next_channel, self._next_channel % CHANNEL_MAX + 1
        return channel

    def _writer(self, channel: int) -> Callable[[Frame], None]:
        return lambda frame: self._write(channel, frame)

    def end(self, error: HoldfastError | None) -> None:
        """The program closes it, or it cannot go on: whatever is under way fails."""
        if self.state is ConnectionState.ENDED:
            return
        self.state = ConnectionState.ENDED
        self.error = error
        reason = error or Refused("the connection was closed", server_code="connection.closed")
        self.calls.fail_all(reason)
        for session in list(self._sessions.values()):
            session.fail(reason)

    # ---- the socket ------------------------------------------------------------------------------------

    def connection_made(self, now_s: float) -> None:
        self.state = ConnectionState.GREETING
        self._decoder = FrameDecoder(accepts=SERVER_FRAMES)
        self._heard_s = now_s
        self._is_ping_sent = False
        self._output.clear()
        self._write(0, self._hello)

    def connection_lost(self) -> None:
        if self.state in (ConnectionState.ENDED, ConnectionState.DISCONNECTED):
            return
        self.state = ConnectionState.DISCONNECTED
        self._output.clear()
        self.calls.lost()
        for session in self._sessions.values():
            session.lost()

    def receive(self, data: bytes, now_s: float) -> None:
        """Bytes of the server. What breaks the protocol makes the connection unusable."""
        self._heard_s = now_s
        self._is_ping_sent = False
        try:
            for channel, frame in self._decoder.feed(data):
                if channel:
                    self._receive_session(channel, frame)
                else:
                    self._receive_connection(frame)
        except ProtocolError as error:
            self._events.append(Unusable(error, is_permanent=False))

    def _receive_session(self, channel: int, frame: Frame) -> None:
        session = self._sessions.get(channel)
        if session is None:
            return  # it has ended; this was on its way
        session.receive(frame)

    def _receive_connection(self, frame: Frame) -> None:
        match frame:
            case Welcome() if self.state is ConnectionState.GREETING:
                self._welcomed(frame)
            case Ping():
                self._write(0, Pong(frame.token))
            case Pong():
                pass
            case Flow():
                for session in self._sessions.values():
                    session.sending.flow(frame)
            case Done():
                self.calls.done(frame.request, frame.result)
            case Error():
                self._refused(frame)
            case _:
                raise ProtocolError(type(frame).__name__, reason_code="protocol.unexpected")

    def _welcomed(self, frame: Welcome) -> None:
        if frame.version != PROTOCOL_VERSION:
            error = Refused(
                f"the server speaks version {frame.version} of the protocol, and this client {PROTOCOL_VERSION}",
                server_code="protocol.version",
            )
            self._events.append(Unusable(error, is_permanent=True))
            return
        self.state = ConnectionState.READY
        self.frame_bytes_max = frame.frame_bytes_max
        self.server, self.node = frame.server, frame.node
        self._events.append(Ready())
        self.calls.attach()
        for session in list(self._sessions.values()):
            session.greeted()

    def _refused(self, frame: Error) -> None:
        error = Refused(frame.message, server_code=frame.code)
        if frame.request and not frame.is_fatal:
            self.calls.failed(frame.request, error)
        else:
            is_permanent = frame.code.startswith(PERMANENT_PREFIXES)
            self._events.append(Unusable(error, is_permanent=is_permanent))

    def time_passed(self, now_s: float) -> None:
        """Called now and then: is the server still there?"""
        if self.state in (ConnectionState.DISCONNECTED, ConnectionState.ENDED):
            return
        silence_s = now_s - self._heard_s
        if silence_s > self.limits.silence_s_max:
            what = f"the server has been silent for {silence_s:.0f} s"
            self._events.append(Unusable(Refused(what, server_code="connection.silent"), is_permanent=False))
        elif silence_s > self.limits.ping_interval_s and not self._is_ping_sent:
            self._is_ping_sent = True
            self._write(0, Ping(0))

    # ---- outputs ---------------------------------------------------------------------------------------

    def take_output(self) -> list[Buffer]:
        """All that is to be written now, in order."""
        if self.state is ConnectionState.READY:
            for session in list(self._sessions.values()):
                try:
                    session.pump()
                except LimitExceeded as error:  # a batch that this server, unlike the last, has no frame for
                    session.fail(error)
        output, self._output = self._output, []
        return output

    def take_events(self) -> list[Event]:
        events = self._events[:]
        self._events.clear()  # the same list: sessions hold its append
        for channel in [
            channel for channel, each in self._sessions.items() if each.state is SessionState.ENDED
        ]:
            del self._sessions[channel]
        return events

    def _write(self, channel: int, frame: Frame) -> None:
        if isinstance(frame, Send):
            self._output += send_buffers(
                channel,
                destination=frame.destination,
                transaction=frame.transaction,
                first_sequence=frame.first_sequence,
                batch=(frame.batch,),
                frame_bytes_max=self.frame_bytes_max,
            )
        else:
            self._output.append(encode_frame(channel, frame, frame_bytes_max=self.frame_bytes_max))

    def check_invariants(self) -> None:
        for session in self._sessions.values():
            session.check_invariants()
