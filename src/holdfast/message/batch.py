"""A batch: 1..65535 messages for one destination, read in place by column.

A `Batch` borrows the buffer it was parsed from and copies nothing until a message is opened. `parse` looks at
the header and the extents only, at a cost that does not grow with the rows: enough for bytes that this system
wrote and a checksum covers. Bytes from outside are also put through `validate`, after which nothing else on
that batch raises, and Arrow may be shown its memory. The buffer must not change while the batch is in use.
"""

from __future__ import annotations

from typing import Any, overload

from holdfast.errors import BatchError, UsageError
from holdfast.message.columns import FixedColumn, VariableColumn
from holdfast.message.ids import SEQUENCE_MAX, MessageId, Origin
from holdfast.message.layout import (
    BATCH_BYTES_MAX,
    COLUMN_NAMES,
    FIXED_COLUMNS,
    FIXED_DEFAULTS,
    HEADER,
    HEADER_BYTES,
    I64,
    U32,
    U32_PAIR,
    VARIABLE_COLUMNS,
    WIDE_COLUMNS,
    ColumnName,
    FixedName,
    Shape,
    VariableName,
    shape_of,
)
from holdfast.message.message import Message
from holdfast.message.opening import open_message, open_messages
from holdfast.message.validation import check_columns
from holdfast.message.varint import decode_varint

_FIXED = frozenset(FIXED_COLUMNS)
_VARIABLE = frozenset(VARIABLE_COLUMNS)
_WIDE = frozenset(WIDE_COLUMNS)


