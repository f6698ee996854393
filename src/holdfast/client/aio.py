"""The asynchronous client: `connection = await holdfast.aio.connect("holdfast://host/")`.

All objects belong to the event loop that made them. A lost connection is not an exception here: calls wait
while the client reconnects and resumes, and fail only when that is given up.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from holdfast.client.aio_session import AsyncConsumer, AsyncReceivedMessage, AsyncSession
from holdfast.client.core import ClientCore
from holdfast.client.limits import ClientLimits
from holdfast.client.link import Link, Patience
from holdfast.client.received import BrowsedMessage, Receipt
from holdfast.client.requests import MakeFrame, ask_frame, declare_frame
from holdfast.client.url import parse_url
from holdfast.errors import ConnectionLost, UsageError

__all__ = [
    "AsyncConnection",
    "AsyncConsumer",
    "AsyncReceivedMessage",
    "AsyncSession",
    "BrowsedMessage",
    "ClientLimits",
    "Receipt",
    "connect",
]

CLIENT_NAME = "holdfast-python"
CONNECT_TIMEOUT_S = 10.0
RECONNECT_TIMEOUT_S = 3600.0
"""As long as a server remembers a session, unless told otherwise: later there is nothing to resume."""
SESSION_LIFETIME_S = 3600
CLOSE_TIMEOUT_S = 30.0
KINDS = ("queue", "topic")


async def connect(
    url: str,
    *,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
    reconnect_timeout_s: float = RECONNECT_TIMEOUT_S,
    client: str = CLIENT_NAME,
    limits: ClientLimits | None = None,
) -> AsyncConnection:
    """Connect to any host of the URL; returns when a server has greeted us.

    Raises UsageError for a wrong URL, Refused where the server will not have us, and ConnectionLost when none has
    answered within `connect_timeout_s`. A connection that is lost later is made again, for `reconnect_timeout_s`.
    """
    parsed = parse_url(url)
    core = ClientCore(
        client=client, user=parsed.user, password=parsed.password, limits=limits or ClientLimits()
    )
    patience = Patience(connect_timeout_s=connect_timeout_s, reconnect_timeout_s=reconnect_timeout_s)
    link = Link(core, parsed.addresses, patience=patience, chance=random.random)
    await link.start()
    return AsyncConnection(link)


class AsyncConnection:
    """A connection to a Holdfast system. Made by `connect`; `async with` closes it."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._sessions: set[AsyncSession] = set()

    @property
    def server(self) -> str:
        """What the server says it is."""
        return self._link.core.server

    @property
    def node(self) -> str:
        """The node that we are connected to, or were last."""
        return self._link.core.node

    def session(self, *, transacted: bool = False, lifetime_s: int = SESSION_LIFETIME_S) -> AsyncSession:
        """A new session. The server remembers it for `lifetime_s` after a connection was lost."""
        if lifetime_s < 1:
            raise UsageError("lifetime_s: at least 1")
        core = self._link.core.open_session(is_transacted=transacted, lifetime_s=lifetime_s)
        session = AsyncSession(self._link, core, closed=self._sessions.discard)
        self._sessions.add(session)
        self._link.changed()
        return session

    async def declare(self, name: str, kind: str = "queue") -> None:
        """Create a queue or a topic, if it is not there."""
        if kind not in KINDS:
            raise UsageError(f"kind: {kind!r} is none; there are queue and topic")
        await self._ask(declare_frame(name, kind))

    async def status(self) -> dict[str, Any]:
        """What the node says about itself."""
        return await self._ask(ask_frame("status"))

    async def destinations(self) -> dict[str, Any]:
        """The destinations that the node knows."""
        return await self._ask(ask_frame("destinations"))

    async def _ask(self, make: MakeFrame) -> dict[str, Any]:
        core = self._link.core
        if core.error is not None:
            raise core.error
        ticket, future = self._link.expect()
        core.calls.request(make, ticket)
        self._link.changed()
        result: dict[str, Any] = await future
        return result

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Close all sessions, and wait until what they sent and acknowledged is confirmed.

        Raises ConnectionLost if that takes more than `timeout_s`: then some of it may not have been recorded.
        """
        closing = [asyncio.ensure_future(session.close()) for session in self._sessions]
        try:
            if closing:
                await self._wait_closed(closing, timeout_s)
        finally:
            await self._link.stop()

    async def _wait_closed(self, closing: Iterable[asyncio.Future[None]], timeout_s: float) -> None:
        done, late = await asyncio.wait(closing, timeout=timeout_s)
        for each in late:
            each.cancel()
        errors = [error for each in done if (error := each.exception()) is not None]
        if late:
            raise ConnectionLost(
                f"close: {len(late)} sessions were not closed within {timeout_s} s. "
                f"What they had not confirmed may or may not have been recorded."
            )
        if errors:
            raise errors[0]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
