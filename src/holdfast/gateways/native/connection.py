"""One native connection, without its socket: bytes in, buffers out, a `MessageManager` in between.

Frames are handled in the order in which they come, with two exceptions, each with its own place to wait:
- *kept*: the journal was full. A frame that needs room waits, and all behind it that could depend on it; but plain
  acknowledgements and credit pass, because they are what makes room (E4). The client is told by Flow.
- *backlog*: the client does not read its answers, or has very many requests under way. Nothing passes.

The shell: after `receive`, let the manager go on (`advance`), then write what `take_output` gives, and call `resume`
whenever there may be room again. It reads nothing more while `is_paused`, and closes when `is_closing` and all is
written. Whatever a client does, others are not disturbed: the only errors that leave `receive` are the journal's own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

import msgspec

from holdfast.errors import JournalFull, LimitExceeded, ProtocolError, Refused, refusal
from holdfast.gateways.native.limits import HELLO_FRAME_BYTES_MAX, KEPT_FRAME_BYTES, ConnectionLimits
from holdfast.gateways.native.node_requests import HANDLERS as NODE_REQUESTS
from holdfast.gateways.native.node_requests import NodeRequests, Status
from holdfast.gateways.native.output import Output
from holdfast.gateways.native.session_channel import ChannelState, SessionChannel
from holdfast.node.manager import MessageManager
from holdfast.wire import (
    CLIENT_FRAMES,
    PROTOCOL_VERSION,
    Acknowledge,
    Buffer,
    CloseSession,
    Credit,
    Error,
    Frame,
    FrameDecoder,
    Hello,
    OpenSession,
    Ping,
    Pong,
    Send,
    Welcome,
)


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a connection tells of its node."""

    name: str
    server: str
    status: Status


