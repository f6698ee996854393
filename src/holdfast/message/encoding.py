"""Messages in, a batch out.

The way there is by column: all rows of a field are looked at together, and a field that no message gives
costs one comparison of the whole column. Nothing is checked message by message. Where a value does not fit,
some step of the way fails, and only then are the messages gone through one by one to say which row and field
was at fault.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from msgspec.structs import astuple

from holdfast.errors import LimitExceeded, UsageError
from holdfast.message.assembly import Assembly, pack_offsets
from holdfast.message.ids import SEQUENCE_MAX, Origin
from holdfast.message.layout import (
    BATCH_ROWS_MAX,
    FIXED_COLUMNS,
    FIXED_DEFAULTS,
    I64_MAX,
    TEXT_COLUMNS,
    WIDE_COLUMNS,
    FixedName,
    TextName,
    VariableName,
)
from holdfast.message.message import PRIORITY_MAX, Message, Severity
from holdfast.message.properties import encode_properties

_WIDE = frozenset(WIDE_COLUMNS)
_FIELDS = Message.__struct_fields__
_RANGES: dict[FixedName, tuple[int, int]] = {
    "time_us": (0, I64_MAX),
    "expiration_us": (0, I64_MAX),
    "deliver_at_us": (0, I64_MAX),
    "priority": (0, PRIORITY_MAX),
    "severity": (min(Severity), max(Severity)),
}
_UNFIT = (TypeError, ValueError, OverflowError, AttributeError, struct.error, UsageError)
"""What the steps below raise for values that do not fit: UsageError is for properties alone."""


def encode(messages: Sequence[Message], *, origin: Origin | None = None, first_sequence: int = 0) -> bytes:
    """A batch of these messages, 1..BATCH_ROWS_MAX of them. Their own ids are ignored.

    With an origin the rows get the ids `first_sequence`, `first_sequence + 1`, and so on; without one they
    have none. Raises UsageError, naming row and field, for values that do not fit, and LimitExceeded for too
    much.
    """
    row_count = len(messages)
    if not row_count:
        raise UsageError("messages: a batch has at least one")
    if row_count > BATCH_ROWS_MAX:
        raise LimitExceeded("BATCH_ROWS_MAX", value=row_count, maximum=BATCH_ROWS_MAX)
    check_sequences(origin, first_sequence, row_count)
    assembly = Assembly(row_count)
    try:
        columns = dict(zip(_FIELDS, zip(*map(astuple, messages), strict=True), strict=True))
        for name, default, add in _STEPS:
            values = columns[name]
            if values.count(default) != row_count:
                add(assembly, name, values)
        return assembly.join(origin=origin, first_sequence=first_sequence)
    except _UNFIT as misfit:
        _name_the_misfit(messages, misfit)


def check_sequences(origin: Origin | None, first_sequence: int, row_count: int) -> None:
    """Ids of `row_count` rows must fit 64 bits, and are given by an origin or not at all."""
    if origin is None:
        if first_sequence:
            raise UsageError("first_sequence: given without an origin")
    elif not 0 <= first_sequence <= SEQUENCE_MAX - row_count + 1:
        raise UsageError(f"first_sequence: {row_count} rows do not fit 0..2**64 - 1 from there")


def _add_fixed(assembly: Assembly, name: FixedName, values: tuple[Any, ...]) -> None:
    first = values[0]
    minimum, maximum = _RANGES[name]
    if values.count(first) == len(values):
        if not minimum <= first <= maximum:
            raise ValueError(name)
        assembly.add_fixed_constant(name, first)
        return
    if min(values) < minimum or max(values) > maximum:
        raise ValueError(name)
    assembly.add_fixed_rows(name, array("q", values).tobytes() if name in _WIDE else bytes(values))


def _add_text(assembly: Assembly, name: TextName, values: tuple[Any, ...]) -> None:
    first = values[0]
    if values.count(first) == len(values):
        assembly.add_variable_constant(name, str.encode(first))
        return
    joined = "".join(values)
    data = joined.encode()
    if len(data) == len(joined):  # ascii: characters are bytes
        assembly.add_variable_rows(name, [data], pack_offsets(map(len, values)))
    else:
        assembly.add_variable_rows(name, [data], pack_offsets([len(value.encode()) for value in values]))


def _add_properties(assembly: Assembly, name: VariableName, values: tuple[Any, ...]) -> None:
    # Compared as blobs, because 1, 1.0 and True are equal and must not become one another.
    blobs = list(map(encode_properties, values))
    if blobs.count(blobs[0]) == len(blobs):
        assembly.add_variable_constant(name, blobs[0])
    else:
        assembly.add_variable_rows(name, blobs, pack_offsets(map(len, blobs)))


def _add_bodies(assembly: Assembly, name: VariableName, values: tuple[Any, ...]) -> None:
    if set(map(type, values)) != {bytes}:
        raise TypeError("body")
    if len(values) == 1:
        assembly.add_variable_constant(name, values[0])
    else:
        assembly.add_variable_rows(name, values, pack_offsets(map(len, values)))


_STEPS: list[tuple[str, object, Callable[[Assembly, Any, tuple[Any, ...]], None]]] = [
    *((name, FIXED_DEFAULTS[name], _add_fixed) for name in FIXED_COLUMNS),
    *((name, "", _add_text) for name in TEXT_COLUMNS),
    ("properties", {}, _add_properties),
    ("body", b"", _add_bodies),
]
"""For each column, in the order of its bit: the default, and what adds it where it is not all default."""


def _name_the_misfit(messages: Sequence[Message], misfit: Exception) -> NoReturn:
    for row, message in enumerate(messages):
        if not isinstance(message, Message):
            raise UsageError(f"row {row}: {type(message).__name__} is not a Message") from None
        fault = _fault(message)
        if fault:
            raise UsageError(f"row {row}: {fault}") from None
    raise UsageError(f"messages: {misfit}") from misfit


def _fault(message: Message) -> str:
    """What is wrong with this message; nothing where it fits."""
    for fixed, (minimum, maximum) in _RANGES.items():
        number: Any = getattr(message, fixed)
        if not isinstance(number, int) or not minimum <= number <= maximum:
            return f"{fixed}: not a whole number from {minimum} to {maximum}"
    for name in TEXT_COLUMNS:
        text: Any = getattr(message, name)
        if not isinstance(text, str):
            return f"{name}: {type(text).__name__} is not text"
        try:
            text.encode()
        except UnicodeEncodeError:
            return f"{name}: a lone surrogate is not text"
    if type(message.body) is not bytes:
        return f"body: {type(message.body).__name__} is not bytes"
    try:
        encode_properties(message.properties)
    except UsageError as error:
        return str(error)
    return ""
