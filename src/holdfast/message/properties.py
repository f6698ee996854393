"""The typed properties of one message, as one blob.

    | type            | field                                                             |
    | varint          | count, 1..PROPERTIES_MAX                                          |
    | per property:   |                                                                   |
    |   varint        | length of the key in bytes, 1..PROPERTY_KEY_BYTES_MAX             |
    |   bytes         | the key, utf-8, different from every other key of the message     |
    |   u8            | tag: 1 false, 2 true, 3 int64, 4 float64, 5 text, 6 bytes         |
    |   by tag        | nothing; 8 bytes little-endian; or varint length and utf-8 or raw |

No properties at all are the empty blob, so that every value has exactly one form. The order of the keys is
kept. A number that is infinite or not a number is allowed. `decode_properties` raises BatchError only.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from holdfast.errors import BatchError, LimitExceeded, UsageError
from holdfast.message.message import PropertyValue
from holdfast.message.varint import decode_varint, encode_varint

PROPERTIES_MAX = 1000
"""Properties are read one by one wherever a selector looks at a message."""
PROPERTY_KEY_BYTES_MAX = 255
"""A key is a name, not data."""
PROPERTIES_BYTES_MAX = 1 << 20
"""What is larger belongs in the body, which is passed on unopened."""

TAG_FALSE = 1
TAG_TRUE = 2
TAG_INTEGER = 3
TAG_FLOAT = 4
TAG_TEXT = 5
TAG_BYTES = 6

_INTEGER = struct.Struct("<Bq")
_FLOAT = struct.Struct("<Bd")
_INTEGER_VALUE = struct.Struct("<q")
_FLOAT_VALUE = struct.Struct("<d")
_FALSE = bytes((TAG_FALSE,))
_TRUE = bytes((TAG_TRUE,))
_TEXT = bytes((TAG_TEXT,))
_BYTES = bytes((TAG_BYTES,))


def encode_properties(properties: Mapping[str, PropertyValue]) -> bytes:
    """The blob of these properties; empty for none. Raises UsageError or LimitExceeded."""
    if not isinstance(properties, (dict, Mapping)):  # dict is told at once; Mapping takes a search
        raise UsageError(f"properties: {type(properties).__name__} is not a mapping")
    if not properties:
        return b""
    if len(properties) > PROPERTIES_MAX:
        raise LimitExceeded("PROPERTIES_MAX", value=len(properties), maximum=PROPERTIES_MAX)
    parts = [encode_varint(len(properties))]
    for key, value in properties.items():
        parts.append(_encode_key(key))
        parts.append(_encode_value(key, value))
    blob = b"".join(parts)
    if len(blob) > PROPERTIES_BYTES_MAX:
        raise LimitExceeded("PROPERTIES_BYTES_MAX", value=len(blob), maximum=PROPERTIES_BYTES_MAX)
    return blob


def decode_properties(blob: bytes | bytearray | memoryview) -> dict[str, PropertyValue]:
    """The properties in `blob`, which must be used up exactly. Raises BatchError only."""
    if not blob:
        return {}
    data = bytes(blob)
    if len(data) > PROPERTIES_BYTES_MAX:
        raise BatchError(f"properties: {len(data)} bytes are above {PROPERTIES_BYTES_MAX}")
    count, position = decode_varint(data, 0)
    if not 1 <= count <= PROPERTIES_MAX:
        raise BatchError(f"properties: a count of {count} is not within 1..{PROPERTIES_MAX}")
    properties: dict[str, PropertyValue] = {}
    try:
        for _ in range(count):
            length, position = _decode_length(data, position)
            if not 1 <= length <= PROPERTY_KEY_BYTES_MAX:
                raise BatchError(f"properties: a key of {length} bytes")
            key = data[position : position + length].decode()
            properties[key], position = _decode_value(data, position + length)
    except (IndexError, struct.error):
        raise BatchError("properties: cut off") from None
    except UnicodeDecodeError:
        raise BatchError("properties: text that is not utf-8") from None
    if len(properties) != count:
        raise BatchError("properties: a key is there twice")
    if position != len(data):
        raise BatchError(f"properties: they take {position} bytes, but the blob has {len(data)}")
    return properties


def _encode_key(key: str) -> bytes:
    try:
        encoded = key.encode()
    except (AttributeError, UnicodeEncodeError):
        raise UsageError(f"properties: the key {key!r} is not text") from None
    if not encoded:
        raise UsageError("properties: a key is empty")
    if len(encoded) > PROPERTY_KEY_BYTES_MAX:
        raise LimitExceeded("PROPERTY_KEY_BYTES_MAX", value=len(encoded), maximum=PROPERTY_KEY_BYTES_MAX)
    return encode_varint(len(encoded)) + encoded


def _encode_value(key: str, value: PropertyValue) -> bytes:
    if isinstance(value, str):
        try:
            encoded = value.encode()
        except UnicodeEncodeError:
            raise UsageError(f"properties: {key!r} holds a lone surrogate, which is not text") from None
        return _TEXT + encode_varint(len(encoded)) + encoded
    if isinstance(value, bool):  # before int, of which it is a kind
        return _TRUE if value else _FALSE
    if isinstance(value, int):
        try:
            return _INTEGER.pack(TAG_INTEGER, value)
        except struct.error:
            raise UsageError(f"properties: {key!r} is a whole number that does not fit 64 bits") from None
    if isinstance(value, float):
        return _FLOAT.pack(TAG_FLOAT, value)
    if isinstance(value, bytes):
        return _BYTES + encode_varint(len(value)) + value
    raise UsageError(
        f"properties: {key!r} is of type {type(value).__name__}, not bool, int, float, str or bytes"
    )


def _decode_length(data: bytes, position: int) -> tuple[int, int]:
    """A varint, most of which are one byte. Raises IndexError where there is no more data."""
    first = data[position]
    if first < 0x80:
        return first, position + 1
    return decode_varint(data, position)


def _decode_value(data: bytes, position: int) -> tuple[PropertyValue, int]:
    """The value that starts at `position` with its tag, and the position behind it.

    A value that is cut off is told by the position, which is then beyond the data.
    """
    tag = data[position]
    position += 1
    if tag == TAG_TEXT:
        length, position = _decode_length(data, position)
        return data[position : position + length].decode(), position + length
    if tag == TAG_INTEGER:
        return _INTEGER_VALUE.unpack_from(data, position)[0], position + 8
    if tag == TAG_FLOAT:
        return _FLOAT_VALUE.unpack_from(data, position)[0], position + 8
    if tag in (TAG_FALSE, TAG_TRUE):
        return tag == TAG_TRUE, position
    if tag == TAG_BYTES:
        length, position = _decode_length(data, position)
        return data[position : position + length], position + length
    raise BatchError(f"properties: {tag} is no tag of a value")
