from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.destinations.positions import CHUNK_POSITIONS, PositionSet

edges = st.sampled_from(
    (1, 2, CHUNK_POSITIONS - 1, CHUNK_POSITIONS, CHUNK_POSITIONS + 1, 3 * CHUNK_POSITIONS)
)
positions = st.one_of(st.integers(1, 40), edges)
spans = st.tuples(positions, st.integers(0, 2 * CHUNK_POSITIONS)).map(lambda pair: (pair[0], sum(pair)))
LAST = 6 * CHUNK_POSITIONS


def members(found: PositionSet) -> set[int]:
    return {position for first, last in found.ranges() for position in range(first, last + 1)}


@given(st.lists(st.tuples(st.booleans(), spans), max_size=12), positions)
def test_it_behaves_as_a_set(steps: list[tuple[bool, tuple[int, int]]], at: int) -> None:
    found, model = PositionSet(), set[int]()
    for is_added, (first, last) in steps:
        if is_added:
            found.add(first, last)
            model |= set(range(first, last + 1))
        else:
            found.remove(first, last)
            model -= set(range(first, last + 1))
    assert members(found) == model
    assert bool(found) == bool(model)
    assert (at in found) == (at in model)
    assert found.first_missing(at) == next(p for p in range(at, LAST) if p not in model)
    assert found.first_present(at, LAST) == min((p for p in model if p >= at), default=None)
    assert found.covers(at, at + 50) == (set(range(at, at + 51)) <= model)
    found.discard_below(at)
    assert members(found) == {p for p in model if p >= at}


def test_ranges_come_back_as_they_were_given() -> None:
    ranges = [(3, 5), (9, 9), (CHUNK_POSITIONS - 2, 2 * CHUNK_POSITIONS + 1)]
    assert list(PositionSet(ranges).ranges()) == ranges


def test_an_empty_range_covers_nothing_and_is_covered() -> None:
    found = PositionSet([(5, 4)])
    assert not found
    assert found.covers(5, 4)
