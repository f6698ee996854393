"""Carries the bytes of one `ClientCore` over asyncio sockets, one after the other.

`changed` asks for the core's output to be written once the tasks that are running now have had their say, so
that what they do together goes together. When a socket is lost, the hosts of the URL are tried in turn, with
a back-off between rounds, until one greets us or the time allowed is over. The sessions of the core do the
rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from holdfast.client.backoff import backoff_s
from holdfast.client.core import ClientCore
from holdfast.client.events import (
    Available,
    Completed,
    Confirmed,
    Event,
    Failed,
    Ready,
    Roomier,
    SessionEnded,
    Unusable,
)
from holdfast.client.url import Address
from holdfast.errors import ConnectionLost, HoldfastError

STEADY_S = 5.0
"""A connection that lived for so long was a good one: the back-off begins anew."""
SOCKET_TIMEOUT_S = 10.0
"""For one host to take the connection; then the next is tried."""


class Patience(Struct, frozen=True, kw_only=True):
    """How long to try: at first, and again when the connection is lost."""

    connect_timeout_s: float
    reconnect_timeout_s: float


class Waiter(Protocol):
    """Whoever waits for a ticket: a future, mostly."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, error: Any, /) -> None: ...


class Listener(Protocol):
    """A session's shell."""

    def on_available(self, consumer: int) -> None: ...
    def on_roomier(self) -> None: ...
    def on_ended(self) -> None: ...


class Signal:
    """Wakes all who wait, each time, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], None] = {}

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Whether it came in time. Look again at what you waited for: others were woken too."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = None
        try:
            done, _ = await asyncio.wait((future,), timeout=timeout_s)
            return bool(done)
        finally:
            self._waiting.pop(future, None)

    def notify(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)


class _Socket(asyncio.Protocol):
    """One socket. Hands all to its link."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self._link.received(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)


class Link:
    """The one task that connects, and the table of those who wait for tickets."""

    def __init__(
        self,
        core: ClientCore,
        addresses: Sequence[Address],
        *,
        patience: Patience,
        chance: Callable[[], float],
    ) -> None:
        self.core = core
        self.listeners: dict[int, Listener] = {}
        self._addresses = addresses
        self._patience = patience
        self._chance = chance
        self._loop = asyncio.get_running_loop()
        self._waiters: dict[int, Waiter] = {}
        self._socket: _Socket | None = None
        self._transport: asyncio.Transport | None = None
        self._address_index = 0
        self._is_flush_due = False
        self._last_error: HoldfastError | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._ready_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    # ---- calls -----------------------------------------------------------------------------------------

    def expect(self, waiter: Waiter | None = None) -> tuple[int, asyncio.Future[Any]]:
        """A new ticket, and the future that gets its result (or who is to get it instead)."""
        future: asyncio.Future[Any] = self._loop.create_future()
        ticket = self.core.new_ticket()
        self._waiters[ticket] = future if waiter is None else waiter
        return ticket, future

    def forget(self, ticket: int) -> None:
        """The call was refused at once: nobody waits."""
        self._waiters.pop(ticket, None)

    def changed(self) -> None:
        """The core may have something to write: soon, together with what else happens now."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        output = self.core.take_output()
        if output and self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(output)
        for event in self.core.take_events():
            self._carry_out(event)

    def _carry_out(self, event: Event) -> None:
        match event:
            case Confirmed():
                for ticket, sequence in event.receipts:
                    self._complete(ticket, sequence)
            case Completed():
                self._complete(event.ticket, event.result)
            case Available():
                if event.session in self.listeners:
                    self.listeners[event.session].on_available(event.consumer)
            case Roomier():
                if event.session in self.listeners:
                    self.listeners[event.session].on_roomier()
            case Failed():
                waiter = self._waiters.pop(event.ticket, None)
                if waiter is not None and not waiter.done():
                    waiter.set_exception(event.error)
            case SessionEnded():
                if event.session in self.listeners:
                    self.listeners.pop(event.session).on_ended()
            case Ready():
                self._ready_s = self._loop.time()
                if not self._ready.done():
                    self._ready.set_result(None)
            case Unusable():
                self._drop(event.error, is_permanent=event.is_permanent)

    def _complete(self, ticket: int, result: Any) -> None:
        waiter = self._waiters.pop(ticket, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(result)

    # ---- the socket ------------------------------------------------------------------------------------

    def received(self, socket: _Socket, data: bytes) -> None:
        if socket is self._socket:  # else it was given up, and this is an echo
            self.core.receive(data, self._loop.time())
            self._flush()

    def _drop(self, error: HoldfastError, *, is_permanent: bool) -> None:
        self._last_error = error
        if self._transport is not None:
            self._transport.abort()
        if is_permanent:
            self._end(error)

    def _end(self, error: HoldfastError | None) -> None:
        self.core.end(error)
        if not self._ready.done() and error is not None:
            self._ready.set_exception(error)
            self._ready.exception()  # somebody may wait for it, or nobody
        self.changed()

    def _tick(self) -> None:
        self.core.time_passed(self._loop.time())
        self._flush()
        self._timer = self._loop.call_later(self.core.limits.ping_interval_s / 2, self._tick)

    # ---- the task --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when a server has greeted us. Raises Refused, or ConnectionLost when the time is over."""
        self._task = self._loop.create_task(self._keep_connected())
        self._tick()
        try:
            await asyncio.shield(self._ready)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Let go of the socket and of the task."""
        self._end(None)
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        self._flush()

    async def _keep_connected(self) -> None:
        attempt = 0
        deadline_s = self._loop.time() + self._patience.connect_timeout_s
        while self.core.error is None:
            if await self._one_round():
                lived_s = self._loop.time() - self._ready_s
                attempt = 0 if lived_s > STEADY_S else attempt
                deadline_s = self._loop.time() + self._patience.reconnect_timeout_s
            wait_s = backoff_s(attempt, self._chance())
            if self._loop.time() + wait_s > deadline_s:
                self._end(self._given_up())
                return
            await asyncio.sleep(wait_s)
            attempt += 1

    def _given_up(self) -> ConnectionLost:
        hosts = ", ".join(map(str, self._addresses))
        what = f"no server answers at {hosts} (last: {self._last_error})."
        if self._ready.done():
            what += " What was confirmed is safe; the rest may or may not have been recorded."
        return ConnectionLost(what)

    async def _one_round(self) -> bool:
        """Try each host once, from the last that was good. True when one has greeted us, and was lost again."""
        for _ in range(len(self._addresses)):
            was_greeted = await self._one_socket(self._addresses[self._address_index])
            if was_greeted or self.core.error is not None:
                return was_greeted
            self._address_index = (self._address_index + 1) % len(self._addresses)
        return False

    async def _one_socket(self, address: Address) -> bool:
        """One connection, from its beginning to its end. Whether the server greeted us."""
        connecting = self._loop.create_connection(lambda: _Socket(self), address.host, address.port)
        try:
            transport, socket = await asyncio.wait_for(connecting, SOCKET_TIMEOUT_S)
        except (OSError, TimeoutError) as error:
            self._last_error = ConnectionLost(f"{address}: {str(error) or 'no answer'}")
            return False
        self._socket, self._transport, self._ready_s = socket, transport, 0.0
        try:
            self.core.connection_made(self._loop.time())
            self._flush()
            await socket.lost
        finally:
            transport.abort()
            self._transport = self._socket = None
            self.core.connection_lost()
            self._flush()
        self._last_error = self._last_error or ConnectionLost(f"{address}: the connection ended")
        return self._ready_s > 0
