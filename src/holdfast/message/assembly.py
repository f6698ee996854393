"""Puts a batch together from its columns. The one writer of the layout, for every way to make a batch.

Columns are added in the order of their bits, and a column that is not added is absent. One join at the end
makes the batch, so that bodies are copied once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TypeAlias

from holdfast.errors import LimitExceeded
from holdfast.message.ids import Origin
from holdfast.message.layout import (
    BATCH_BYTES_MAX,
    BIT,
    FIXED_DEFAULTS,
    FLAG_ROWS,
    HEADER,
    HEADER_BYTES,
    I64,
    VERSION,
    WIDE_COLUMNS,
    FixedName,
    VariableName,
)
from holdfast.message.varint import encode_varint

Piece: TypeAlias = bytes | memoryview

_WIDE = frozenset(WIDE_COLUMNS)


class Assembly:
    """The columns of one batch on their way into it."""

    __slots__ = (
        "_constant",
        "_constant_data",
        "_data",
        "_data_bytes",
        "_narrow",
        "_offsets",
        "_present",
        "_saved_bytes",
        "_wide",
        "_wide_constant",
        "row_count",
    )

    def __init__(self, row_count: int) -> None:
        self.row_count = row_count
        self._present = 0
        self._constant = 0
        self._wide: list[Piece] = []
        self._wide_constant: list[Piece] = []
        self._offsets: list[Piece] = []
        self._narrow: list[Piece] = []
        self._constant_data: list[Piece] = []
        self._data: list[Piece] = []
        self._data_bytes = 0
        self._saved_bytes = 0  # what constants would take more, were they written out for every row

    def add_fixed_constant(self, name: FixedName, value: int) -> None:
        """The same number in every row; nothing at all where it is the default."""
        if value == FIXED_DEFAULTS[name]:
            return
        self._present |= BIT[name]
        self._constant |= BIT[name]
        if name in _WIDE:
            self._wide_constant.append(I64.pack(value))
        else:
            self._narrow.append(bytes((value,)))

    def add_fixed_rows(self, name: FixedName, packed: Piece) -> None:
        """One number for each row, already as bytes. They may turn out to be all the same."""
        is_wide = name in _WIDE
        first = bytes(packed[: 8 if is_wide else 1])
        if packed == first * self.row_count:
            self.add_fixed_constant(name, int.from_bytes(first, "little", signed=is_wide))
            return
        self._present |= BIT[name]
        (self._wide if is_wide else self._narrow).append(packed)

    def add_variable_constant(self, name: VariableName, value: Piece) -> None:
        """The same bytes in every row; nothing at all where they are empty."""
        size = len(value)
        if not size:
            return
        if name != "body":
            self._constant |= BIT[name]
            self._constant_data += (encode_varint(size), value)
            self._saved_bytes += size * (self.row_count - 1)
        elif self.row_count == 1:
            self._data.append(value)
            self._data_bytes += size
        else:  # body is never constant in the format
            self.add_variable_rows(name, [value] * self.row_count, pack_offsets([size] * self.row_count))
        self._present |= BIT[name]

    def add_variable_rows(self, name: VariableName, data: Sequence[Piece], offsets: Piece) -> None:
        """Bytes for each of several rows: the data in any number of pieces, and the packed offsets."""
        size = int.from_bytes(offsets[-4:], "little")
        if not size:
            return
        self._present |= BIT[name]
        self._offsets.append(offsets)
        self._data += data
        self._data_bytes += size

    def join(self, *, origin: Origin | None, first_sequence: int, rows: Piece | None = None) -> bytes:
        """The batch. Raises LimitExceeded where it would be above BATCH_BYTES_MAX."""
        header = HEADER.pack(
            VERSION,
            0 if rows is None else FLAG_ROWS,
            self._present,
            self._constant,
            self.row_count,
            0 if origin is None else origin.packed,
            first_sequence,
        )
        aligned = [*self._wide, *self._wide_constant]
        loose = [*self._offsets, *self._narrow, *self._constant_data]
        size = HEADER_BYTES + sum(map(len, aligned)) + sum(map(len, loose)) + self._data_bytes
        if size + self._saved_bytes > BATCH_BYTES_MAX:
            raise LimitExceeded("BATCH_BYTES_MAX", value=size + self._saved_bytes, maximum=BATCH_BYTES_MAX)
        if rows is not None:
            aligned.append(rows)
        return b"".join((header, *aligned, *loose, *self._data))


def pack_offsets(lengths: Iterable[int]) -> bytes:
    """Offsets, from 0, of rows that have these lengths. Raises LimitExceeded where they do not fit a
    batch."""
    offsets = list(accumulate(lengths, initial=0))
    if offsets[-1] > BATCH_BYTES_MAX:
        raise LimitExceeded("BATCH_BYTES_MAX", value=offsets[-1], maximum=BATCH_BYTES_MAX)
    return array("I", offsets).tobytes()