class NativeConnection:
    """`has_output` is called with it when there is something to take."""

    def __init__(
        self,
        manager: MessageManager,
        facts: NodeFacts,
        *,
        limits: ConnectionLimits,
        has_output: Callable[[NativeConnection], None],
    ) -> None:
        self._manager = manager
        self._facts = facts
        self._limits = limits
        self._decoder = FrameDecoder(
            min(HELLO_FRAME_BYTES_MAX, limits.frame_bytes_max), accepts=CLIENT_FRAMES
        )
        self._output = Output(bytes_max=limits.output_bytes_max, has_output=lambda: has_output(self))
        self._requests = NodeRequests(manager, self._output, limits, facts.status)
        self._channels: dict[int, SessionChannel] = {}
        self._kept: deque[tuple[int, Frame]] = deque()
        self._kept_bytes = 0
        self._backlog: list[tuple[int, Frame]] = []
        self.is_greeted = False
        self.is_closing = False
        # Why frames are kept: the account of the journal that has run out; empty if none are.
        self.blocked_reason = ""

    # -- for the shell -----------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """Whether the shell should read nothing more for now."""
        return (
            bool(self._backlog)
            or self._kept_bytes >= self._limits.kept_bytes_max
            or self._output.is_full
            or self.is_closing
        )

    @property
    def is_blocked(self) -> bool:
        """Whether frames wait for room in the journal."""
        return bool(self._kept)

    @property
    def session_count(self) -> int:
        return len(self._channels)

    def receive(self, data: Buffer) -> None:
        """Bytes from the client; they must not change afterwards. Raises `JournalFailed` only."""
        if self.is_closing:
            return
        try:
            frames = self._decoder.feed(data)
        except ProtocolError as fault:
            self.fail(fault.reason_code, str(fault))
            return
        if self._backlog:
            self._backlog.extend(frames)
        else:
            self._process(frames)

    def take_output(self) -> list[Buffer]:
        """What is to be written now. Deliveries that waited for it are due again."""
        for channel in self._channels.values():
            channel.tell_flow()
        buffers = self._output.take()
        self._let_deliver()
        return buffers

    def congested(self) -> None:
        """The client does not read: what was taken waits in the shell. No more until `drained`."""
        self._output.is_congested = True
        self._let_deliver()

    def drained(self) -> None:
        self._output.is_congested = False
        self._let_deliver()

    def resume(self, *, has_room: bool = True) -> None:
        """Go on with what waits, in the journal's line only if that `has_room`. Raises `JournalFailed`."""
        if self.is_closing:
            return
        if has_room:
            self._retry_kept()
        if self._backlog and not self._is_overloaded():
            backlog, self._backlog = self._backlog, []
            self._process(backlog)
        self._requests.go_on()

    def fail(self, code: str, message: str) -> None:
        """End the connection: the client is told why, and nothing more is taken from it."""
        if not self.is_closing:
            self._output.put(0, Error(code=code, message=message, is_fatal=True))
            self.lost()

    def lost(self) -> None:
        """The connection is gone, or as good as gone. Its sessions wait for their client."""
        if not self.is_closing:
            self._close()
            for channel in self._channels.values():
                channel.lost()
            self._channels.clear()

    def stop(self, message: str) -> None:
        """The node stops: the client is told, and its sessions are left as they are, for the next start."""
        if not self.is_closing:
            self._output.put(0, Error(code="node.stopping", message=message, is_fatal=True))
            self._close()

    def _close(self) -> None:
        self.is_closing = True
        self._kept.clear()
        self._backlog.clear()
        self._output.close()
        self._requests.cancel()

    # -- frames ------------------------------------------------------------------------------------------

    def _is_overloaded(self) -> bool:
        return self._output.is_full or self._output.awaited >= self._limits.requests_max

    def _process(self, frames: Sequence[tuple[int, Frame]]) -> None:
        index, end = 0, len(frames)
        while index < end and not self.is_closing:
            if self._is_overloaded():
                self._backlog.extend(frames[index:])
                return
            number, frame = frames[index]
            taken = 0
            if not self._kept or self._may_pass(number, frame):
                taken = self._handle(number, frame, islice(frames, index + 1, end))
            if not taken:
                self._keep(number, frame)
                taken = 1
            index += taken

    def _handle(self, number: int, frame: Frame, following: Iterable[tuple[int, Frame]]) -> int:
        """How many frames were taken: more than one where sends follow each other.

        0 if there is no room for it: nothing has changed, and it must come again.
        """
        try:
            channel = self._channels.get(number)
            if type(frame) is Send and channel is not None and channel.state is ChannelState.OPEN:
                return channel.send(frame, following)
            self._dispatch(number, channel, frame)
        except JournalFull as full:
            self.blocked_reason = full.reason
            return 0
        except Refused as refused:
            self._refuse(number, frame, refused.server_code, str(refused))
        except LimitExceeded as limit:
            self._refuse(number, frame, f"limit.{limit.limit.lower()}", str(limit))
        except ProtocolError as fault:
            self.fail(fault.reason_code, str(fault))
        return 1

    def _refuse(self, number: int, frame: Frame, code: str, message: str) -> None:
        request = getattr(frame, "request", 0)
        is_fatal = isinstance(frame, OpenSession)
        self._output.put(number, Error(request=request, code=code, message=message, is_fatal=is_fatal))

    def _dispatch(self, number: int, channel: SessionChannel | None, frame: Frame) -> None:
        if not self.is_greeted:
            self._greet(frame)
        elif isinstance(frame, Hello):
            raise _unexpected("HELLO: it was said before")
        elif isinstance(frame, Ping):
            self._output.put(number, Pong(frame.token))
        elif isinstance(frame, OpenSession):
            self._open(number, channel, frame)
        elif isinstance(frame, Pong) or (channel is not None and channel.state is ChannelState.FENCED):
            return  # nothing to do, or nothing that it may do any more
        elif type(frame) in NODE_REQUESTS:
            self._requests.handle(number, frame)
        elif channel is None:
            raise _unexpected(f"{frame.frame_type.name}: no session is open on channel {number}")
        elif isinstance(frame, CloseSession):
            channel.close(frame, lambda: self._free(number, channel))
        elif isinstance(frame, Send):
            channel.send(frame, ())  # is not open: it says so
        else:
            channel.handle(frame)

    def _greet(self, frame: Frame) -> None:
        if not isinstance(frame, Hello):
            raise _unexpected(f"{frame.frame_type.name}: HELLO comes first")
        if frame.version < PROTOCOL_VERSION:
            what = f"the client speaks version {frame.version}, this server version {PROTOCOL_VERSION}"
            raise ProtocolError(what, reason_code="protocol.version")
        self.is_greeted = True
        self._decoder.frame_bytes_max = self._limits.frame_bytes_max
        self._output.put(
            0,
            Welcome(
                version=PROTOCOL_VERSION,
                server=self._facts.server,
                node=self._facts.name,
                frame_bytes_max=self._limits.frame_bytes_max,
            ),
        )

    def _open(self, number: int, channel: SessionChannel | None, frame: OpenSession) -> None:
        if channel is not None and channel.state is not ChannelState.FENCED:
            raise _unexpected(f"OPEN_SESSION: channel {number} is in use")
        if len(self._channels) >= self._limits.channels_max:
            raise refusal(
                "limit.sessions",
                f"a connection has at most {self._limits.channels_max} sessions; use another",
            )
        opening = SessionChannel(self._manager, self._output, number, self._limits)
        opening.open(frame)
        self._channels[number] = opening

    def _free(self, number: int, channel: SessionChannel) -> None:
        if self._channels.get(number) is channel:
            del self._channels[number]

    # -- waiting for room --------------------------------------------------------------------------------

    def _may_pass(self, number: int, frame: Frame) -> bool:
        """Whether a frame may go before those that are kept: it makes room, and depends on none of them."""
        if isinstance(frame, Ping | Pong):
            return True
        channel = self._channels.get(number)
        if channel is None or channel.state is not ChannelState.OPEN or channel.keeps_acknowledgement:
            return False
        if isinstance(frame, Acknowledge):
            return not frame.transaction and frame.consumer in channel.link.consumers
        return isinstance(frame, Credit) and frame.consumer in channel.link.consumers

    def _keep(self, number: int, frame: Frame) -> None:
        if isinstance(frame, Send):  # its batch is a view of all that was read with it
            frame = msgspec.structs.replace(frame, batch=bytes(frame.batch))
        self._kept.append((number, frame))
        self._kept_bytes += _kept_bytes(frame)
        channel = self._channels.get(number)
        if channel is not None:
            channel.is_keeping = True
            channel.keeps_acknowledgement |= isinstance(frame, Acknowledge)

    def _retry_kept(self) -> None:
        while self._kept:
            number, frame = self._kept[0]
            taken = self._handle(number, frame, islice(self._kept, 1, None))
            if not taken or self.is_closing:
                return
            for _ in range(taken):
                self._kept_bytes -= _kept_bytes(self._kept.popleft()[1])
        self.blocked_reason = ""
        for channel in self._channels.values():
            channel.is_keeping = channel.keeps_acknowledgement = False
            channel.tell_flow()

    def _let_deliver(self) -> None:
        is_full = self._output.is_full
        for channel in self._channels.values():
            channel.hold(is_full)


def _kept_bytes(frame: Any) -> int:
    if isinstance(frame, Send):
        return KEPT_FRAME_BYTES + len(frame.batch)
    return KEPT_FRAME_BYTES + (32 * len(frame.ranges) if isinstance(frame, Acknowledge) else 0)


def _unexpected(what: str) -> ProtocolError:
    return ProtocolError(what, reason_code="protocol.unexpected")
