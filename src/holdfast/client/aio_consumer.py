"""Consumers and received messages of the asynchronous client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from holdfast.client.incoming import Subscription, Waiting
from holdfast.client.link import Link, Signal
from holdfast.client.received import Received
from holdfast.client.session import SessionCore
from holdfast.errors import HoldfastError, UsageError

if TYPE_CHECKING:
    from holdfast.client.aio_session import AsyncSession

RUN_MESSAGES_MAX = 64
"""Messages handed out in one go: then others get a turn, and what was acknowledged is sent."""


class AsyncReceivedMessage(Received):
    """A message that the program holds until it acknowledges or rejects it."""

    __slots__ = ("_session", "consumer")

    def __init__(self, session: AsyncSession, consumer: int, destination: str, waiting: Waiting) -> None:
        super().__init__(destination, waiting)
        self._session = session
        self.consumer = consumer

    async def acknowledge(self) -> None:
        """It is dealt with. In a transacted session, when that commits."""
        await self._session.acknowledge(self)

    async def reject(self) -> None:
        """Return it: it will be delivered again."""
        await self._session.reject(self)


class AsyncConsumer:
    """Receives from one queue or subscription. Made by `AsyncSession.consume`; `async with` closes it.

    Iterating ends when it is closed. What it has handed out and was not acknowledged returns when it is closed.
    """

    def __init__(
        self, session: AsyncSession, link: Link, core: SessionCore, subscription: Subscription, *, window: int
    ) -> None:
        self._session = session
        self._link = link
        self._core = core
        self._subscription = subscription
        self._window = window
        self._number = 0
        self._opening: asyncio.Future[None] | None = None
        self._is_closed = False
        self._signal = Signal()
        self._run_count = 0
        self._waiter_count = 0

    @property
    def destination(self) -> str:
        return self._subscription.destination

    async def open(self) -> None:
        """Subscribe now; otherwise the first receive does. Raises Refused where there is no such destination."""
        await asyncio.shield(self._start())

    def _start(self) -> asyncio.Future[None]:
        if self._opening is None:
            self._core.check_usable()
            ticket, self._opening = self._link.expect()
            self._number = self._core.consumers.open(self._subscription, window=self._window, ticket=ticket)
            self._session.register(self._number, self)
            self._link.changed()
        return self._opening

    async def receive(self, timeout_s: float | None = None) -> AsyncReceivedMessage | None:
        """The next message; None when none has come within `timeout_s`, or the consumer was closed."""
        if self._is_closed:
            return None
        self._run_count += 1
        if self._run_count % RUN_MESSAGES_MAX == 0:
            await asyncio.sleep(0)
        deadline_s = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
        opening = self._start()
        if not opening.done():
            await asyncio.wait((opening,), timeout=timeout_s)
        if opening.done():
            opening.result()
        self._waiter_count += 1
        try:
            return await self._next(deadline_s)
        finally:
            self._waiter_count -= 1

    async def receive_many(
        self, messages_max: int = RUN_MESSAGES_MAX, timeout_s: float | None = None
    ) -> list[AsyncReceivedMessage]:
        """What has come, but at most `messages_max`; waits for the first as `receive` does, and for no more."""
        if messages_max < 1:
            raise UsageError("messages_max: at least 1")
        first = await self.receive(timeout_s)
        messages = [] if first is None else [first]
        while messages and len(messages) < messages_max:
            waiting = self._core.consumers.take(self._number)
            if waiting is None:
                break
            messages.append(self._received(waiting))
        return messages

    def _received(self, waiting: Waiting) -> AsyncReceivedMessage:
        return AsyncReceivedMessage(self._session, self._number, self._subscription.destination, waiting)

    async def _next(self, deadline_s: float | None) -> AsyncReceivedMessage | None:
        loop = asyncio.get_running_loop()
        is_in_time = True
        while True:
            if self._is_closed:
                return None
            waiting = self._core.consumers.take(self._number)
            if waiting is not None:
                self._link.changed()
                return self._received(waiting)
            if not is_in_time:
                return None
            if not self._window:
                self._core.consumers.want(self._number, self._waiter_count)
                self._link.changed()
            remaining_s = None if deadline_s is None else max(0.0, deadline_s - loop.time())
            is_in_time = await self._signal.wait(remaining_s)

    async def close(self) -> None:
        """Return what was handed out and not acknowledged, and stop. What was acknowledged is confirmed first."""
        if self._is_closed:
            return
        self._is_closed = True
        self._signal.notify()
        if self._number and self._core.is_usable:
            ticket, future = self._link.expect()
            try:
                self._core.consumers.close(self._number, ticket)
            except HoldfastError:  # it had ended already, for the reason that this says
                self._link.forget(ticket)
            else:
                self._link.changed()
                await future
        self._session.unregister(self._number)

    def on_available(self) -> None:
        self._signal.notify()

    def __aiter__(self) -> AsyncIterator[AsyncReceivedMessage]:
        return self

    async def __anext__(self) -> AsyncReceivedMessage:
        message = await self.receive()
        if message is None:
            raise StopAsyncIteration
        return message

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
