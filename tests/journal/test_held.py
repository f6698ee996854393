"""The index of held records against a plain dict."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.journal.format import Section
from holdfast.journal.held import COMPACT_RECORDS_MIN, HeldRecords


class HeldMachine(RuleBasedStateMachine):
    """Adds, releases in any order, moves, and goes through a checkpoint now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.held = HeldRecords()
        self.model: dict[int, tuple[Section, int, int]] = {}
        self.next_lsn = 1

    @rule(
        section=st.sampled_from(Section),
        count=st.integers(1, 700),
        size=st.integers(1, 2**31),
        gap=st.integers(1, 3),
    )
    def add(self, section: Section, count: int, size: int, gap: int) -> None:
        for _ in range(count):
            lsn, self.next_lsn = self.next_lsn, self.next_lsn + gap
            place = lsn * 1000
            self.held.add(section, lsn=lsn, place=place, size=size)
            self.model[lsn] = (section, place, size)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), count=st.integers(1, 900), from_the_head=st.booleans())
    def release(self, data: st.DataObject, count: int, from_the_head: bool) -> None:
        lsns = list(self.model)
        chosen = lsns[:count] if from_the_head else data.draw(st.permutations(lsns))[:count]
        for lsn in chosen:
            _, place, size = self.model.pop(lsn)
            assert self.held.release(lsn) == (place, size)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), place=st.integers(0, 2**60), size=st.integers(1, 2**31))
    def move(self, data: st.DataObject, place: int, size: int) -> None:
        lsn = data.draw(st.sampled_from(sorted(self.model)))
        section, *old = self.model[lsn]
        assert self.held.move(lsn, place=place, size=size) == tuple(old)
        self.model[lsn] = (section, place, size)

    @rule(lsn=st.integers(0, 10_000))
    def ask_for_what_is_not_held(self, lsn: int) -> None:
        if lsn not in self.model:
            assert self.held.find(lsn) is None
            assert self.held.move(lsn, place=1, size=1) is None
            assert self.held.release(lsn) is None

    @rule()
    def restart(self) -> None:
        data = memoryview(b"".join(self.held.snapshot()))
        self.held = HeldRecords()
        self.held.restore(data)

    @invariant()
    def it_is_the_model(self) -> None:
        entries = [(section, lsn, place, size) for section, lsn, place, size in self.held.entries()]
        assert entries == sorted((section, lsn, *rest) for lsn, (section, *rest) in self.model.items())
        assert self.held.count == len(self.model)
        for section in Section:
            lsns = [lsn for lsn, (each, _, _) in self.model.items() if each is section]
            assert list(self.held.lsns(section)) == lsns
            assert self.held.section_count(section) == len(lsns)
            assert self.held.head_lsn(section) == (lsns[0] if lsns else None)
            assert self.held.tail_lsn(section) == (lsns[-1] if lsns else None)

    @invariant()
    def released_records_do_not_pile_up(self) -> None:
        for section, records in self.held._sections.items():
            count = self.held.section_count(section)
            assert len(records.sizes) <= 2 * count + COMPACT_RECORDS_MIN + 1


HeldMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestHeldMachine = HeldMachine.TestCase


def filled(count: int = 3) -> HeldRecords:
    held = HeldRecords()
    for lsn in range(1, count + 1):
        held.add(Section.MESSAGES, lsn=lsn, place=lsn << 32, size=40)
    return held


def test_what_is_found_has_its_section_place_and_size() -> None:
    assert filled().find(2) == (Section.MESSAGES, 2 << 32, 40)


def test_the_head_moves_on_past_what_was_released_in_any_order() -> None:
    held = filled(4)
    held.release(2)
    assert held.head_lsn(Section.MESSAGES) == 1
    held.release(1)
    assert held.head_lsn(Section.MESSAGES) == 3
    held.release(4)
    assert held.tail_lsn(Section.MESSAGES) == 3


def test_nothing_is_released_twice() -> None:
    held = filled()
    held.release(2)
    assert held.release(2) is None
    assert held.count == 2


def test_records_join_only_at_the_tail() -> None:
    with pytest.raises(AssertionError, match="order of their lsn"):
        filled(3).add(Section.MESSAGES, lsn=3, place=1, size=40)


def test_a_record_without_a_size_would_look_released() -> None:
    with pytest.raises(AssertionError, match="size"):
        HeldRecords().add(Section.NODE, lsn=1, place=1, size=0)


def test_changes_are_not_seen_by_one_who_lists_the_lsns() -> None:
    held = filled(3)
    listed = held.lsns(Section.MESSAGES)
    held.release(1)
    held.release(3)
    assert list(listed) == [1, 2, 3]


@pytest.mark.parametrize("cut", [1, 8, 25, 50])
def test_a_snapshot_that_ends_early_is_refused(cut: int) -> None:
    data = b"".join(filled().snapshot())
    with pytest.raises(ValueError, match="ends early"):
        HeldRecords().restore(memoryview(data[:-cut]))


def test_a_snapshot_with_bytes_left_over_is_refused() -> None:
    data = b"".join(filled().snapshot())
    with pytest.raises(ValueError, match="left over"):
        HeldRecords().restore(memoryview(data + b"\0"))
