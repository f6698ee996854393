"""The blocking client: `connection = holdfast.connect("holdfast://host/")`.

The same names as the asynchronous one, which does the work on an event loop of its own in a background
thread, one for each connection. Every object may be used from several threads at once. A call that is
interrupted by Ctrl-C is cancelled there too: what it had not yet taken stays where it is.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib
import threading
from collections.abc import Coroutine, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from holdfast.client import aio
from holdfast.client.aio_consumer import RUN_MESSAGES_MAX
from holdfast.client.aio_session import Body
from holdfast.client.incoming import Waiting
from holdfast.client.limits import CREDIT_DEFAULT, ClientLimits
from holdfast.client.received import BrowsedMessage, Receipt, Received
from holdfast.errors import UsageError
from holdfast.message import Message

__all__ = [
    "BrowsedMessage",
    "ClientLimits",
    "Connection",
    "Consumer",
    "Receipt",
    "ReceivedMessage",
    "Session",
    "connect",
]

T = TypeVar("T")


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        loop: asyncio.AbstractEventLoop = importlib.import_module("uvloop").new_event_loop()
    except ImportError:
        return asyncio.new_event_loop()
    return loop


class _Background:
    """An event loop in a thread. The thread is a daemon: a program that forgets to close still ends."""

    def __init__(self) -> None:
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="holdfast-client", daemon=True)
        self._thread.start()
        self.is_stopped = False
        self._lock = threading.Lock()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, done over there."""
        if self.is_stopped:
            work.close()
            raise UsageError("connection: it is closed")
        if threading.current_thread() is self._thread:
            work.close()
            raise UsageError("connection: a blocking call within its own event loop")
        future: concurrent.futures.Future[T] | None = None
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            return future.result()
        except concurrent.futures.CancelledError:
            raise UsageError("connection: it was closed during the call") from None
        except BaseException:  # Ctrl-C here, or an error from there, which this does not touch
            if future is not None:
                future.cancel()
            raise

    def stop(self) -> None:
        with self._lock:
            if self.is_stopped:
                return
            self.is_stopped = True
        self._loop.call_soon_threadsafe(self._cancel_all)
        self._thread.join()
        self._loop.close()

    def _cancel_all(self) -> None:
        """End what other threads still wait for, and then the loop."""
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        ending = asyncio.gather(*tasks, self._loop.shutdown_asyncgens(), return_exceptions=True)
        ending.add_done_callback(lambda _: self._loop.stop())


def connect(
    url: str,
    *,
    connect_timeout_s: float = aio.CONNECT_TIMEOUT_S,
    reconnect_timeout_s: float = aio.RECONNECT_TIMEOUT_S,
    client: str = aio.CLIENT_NAME,
    limits: ClientLimits | None = None,
) -> Connection:
    """Connect to any host of the URL; returns when a server has greeted us. See `holdfast.aio.connect`."""
    background = _Background()
    try:
        connection = background.run(
            aio.connect(
                url,
                connect_timeout_s=connect_timeout_s,
                reconnect_timeout_s=reconnect_timeout_s,
                client=client,
                limits=limits,
            )
        )
    except BaseException:
        background.stop()
        raise
    return Connection(background, connection)


class ReceivedMessage(Received):
    """A message that the program holds until it acknowledges or rejects it."""

    __slots__ = ("_session", "consumer")

    def __init__(self, session: Session, inner: aio.AsyncReceivedMessage) -> None:
        super().__init__(inner.destination, Waiting(inner.position, inner.redeliveries, inner.message))
        self._session = session
        self.consumer = inner.consumer

    def acknowledge(self) -> None:
        """It is dealt with. In a transacted session, when that commits."""
        self._session.acknowledge(self)

    def reject(self) -> None:
        """Return it: it will be delivered again."""
        self._session.reject(self)


