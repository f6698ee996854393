"""The full check of a batch from outside: all that `Batch.parse` took on trust.

What it establishes, column by column: offsets never go back, so that every row lies within the data (Arrow
would follow a bad offset out of the buffer); text is utf-8 and no row begins within a character; properties
decode; numbers are in their ranges; row numbers rise. Rows are not visited one by one where the standard
library can look at a whole column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import BatchError
from holdfast.message.columns import FixedColumn, VariableColumn
from holdfast.message.message import PRIORITY_MAX, Severity
from holdfast.message.properties import decode_properties

if TYPE_CHECKING:
    from holdfast.message.batch import Batch

_ALLOWED = {
    "priority": bytes(range(PRIORITY_MAX + 1)),
    "severity": bytes(Severity),
}
_CHARACTER_STARTS = bytes(byte for byte in range(256) if byte & 0xC0 != 0x80)


def check_columns(batch: Batch) -> None:
    """Raise BatchError at the first thing wrong; afterwards nothing that reads `batch` can fail."""
    for fixed in batch.stored_fixed:
        if fixed in _ALLOWED:
            _check_allowed(fixed, batch.column(fixed))
        else:
            _check_not_negative(fixed, batch.column(fixed))
    for variable in batch.stored_variable:
        if variable == "body":
            _check_offsets(variable, batch.column(variable))
        elif variable == "properties":
            _check_properties(batch.column(variable))
        else:
            _check_text(variable, batch.column(variable))
    _check_rows(batch)


def _check_not_negative(name: str, column: FixedColumn) -> None:
    if column.values is None:
        is_negative = column.constant < 0
    else:
        # The sign is the top bit of every eighth byte, and "no top bit" is what ascii means.
        is_negative = not column.values.cast("B")[7::8].tobytes().isascii()
    if is_negative:
        raise BatchError(f"{name}: a time before the epoch")


def _check_allowed(name: str, column: FixedColumn) -> None:
    values = bytes((column.constant,)) if column.values is None else column.values.tobytes()
    beyond = values.translate(None, _ALLOWED[name])
    if beyond:
        raise BatchError(f"{name}: {beyond[0]} is out of range")


def _check_offsets(name: str, column: VariableColumn) -> list[int] | None:
    """The offsets, checked. `parse` has seen that they start at 0 and end where the data ends."""
    if column.offsets is None:
        return None
    offsets = column.offsets.tolist()
    if offsets != sorted(offsets):
        raise BatchError(f"{name}: an offset goes back")
    return offsets


def _check_text(name: str, column: VariableColumn) -> None:
    offsets = _check_offsets(name, column)
    data = column.data.tobytes()
    if data.isascii():
        return
    try:
        data.decode()
    except UnicodeDecodeError:
        raise BatchError(f"{name}: text that is not utf-8") from None
    if offsets is None:
        return
    data += b"\0"  # rows may begin where the data ends
    if bytes(map(data.__getitem__, offsets)).translate(None, _CHARACTER_STARTS):
        raise BatchError(f"{name}: a row begins within a character")


def _check_properties(column: VariableColumn) -> None:
    _check_offsets("properties", column)
    if column.offsets is None:
        decode_properties(column.data)
        return
    for blob in set(column.to_list()):
        decode_properties(blob)


def _check_rows(batch: Batch) -> None:
    if batch.rows is None:
        return
    rows = batch.rows.tolist()
    if rows != sorted(set(rows)):
        raise BatchError("rows: a row number does not rise")
