"""The codec of typed properties."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.errors import BatchError, LimitExceeded, UsageError
from holdfast.message import Message, PropertyValue, Severity, decode_properties, encode_properties
from holdfast.message.properties import PROPERTIES_BYTES_MAX, PROPERTIES_MAX, PROPERTY_KEY_BYTES_MAX
from tests.message.message_cases import exact, property_maps


@given(property_maps)
def test_properties_come_back_with_their_types_and_order(properties: dict[str, PropertyValue]) -> None:
    decoded = decode_properties(encode_properties(properties))
    assert exact(Message(properties=decoded)) == exact(Message(properties=properties))


def test_known_properties_have_known_bytes() -> None:
    properties: dict[str, PropertyValue] = {"n": False, "y": True, "i": -2, "f": 1.5, "t": "é", "b": b"\x00"}
    blob = bytes.fromhex(
        "06" + "016e01" + "017902" + "016903feffffffffffffff" + "016604000000000000f83f"
        "01740502c3a9" + "0162060100"
    )
    assert encode_properties(properties) == blob
    assert decode_properties(memoryview(blob)) == properties


def test_no_properties_are_no_bytes() -> None:
    assert encode_properties({}) == b""
    assert decode_properties(b"") == {}


def test_true_is_not_one() -> None:
    decoded = decode_properties(encode_properties({"a": True, "b": 1, "c": 1.0, "d": Severity.DEBUG}))
    assert [type(value) for value in decoded.values()] == [bool, int, float, int]


def test_numbers_may_be_infinite_or_none_at_all() -> None:
    decoded = decode_properties(encode_properties({"a": math.inf, "b": -math.inf, "c": math.nan}))
    assert decoded["a"] == math.inf
    assert decoded["b"] == -math.inf
    assert math.isnan(float(decoded["c"]))


@pytest.mark.parametrize(
    "properties",
    [
        {"a": 2**63},
        {"a": -(2**63) - 1},
        {"a": 10**5000},
        {"a": None},
        {"a": [1]},
        {"a": bytearray(b"x")},
        {"a": "\ud800"},
        {"\ud800": 1},
        {"": 1},
        {1: 1},
        {b"a": 1},
        None,
        [],
    ],
)
def test_what_has_no_form_is_refused_with_the_key(properties: Any) -> None:
    with pytest.raises(UsageError, match="properties"):
        encode_properties(properties)


@pytest.mark.parametrize(
    ("properties", "limit"),
    [
        ({str(number): 1 for number in range(PROPERTIES_MAX + 1)}, "PROPERTIES_MAX"),
        ({"é" * (PROPERTY_KEY_BYTES_MAX // 2 + 1): 1}, "PROPERTY_KEY_BYTES_MAX"),
        ({"a": b"x" * PROPERTIES_BYTES_MAX}, "PROPERTIES_BYTES_MAX"),
    ],
)
def test_what_is_too_much_names_its_limit(properties: dict[str, PropertyValue], limit: str) -> None:
    with pytest.raises(LimitExceeded) as refusal:
        encode_properties(properties)
    assert refusal.value.limit == limit


def test_what_just_fits_comes_back() -> None:
    properties: dict[str, PropertyValue] = {str(number): number for number in range(PROPERTIES_MAX - 1)}
    properties["k" * PROPERTY_KEY_BYTES_MAX] = "v" * 1000
    assert decode_properties(encode_properties(properties)) == properties


@pytest.mark.parametrize(
    "blob",
    [
        "00",  # a count of none
        "0000",
        "8100" + "016101",  # count not in its shortest form
        "e907" + "016101",  # count above the limit
        "01",
        "0101",
        "010161",  # no tag
        "01016103",  # integer cut off
        "01016104000000000000f8",  # float cut off
        "010161050261",  # text cut off
        "010161060261",  # bytes cut off
        "0101610581",  # length cut off
        "010161058100" + "61",  # length not in its shortest form
        "010161010f",  # bytes too many
        "02" + "016101" + "016102",  # a key twice
        "010001",  # an empty key
        "0101ff01",  # a key that is not utf-8
        "0101610501ff",  # text that is not utf-8
        "0101610503eda080",  # text with a surrogate
        "01016100",  # unknown tags
        "01016107",
        "018002" + "61" * 256 + "01",  # a key above the limit
        "010261",  # a key cut off
    ],
)
def test_malformed_bytes_are_refused(blob: str) -> None:
    with pytest.raises(BatchError):
        decode_properties(bytes.fromhex(blob))


def test_a_blob_above_the_limit_is_refused() -> None:
    blob = b"\x01\x01a\x06\x80\x80\x40" + bytes(1 << 20)
    with pytest.raises(BatchError, match="above"):
        decode_properties(blob)


@given(st.binary(max_size=40))
@example(b"\x01\x01a\x05\xff\xff\xff\xff\x0f")
def test_any_bytes_decode_to_their_one_value_or_are_refused(blob: bytes) -> None:
    try:
        properties = decode_properties(blob)
    except BatchError:
        return
    assert encode_properties(properties) == blob
