"""Where everything stands in a batch. Little-endian; `docs/batch-format.md` has the long form.

    header, 24 bytes
    | offset | type | field                                                                      |
    | 0      | u8   | version = 1                                                                |
    | 1      | u8   | flags: bit 0 = has a rows column; the others are 0                         |
    | 2      | u16  | columns that are present, one bit each                                     |
    | 4      | u16  | columns that are constant: one value for all rows; present, and never body |
    | 6      | u16  | row count n, 1..BATCH_ROWS_MAX                                             |
    | 8      | u64  | origin; 0 = no ids given yet                                               |
    | 16     | u64  | first sequence: that of row 0; 0 where origin is 0                         |

    sections, in this order, each in the order of the column bits
    | a | per-row 8-byte columns, i64 x n; then the constant ones, one i64 each                       |
    | b | rows, u32 x n, where flags say so: sequence of row i = first sequence + rows[i]; rows[0] = 0 |
    | c | offsets of the per-row variable columns, u32 x (n + 1), from 0; none where n = 1            |
    | d | 1-byte columns: u8 x n, or one u8 where constant                                            |
    | e | constant variable columns: varint length and data                                           |
    | f | data of the per-row variable columns; that of body is last                                  |

A column that is absent has its default in every row. Where n = 1, every column but body is constant and body
is the rest of the batch. There is no length field: whatever contains the batch knows it, and every byte must
be used. So i64 values are aligned to 8 bytes and u32 values to 4, relative to the start of the batch, as
Arrow wants them.

For a given set of columns the start of each one is linear in the row count; a `Shape` holds those lines. Few
sets are in use at any time, so shapes are remembered and parsing is a few additions.
"""

from __future__ import annotations

import struct
import sys
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias

from holdfast.errors import BatchError

if sys.byteorder != "little":
    raise ImportError("holdfast.message reads columns in place, which needs a little-endian machine")

VERSION: Final = 1
FLAG_ROWS: Final = 1

BATCH_ROWS_MAX: Final = 0xFFFF
"""The row count is a u16; larger batches gain nothing."""
BATCH_BYTES_MAX: Final = 64 << 20
"""Holds for the batch with its constants written out for every row, so that no small batch unfolds into a
huge one. The rows column is not counted: selecting rows of a full batch must not fail."""
ROWS_SPAN_MAX: Final = 0xFFFF_FFFF
"""A row number is a u32."""
SHAPES_REMEMBERED_MAX: Final = 1024
"""A bound for peers that vary their columns on purpose; a busy node sees some tens of shapes."""

HEADER: Final = struct.Struct("<BBHHHQQ")
HEADER_BYTES: Final = 24
I64: Final = struct.Struct("<q")
I64_MAX: Final = (1 << 63) - 1
U32: Final = struct.Struct("<I")
U32_PAIR: Final = struct.Struct("<II")

WideName: TypeAlias = Literal["time_us", "expiration_us", "deliver_at_us"]
NarrowName: TypeAlias = Literal["priority", "severity"]
TextName: TypeAlias = Literal["source", "type", "correlation_id", "reply_to", "group", "content_type"]
FixedName: TypeAlias = Literal[WideName, NarrowName]
VariableName: TypeAlias = Literal[TextName, "properties", "body"]
ColumnName: TypeAlias = Literal[FixedName, VariableName]

WIDE_COLUMNS: Final[tuple[WideName, ...]] = ("time_us", "expiration_us", "deliver_at_us")
NARROW_COLUMNS: Final[tuple[NarrowName, ...]] = ("priority", "severity")
TEXT_COLUMNS: Final[tuple[TextName, ...]] = (
    "source",
    "type",
    "correlation_id",
    "reply_to",
    "group",
    "content_type",
)
FIXED_COLUMNS: Final[tuple[FixedName, ...]] = (*WIDE_COLUMNS, *NARROW_COLUMNS)
VARIABLE_COLUMNS: Final[tuple[VariableName, ...]] = (*TEXT_COLUMNS, "properties", "body")

