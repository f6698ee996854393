"""What `parse` refuses at once, and what only `validate` finds."""

from __future__ import annotations

import struct

import pytest

from holdfast.errors import BatchError
from holdfast.message import BATCH_BYTES_MAX, Batch, Message, Severity, encode, select_rows
from holdfast.message.layout import BIT
from tests.message.message_cases import EVERY_FIELD, ORIGIN

HEADER = struct.Struct("<BBHHHQQ")


def header(
    *,
    version: int = 1,
    flags: int = 0,
    present: int = 0,
    constant: int = 0,
    rows: int = 1,
    origin: int = 0,
    first: int = 0,
) -> bytes:
    return HEADER.pack(version, flags, present, constant, rows, origin, first)


def u32(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def i64(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


BODY, SOURCE, PROPERTIES, TIME = BIT["body"], BIT["source"], BIT["properties"], BIT["time_us"]

REFUSED_BY_PARSE = {
    "empty": b"",
    "header cut off": header()[:-1],
    "version 0": header(version=0),
    "version 2": header(version=2),
    "unknown flag": header(flags=2, origin=1),
    "unknown column": header(present=1 << 13, constant=1 << 13),
    "constant but not present": header(constant=TIME) + i64(1),
    "constant body": header(present=BODY, constant=BODY, rows=2) + b"\x01x",
    "no rows": header(rows=0),
    "one row, per-row column": header(present=TIME) + i64(1),
    "one row, rows column": header(flags=1, origin=1) + u32(0),
    "rows without origin": header(flags=1, rows=2) + u32(0, 1),
    "sequence without origin": header(first=1),
    "rows not from 0": header(flags=1, rows=2, origin=1) + u32(1, 2),
    "sequences beyond 64 bits": header(rows=2, origin=1, first=2**64 - 1),
    "rows beyond 64 bits": header(flags=1, rows=2, origin=1, first=2**64 - 5) + u32(0, 5),
    "column cut off": header(present=TIME, rows=2) + i64(1) + b"1234567",
    "bytes too many": header() + b"x",
    "bytes too many after rows": header(present=BODY, rows=2) + u32(0, 1, 2) + b"abc",
    "first offset not 0": header(present=BODY, rows=2) + u32(1, 1, 2) + b"ab",
    "last offset beyond the data": header(present=BODY, rows=2) + u32(0, 1, 3) + b"ab",
    "offsets cut off": header(present=BODY, rows=2) + u32(0, 1),
    "constant text cut off": header(present=SOURCE, constant=SOURCE) + b"\x05abcd",
    "constant length cut off": header(present=SOURCE, constant=SOURCE) + b"\x80",
    "constant length not minimal": header(present=SOURCE, constant=SOURCE) + b"\x81\x00x",
    "constant text missing": header(present=SOURCE | BODY, constant=SOURCE) + b"\x05abc",
    "too large": header(present=BODY) + bytes(BATCH_BYTES_MAX - 23),
    "too large when unfolded": header(present=SOURCE, constant=SOURCE, rows=65535)
    + b"\x81\x08"
    + b"x" * 1025,
}

REFUSED_BY_VALIDATE = {
    "offset goes back": header(present=BODY, rows=3) + u32(0, 2, 1, 2) + b"ab",
    "offset beyond the data": header(present=BODY, rows=3) + u32(0, 9, 1, 2) + b"ab",
    "text offset beyond the data": header(present=SOURCE, rows=3) + u32(0, 2**32 - 1, 1, 2) + b"ab",
    "blob offset beyond the data": header(present=PROPERTIES, rows=2) + u32(0, 9, 3) + b"\x01a\x01",
    "text not utf-8": header(present=SOURCE, rows=2) + u32(0, 1, 2) + b"a\xff",
    "row begins within a character": header(present=SOURCE, rows=2) + u32(0, 1, 2) + "é".encode(),
    "constant text not utf-8": header(present=SOURCE, constant=SOURCE, rows=2) + b"\x01\xff",
    "surrogate": header(present=SOURCE, constant=SOURCE) + b"\x03\xed\xa0\x80",
    "priority 10": header(present=BIT["priority"], rows=2) + b"\x00\x0a",
    "constant priority 10": header(present=BIT["priority"], constant=BIT["priority"]) + b"\x0a",
    "severity 0": header(present=BIT["severity"], rows=2) + b"\x00\x01",
    "severity 9": header(present=BIT["severity"], rows=2) + b"\x01\x09",
    "time before the epoch": header(present=TIME, rows=2) + i64(1, -1),
    "constant time before the epoch": header(present=TIME, constant=TIME) + i64(-1),
    "properties malformed": header(present=PROPERTIES, rows=2) + u32(0, 3, 4) + b"\x01a\x01\x00",
    "constant properties malformed": header(present=PROPERTIES, constant=PROPERTIES) + b"\x01\x07",
    "rows do not rise": header(flags=1, rows=3, origin=1) + u32(0, 1, 1),
    "rows go back": header(flags=1, rows=3, origin=1) + u32(0, 9, 5),
}


@pytest.mark.parametrize("raw", REFUSED_BY_PARSE.values(), ids=REFUSED_BY_PARSE.keys())
def test_parse_refuses(raw: bytes) -> None:
    with pytest.raises(BatchError):
        Batch.parse(raw)


@pytest.mark.parametrize("raw", REFUSED_BY_VALIDATE.values(), ids=REFUSED_BY_VALIDATE.keys())
def test_validate_refuses(raw: bytes) -> None:
    batch = Batch.parse(raw)
    with pytest.raises(BatchError):
        batch.validate()


def test_a_valid_batch_is_returned_by_its_check() -> None:
    batch = Batch.parse(encode([EVERY_FIELD, Message(), EVERY_FIELD], origin=ORIGIN, first_sequence=1))
    assert batch.validate() is batch
    assert len(Batch.parse(select_rows(batch, [0, 2])).validate()) == 2


def test_every_priority_and_severity_is_allowed() -> None:
    messages = [Message(priority=priority) for priority in range(10)]
    messages += [Message(severity=severity) for severity in Severity]
    assert Batch.parse(encode(messages)).validate().messages() == messages


def test_rows_may_begin_where_the_text_ends() -> None:
    messages = [Message(source="é"), Message(source=""), Message(source="")]
    assert Batch.parse(encode(messages)).validate().messages() == messages


def test_a_column_that_is_present_with_its_default_is_allowed() -> None:
    raw = header(present=TIME | SOURCE | BODY, constant=TIME | SOURCE, rows=2)
    raw += i64(0) + u32(0, 0, 0) + b"\x00"
    assert Batch.parse(raw).validate().messages() == [Message(), Message()]


def test_any_origin_but_0_is_allowed() -> None:
    assert Batch.parse(header(origin=1 << 63)).validate().origin is not None
