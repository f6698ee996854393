"""The reclaim rule, which segment is worth moving, and the pool of free ones."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.journal.format import place_of
from holdfast.journal.segments import Pool, Segment, Segments, is_segment, segment_name
from tests.journal.small_journal import SMALL


def in_use(*generations: int) -> Segments:
    segments = Segments()
    for generation in generations or (1, 2, 3):
        segments.add(Segment(segment_name(generation), generation, base_lsn=generation * 10))
    return segments


def got(segments: Segments, generation: int) -> Segment:
    segment = segments.get(generation)
    assert segment is not None
    return segment


def test_a_segment_is_reclaimed_when_it_is_dead_and_covered_by_a_checkpoint() -> None:
    segments = in_use()
    segments.checkpoint_generation = 3
    assert [segment.generation for segment in segments.take_reclaimable()] == [1, 2]
    assert [segment.generation for segment in segments] == [3]


def test_a_segment_with_something_live_in_it_is_kept() -> None:
    segments = in_use()
    segments.checkpoint_generation = 3
    segments.hold(place_of(1, 64), 100)
    assert [segment.generation for segment in segments.take_reclaimable()] == [2]
    segments.release(place_of(1, 64), 100)
    assert [segment.generation for segment in segments.take_reclaimable()] == [1]


def test_a_pinned_segment_is_kept() -> None:
    segments = in_use()
    segments.checkpoint_generation = 3
    got(segments, 2).pins = 1
    assert [segment.generation for segment in segments.take_reclaimable()] == [1]


def test_a_dead_segment_that_recovery_would_read_is_kept() -> None:
    segments = in_use()
    segments.checkpoint_generation = 2
    assert [segment.generation for segment in segments.take_reclaimable()] == [1]


def test_the_segment_that_is_written_to_is_kept() -> None:
    segments = in_use()
    segments.checkpoint_generation = 99
    assert segments.take_reclaimable()[-1].generation == 2
    assert segments.active.generation == 3


def test_a_segment_that_the_disk_no_longer_has_is_not_reclaimed_but_taken_out() -> None:
    segments = in_use()
    got(segments, 1).name = ""
    segments.checkpoint_generation = 3
    assert [segment.generation for segment in segments.take_reclaimable()] == [2]
    assert [segment.generation for segment in segments.take_missing()] == [1]
    assert len(segments) == 1


def test_what_is_live_is_counted_by_records_and_bytes() -> None:
    segments = in_use()
    segments.hold(place_of(2, 64), 100)
    segments.hold(place_of(2, 164), 50)
    segments.release(place_of(2, 64), 100)
    assert (got(segments, 2).live_records, got(segments, 2).live_bytes) == (1, 50)


def test_more_bytes_cannot_be_released_than_were_held() -> None:
    segments = in_use()
    segments.hold(place_of(2, 64), 50)
    with pytest.raises(AssertionError, match="more than was held"):
        segments.release(place_of(2, 64), 51)


def test_more_records_cannot_be_released_than_were_held() -> None:
    segments = in_use()
    with pytest.raises(AssertionError, match="more than was held"):
        segments.release(place_of(2, 64), 0)


def test_generations_only_grow() -> None:
    with pytest.raises(AssertionError):
        in_use(1, 3).add(Segment("x", 3, 1))


@pytest.mark.parametrize(
    ("generations", "first"), [((1, 2, 3), 1), ((1, 3, 4), 3), ((1, 2, 4), 4), ((7,), 7)]
)
def test_the_unbroken_log_starts_after_the_last_gap(generations: tuple[int, ...], first: int) -> None:
    assert in_use(*generations).first_unbroken.generation == first


def candidate(live_bytes: dict[int, int], **of_second: object) -> int | None:
    segments = in_use(1, 2, 3, 4)
    for generation, size in live_bytes.items():
        if size:
            segments.hold(place_of(generation, 64), size)
    for name, value in of_second.items():
        setattr(got(segments, 2), name, value)
    found = segments.move_candidate(SMALL, before_generation=4)
    return None if found is None else found.generation


def test_the_emptiest_segment_is_moved_first() -> None:
    assert candidate({1: 900, 2: 400, 3: 500}) == 2


def test_only_a_segment_that_is_mostly_dead_is_moved() -> None:
    quarter = SMALL.segment_bytes // 4
    assert candidate({1: quarter}) is None
    assert candidate({1: quarter - 1}) == 1


def test_a_dead_segment_and_an_active_one_are_not_moved() -> None:
    assert candidate({1: 0, 4: 10}) is None
    assert candidate({2: 10}, name="") is None


def test_only_dead_segments_behind_the_checkpoint_wait_for_one() -> None:
    segments = in_use(1, 2, 3, 4)
    segments.checkpoint_generation = 2
    assert segments.waiting_for_checkpoint(before_generation=4) == 2
    segments.hold(place_of(3, 64), 10)
    assert segments.waiting_for_checkpoint(before_generation=4) == 1


def test_free_segments_are_taken_in_the_order_in_which_they_became_free() -> None:
    pool = Pool(SMALL)
    for number in (3, 1, 2):
        pool.put(segment_name(number))
    assert [pool.take() for _ in range(4)] == [segment_name(3), segment_name(1), segment_name(2), None]
    assert pool.total_count == 3


def test_a_segment_cannot_be_free_twice() -> None:
    pool = Pool(SMALL)
    pool.put("segment-000000")
    with pytest.raises(AssertionError, match="free twice"):
        pool.put("segment-000000")


def test_a_new_segment_has_the_next_number_and_never_one_that_exists() -> None:
    pool = Pool(SMALL)
    assert pool.next_name() == segment_name(0)
    for number in (0, 1, 3):
        pool.know(segment_name(number))
    assert pool.next_name() == segment_name(4)


def test_the_pool_wants_a_segment_until_the_reserve_and_what_is_ahead_are_free() -> None:
    pool = Pool(SMALL)
    wanted = SMALL.reserve_segments + SMALL.segments_ahead
    for number in range(wanted):
        assert pool.wants_segment()
        pool.put(segment_name(number))
    assert not pool.wants_segment()
    pool.take()
    assert pool.wants_segment()


def test_the_pool_wants_one_segment_at_a_time_and_none_after_a_refusal() -> None:
    pool = Pool(SMALL)
    pool.is_allocating = True
    assert not pool.wants_segment()
    pool.is_allocating, pool.is_refused = False, True
    assert not pool.wants_segment()


def test_the_pool_keeps_the_quota() -> None:
    pool = Pool(msgspec.structs.replace(SMALL, segments_max=6))
    for number in range(6):
        pool.know(segment_name(number))
    assert not pool.wants_segment()


def test_segments_are_told_by_their_names() -> None:
    assert is_segment(segment_name(7))
    assert segment_name(7) == "segment-000007"
    assert not is_segment("checkpoint-0")
