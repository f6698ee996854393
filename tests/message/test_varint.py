"""Lengths and counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BatchError
from holdfast.message.varint import VARINT_MAX, decode_varint, encode_varint


@given(st.integers(0, VARINT_MAX))
def test_a_number_comes_back(value: int) -> None:
    encoded = encode_varint(value)
    assert decode_varint(b"?" + encoded + b"?", 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (VARINT_MAX, "ffffffff0f")],
)
def test_known_numbers_have_known_bytes(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded


@pytest.mark.parametrize("encoded", ["", "80", "8000", "ff00", "ffffffff10", "ffffffffff01", "808080808000"])
def test_any_other_form_is_refused(encoded: str) -> None:
    with pytest.raises(BatchError):
        decode_varint(bytes.fromhex(encoded), 0)
