from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from holdfast.client.transactions import TRANSITIONS, Transactions, TransactionState
from holdfast.errors import Refused, UsageError

S = TransactionState
WAYS: dict[TransactionState, list[Callable[[Transactions], None]]] = {
    S.EMPTY: [],
    S.OPEN: [lambda t: t.part()],
    S.COMMITTING: [lambda t: t.part(), lambda t: t.commit(1)],
    S.ASKING: [lambda t: t.part(), lambda t: t.commit(1), lambda t: t.commit_sent()],
    S.ROLLING_BACK: [lambda t: t.part(), lambda t: t.rollback(1)],
}
EVENTS: dict[str, Callable[[Transactions], None]] = {
    "part": lambda t: t.part(),
    "commit": lambda t: t.commit(2),
    "commit_sent": lambda t: t.commit_sent(),
    "committed": lambda t: t.committed(),
    "unknown": lambda t: t.unknown(),
    "refused": lambda t: t.refused(),
    "rollback": lambda t: t.rollback(2),
    "rolled_back": lambda t: t.rolled_back(),
}


def in_state(state: TransactionState) -> Transactions:
    transactions = Transactions()
    for step in WAYS[state]:
        step(transactions)
    transactions.check_invariants()
    assert transactions.state is state
    return transactions


@pytest.mark.parametrize(("state", "event"), list(itertools.product(S, EVENTS)))
def test_every_event_in_every_state_is_in_the_table_or_refused(state: TransactionState, event: str) -> None:
    transactions = in_state(state)
    to = TRANSITIONS.get((state, event))
    if to is None:
        with pytest.raises(UsageError):
            EVENTS[event](transactions)
        assert transactions.state is state
    else:
        EVENTS[event](transactions)
        assert transactions.state is to
    transactions.check_invariants()


def test_the_table_names_only_these_events() -> None:
    assert {event for _, event in TRANSITIONS} == EVENTS.keys()


@pytest.mark.parametrize(
    ("state", "number_after"),
    [(S.EMPTY, 1), (S.OPEN, 2), (S.COMMITTING, 2), (S.ASKING, 1), (S.ROLLING_BACK, 1)],
)
def test_a_resume_gives_a_new_number_to_what_is_run_again(state: TransactionState, number_after: int) -> None:
    transactions = in_state(state)
    transactions.lost()
    transactions.resumed()

    assert transactions.number == number_after
    assert transactions.is_ask_due == (state is S.ASKING)


def test_a_transaction_with_a_missing_part_cannot_be_committed() -> None:
    transactions = in_state(S.OPEN)
    transactions.fault = Refused("no such queue", server_code="destination.unknown")

    with pytest.raises(Refused):
        transactions.commit(1)
    transactions.rollback(2)
    transactions.rolled_back()
    assert transactions.fault is None
