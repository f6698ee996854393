"""The end of the log: groups as they are gathered, sealed and laid into segments."""

from __future__ import annotations

import pytest

from holdfast.journal.format import (
    FLAG_HELD,
    GROUP_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    Section,
    generation_of,
    generation_seed,
    offset_of,
    parse_group_header,
    parse_segment_header,
    record_bytes,
)
from holdfast.journal.scan import Lineage, SegmentImage, Walk
from holdfast.journal.tail import GroupBuffer, Tail
from tests.journal.small_journal import SMALL

SALT = 5
RUN = 3


def new_tail(*, offset: int = SEGMENT_HEADER_BYTES) -> Tail:
    tail = Tail(SMALL, salt=SALT, run=RUN, epoch=1)
    tail.enter("segment-000001", 4, offset)
    return tail


def put(tail: Tail, lsn: int, payload: bytes = b"payload") -> int:
    return tail.put(
        lsn=lsn,
        section=Section.MESSAGES,
        kind=1,
        flags=FLAG_HELD,
        parts=(payload[:3], payload[3:]),
        payload_bytes=len(payload),
        size=record_bytes(len(payload)),
    )


def written(*buffers: GroupBuffer, name: str = "segment-000001") -> memoryview:
    """The segment after these groups were written to it."""
    data = bytearray(SMALL.segment_bytes)
    for buffer in buffers:
        for part in buffer.parts:
            if part.name == name:
                data[part.offset : part.offset + part.end - part.start] = buffer.view[part.start : part.end]
    return memoryview(bytes(data))


def payloads(data: memoryview, *, generation: int, first_lsn: int) -> list[bytes]:
    header = parse_segment_header(bytes(data[:SEGMENT_HEADER_BYTES]), SALT)
    if header is None:
        header = parse_segment_header(bytes(written(start_of(generation)))[:SEGMENT_HEADER_BYTES], SALT)
    assert header is not None
    image = SegmentImage("", header, data, SALT)
    walk = Walk(image, Lineage(RUN, 1), offset=SEGMENT_HEADER_BYTES, next_lsn=first_lsn, newest_run=0)
    return [bytes(record.payload) for _, records in walk.groups() for record in records]


def start_of(generation: int) -> GroupBuffer:
    tail = Tail(SMALL, salt=SALT, run=RUN, epoch=1)
    tail.enter("segment-000001", generation, 0)
    tail.put_marker(next_lsn=1)
    return tail.seal(durable_lsn=0)


def test_records_of_one_group_lie_back_to_back_behind_one_header() -> None:
    tail = new_tail()
    places = [put(tail, lsn) for lsn in (10, 11)]
    assert [generation_of(place) for place in places] == [4, 4]
    first = SEGMENT_HEADER_BYTES + GROUP_HEADER_BYTES
    assert [offset_of(place) for place in places] == [first, first + record_bytes(7)]
    data = written(tail.seal(durable_lsn=9))
    group = parse_group_header(data, 64, seed=generation_seed(SALT, 4), offset=64)
    assert group is not None
    assert (group.run, group.record_count, group.first_lsn, group.durable_lsn) == (RUN, 2, 10, 9)
    assert group.group_bytes == GROUP_HEADER_BYTES + 2 * record_bytes(7)
    assert payloads(data, generation=4, first_lsn=10) == [b"payload", b"payload"]


def test_the_next_group_follows_the_one_before() -> None:
    tail = new_tail()
    put(tail, 1, b"first")
    one = tail.seal(durable_lsn=0)
    put(tail, 2, b"second")
    data_before = written(one)
    tail.recycle(GroupBuffer(SMALL.group_bytes_max))
    two = tail.seal(durable_lsn=1)
    assert payloads(data_before, generation=4, first_lsn=1) == [b"first"]
    assert payloads(written(one, two), generation=4, first_lsn=1) == [b"first", b"second"]


def test_the_first_record_of_a_group_costs_its_header_too() -> None:
    tail = new_tail()
    assert tail.cost_bytes(100) == 100 + GROUP_HEADER_BYTES
    put(tail, 1)
    assert tail.cost_bytes(100) == 100
    tail.seal(durable_lsn=0)
    assert tail.cost_bytes(100) == 100 + GROUP_HEADER_BYTES


def test_the_room_shrinks_by_just_what_a_record_costs() -> None:
    tail = new_tail()
    assert tail.room_bytes == SMALL.usable_bytes
    for lsn in range(1, 20):
        cost, room = tail.cost_bytes(record_bytes(7)), tail.room_bytes
        put(tail, lsn)
        assert tail.room_bytes == room - cost