class Batch:
    """A parsed batch. Made by `Batch.parse`; immutable."""

    __slots__ = ("_extents", "_header", "_origin", "_shape", "_view", "first_sequence", "row_count")

    _view: memoryview
    _header: tuple[int, int, int, int]
    _shape: Shape
    _extents: dict[VariableName, tuple[int, int]]
    _origin: int
    row_count: int
    first_sequence: int
    """The sequence of row 0; 0 where there is no origin."""

    @classmethod
    def parse(cls, buffer: bytes | bytearray | memoryview) -> Batch:
        """The batch that fills `buffer` exactly, without a copy. Raises BatchError only."""
        view = memoryview(buffer)
        if view.format != "B" or view.ndim != 1 or not view.c_contiguous:
            view = _flat(view)
        if len(view) < HEADER_BYTES:
            raise BatchError(f"header: {len(view)} bytes are less than the {HEADER_BYTES} of a header")
        version, flags, present, constant, row_count, origin, first_sequence = HEADER.unpack_from(view)
        if row_count == 0:
            raise BatchError("header: no rows")
        batch = cls.__new__(cls)
        batch._view = view
        batch._header = (version, flags, present, constant)
        batch._shape = shape = shape_of(version, flags, present, constant, row_count == 1)
        batch.row_count = row_count
        batch._origin = origin
        batch.first_sequence = first_sequence
        if len(view) < shape.base + shape.per_row * row_count:
            raise BatchError(f"{len(view)} bytes are too few for the columns of {row_count} rows")
        batch._extents = batch._find_data()
        batch._check_ids()
        return batch

    def _find_data(self) -> dict[VariableName, tuple[int, int]]:
        """Where the data of each variable column stands; every byte of the batch must be accounted for."""
        view, shape, row_count = self._view, self._shape, self.row_count
        position = shape.base + shape.per_row * row_count
        unfolded_bytes = len(view) - 4 * row_count if shape.has_rows else len(view)
        extents: dict[VariableName, tuple[int, int]] = {}
        for name in shape.constants:
            length, start = decode_varint(view, position)
            position = start + length
            extents[name] = (start, position)
            unfolded_bytes += length * (row_count - 1)
        for name, (base, per_row) in shape.offsets.items():
            place = base + per_row * row_count
            if U32.unpack_from(view, place)[0] != 0:
                raise BatchError(f"{name}: the first offset is not 0")
            start = position
            position += U32.unpack_from(view, place + 4 * row_count)[0]
            extents[name] = (start, position)
        if shape.rest_is_body and position <= len(view):
            extents["body"] = (position, len(view))
        elif position != len(view):
            raise BatchError(f"the columns take {position} bytes, but the batch has {len(view)}")
        if unfolded_bytes > BATCH_BYTES_MAX:
            raise BatchError(f"{unfolded_bytes} bytes are above the {BATCH_BYTES_MAX} of a batch")
        return extents

    def _check_ids(self) -> None:
        has_rows = self._shape.has_rows
        if self._origin == 0:
            if self.first_sequence or has_rows:
                raise BatchError("header: a sequence or rows without an origin")
            return
        last_row = self.row_count - 1
        if has_rows:
            place = self._shape.rows.at(self.row_count)
            if U32.unpack_from(self._view, place)[0] != 0:
                raise BatchError("rows: the first is not 0")
            last_row = U32.unpack_from(self._view, place + 4 * last_row)[0]
        if self.first_sequence + last_row > SEQUENCE_MAX:
            raise BatchError("header: the sequences go beyond 64 bits")

    def validate(self) -> Batch:
        """Check all that `parse` took on trust; returns this batch. Raises BatchError only."""
        check_columns(self)
        return self

    def __len__(self) -> int:
        return self.row_count

    @property
    def buffer(self) -> memoryview:
        """The bytes of the batch, all of them."""
        return self._view

    @property
    def nbytes(self) -> int:
        return len(self._view)

    @property
    def header(self) -> tuple[int, int, int, int]:
        """Version, flags, columns present, columns constant: the header fields that no id depends on."""
        return self._header

    @property
    def stored_fixed(self) -> tuple[FixedName, ...]:
        """The columns of numbers that are present; every other has its default in all rows."""
        return self._shape.stored_fixed

    @property
    def stored_variable(self) -> tuple[VariableName, ...]:
        """The columns of bytes and text that are present; every other is empty in all rows."""
        return self._shape.stored_variable

    @property
    def stored_columns(self) -> tuple[ColumnName, ...]:
        return self._shape.stored_columns

    @property
    def has_ids(self) -> bool:
        return self._origin != 0

    @property
    def origin(self) -> Origin | None:
        """Who gave the ids; None where none have been given."""
        return Origin.from_packed(self._origin) if self._origin else None

    @property
    def last_sequence(self) -> int:
        """The sequence of the last row; 0 where there is no origin."""
        if not self._origin:
            return 0
        rows = self.rows
        return self.first_sequence + (self.row_count - 1 if rows is None else rows[-1])

    @property
    def rows(self) -> memoryview | None:
        """The row numbers (u32) of a batch with holes, from `first_sequence`; None where there are no holes."""
        if not self._shape.has_rows:
            return None
        start = self._shape.rows.at(self.row_count)
        return self._view[start : start + 4 * self.row_count].cast("I")

    def id_of(self, row: int) -> MessageId | None:
        """The id of a row; None where no ids have been given."""
        self._check_row(row)
        if not self._origin:
            return None
        rows = self.rows
        return MessageId(
            Origin.from_packed(self._origin), self.first_sequence + (row if rows is None else rows[row])
        )

    def body(self, row: int) -> memoryview:
        """The body of a row, in place."""
        self._check_row(row)
        start, end = self._extents.get("body", (0, 0))
        place = self._shape.offsets.get("body")
        if place is not None:
            offsets = U32_PAIR.unpack_from(self._view, place.at(self.row_count) + 4 * row)
            start, end = start + offsets[0], start + offsets[1]
        return self._view[start:end]

    @overload
    def column(self, name: FixedName) -> FixedColumn: ...
    @overload
    def column(self, name: VariableName) -> VariableColumn: ...
    def column(self, name: Any) -> Any:
        """A column by the name of its field, in place."""
        if name in _FIXED:
            return self._fixed(name)
        if name in _VARIABLE:
            return self._variable(name)
        raise UsageError(f"column: {name!r} is none; there are {', '.join(COLUMN_NAMES)}")

    def _fixed(self, name: FixedName) -> FixedColumn:
        stored = self._shape.fixed.get(name)
        if stored is None:
            return FixedColumn(self.row_count, FIXED_DEFAULTS[name], None)
        is_constant, (base, per_row) = stored
        start = base + per_row * self.row_count
        is_wide = name in _WIDE
        if is_constant:
            value = I64.unpack_from(self._view, start)[0] if is_wide else self._view[start]
            return FixedColumn(self.row_count, value, None)
        values = self._view[start : start + (8 if is_wide else 1) * self.row_count]
        return FixedColumn(self.row_count, FIXED_DEFAULTS[name], values.cast("q") if is_wide else values)

    def _variable(self, name: VariableName) -> VariableColumn:
        start, end = self._extents.get(name, (0, 0))
        place = self._shape.offsets.get(name)
        if place is None:
            return VariableColumn(self.row_count, None, self._view[start:end])
        first = place.at(self.row_count)
        offsets = self._view[first : first + 4 * self.row_count + 4].cast("I")
        return VariableColumn(self.row_count, offsets, self._view[start:end])

    def message(self, row: int) -> Message:
        """One message. Where several of a batch are wanted, `messages` is faster."""
        self._check_row(row)
        return open_message(self, row)

    def messages(self) -> list[Message]:
        """All messages, in order."""
        return open_messages(self)

    def _check_row(self, row: int) -> None:
        if not 0 <= row < self.row_count:
            raise UsageError(f"row: {row} is not within the {self.row_count} rows of the batch")


def _flat(view: memoryview) -> memoryview:
    if not view.c_contiguous:
        raise BatchError("the buffer is not one run of bytes")
    return view.cast("B")
