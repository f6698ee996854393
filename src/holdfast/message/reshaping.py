"""Batches from batches, by column, without opening a message: stamp, slice, select, gather.

Ids are kept by all of them. Each wants batches that are valid (validated, or written by this system).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import chain, repeat
from operator import itemgetter, sub
from typing import TypeAlias

from holdfast.errors import LimitExceeded, UsageError
from holdfast.message.assembly import Assembly, Piece, pack_offsets
from holdfast.message.batch import Batch
from holdfast.message.columns import FixedColumn, VariableColumn
from holdfast.message.encoding import check_sequences
from holdfast.message.ids import Origin
from holdfast.message.layout import (
    BATCH_BYTES_MAX,
    BATCH_ROWS_MAX,
    FIXED_COLUMNS,
    HEADER,
    HEADER_BYTES,
    I64,
    ROWS_SPAN_MAX,
    VARIABLE_COLUMNS,
    WIDE_COLUMNS,
    FixedName,
    VariableName,
)

Choice: TypeAlias = Callable[[Sequence[int]], tuple[int, ...]]

_WIDE = frozenset(WIDE_COLUMNS)


def stamp(batch: Batch, origin: Origin, first_sequence: int) -> tuple[bytes, memoryview]:
    """Give ids to a batch that has none: its new header, and the rest as it is, to be written one after the
    other.

    Raises UsageError for a batch that has ids: an id is for ever.
    """
    if batch.has_ids:
        raise UsageError("batch: it has ids, which are never changed")
    row_count = len(batch)
    check_sequences(origin, first_sequence, row_count)
    return HEADER.pack(*batch.header, row_count, origin.packed, first_sequence), batch.buffer[HEADER_BYTES:]


def slice_rows(batch: Batch, start: int, stop: int) -> bytes:
    """The rows from `start` up to, not including, `stop`: at least one."""
    row_count = len(batch)
    if not 0 <= start < stop <= row_count:
        raise UsageError(f"rows: {start}..{stop} is no range of rows within the {row_count} of the batch")
    if stop - start == row_count:
        return batch.buffer.tobytes()
    assembly = Assembly(stop - start)
    for fixed in batch.stored_fixed:
        _slice_fixed(assembly, fixed, batch.column(fixed), start, stop)
    for variable in batch.stored_variable:
        _slice_variable(assembly, variable, batch.column(variable), start, stop)
    if batch.rows is None:
        first = batch.first_sequence + start if batch.has_ids else 0
        return assembly.join(origin=batch.origin, first_sequence=first)
    return _join_with_rows(assembly, batch, batch.rows[start:stop].tolist())


def select_rows(batch: Batch, rows: Sequence[int]) -> bytes:
    """The rows with these indexes, which must rise: at least one."""
    if not rows:
        raise UsageError("rows: a batch has at least one")
    first, last = rows[0], rows[-1]
    indexes = list(rows)
    if first < 0 or last >= len(batch) or indexes != sorted(set(indexes)):
        raise UsageError(f"rows: indexes must rise, within the {len(batch)} rows of the batch")
    if last - first + 1 == len(indexes):
        return slice_rows(batch, first, last + 1)
    assembly = Assembly(len(indexes))
    choose: Choice = itemgetter(*indexes)
    choose_ends: Choice = itemgetter(*[index + 1 for index in indexes])
    for fixed in batch.stored_fixed:
        _select_fixed(assembly, fixed, batch.column(fixed), choose)
    for variable in batch.stored_variable:
        _select_variable(assembly, variable, batch.column(variable), choose, choose_ends)
    if not batch.has_ids:
        return assembly.join(origin=None, first_sequence=0)
    return _join_with_rows(assembly, batch, choose(batch.rows or range(len(batch))))


def gather(batches: Sequence[Batch]) -> bytes:
    """All rows of several batches, in order, as one batch.

    Ids are kept where all come from one origin and rise; where no batch has ids, the result has none.
    Raises UsageError for other mixtures, and LimitExceeded for too much.
    """
    if not batches:
        raise UsageError("batches: at least one")
    if len(batches) == 1:
        return batches[0].buffer.tobytes()
    row_count = sum(map(len, batches))
    if row_count > BATCH_ROWS_MAX:
        raise LimitExceeded("BATCH_ROWS_MAX", value=row_count, maximum=BATCH_ROWS_MAX)
    origin, first_sequence, rows = _gather_ids(batches)
    assembly = Assembly(row_count)
    stored = set(chain.from_iterable({batch.stored_columns for batch in batches}))
    for fixed in FIXED_COLUMNS:
        if fixed in stored:
            _gather_fixed(assembly, fixed, [batch.column(fixed) for batch in batches])
    for variable in VARIABLE_COLUMNS:
        if variable in stored:
            _gather_variable(assembly, variable, [batch.column(variable) for batch in batches])
    return assembly.join(origin=origin, first_sequence=first_sequence, rows=rows)


def _join_with_rows(assembly: Assembly, batch: Batch, rows: Sequence[int]) -> bytes:
    """Rows of a batch that has ids; a rows column is made only where holes remain."""
    base = rows[0]
    packed = None
    if rows[-1] - base + 1 != len(rows):
        packed = _shift(array("I", rows).tobytes(), -base)
    return assembly.join(origin=batch.origin, first_sequence=batch.first_sequence + base, rows=packed)


def _slice_fixed(assembly: Assembly, name: FixedName, column: FixedColumn, start: int, stop: int) -> None:
    if column.values is None:
        assembly.add_fixed_constant(name, column.constant)
    else:
        assembly.add_fixed_rows(name, column.values[start:stop].cast("B"))


def _slice_variable(
    assembly: Assembly, name: VariableName, column: VariableColumn, start: int, stop: int
) -> None:
    if column.offsets is None:
        assembly.add_variable_constant(name, column.data)
        return
    offsets = column.offsets[start : stop + 1]
    data = column.data[offsets[0] : offsets[-1]]
    if stop - start == 1:
        assembly.add_variable_constant(name, data)
    else:
        assembly.add_variable_rows(name, [data], _shift(offsets.tobytes(), -offsets[0]))


def _select_fixed(assembly: Assembly, name: FixedName, column: FixedColumn, choose: Choice) -> None:
    if column.values is None:
        assembly.add_fixed_constant(name, column.constant)
    else:
        chosen = choose(column.values.tolist())
        assembly.add_fixed_rows(name, array(column.values.format, chosen).tobytes())


def _select_variable(
    assembly: Assembly, name: VariableName, column: VariableColumn, choose: Choice, choose_ends: Choice
) -> None:
    if column.offsets is None:
        assembly.add_variable_constant(name, column.data)
        return
    offsets = column.offsets.tolist()
    starts, ends = choose(offsets), choose_ends(offsets)
    data = [column.data[start:end] for start, end in zip(starts, ends, strict=True)]
    assembly.add_variable_rows(name, data, pack_offsets(map(sub, ends, starts)))


def _gather_ids(batches: Sequence[Batch]) -> tuple[Origin | None, int, bytes | None]:
    """Origin, first sequence and, where the sequences have holes, the rows column of the gathered batch."""
    origin, first = batches[0].origin, batches[0].first_sequence
    if any(batch.origin != origin for batch in batches):
        raise UsageError("batches: their ids are of several origins, or only some have ids")
    if origin is None:
        return None, 0, None
    has_holes = False
    expected = first
    for batch in batches:
        if batch.first_sequence < expected:
            raise UsageError(f"batches: sequence {batch.first_sequence} comes after {expected - 1}")
        has_holes = has_holes or batch.first_sequence != expected or batch.rows is not None
        expected = batch.last_sequence + 1
    if not has_holes:
        return origin, first, None
    if expected - 1 - first > ROWS_SPAN_MAX:
        raise UsageError(f"batches: sequences {first}..{expected - 1} are too far apart for one batch")
    rows = [
        _shift(array("I", batch.rows or range(len(batch))).tobytes(), batch.first_sequence - first)
        for batch in batches
    ]
    return origin, first, b"".join(rows)


def _gather_fixed(assembly: Assembly, name: FixedName, columns: list[FixedColumn]) -> None:
    constant = columns[0].constant
    if all(column.values is None and column.constant == constant for column in columns):
        assembly.add_fixed_constant(name, constant)
        return
    pack = I64.pack if name in _WIDE else _pack_byte
    packed = [
        pack(column.constant) * column.row_count if column.values is None else column.values.cast("B")
        for column in columns
    ]
    assembly.add_fixed_rows(name, b"".join(packed))


def _gather_variable(assembly: Assembly, name: VariableName, columns: list[VariableColumn]) -> None:
    constant = columns[0].data
    if all(column.offsets is None and column.data == constant for column in columns):
        assembly.add_variable_constant(name, constant)
        return
    if all(column.offsets is None for column in columns):  # single messages, mostly
        values = list(chain.from_iterable(repeat(column.data, column.row_count) for column in columns))
        assembly.add_variable_rows(name, values, pack_offsets(map(len, values)))
        return
    data: list[Piece] = []
    offsets = [bytes(4)]
    end = 0
    for column in columns:
        size = len(column.data)
        if column.offsets is not None:
            data.append(column.data)
            offsets.append(_shift(column.offsets[1:].tobytes(), end))
            end += size
        else:
            data += [column.data] * column.row_count
            offsets.append(array("I", [end + size * row for row in range(1, column.row_count + 1)]).tobytes())
            end += size * column.row_count
        if end > BATCH_BYTES_MAX:  # before an offset outgrows its 32 bits
            raise LimitExceeded("BATCH_BYTES_MAX", value=end, maximum=BATCH_BYTES_MAX)
    assembly.add_variable_rows(name, data, b"".join(offsets))


def _pack_byte(value: int) -> bytes:
    return bytes((value,))


def _shift(packed: bytes, by: int) -> bytes:
    """Add `by` to each u32 in `packed`.

    Together they are one long number and `by` in every lane is another; the sum stays within its lanes
    because every result fits 32 bits. So it is one addition in C, where a loop would take a step for each
    row.
    """
    if not by:
        return packed
    lanes = int.from_bytes(packed, "little")
    ones = int.from_bytes(b"\1\0\0\0" * (len(packed) // 4), "little")
    return (lanes + by * ones).to_bytes(len(packed), "little")
