"""The bytes of a segment: what is packed is parsed, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.journal.config import JournalConfig
from holdfast.journal.format import (
    ALIGNMENT_BYTES,
    FLAG_HELD,
    FLAG_MOVED,
    GROUP_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    GroupHeader,
    Record,
    Section,
    SegmentHeader,
    aligned,
    generation_of,
    generation_seed,
    offset_of,
    origin_of,
    parse_group_header,
    parse_record,
    parse_segment_header,
    place_of,
    record_bytes,
)
from holdfast.journal.tail import Tail
from tests.journal.small_journal import SMALL

SALT = 77
U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
segment_headers = st.builds(SegmentHeader, U32, U64, U64, U32, U64)


def packed_record(
    payload: bytes, *, flags: int = FLAG_HELD, run: int = 3, section: int = Section.SESSIONS, lsn: int = 9
) -> memoryview:
    """One record as the tail encodes it at the start of generation 5."""
    tail = Tail(SMALL, salt=SALT, run=run, epoch=2)
    tail.enter("segment-000000", 5, SEGMENT_HEADER_BYTES)
    size = record_bytes(len(payload))
    tail.put(
        lsn=lsn,
        section=section,
        kind=200,
        flags=flags,
        parts=(payload,),
        payload_bytes=len(payload),
        size=size,
    )
    return memoryview(bytes(tail.seal(durable_lsn=0).data[GROUP_HEADER_BYTES : GROUP_HEADER_BYTES + size]))


def parsed(
    data: memoryview, *, generation: int = 5, salt: int = SALT, run: int | None = None
) -> Record | None:
    seed = generation_seed(salt, generation)
    return parse_record(data, 0, seed=seed, generation=generation, offset=104, run=run)


def flipped(data: bytes | memoryview, bit: int) -> memoryview:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return memoryview(bytes(changed))


@given(segment_headers, U64)
def test_a_segment_header_is_read_as_it_was_packed(header: SegmentHeader, salt: int) -> None:
    data = header.pack(salt)
    assert len(data) == SEGMENT_HEADER_BYTES
    assert parse_segment_header(data, salt) == header


@given(segment_headers)
def test_a_segment_header_of_another_journal_is_not_one(header: SegmentHeader) -> None:
    assert parse_segment_header(header.pack(1), 2) is None


@pytest.mark.parametrize("bit", range(SEGMENT_HEADER_BYTES * 8))
def test_a_segment_header_with_any_bit_flipped_is_not_one(bit: int) -> None:
    data = SegmentHeader(65536, 7, 100, 3, 99).pack(SALT)
    assert parse_segment_header(bytes(flipped(data, bit)), SALT) is None


def test_a_segment_header_that_ends_early_is_not_one() -> None:
    assert parse_segment_header(SegmentHeader(65536, 7, 100, 3, 99).pack(SALT)[:-1], SALT) is None


@given(st.builds(GroupHeader, U32, U32, U32, U64, U64, U32), U64, st.integers(0, 50))
def test_a_group_header_is_read_as_it_was_packed(group: GroupHeader, generation: int, at: int) -> None:
    buffer = bytearray(at + GROUP_HEADER_BYTES)
    seed = generation_seed(SALT, generation)
    group.pack_into(buffer, at, seed)
    assert parse_group_header(memoryview(buffer), at, seed=seed, offset=group.offset) == group


def packed_group() -> tuple[bytes, int]:
    buffer, seed = bytearray(GROUP_HEADER_BYTES), generation_seed(SALT, 5)
    GroupHeader(64, 3, 2, 9, 8, 200).pack_into(buffer, 0, seed)
    return bytes(buffer), seed


@pytest.mark.parametrize("bit", range(GROUP_HEADER_BYTES * 8))
def test_a_group_header_with_any_bit_flipped_is_not_one(bit: int) -> None:
    data, seed = packed_group()
    assert parse_group_header(flipped(data, bit), 0, seed=seed, offset=64) is None


def test_a_group_header_counts_only_at_its_own_place_and_generation() -> None:
    data, seed = packed_group()
    view = memoryview(data)
    assert parse_group_header(view, 0, seed=seed, offset=64) is not None
    assert parse_group_header(view, 0, seed=seed, offset=72) is None
    assert parse_group_header(view, 0, seed=generation_seed(SALT, 6), offset=64) is None
    assert parse_group_header(view[:-1], 0, seed=seed, offset=64) is None


@given(
    st.binary(max_size=300),
    st.sampled_from((0, FLAG_HELD)),
    st.sampled_from(Section),
    st.integers(1, 2**63),
)
def test_a_record_is_read_as_it_was_appended(payload: bytes, flags: int, section: Section, lsn: int) -> None:
    record = parsed(packed_record(payload, flags=flags, section=section, lsn=lsn))
    assert record is not None
    assert bytes(record.payload) == payload
    assert record.payload_bytes == len(payload)
    assert (record.lsn, record.section, record.kind, record.flags, record.epoch) == (
        lsn,
        section,
        200,
        flags,
        2,
    )
    assert (generation_of(record.place), offset_of(record.place)) == (5, 104)


@pytest.mark.parametrize("bit", range((RECORD_HEADER_BYTES + 5) * 8))
def test_a_record_with_any_bit_flipped_is_not_whole(bit: int) -> None:
    assert parsed(flipped(packed_record(b"hello"), bit)) is None


def test_a_record_of_an_earlier_use_of_the_segment_is_not_whole() -> None:
    data = packed_record(b"hello")
    assert parsed(data) is not None
    assert parsed(data, generation=6) is None
    assert parsed(data, salt=SALT + 1) is None


def test_a_record_of_another_run_is_not_whole_where_the_run_is_known() -> None:
    data = packed_record(b"hello", run=3)
    assert parsed(data, run=3) is not None
    assert parsed(data, run=4) is None


def test_a_record_that_ends_early_is_not_whole() -> None:
    data = packed_record(b"hello")
    assert parsed(data[: RECORD_HEADER_BYTES + 4]) is None
    assert parsed(data[: RECORD_HEADER_BYTES - 1]) is None
    assert parsed(data[: RECORD_HEADER_BYTES + 5]) is not None


@pytest.mark.parametrize("section", [5, 15])
def test_a_record_of_an_unknown_section_is_refused(section: int) -> None:
    assert parsed(packed_record(b"hello", section=section)) is None


@pytest.mark.parametrize("flags", [4, 8, 12])
def test_a_record_with_unknown_flags_is_refused(flags: int) -> None:
    assert parsed(packed_record(b"hello", flags=flags)) is None


def test_a_moved_record_has_room_for_its_first_lsn() -> None:
    assert parsed(packed_record(b"1234567", flags=FLAG_HELD | FLAG_MOVED)) is None
    assert parsed(packed_record(b"12345678", flags=FLAG_HELD | FLAG_MOVED)) is not None


@given(st.integers(0, 2**31), st.integers(0, 2**32 - 1))
def test_a_place_is_a_generation_and_an_offset(generation: int, offset: int) -> None:
    place = place_of(generation, offset)
    assert (generation_of(place), offset_of(place)) == (generation, offset)


@given(st.integers(0, 2**32))
def test_sizes_are_rounded_up_to_the_alignment(size: int) -> None:
    assert aligned(size) % ALIGNMENT_BYTES == 0
    assert size <= aligned(size) < size + ALIGNMENT_BYTES
    assert record_bytes(size) == aligned(RECORD_HEADER_BYTES + size)


def test_every_section_fits_into_the_bits_it_has() -> None:
    assert max(Section) < 16
    assert list(Section)[:2] == [Section.BOOT, Section.MESSAGES]


def test_headers_start_at_multiples_of_the_alignment() -> None:
    for size in (SEGMENT_HEADER_BYTES, GROUP_HEADER_BYTES, RECORD_HEADER_BYTES):
        assert size % ALIGNMENT_BYTES == 0
    assert JournalConfig().usable_bytes % ALIGNMENT_BYTES == 0


def test_a_record_that_was_not_moved_is_its_own_origin() -> None:
    assert origin_of(Record(7, 1, 1, 1, 0, 0, (b"payload",))) == 7