def test_a_group_goes_on_in_the_next_segment_with_headers_of_its_own() -> None:
    tail = new_tail(offset=SEGMENT_HEADER_BYTES + SMALL.usable_bytes - 200)
    put(tail, 1, b"in the old one")
    tail.enter("segment-000002", 5, 0)
    place = put(tail, 2, b"in the new one")
    assert (generation_of(place), offset_of(place)) == (5, SEGMENT_HEADER_BYTES + GROUP_HEADER_BYTES)
    buffer = tail.seal(durable_lsn=0)
    old, new = buffer.parts
    assert (old.name, new.name) == ("segment-000001", "segment-000002")
    assert (old.end, new.offset, new.starts_segment) == (new.start, 0, True)
    data = written(buffer, name="segment-000002")
    header = parse_segment_header(bytes(data[:SEGMENT_HEADER_BYTES]), SALT)
    assert header is not None
    assert (header.generation, header.base_lsn, header.run, header.durable_lsn) == (5, 2, RUN, 0)
    assert payloads(data, generation=5, first_lsn=2) == [b"in the new one"]


def test_no_part_leaves_its_segment() -> None:
    tail = new_tail()
    lsn = 0
    while tail.cost_bytes(record_bytes(4096)) <= tail.room_bytes:
        lsn += 1
        put(tail, lsn, bytes(4096))
        buffer = tail.seal(durable_lsn=0)
        assert all(part.offset + part.end - part.start <= SMALL.segment_bytes for part in buffer.parts)
        tail.recycle(buffer)
    assert lsn == SMALL.usable_bytes // (record_bytes(4096) + GROUP_HEADER_BYTES)


def test_a_marker_is_a_group_without_records() -> None:
    tail = new_tail()
    assert tail.put_marker(next_lsn=8)
    data = written(tail.seal(durable_lsn=7))
    group = parse_group_header(data, 64, seed=generation_seed(SALT, 4), offset=64)
    assert group is not None
    assert (group.record_count, group.first_lsn, group.durable_lsn) == (0, 8, 7)
    assert group.group_bytes == GROUP_HEADER_BYTES
    assert tail.position == (4, SEGMENT_HEADER_BYTES + GROUP_HEADER_BYTES)


def test_a_full_segment_still_has_room_for_one_last_marker() -> None:
    tail = new_tail(offset=SEGMENT_HEADER_BYTES + SMALL.usable_bytes)
    assert tail.room_bytes == 0
    assert tail.put_marker(next_lsn=8)
    buffer = tail.seal(durable_lsn=7)
    tail.recycle(buffer)
    assert tail.position == (4, SMALL.segment_bytes)
    assert tail.room_bytes == 0
    assert not tail.put_marker(next_lsn=8)
    assert tail.is_empty


def test_two_buffers_take_turns_and_one_group_at_a_time_is_written() -> None:
    tail = new_tail()
    put(tail, 1)
    writing = tail.seal(durable_lsn=0)
    assert tail.is_writing
    put(tail, 2)
    with pytest.raises(AssertionError, match="one group at a time"):
        tail.seal(durable_lsn=0)
    tail.recycle(writing)
    assert not tail.is_writing
    assert tail.seal(durable_lsn=1) is not writing


def test_what_is_gathered_while_a_group_is_written_does_not_change_it() -> None:
    tail = new_tail()
    put(tail, 1, b"first")
    writing = tail.seal(durable_lsn=0)
    before = bytes(writing.view[: writing.fill])
    put(tail, 2, b"second")
    assert bytes(writing.view[: writing.fill]) == before


def test_old_bytes_of_a_recycled_buffer_do_not_reach_the_disk() -> None:
    tail = new_tail()
    put(tail, 1, b"x" * 1000)
    tail.recycle(tail.seal(durable_lsn=0))
    put(tail, 2, b"y" * 1000)
    tail.recycle(tail.seal(durable_lsn=1))
    put(tail, 3, b"z")
    buffer = tail.seal(durable_lsn=2)
    (part,) = buffer.parts
    assert bytes(buffer.view[part.start : part.end]).count(b"x") == 0
    assert bytes(buffer.view[part.start : part.end]).endswith(b"z" + bytes(7))


def test_the_buffer_is_bounded_and_a_part_of_it_is_kept_back() -> None:
    tail = new_tail()
    room = SMALL.group_bytes_max - SEGMENT_HEADER_BYTES
    assert tail.has_buffer_for(room, keep_bytes=0)
    assert not tail.has_buffer_for(room + 1, keep_bytes=0)
    assert not tail.has_buffer_for(room, keep_bytes=1)
    put(tail, 1)
    assert not tail.has_buffer_for(room, keep_bytes=0)
