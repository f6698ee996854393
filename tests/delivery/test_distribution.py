from __future__ import annotations

from holdfast.delivery.distribution import Consumer, Distribution
from tests.destinations.test_destination import queue


def made(*row_counts: int) -> Distribution:
    destination = queue(*row_counts)
    return Distribution(destination, destination.subscriptions[1])


def send_all(distribution: Distribution) -> list[tuple[object, int, int]]:
    sent = []
    while (delivery := distribution.next_delivery()) is not None:
        distribution.sent(delivery)
        sent.append((delivery.consumer.key, delivery.first, delivery.last))
    return sent


def test_nobody_with_credit_gets_nothing() -> None:
    distribution = made(3)
    assert distribution.next_delivery() is None
    distribution.add(Consumer("a", credit=0))
    assert distribution.next_delivery() is None


def test_consumers_take_turns_and_the_share_of_a_blocked_one_goes_to_others() -> None:
    distribution = made(1, 1, 1, 1, 1)
    distribution.add(Consumer("a", credit=1))
    distribution.add(Consumer("b", credit=10))
    assert send_all(distribution) == [("a", 1, 1), ("b", 2, 2), ("b", 3, 3), ("b", 4, 4), ("b", 5, 5)]


def test_a_delivery_lies_within_one_batch_and_one_credit() -> None:
    distribution = made(5, 2)
    distribution.add(Consumer("a", credit=4))
    distribution.add(Consumer("b", credit=9))
    assert send_all(distribution) == [("a", 1, 4), ("b", 5, 5), ("b", 6, 7)]


def test_what_is_confirmed_already_is_not_sent() -> None:
    distribution = made(6)
    distribution.subscription.acknowledge(3, 4)
    distribution.add(Consumer("a", credit=9))
    assert send_all(distribution) == [("a", 1, 2), ("a", 5, 6)]


def test_what_comes_back_is_sent_before_what_is_new_and_counted() -> None:
    distribution = made(2, 2)
    consumer = Consumer("a", credit=2)
    distribution.add(consumer)
    assert send_all(distribution) == [("a", 1, 2)]
    taken = distribution.take_back(consumer, [(1, 9)])
    assert taken == [(1, 2)]
    assert consumer.generation == 1
    consumer.credit = 9
    assert distribution.next_delivery() is not None
    distribution.subscription.count_return(1, 2)
    distribution.give_again(taken)
    first = distribution.next_delivery()
    assert first is not None
    assert (first.first, first.last, first.redeliveries) == (1, 2, 1)


def test_what_was_confirmed_meanwhile_does_not_come_again() -> None:
    distribution = made(4)
    consumer = Consumer("a", credit=9)
    distribution.add(consumer)
    send_all(distribution)
    taken = distribution.remove(consumer)
    distribution.subscription.acknowledge(2, 3)
    distribution.give_again(taken)
    distribution.add(Consumer("b", credit=9))
    assert send_all(distribution) == [("b", 1, 1), ("b", 4, 4)]


def test_what_another_consumer_has_is_not_taken_back() -> None:
    distribution = made(1, 1)
    first, second = Consumer("a", credit=1), Consumer("b", credit=1)
    distribution.add(first)
    distribution.add(second)
    send_all(distribution)
    assert distribution.take_back(first, [(1, 2)]) == [(1, 1)]
    assert second.generation == 0


def test_deliveries_of_different_count_are_told_apart() -> None:
    distribution = made(4)
    distribution.subscription.count_return(2, 2)
    distribution.add(Consumer("a", credit=9))
    assert send_all(distribution) == [("a", 1, 1), ("a", 2, 2), ("a", 3, 4)]


def test_what_lay_below_the_mark_at_the_start_counts_as_delivered_once() -> None:
    destination = queue(4)
    destination.subscriptions[1].delivered = 3
    distribution = Distribution(destination, destination.subscriptions[1])
    distribution.add(Consumer("a", credit=9))
    first = distribution.next_delivery()
    assert first is not None
    assert (first.first, first.last, first.redeliveries) == (1, 2, 1)


def test_what_a_consumer_had_besides_comes_again_in_its_order() -> None:
    distribution = made(1, 1, 1, 1, 1)
    consumer = Consumer("a", credit=4)
    distribution.add(consumer)
    send_all(distribution)
    distribution.acknowledged([(2, 2)])
    distribution.subscription.acknowledge(2, 2)
    taken = distribution.take_back(consumer, [(3, 3)])
    assert taken == [(3, 3)]
    distribution.subscription.count_return(3, 3)
    distribution.give_again(taken)
    consumer.credit = 9
    sent = []
    while (delivery := distribution.next_delivery()) is not None:
        distribution.sent(delivery)
        sent.append((delivery.first, delivery.last, delivery.redeliveries))
    assert sent == [(1, 1, 0), (3, 3, 1), (4, 4, 0), (5, 5, 0)]
