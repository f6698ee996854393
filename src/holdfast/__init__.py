"""Holdfast: a message system that never loses a confirmed message.

`holdfast.connect(url)` is the blocking client, `holdfast.aio.connect(url)` the asynchronous one. Every name
is imported when it is first used, so that `import holdfast` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.client.limits import ClientLimits
    from holdfast.client.received import BrowsedMessage, Receipt
    from holdfast.client.sync import Connection, Consumer, ReceivedMessage, Session, connect
    from holdfast.errors import (
        ConnectionLost,
        HoldfastError,
        LimitExceeded,
        OutcomeUnknown,
        ProtocolError,
        Refused,
        UsageError,
    )
    from holdfast.message import Message, MessageId, Severity

__version__ = "0.1.0.dev0"

__all__ = [
    "BrowsedMessage",
    "ClientLimits",
    "Connection",
    "ConnectionLost",
    "Consumer",
    "HoldfastError",
    "LimitExceeded",
    "Message",
    "MessageId",
    "OutcomeUnknown",
    "ProtocolError",
    "Receipt",
    "ReceivedMessage",
    "Refused",
    "Session",
    "Severity",
    "UsageError",
    "connect",
]

_HOMES = {
    **dict.fromkeys(
        ("Connection", "Consumer", "ReceivedMessage", "Session", "connect"), "holdfast.client.sync"
    ),
    **dict.fromkeys(("BrowsedMessage", "Receipt"), "holdfast.client.received"),
    "ClientLimits": "holdfast.client.limits",
    **dict.fromkeys(("Message", "MessageId", "Severity"), "holdfast.message"),
}


def __getattr__(name: str) -> Any:
    if name == "aio":
        return import_module("holdfast.aio")
    if name not in __all__:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "holdfast.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "aio", "errors"]
