"""The asynchronous client: `connection = await holdfast.aio.connect("holdfast://host:7250/")`."""

from holdfast.client.aio import (
    AsyncConnection,
    AsyncConsumer,
    AsyncReceivedMessage,
    AsyncSession,
    BrowsedMessage,
    ClientLimits,
    Receipt,
    connect,
)

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
