"""One message, as a value.

There are no None values in what a client gives: "", 0 and {} mean "not given", and a field that is not given
takes no room in a batch. Times are counted in microseconds since the epoch.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

from msgspec import Struct

from holdfast.message.ids import MessageId

PRIORITY_MAX = 9
"""Ten priorities, as in JMS: each destination that uses them keeps one lane for each."""

PropertyValue: TypeAlias = bool | int | float | str | bytes


class Severity(IntEnum):
    """How grave an event is. Ordered, so that a threshold is a comparison."""

    DEBUG = 1
    INFO = 2
    NOTICE = 3
    WARNING = 4
    ERROR = 5
    CRITICAL = 6
    ALERT = 7
    EMERGENCY = 8


class Message(Struct, frozen=True, kw_only=True):
    """What is sent. Field values are checked where they are encoded, once for a whole batch.

    `time_us` is when the event was recognised and `source` names the element that recognised it.
    `expiration_us` 0 is never, `deliver_at_us` 0 is at once. `priority` is 0..9, 9 first.
    `id` is given by nodes only; what a client puts there is ignored.
    """

    body: bytes = b""
    time_us: int = 0
    source: str = ""
    type: str = ""
    severity: Severity = Severity.INFO
    correlation_id: str = ""
    reply_to: str = ""
    group: str = ""
    content_type: str = ""
    priority: int = 4
    expiration_us: int = 0
    deliver_at_us: int = 0
    properties: dict[str, PropertyValue] = {}
    id: MessageId | None = None
