"""Free space and its reserve: random histories keep the account straight."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.journal.space import Budget, Space
from tests.journal.small_journal import SMALL

RESERVED = (Budget.ACKNOWLEDGEMENTS, Budget.MOVES, Budget.SYSTEM_EVENTS)
SIZES = {
    Budget.ACKNOWLEDGEMENTS: SMALL.acknowledgements_budget_bytes,
    Budget.MOVES: SMALL.moves_budget_bytes,
    Budget.SYSTEM_EVENTS: SMALL.system_events_budget_bytes,
}
RESERVE_BYTES = sum(SIZES.values())


def whole_space(open_bytes: int = 10_000) -> Space:
    space = Space(SMALL)
    space.give_back(RESERVE_BYTES + open_bytes)
    return space


def left(space: Space) -> dict[Budget, int]:
    return {budget: space.left_bytes(budget) for budget in RESERVED}


class SpaceMachine(RuleBasedStateMachine):
    """Takes and returns in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.space = Space(SMALL)
        self.given = 0
        self.taken = 0

    @initialize(open_bytes=st.integers(0, 50_000))
    def start(self, open_bytes: int) -> None:
        self.given = RESERVE_BYTES + open_bytes
        self.space.give_back(self.given)

    @rule(budget=st.sampled_from(Budget), cost_bytes=st.integers(0, 30_000))
    def take(self, budget: Budget, cost_bytes: int) -> None:
        before, open_before = left(self.space), self.space.open_bytes
        admitted = cost_bytes <= open_before + self.space.left_bytes(budget)
        assert self.space.admits(budget, cost_bytes) == admitted
        if not admitted:
            return
        self.space.take(budget, cost_bytes)
        self.taken += cost_bytes
        drawn = {each: before[each] - now for each, now in left(self.space).items() if before[each] != now}
        assert set(drawn) <= {budget}, "another budget was drawn on"
        assert sum(drawn.values()) == max(0, cost_bytes - open_before), "the reserve was touched too early"

    @precondition(lambda self: self.taken > 0)
    @rule(share=st.floats(0, 1))
    def give_back(self, share: float) -> None:
        returned = int(self.taken * share)
        self.space.give_back(returned)
        self.taken -= returned
        assert self.space.is_reserve_whole or self.space.open_bytes == 0, "messages came before the reserve"

    @invariant()
    def the_account_is_straight(self) -> None:
        self.space.check_invariants()
        assert self.space.free_bytes == self.given - self.taken


SpaceMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSpaceMachine = SpaceMachine.TestCase


def test_space_is_empty_until_some_is_given() -> None:
    space = Space(SMALL)
    assert not space.admits(Budget.SYSTEM_EVENTS, 1)
    assert space.admits(Budget.MESSAGES, 0)
    assert not space.is_reserve_whole


def test_messages_never_touch_the_reserve() -> None:
    space = whole_space(open_bytes=100)
    assert space.admits(Budget.MESSAGES, 100)
    assert not space.admits(Budget.MESSAGES, 101)
    space.take(Budget.MESSAGES, 100)
    assert not space.admits(Budget.MESSAGES, 1)
    assert space.is_reserve_whole


@pytest.mark.parametrize("budget", RESERVED)
def test_a_budget_is_drawn_on_only_by_its_own_kind_of_record(budget: Budget) -> None:
    space = whole_space(open_bytes=0)
    space.take(budget, SIZES[budget])
    assert not space.admits(budget, 1)
    assert left(space) == {**SIZES, budget: 0}
    for other in RESERVED:
        assert space.admits(other, SIZES[other]) == (other is not budget)


@pytest.mark.parametrize("budget", RESERVED)
def test_a_budget_is_spared_while_there_is_open_space(budget: Budget) -> None:
    space = whole_space(open_bytes=500)
    space.take(budget, 500)
    assert space.is_reserve_whole
    space.take(budget, 10)
    assert not space.is_reserve_whole


def test_returned_space_fills_the_budgets_before_messages_may_use_it() -> None:
    space = whole_space(open_bytes=0)
    for budget in RESERVED:
        space.take(budget, 1000)
    space.give_back(2999)
    assert not space.admits(Budget.MESSAGES, 1)
    assert not space.is_reserve_whole
    space.give_back(2)
    assert space.is_reserve_whole
    assert space.open_bytes == 1


def test_system_events_are_filled_first() -> None:
    space = whole_space(open_bytes=0)
    for budget in RESERVED:
        space.take(budget, 1000)
    space.give_back(1000)
    assert space.left_bytes(Budget.SYSTEM_EVENTS) == SIZES[Budget.SYSTEM_EVENTS]
    assert space.left_bytes(Budget.MOVES) == SIZES[Budget.MOVES] - 1000


def test_taking_what_was_not_admitted_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="without being admitted"):
        whole_space(open_bytes=10).take(Budget.MESSAGES, 11)
