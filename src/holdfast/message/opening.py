"""Opens the messages of a batch: columns in, values out.

Both ways raise BatchError on a batch that was never validated and turns out to be damaged, and nothing on a
valid one.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import TYPE_CHECKING, Any

from holdfast.errors import BatchError
from holdfast.message.ids import MessageId
from holdfast.message.layout import TEXT_COLUMNS
from holdfast.message.message import Message, PropertyValue, Severity
from holdfast.message.properties import decode_properties

if TYPE_CHECKING:
    from holdfast.message.batch import Batch

_SEVERITIES = {int(severity): severity for severity in Severity}
_DAMAGE = (KeyError, UnicodeDecodeError)
_TEXT = frozenset(TEXT_COLUMNS)


def open_message(batch: Batch, row: int) -> Message:
    """The message of one row; only the columns that are present are looked at."""
    fields: dict[str, Any] = {}
    try:
        for name in batch.stored_columns:
            value: Any = batch.column(name).at(row)
            if name in _TEXT:
                value = str(value, "utf-8")
            elif name == "body":
                value = bytes(value)
            elif name == "properties":
                value = decode_properties(value)
            elif name == "severity":
                value = _SEVERITIES[value]
            fields[name] = value
    except _DAMAGE as damage:
        raise BatchError(f"row {row}: {damage}") from None
    return Message(**fields, id=batch.id_of(row))


def open_messages(batch: Batch) -> list[Message]:
    """The messages of all rows. Every field is passed, which is cheaper than choosing fields for each
    message."""
    text = {name: batch.column(name) for name in TEXT_COLUMNS}
    try:
        return [
            Message(
                body=body,
                time_us=time_us,
                source=source,
                type=type_,
                severity=severity,
                correlation_id=correlation_id,
                reply_to=reply_to,
                group=group,
                content_type=content_type,
                priority=priority,
                expiration_us=expiration_us,
                deliver_at_us=deliver_at_us,
                properties=properties,
                id=id_,
            )
            for (
                (body, time_us, severity, priority, expiration_us, deliver_at_us, properties, id_),
                (source, type_, correlation_id, reply_to, group, content_type),
            ) in zip(
                zip(
                    batch.column("body").to_list(),
                    batch.column("time_us").to_list(),
                    map(_SEVERITIES.__getitem__, batch.column("severity").to_list()),
                    batch.column("priority").to_list(),
                    batch.column("expiration_us").to_list(),
                    batch.column("deliver_at_us").to_list(),
                    _properties(batch),
                    _ids(batch),
                    strict=True,
                ),
                zip(*(text[name].to_texts() for name in TEXT_COLUMNS), strict=True),
                strict=True,
            )
        ]
    except _DAMAGE as damage:
        raise BatchError(f"messages: {damage}") from None


def _properties(batch: Batch) -> list[dict[str, PropertyValue]]:
    """A dict for each row, shared with no other message."""
    column = batch.column("properties")
    if column.offsets is None:
        properties = decode_properties(column.data)
        return [properties.copy() for _ in range(len(batch))]
    return [decode_properties(blob) for blob in column.to_list()]


def _ids(batch: Batch) -> Iterable[MessageId | None]:
    origin, first, rows = batch.origin, batch.first_sequence, batch.rows
    if origin is None:
        return [None] * len(batch)
    if rows is None:
        return map(MessageId, repeat(origin), range(first, first + len(batch)))
    return map(MessageId, repeat(origin), map(first.__add__, rows.tolist()))
