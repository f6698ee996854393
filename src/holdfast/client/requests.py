"""Requests of one session, or of the connection itself, until they are answered.

A request is repeated on the next connection where it was lost with the last one and asking twice does no
harm: each knows how to make its frame anew. Those that belong to a machine (Subscribe, the Declare before a
send, Commit, Close) are not repeated here; their machine asks again if it still wants to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from holdfast.client.events import Completed, Event, Failed
from holdfast.client.incoming import Waiting
from holdfast.client.limits import ClientLimits
from holdfast.errors import BatchError, HoldfastError, LimitExceeded, ProtocolError
from holdfast.message import Batch
from holdfast.wire.frames import Ask, Browse, Browsed, ControlFrame, Declare, Unsubscribe
from holdfast.wire.layout import U32_MAX

MakeFrame: TypeAlias = Callable[[int], ControlFrame]
Result: TypeAlias = dict[str, Any]


class Call:
    """A request on its way: how to ask, and what to do with the answer."""

    __slots__ = ("done", "failed", "is_repeated", "make")

    def __init__(
        self,
        make: MakeFrame,
        *,
        done: Callable[[Result], None],
        failed: Callable[[HoldfastError], None],
        is_repeated: bool = False,
    ) -> None:
        self.make = make
        self.done = done
        self.failed = failed
        self.is_repeated = is_repeated

    def browsed(self, frame: Browsed) -> bool:
        """Take a part of the answer; whether it was the last."""
        raise ProtocolError("Browsed: nobody browses", reason_code="protocol.unexpected")


class BrowseCall(Call):
    """A browse, which goes on from where it was after the connection was lost."""

    __slots__ = ("_found", "_from_position", "_remaining")

    def __init__(
        self,
        destination: str,
        *,
        from_position: int,
        messages_max: int,
        ticket: int,
        emit: Callable[[Event], None],
    ) -> None:
        messages: list[Waiting] = []
        super().__init__(
            lambda request: Browse(
                request=request,
                destination=destination,
                from_position=self._from_position,
                messages_max=self._remaining,
            ),
            done=lambda _: emit(Completed(ticket, messages)),
            failed=lambda error: emit(Failed(ticket, error)),
            is_repeated=True,
        )
        self._found = messages
        self._from_position = from_position
        self._remaining = messages_max

    def browsed(self, frame: Browsed) -> bool:
        if len(frame.batch):
            try:
                messages = Batch.parse(frame.batch).messages()
            except BatchError as damage:
                raise ProtocolError(f"Browsed: {damage}", reason_code="protocol.malformed") from None
            positioned = enumerate(messages, frame.first_position)
            self._found += [Waiting(position, 0, message) for position, message in positioned]
            self._from_position = frame.first_position + len(messages)
            self._remaining = max(0, self._remaining - len(messages))
        return frame.is_last


class Calls:
    """The table. `send` puts a frame on the wire; what is asked while there is none waits for `attach`."""

    def __init__(
        self,
        limits: ClientLimits,
        *,
        send: Callable[[ControlFrame], None],
        emit: Callable[[Event], None],
    ) -> None:
        self._limits = limits
        self._send = send
        self._emit = emit
        self._next_request = 1
        self.is_attached = False
        self._pending: dict[int, Call] = {}
        self._waiting: list[Call] = []

    @property
    def is_idle(self) -> bool:
        return not self._pending and not self._waiting

    def request(self, make: MakeFrame, ticket: int) -> None:
        """A request of the program's own, which is completed with the answer."""
        emit = self._emit
        self.ask(
            Call(
                make,
                done=lambda result: emit(Completed(ticket, result)),
                failed=lambda error: emit(Failed(ticket, error)),
                is_repeated=True,
            )
        )

    def browse(self, destination: str, *, from_position: int, messages_max: int, ticket: int) -> None:
        """Look at messages; completed with a list of them."""
        call = BrowseCall(
            destination,
            from_position=from_position,
            messages_max=messages_max,
            ticket=ticket,
            emit=self._emit,
        )
        self.ask(call)

    def ask(self, call: Call) -> None:
        if len(self._pending) + len(self._waiting) >= self._limits.requests_max:
            maximum = self._limits.requests_max
            raise LimitExceeded("requests_max", value=maximum + 1, maximum=maximum)
        if not self.is_attached:
            self._waiting.append(call)
            return
        self.ask_now(call)

    def ask_now(self, call: Call) -> None:
        """Ask at once: for what comes before `attach`."""
        request, self._next_request = self._next_request, self._next_request % U32_MAX + 1
        self._pending[request] = call
        self._send(call.make(request))

    def attach(self) -> None:
        """Requests may be made now; those that wait are."""
        self.is_attached = True
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            self.ask_now(call)

    def lost(self) -> None:
        """The connection is gone: what can be repeated waits for the next."""
        self.is_attached = False
        pending, self._pending = self._pending, {}
        self._waiting = [call for call in [*pending.values(), *self._waiting] if call.is_repeated]

    def done(self, request: int, result: Result) -> None:
        self._take(request).done(result)

    def failed(self, request: int, error: HoldfastError) -> None:
        self._take(request).failed(error)

    def browsed(self, frame: Browsed) -> None:
        call = self._pending.get(frame.request)
        if call is not None and call.browsed(frame):
            self._take(frame.request).done({})

    def _take(self, request: int) -> Call:
        call = self._pending.pop(request, None)
        if call is None:
            raise ProtocolError(f"an answer to request {request}", reason_code="protocol.unexpected")
        return call

    def fail_all(self, error: HoldfastError) -> None:
        calls = [*self._pending.values(), *self._waiting]
        self._pending, self._waiting = {}, []
        for call in calls:
            call.failed(error)


def declare_frame(name: str, kind: str) -> MakeFrame:
    return lambda request: Declare(request=request, name=name, kind=kind)  # type: ignore[arg-type]


def ask_frame(what: str) -> MakeFrame:
    return lambda request: Ask(request=request, what=what)  # type: ignore[arg-type]


def unsubscribe_frame(destination: str, subscription: str) -> MakeFrame:
    return lambda request: Unsubscribe(request=request, destination=destination, subscription=subscription)
