"""A batch as an Arrow record batch over the same memory.

Per-row columns are Arrow arrays over the bytes of the batch: nothing is copied, and the record batch keeps
the buffer alive. Constant and absent columns are repeated, which needs memory of their own; absent ones have
their default. There are no nulls.

Only a batch that is valid (validated, or written by this system) may be shown to Arrow: it follows offsets
without a check, so that a bad one reads outside the buffer. `Batch.validate` catches every such offset.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from holdfast.errors import UsageError
from holdfast.message.batch import Batch
from holdfast.message.columns import FixedColumn, VariableColumn
from holdfast.message.layout import COLUMN_NAMES, FIXED_COLUMNS, NARROW_COLUMNS, TEXT_COLUMNS, WIDE_COLUMNS

_TYPES: dict[str, Any] = {
    **dict.fromkeys(WIDE_COLUMNS, pa.timestamp("us", tz="UTC")),
    **dict.fromkeys(NARROW_COLUMNS, pa.uint8()),
    **dict.fromkeys(TEXT_COLUMNS, pa.string()),
    "properties": pa.binary(),
    "body": pa.binary(),
}
_FIXED = frozenset(FIXED_COLUMNS)


def schema(columns: Sequence[str] | None = None, body: bool = True) -> Any:
    """The Arrow schema of these columns (all, unless told), in the order asked for; `body=False` leaves body
    out.

    Times are timestamps in microseconds UTC, where 0, the epoch, is "not given". `priority` and `severity`
    are uint8, as they are in memory; Spark has no such type, so its source casts them. `properties` are
    encoded blobs.
    """
    names = COLUMN_NAMES if columns is None else columns
    unknown = [name for name in names if name not in _TYPES]
    if unknown:
        raise UsageError(f"columns: no {', '.join(unknown)}; there are {', '.join(COLUMN_NAMES)}")
    return pa.schema(
        [pa.field(name, _TYPES[name], nullable=False) for name in names if body or name != "body"]
    )


def record_batch(batch: Batch, columns: Sequence[str] | None = None, body: bool = True) -> Any:
    """The columns of a valid batch as a `pyarrow.RecordBatch` of `schema(columns, body)`."""
    shown = schema(columns, body)
    arrays = [_array(batch, field.name, field.type) for field in shown]
    if not arrays:  # rows without columns, which `from_arrays` would not count
        rows = pa.Array.from_buffers(pa.struct([]), len(batch), [None], children=[])
        return pa.RecordBatch.from_struct_array(rows)
    return pa.RecordBatch.from_arrays(arrays, schema=shown)


def _array(batch: Batch, name: Any, arrow_type: Any) -> Any:
    if name in _FIXED:
        return _fixed(batch.column(name), arrow_type)
    return _variable(batch.column(name), arrow_type)


def _fixed(column: FixedColumn, arrow_type: Any) -> Any:
    if column.values is not None:
        buffer = _aligned(column.values)
    else:
        value = column.constant.to_bytes(arrow_type.bit_width // 8, "little")
        buffer = pa.py_buffer(value * column.row_count)
    return pa.Array.from_buffers(arrow_type, column.row_count, [None, buffer])


def _variable(column: VariableColumn, arrow_type: Any) -> Any:
    row_count, size = column.row_count, len(column.data)
    if column.offsets is not None:
        offsets, data = _aligned(column.offsets), pa.py_buffer(column.data)
    else:
        zeros = array("i", bytes(4 * row_count + 4))
        offsets = pa.py_buffer(array("i", range(0, size * (row_count + 1), size)) if size else zeros)
        data = pa.py_buffer(column.data if row_count == 1 else column.data.tobytes() * row_count)
    return pa.Array.from_buffers(arrow_type, row_count, [None, offsets, data])


def _aligned(values: memoryview) -> Any:
    """The memory of a column of numbers, as it is wherever it can be.

    Within a batch numbers are aligned, but a batch may stand anywhere in its container. Readers of Arrow
    memory may refuse numbers that are not aligned, so those few are copied. Bodies need no alignment and
    never are.
    """
    buffer = pa.py_buffer(values)
    if buffer.address % values.itemsize:
        return pa.py_buffer(values.tobytes())
    return buffer
