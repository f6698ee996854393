"""Messages and batches: the one unit of the wire, of the journal and of Spark.

Values and codecs only. `holdfast.message.arrow` shows a batch to Arrow, and is imported by those who need it.
"""

from holdfast.message.batch import Batch
from holdfast.message.columns import FixedColumn, VariableColumn
from holdfast.message.encoding import encode
from holdfast.message.ids import IdSource, MessageId, Origin
from holdfast.message.layout import BATCH_BYTES_MAX, BATCH_ROWS_MAX, COLUMN_NAMES, HEADER_BYTES
from holdfast.message.message import PRIORITY_MAX, Message, PropertyValue, Severity
from holdfast.message.properties import (
    PROPERTIES_BYTES_MAX,
    PROPERTIES_MAX,
    PROPERTY_KEY_BYTES_MAX,
    decode_properties,
    encode_properties,
)
from holdfast.message.reshaping import gather, select_rows, slice_rows, stamp

__all__ = [
    "BATCH_BYTES_MAX",
    "BATCH_ROWS_MAX",
    "COLUMN_NAMES",
    "HEADER_BYTES",
    "PRIORITY_MAX",
    "PROPERTIES_BYTES_MAX",
    "PROPERTIES_MAX",
    "PROPERTY_KEY_BYTES_MAX",
    "Batch",
    "FixedColumn",
    "IdSource",
    "Message",
    "MessageId",
    "Origin",
    "PropertyValue",
    "Severity",
    "VariableColumn",
    "decode_properties",
    "encode",
    "encode_properties",
    "gather",
    "select_rows",
    "slice_rows",
    "stamp",
]
