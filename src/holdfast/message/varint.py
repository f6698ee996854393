"""Lengths and counts in one to five bytes: LEB128, seven bits to a byte, low bits first, shortest form
only."""

from __future__ import annotations

from holdfast.errors import BatchError

VARINT_BYTES_MAX = 5
VARINT_MAX = 0xFFFF_FFFF

_SINGLE_BYTES = [bytes((value,)) for value in range(0x80)]


def encode_varint(value: int) -> bytes:
    """`value` (0..VARINT_MAX) in its one form."""
    if value < 0x80:
        return _SINGLE_BYTES[value]
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def decode_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """The number that starts at `position`, and the position behind it. Raises BatchError only."""
    value = 0
    encoded = data[position : position + VARINT_BYTES_MAX]
    for index, byte in enumerate(encoded):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if byte == 0 and index > 0:
                raise BatchError(f"byte {position}: a length is not in its shortest form")
            if value > VARINT_MAX:
                raise BatchError(f"byte {position}: a length of {value} is above {VARINT_MAX}")
            return value, position + index + 1
    raise BatchError(f"byte {position}: a length does not end")
