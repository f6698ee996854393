"""What one column of a batch looks like from outside: one value for all rows, or a view of one value each.

A column that is absent from a batch is one whose constant is the default; nobody has to tell them apart.
The views are of the batch's own memory.
"""

from __future__ import annotations

from itertools import pairwise, repeat

from msgspec import Struct


class FixedColumn(Struct, frozen=True):
    """Numbers. `values` has one for each row; where it is None, every row has `constant`."""

    row_count: int
    constant: int
    values: memoryview | None

    def at(self, row: int) -> int:
        return self.constant if self.values is None else self.values[row]

    def to_list(self) -> list[int]:
        return [self.constant] * self.row_count if self.values is None else self.values.tolist()


class VariableColumn(Struct, frozen=True):
    """Byte strings. Row i is `data[offsets[i]:offsets[i + 1]]`; where `offsets` is None, every row is
    `data`."""

    row_count: int
    offsets: memoryview | None
    data: memoryview

    def at(self, row: int) -> memoryview:
        if self.offsets is None:
            return self.data
        return self.data[self.offsets[row] : self.offsets[row + 1]]

    def to_list(self) -> list[bytes]:
        data = bytes(self.data)
        if self.offsets is None:
            return [data] * self.row_count
        return [data[start:end] for start, end in pairwise(self.offsets.tolist())]

    def to_texts(self) -> list[str]:
        """The rows as text; the whole column is decoded at once where every character is one byte."""
        text = str(self.data, "utf-8")
        if self.offsets is None:
            return list(repeat(text, self.row_count))
        if text.isascii():
            return [text[start:end] for start, end in pairwise(self.offsets.tolist())]
        return [value.decode() for value in self.to_list()]
