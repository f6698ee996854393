"""Sessions, consumers and received messages of the asynchronous client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from holdfast.client.aio_consumer import AsyncConsumer, AsyncReceivedMessage
from holdfast.client.batching import encode_batches
from holdfast.client.incoming import Subscription, Waiting
from holdfast.client.limits import BROWSE_MESSAGES_MAX, CREDIT_DEFAULT, CREDIT_MAX
from holdfast.client.link import Link, Signal
from holdfast.client.received import BrowsedMessage, Receipt, as_message
from holdfast.client.requests import MakeFrame, declare_frame, unsubscribe_frame
from holdfast.client.session import SessionCore, SessionState
from holdfast.client.transactions import TransactionState
from holdfast.errors import HoldfastError, LimitExceeded, UsageError
from holdfast.message import Message, encode

__all__ = ["AsyncConsumer", "AsyncReceivedMessage", "AsyncSession"]

Body = bytes | bytearray | memoryview | Message
ON_DEMAND = 0
"""The credit of `receive`: only what somebody waits for is fetched."""


class Held(Protocol):
    """A received message, of this client or of the blocking one."""

    @property
    def consumer(self) -> int: ...
    @property
    def position(self) -> int: ...


class _Unwaited:
    """Stands for who does not wait for a send: the first failure is kept for `flush`."""

    def __init__(self) -> None:
        self.error: HoldfastError | None = None

    def done(self) -> bool:
        return False

    def set_result(self, result: Any, /) -> None:
        pass

    def set_exception(self, error: Any, /) -> None:
        self.error = self.error or error


class AsyncSession:
    """What a program does in order. Made by `AsyncConnection.session`; `async with` closes it.

    Sends of one session to one destination keep their order. In a transacted session, sends and acknowledgements take
    effect together with `commit`, or not at all.
    """

    def __init__(self, link: Link, core: SessionCore, *, closed: Callable[[AsyncSession], None]) -> None:
        self._link = link
        self._core = core
        self._closed = closed
        self._room = Signal()
        self._unwaited = _Unwaited()
        self._consumers: dict[int, AsyncConsumer] = {}
        self._receivers: dict[tuple[str, str], AsyncConsumer] = {}
        self._subscriptions: dict[tuple[str, str], bool] = {}
        link.listeners[core.channel] = self

    @property
    def id(self) -> str:
        """What the server calls this session; empty before it is opened."""
        return self._core.id

    # ---- sending ---------------------------------------------------------------------------------------

    async def send(self, destination: str, body: Body, **fields: Any) -> Receipt:
        """Send a message, or a body with fields of `Message`; returns when it is durable.

        Sends of several tasks to one destination are gathered while an earlier one is on its way. In a transaction
        this returns when the message was taken. Raises UsageError for a message that does not fit, LimitExceeded for
        one that is too large, and Refused if there is no such destination.
        """
        batch = self._encode(as_message(body, fields))
        while not self._core.takes(messages=1, size_bytes=len(batch)):
            await self._room.wait()
        ticket, future = self._link.expect()
        self._send_single(destination, batch, ticket)
        return Receipt(destination, await future or 0)

    async def send_batch(self, destination: str, messages: Sequence[Message | bytes]) -> Receipt:
        """Send messages together, which is far cheaper than one by one; returns when all are durable."""
        rows = [as_message(message, {}) for message in messages]
        batches = encode_batches(rows, batch_bytes_max=self._link.core.batch_bytes_max)
        size_bytes = sum(len(batch) for batch, _ in batches)
        while not self._core.takes(messages=len(rows), size_bytes=size_bytes):
            await self._room.wait()
        ticket, future = self._link.expect()
        self._core.send_batches(destination, batches, ticket=ticket)
        self._link.changed()
        return Receipt(destination, await future or 0)

    def try_send(self, destination: str, body: Body, **fields: Any) -> bool:
        """Take a message to be sent, without waiting; False if there is no room now.

        It is resent like any other until it is confirmed. `flush` waits for that, and raises what went wrong.
        """
        batch = self._encode(as_message(body, fields))
        if not self._core.takes(messages=1, size_bytes=len(batch)):
            return False
        ticket, _ = self._link.expect(self._unwaited)
        self._send_single(destination, batch, ticket)
        return True

    def _encode(self, message: Message) -> bytes:
        batch = encode((message,))
        maximum = self._link.core.batch_bytes_max
        if len(batch) > maximum:
            raise LimitExceeded("FRAME_BYTES_MAX", value=len(batch), maximum=maximum)
        return batch

    def _send_single(self, destination: str, batch: bytes, ticket: int) -> None:
        maximum = self._link.core.batch_bytes_max
        self._core.send_single(destination, batch, ticket=ticket, batch_bytes_max=maximum)
        self._link.changed()

    async def flush(self) -> None:
        """Wait until all that was sent and acknowledged is durable. Raises what a `try_send` has failed with."""
        await self._wait_for(self._core.when_idle)
        error, self._unwaited.error = self._unwaited.error, None
        if error is not None:
            raise error

    # ---- receiving -------------------------------------------------------------------------------------

    def consume(
        self,
        destination: str,
        *,
        subscription: str = "",
        durable: bool | None = None,
        from_start: bool = False,
        credit: int = CREDIT_DEFAULT,
    ) -> AsyncConsumer:
        """A consumer of a queue or of a topic's subscription: `async for message in session.consume(name)`.

        On a topic the empty subscription is private, and ends with the session; a named one is shared by all that use
        its name. `credit` is how many messages may be fetched ahead.
        """
        if not 1 <= credit <= CREDIT_MAX:
            raise UsageError(f"credit: not a whole number from 1 to {CREDIT_MAX}")
        return self._consumer(
            destination, subscription, durable=durable, from_start=from_start, window=credit
        )

    def _consumer(
        self, destination: str, name: str, *, durable: bool | None, from_start: bool, window: int
    ) -> AsyncConsumer:
        self._core.check_usable()
        if durable is None:
            durable = self._subscriptions.get((destination, name), False)
        subscription = Subscription(destination, name, durable, from_start)
        return AsyncConsumer(self, self._link, self._core, subscription, window=window)

    async def receive(
        self, destination: str, *, subscription: str = "", timeout_s: float | None = None
    ) -> AsyncReceivedMessage | None:
        """The next message, or None when none has come within `timeout_s`. Nothing is fetched ahead."""
        receiver = self._receivers.get((destination, subscription))
        if receiver is None:
            receiver = self._consumer(
                destination, subscription, durable=None, from_start=False, window=ON_DEMAND
            )
            self._receivers[(destination, subscription)] = receiver
        try:
            return await receiver.receive(timeout_s)
        except HoldfastError:
            self._receivers.pop((destination, subscription), None)
            raise

    async def browse(
        self, destination: str, *, from_position: int = 0, messages_max: int = 100
    ) -> list[BrowsedMessage]:
        """Look at messages without receiving them."""
        if not 1 <= messages_max <= BROWSE_MESSAGES_MAX:
            raise UsageError(f"messages_max: not a whole number from 1 to {BROWSE_MESSAGES_MAX}")
        self._core.check_usable()
        ticket, future = self._link.expect()
        self._core.calls.browse(
            destination, from_position=from_position, messages_max=messages_max, ticket=ticket
        )
        self._link.changed()
        found: list[Waiting] = await future
        return [BrowsedMessage(destination, each) for each in found]

    async def subscribe(
        self, topic: str, name: str, *, durable: bool = True, from_start: bool = False
    ) -> None:
        """Make a named subscription, which keeps messages from now on (or from the first that is held).

        One that is not durable ends when the last session that uses it ends.
        """
        if not name:
            raise UsageError("subscription: it needs a name; `consume` without one makes a private one")
        self._subscriptions[(topic, name)] = durable
        consumer = self._consumer(topic, name, durable=durable, from_start=from_start, window=ON_DEMAND)
        await consumer.open()
        if durable:
            await consumer.close()

    async def unsubscribe(self, topic: str, name: str) -> None:
        """Remove a named subscription, with all that it holds."""
        self._subscriptions.pop((topic, name), None)
        await self._ask(unsubscribe_frame(topic, name))

    async def declare(self, name: str, kind: str = "queue") -> None:
        """Create a queue or a topic, if it is not there."""
        if kind not in ("queue", "topic"):
            raise UsageError(f"kind: {kind!r} is none; there are queue and topic")
        await self._ask(declare_frame(name, kind))

    async def acknowledge(self, *messages: Held) -> None:
        """The messages are dealt with. Acknowledgements are gathered; `flush` waits until they are durable."""
        for message in messages:
            while not self._core.takes_acknowledgements:
                await self._room.wait()
            self._core.acknowledge(message.consumer, message.position)
        self._link.changed()

    async def reject(self, message: Held) -> None:
        """Return the message: it will be delivered again, to us or to others, before any that was not."""
        self._core.give_back(message.consumer, [message.position])
        self._link.changed()

    # ---- transactions ----------------------------------------------------------------------------------

    async def commit(self) -> None:
        """Make all that was sent and acknowledged since the last commit visible at once; returns when it is durable.

        Raises Refused if the server will not: the transaction is as it was, to be tried again or rolled back.
        """
        await self._wait_for(self._core.commit)

    async def rollback(self) -> None:
        """What was sent since the last commit vanishes, and what was received returns."""
        await self._wait_for(self._core.roll_back)

    # ---- the rest --------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Wait until all that was sent and acknowledged is durable, and end the session. An open transaction is rolled
        back; messages that were received and not acknowledged return."""
        core = self._core
        if core.state is SessionState.ENDED or core.error is not None:
            self._closed(self)
            return
        if core.transactions.state is TransactionState.OPEN:
            await self.rollback()
        await self._wait_for(core.close)
        error, self._unwaited.error = self._unwaited.error, None
        if error is not None:
            raise error

    async def _wait_for(self, call: Callable[[int], None]) -> None:
        ticket, future = self._link.expect()
        try:
            call(ticket)
        except HoldfastError:
            self._link.forget(ticket)
            raise
        self._link.changed()
        await future

    async def _ask(self, make: MakeFrame) -> None:
        self._core.check_usable()
        ticket, future = self._link.expect()
        self._core.calls.request(make, ticket)
        self._link.changed()
        await future

    def register(self, number: int, consumer: AsyncConsumer) -> None:
        self._consumers[number] = consumer

    def on_available(self, consumer: int) -> None:
        if consumer in self._consumers:
            self._consumers[consumer].on_available()

    def on_roomier(self) -> None:
        self._room.notify()

    def on_ended(self) -> None:
        self._closed(self)
        self._room.notify()
        for consumer in self._consumers.values():
            consumer.on_available()

    def unregister(self, number: int) -> None:
        self._consumers.pop(number, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