class Consumer:
    """Receives from one queue or subscription. Made by `Session.consume`; `with` closes it."""

    def __init__(self, background: _Background, session: Session, inner: aio.AsyncConsumer) -> None:
        self._background = background
        self._session = session
        self._inner = inner

    @property
    def destination(self) -> str:
        return self._inner.destination

    def open(self) -> None:
        """Subscribe now; otherwise the first receive does."""
        self._background.run(self._inner.open())

    def receive(self, timeout_s: float | None = None) -> ReceivedMessage | None:
        """The next message; None when none has come within `timeout_s`, or the consumer was closed."""
        message = self._background.run(self._inner.receive(timeout_s))
        return None if message is None else ReceivedMessage(self._session, message)

    def receive_many(
        self, messages_max: int = RUN_MESSAGES_MAX, timeout_s: float | None = None
    ) -> list[ReceivedMessage]:
        """What has come, but at most `messages_max`: one call for many messages, which is far cheaper here."""
        messages = self._background.run(self._inner.receive_many(messages_max, timeout_s))
        return [ReceivedMessage(self._session, message) for message in messages]

    def close(self) -> None:
        """Return what was handed out and not acknowledged, and stop."""
        self._background.run(self._inner.close())

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self

    def __next__(self) -> ReceivedMessage:
        message = self.receive()
        if message is None:
            raise StopIteration
        return message

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Session:
    """What a program does in order. Made by `Connection.session`; `with` closes it. See `AsyncSession`."""

    def __init__(self, background: _Background, inner: aio.AsyncSession) -> None:
        self._background = background
        self._inner = inner

    @property
    def id(self) -> str:
        """What the server calls this session; empty before it is opened."""
        return self._inner.id

    def send(self, destination: str, body: Body, **fields: Any) -> Receipt:
        """Send a message, or a body with fields of `Message`; returns when it is durable."""
        return self._background.run(self._inner.send(destination, body, **fields))

    def send_batch(self, destination: str, messages: Sequence[Message | bytes]) -> Receipt:
        """Send messages together, which is far cheaper than one by one; returns when all are durable."""
        return self._background.run(self._inner.send_batch(destination, messages))

    def try_send(self, destination: str, body: Body, **fields: Any) -> bool:
        """Take a message to be sent, without waiting for it; False if there is no room now."""

        async def try_send() -> bool:
            return self._inner.try_send(destination, body, **fields)

        return self._background.run(try_send())

    def flush(self) -> None:
        """Wait until all that was sent and acknowledged is durable. Raises what a `try_send` has failed with."""
        self._background.run(self._inner.flush())

    def consume(
        self,
        destination: str,
        *,
        subscription: str = "",
        durable: bool | None = None,
        from_start: bool = False,
        credit: int = CREDIT_DEFAULT,
    ) -> Consumer:
        """A consumer of a queue or of a topic's subscription: `for message in session.consume(name)`."""
        inner = self._inner.consume(
            destination, subscription=subscription, durable=durable, from_start=from_start, credit=credit
        )
        return Consumer(self._background, self, inner)

    def receive(
        self, destination: str, *, subscription: str = "", timeout_s: float | None = None
    ) -> ReceivedMessage | None:
        """The next message, or None when none has come within `timeout_s`. Nothing is fetched ahead."""
        message = self._background.run(
            self._inner.receive(destination, subscription=subscription, timeout_s=timeout_s)
        )
        return None if message is None else ReceivedMessage(self, message)

    def browse(
        self, destination: str, *, from_position: int = 0, messages_max: int = 100
    ) -> list[BrowsedMessage]:
        """Look at messages without receiving them."""
        return self._background.run(
            self._inner.browse(destination, from_position=from_position, messages_max=messages_max)
        )

    def subscribe(self, topic: str, name: str, *, durable: bool = True, from_start: bool = False) -> None:
        """Make a named subscription, which keeps messages from now on (or from the first that is held)."""
        self._background.run(self._inner.subscribe(topic, name, durable=durable, from_start=from_start))

    def unsubscribe(self, topic: str, name: str) -> None:
        """Remove a named subscription, with all that it holds."""
        self._background.run(self._inner.unsubscribe(topic, name))

    def declare(self, name: str, kind: str = "queue") -> None:
        """Create a queue or a topic, if it is not there."""
        self._background.run(self._inner.declare(name, kind))

    def acknowledge(self, *messages: ReceivedMessage) -> None:
        """The messages are dealt with. Acknowledgements are gathered; `flush` waits until they are durable."""
        self._background.run(self._inner.acknowledge(*messages))

    def reject(self, message: ReceivedMessage) -> None:
        """Return the message: it will be delivered again, to us or to others, before any that was not."""
        self._background.run(self._inner.reject(message))

    def commit(self) -> None:
        """Make all that was sent and acknowledged since the last commit visible at once."""
        self._background.run(self._inner.commit())

    def rollback(self) -> None:
        """What was sent since the last commit vanishes, and what was received returns."""
        self._background.run(self._inner.rollback())

    def close(self) -> None:
        """Wait until all that was sent and acknowledged is durable, and end the session."""
        self._background.run(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Connection:
    """A connection to a Holdfast system. Made by `connect`; `with` closes it."""

    def __init__(self, background: _Background, inner: aio.AsyncConnection) -> None:
        self._background = background
        self._inner = inner

    @property
    def server(self) -> str:
        """What the server says it is."""
        return self._inner.server

    @property
    def node(self) -> str:
        """The node that we are connected to, or were last."""
        return self._inner.node

    def session(self, *, transacted: bool = False, lifetime_s: int = aio.SESSION_LIFETIME_S) -> Session:
        """A new session. The server remembers it for `lifetime_s` after a connection was lost."""

        async def session() -> aio.AsyncSession:
            return self._inner.session(transacted=transacted, lifetime_s=lifetime_s)

        return Session(self._background, self._background.run(session()))

    def declare(self, name: str, kind: str = "queue") -> None:
        """Create a queue or a topic, if it is not there."""
        self._background.run(self._inner.declare(name, kind))

    def status(self) -> dict[str, Any]:
        """What the node says about itself."""
        return self._background.run(self._inner.status())

    def destinations(self) -> dict[str, Any]:
        """The destinations that the node knows."""
        return self._background.run(self._inner.destinations())

    def close(self, timeout_s: float = aio.CLOSE_TIMEOUT_S) -> None:
        """Close all sessions, and wait until what they sent and acknowledged is confirmed. Closing twice is allowed."""
        if self._background.is_stopped:
            return
        try:
            self._background.run(self._inner.close(timeout_s))
        finally:
            self._background.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
