"""Random and damaged bytes are refused with BatchError, or are a batch that decodes and encodes again."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.errors import BatchError
from holdfast.message import (
    HEADER_BYTES,
    Batch,
    Message,
    Severity,
    encode,
    gather,
    select_rows,
    slice_rows,
    stamp,
)
from holdfast.message.arrow import record_batch
from tests.message.message_cases import EVERY_FIELD, ORIGIN, exact_all

CASES = 6000


def check_bytes(raw: bytes) -> bool:
    """True where `raw` is a batch. Whatever it is, nothing but BatchError may come out."""
    try:
        batch = Batch.parse(raw).validate()
    except BatchError:
        return False
    messages = batch.messages()
    again = Batch.parse(encode(messages)).validate().messages()
    assert exact_all(again) == exact_all(messages)
    singly = [batch.message(row) for row in range(min(3, len(batch)))]
    assert exact_all(singly, with_id=True) == exact_all(messages[:3], with_id=True)
    check_reshaping(batch, messages)
    return True


def check_reshaping(batch: Batch, messages: list[Message]) -> None:
    """What is valid can be cut and gathered, and shown to Arrow."""
    count = len(batch)
    rows = range(0, count, 2)
    selected = Batch.parse(select_rows(batch, rows)).validate()
    assert exact_all(selected.messages(), with_id=True) == exact_all(messages[::2], with_id=True)
    parts = [slice_rows(batch, 0, (count + 1) // 2)]
    if count > 1:
        parts.append(slice_rows(batch, (count + 1) // 2, count))
    gathered = Batch.parse(gather([Batch.parse(part) for part in parts])).validate()
    assert exact_all(gathered.messages(), with_id=True) == exact_all(messages, with_id=True)
    if not batch.has_ids:
        header, rest = stamp(batch, ORIGIN, 1)
        Batch.parse(header + bytes(rest)).validate()
    record_batch(batch).validate(full=True)


def seeds() -> list[bytes]:
    """Valid batches of many shapes, small enough that damage hits something that matters."""
    plain = [Message(body=bytes((n,)) * n, time_us=n) for n in range(5)]
    texts = [replace(EVERY_FIELD, source="é" * n, priority=n, severity=Severity(n + 1)) for n in range(3)]
    mixed = [*plain, *texts, Message(properties={"a": 1}), Message(properties={"b": "x", "c": 1.5})]
    holes = Batch.parse(encode(mixed, origin=ORIGIN, first_sequence=9))
    batches = [encode(some) for some in (plain, texts, mixed, plain[1:2], texts[1:2], [EVERY_FIELD] * 3)]
    batches += [encode(mixed, origin=ORIGIN, first_sequence=1), select_rows(holes, [0, 2, 5, 7, 9])]
    return batches


def damaged(raw: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """`raw` with one to three injuries."""
    data = bytearray(raw)
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(data) + 1)
        injury = chance.randrange(6)
        if injury == 0 and data:
            data[place % len(data)] ^= 1 << chance.randrange(8)
        elif injury == 1 and data:
            data[place % len(data)] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
        elif injury == 2:
            del data[place:]
        elif injury == 3:
            data += chance.randbytes(chance.randint(1, 9))
        elif injury == 4:
            other = chance.choice(others)
            data[place:] = other[place:]
        else:
            data[place:place] = data[chance.randrange(len(data) + 1) :][: chance.randint(1, 8)]
    return bytes(data)


def test_undamaged_batches_are_valid() -> None:
    assert all(check_bytes(raw) for raw in seeds())


@pytest.mark.parametrize("seed", range(4))
def test_damaged_batches_are_refused_or_valid(seed: int) -> None:
    chance = random.Random(seed)
    originals = seeds()
    valid = sum(check_bytes(damaged(chance.choice(originals), originals, chance)) for _ in range(CASES // 4))
    assert 0 < valid < CASES // 4, "the damage must be neither harmless nor always fatal"


@pytest.mark.parametrize("seed", range(4))
def test_columns_of_noise_are_refused_or_valid(seed: int) -> None:
    """A sound header before noise, so that the columns are reached."""
    chance = random.Random(seed)
    for _ in range(CASES // 4):
        columns = chance.getrandbits(13)
        constant = chance.getrandbits(12) & columns
        row_count = chance.choice((1, 1, 2, 3, 300))
        if row_count == 1:
            constant = columns & 0x0FFF
        header = bytes((1, 0)) + b"".join(n.to_bytes(2, "little") for n in (columns, constant, row_count))
        check_bytes(header + bytes(16) + chance.randbytes(chance.randrange(120)))


def test_single_flipped_bits_are_refused_or_valid() -> None:
    """Every bit of the headers, and one in eleven of the rest, which comes to every place within a byte."""
    for raw in seeds():
        for bit in (*range(8 * HEADER_BYTES), *range(8 * HEADER_BYTES, 8 * len(raw), 11)):
            data = bytearray(raw)
            data[bit // 8] ^= 1 << bit % 8
            check_bytes(bytes(data))


def test_every_truncation_is_refused_or_valid() -> None:
    for raw in seeds():
        for size in range(len(raw)):
            check_bytes(raw[:size])


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_valid(raw: bytes) -> None:
    check_bytes(raw)