COLUMN_NAMES: Final[tuple[ColumnName, ...]] = (*FIXED_COLUMNS, *VARIABLE_COLUMNS)
BIT: Final[dict[str, int]] = {name: 1 << number for number, name in enumerate(COLUMN_NAMES)}
ALL_COLUMNS: Final = (1 << len(COLUMN_NAMES)) - 1
BODY_BIT: Final = BIT["body"]

FIXED_DEFAULTS: Final[dict[FixedName, int]] = {
    "time_us": 0,
    "expiration_us": 0,
    "deliver_at_us": 0,
    "priority": 4,
    "severity": 2,
}
"""Variable columns have nothing as their default: empty text, no properties, an empty body."""


class Line(NamedTuple):
    """A place that depends on the row count: `base + per_row * row_count`."""

    base: int
    per_row: int

    def at(self, row_count: int) -> int:
        return self.base + self.per_row * row_count


class Shape:
    """Where the columns of every batch with these flags and column bits stand."""

    __slots__ = (
        "base",
        "constants",
        "fixed",
        "has_rows",
        "offsets",
        "per_row",
        "rest_is_body",
        "rows",
        "stored_columns",
        "stored_fixed",
        "stored_variable",
    )

    def __init__(self, *, flags: int, present: int, constant: int, single: bool) -> None:
        place = Line(HEADER_BYTES, 0)
        self.has_rows = bool(flags & FLAG_ROWS)
        self.stored_fixed = tuple(name for name in FIXED_COLUMNS if present & BIT[name])
        self.stored_variable = tuple(name for name in VARIABLE_COLUMNS if present & BIT[name])
        self.stored_columns: tuple[ColumnName, ...] = (*self.stored_fixed, *self.stored_variable)
        self.fixed: dict[FixedName, tuple[bool, Line]] = {}
        self.offsets: dict[VariableName, Line] = {}
        wide = [name for name in WIDE_COLUMNS if present & BIT[name]]
        for name in sorted(wide, key=lambda name: constant & BIT[name] != 0):  # per-row first; stable
            place = self._place_fixed(name, place, constant=constant, width=8)
        self.rows = place
        if self.has_rows:
            place = Line(place.base, place.per_row + 4)
        self.rest_is_body = single and bool(present & BODY_BIT)
        for variable in VARIABLE_COLUMNS:
            if present & ~constant & BIT[variable] and not single:
                self.offsets[variable] = place
                place = Line(place.base + 4, place.per_row + 4)
        for narrow in NARROW_COLUMNS:
            if present & BIT[narrow]:
                place = self._place_fixed(narrow, place, constant=constant, width=1)
        self.constants = tuple(name for name in VARIABLE_COLUMNS if constant & BIT[name])
        self.base, self.per_row = place
        """The line of the sections whose places depend on the data."""

    def _place_fixed(self, name: FixedName, place: Line, *, constant: int, width: int) -> Line:
        is_constant = bool(constant & BIT[name])
        self.fixed[name] = (is_constant, place)
        if is_constant:
            return Line(place.base + width, place.per_row)
        return Line(place.base, place.per_row + width)


@lru_cache(maxsize=SHAPES_REMEMBERED_MAX)
def shape_of(version: int, flags: int, present: int, constant: int, single: bool) -> Shape:
    """The shape that these header fields describe. Raises BatchError where they contradict the format."""
    if version != VERSION:
        raise BatchError(f"header: version {version} is unknown; this release reads version {VERSION}")
    if flags & ~FLAG_ROWS:
        raise BatchError(f"header: unknown flags {flags:#04x}")
    if present & ~ALL_COLUMNS:
        raise BatchError(f"header: unknown columns {present:#06x}")
    if constant & ~present or constant & BODY_BIT:
        raise BatchError(f"header: constant columns {constant:#06x} of {present:#06x}")
    if single and (flags & FLAG_ROWS or present & ~constant & ~BODY_BIT):
        raise BatchError("header: one row, but columns of more")
    return Shape(flags=flags, present=present, constant=constant, single=single)
