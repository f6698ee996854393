from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.destinations.destination import Destination, DestinationKind, HeldBatch, Subscription


def queue(*row_counts: int) -> Destination:
    made = Destination(number=1, name="orders", kind=DestinationKind.QUEUE)
    made.subscriptions[1] = Subscription(number=1, name="", cursor=1)
    for index, rows in enumerate(row_counts):
        made.append(100 + index, rows)
    return made


def test_positions_are_dense_whatever_the_size_of_the_batches() -> None:
    made = queue(3, 1, 2)
    assert made.next_position == 7
    assert made.batch_at(3) == HeldBatch(100, 1, 3)
    assert made.batch_at(4) == HeldBatch(101, 4, 1)
    assert made.batch_at(6) == HeldBatch(102, 5, 2)
    assert made.batch_at(7) is None


def test_a_batch_leaves_when_all_its_rows_are_confirmed_in_whatever_order() -> None:
    made = queue(3, 1)
    subscription = made.subscriptions[1]
    subscription.acknowledge(3, 3)
    assert made.release_done(3, 3) == []
    subscription.acknowledge(1, 2)
    assert subscription.cursor == 4
    assert made.release_done(1, 2) == [100]
    assert made.batch_at(2) is None
    assert made.next_held(1) == 4


def test_a_batch_leaves_only_after_the_last_of_several_subscriptions() -> None:
    made = queue(2)
    made.subscriptions[2] = Subscription(number=2, name="late", cursor=1)
    made.subscriptions[1].acknowledge(1, 2)
    assert made.release_done(1, 2) == []
    made.subscriptions[2].acknowledge(1, 2)
    assert made.release_done(1, 2) == [100]


def test_a_destination_without_subscriptions_holds_nothing() -> None:
    made = Destination(number=1, name="events", kind=DestinationKind.TOPIC)
    assert made.append(100, 3) is None
    assert made.next_position == 4
    assert made.batch_count == 0


def test_returns_are_counted_until_they_are_confirmed() -> None:
    subscription = queue(4).subscriptions[1]
    subscription.acknowledge(2, 2)
    subscription.count_return(1, 3)
    subscription.count_return(1, 1)
    assert subscription.returns == {1: 2, 3: 1}
    subscription.acknowledge(1, 1)
    assert subscription.returns == {3: 1}


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=60),
    st.lists(st.tuples(st.integers(1, 150), st.integers(0, 20)), max_size=80),
)
def test_it_holds_exactly_what_is_not_wholly_confirmed(
    sizes: list[int], spans: list[tuple[int, int]]
) -> None:
    made = queue(*sizes)
    subscription = made.subscriptions[1]
    confirmed: set[int] = set()
    released: list[int] = []
    for first, extra in spans:
        last = min(first + extra, made.next_position - 1)
        if first > last:
            continue
        subscription.acknowledge(first, last)
        confirmed |= set(range(first, last + 1))
        released += made.release_done(first, last)
    expected, position = [], 1
    for index, rows in enumerate(sizes):
        if not set(range(position, position + rows)) <= confirmed:
            expected.append(HeldBatch(100 + index, position, rows))
        position += rows
    assert list(made.batches(1, position)) == expected
    assert sorted(released) == sorted(set(range(100, 100 + len(sizes))) - {batch.lsn for batch in expected})
    assert made.batch_count == len(expected)
    again = Destination.restore(tuple(made.snapshot()))  # type: ignore[arg-type]
    assert again.snapshot() == made.snapshot()
    assert list(again.batches(1, position)) == expected
