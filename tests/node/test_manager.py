from __future__ import annotations

import pytest

from holdfast.errors import Refused
from tests.node.harness import Client, Node


def test_a_sender_is_told_confirmed_only_after_the_group_commit() -> None:
    node = Node()
    queue, sender = node.declare("orders"), node.connect()
    node.send(sender, queue, 1, b"a", b"b")
    node.manager.advance()
    assert not sender.confirmed_sequences
    node.turn()
    assert sender.confirmed_sequences == {queue: 2}


def test_messages_reach_a_consumer_in_order_and_leave_when_they_are_acknowledged() -> None:
    node = Node()
    queue, sender, receiver = node.declare("orders"), node.connect(), node.connect()
    for number in range(10):
        node.send(sender, queue, number + 1, b"%d" % number)
    node.turn()
    node.consume(receiver, "orders")
    assert receiver.bodies() == [b"%d" % number for number in range(10)]
    assert receiver.positions() == list(range(1, 11))
    assert node.journal.held.count == 10
    node.acknowledge(receiver, 1, (1, 10))
    node.turn()
    assert receiver.acknowledged_number == 1
    assert node.journal.held.count == 0


def test_a_resend_is_recognised_and_confirmed_again() -> None:
    node = Node()
    queue, sender = node.declare("orders"), node.connect()
    node.send(sender, queue, 1, b"a", b"b")
    node.turn()
    sender.confirmed_sequences.clear()
    node.send(sender, queue, 1, b"a", b"b")
    node.send(sender, queue, 2, b"b", b"c")
    node.turn()
    assert sender.confirmed_sequences == {queue: 3}
    receiver = node.connect()
    node.consume(receiver, "orders")
    assert receiver.bodies() == [b"a", b"b", b"c"]


def test_a_gap_in_the_sequence_is_refused_with_what_to_resend() -> None:
    node = Node()
    queue, sender = node.declare("orders"), node.connect()
    with pytest.raises(Refused, match="resend from 1") as refused:
        node.send(sender, queue, 2, b"b")
    assert refused.value.server_code == "session.gap"


def test_a_queue_shares_its_messages_among_consumers_by_credit() -> None:
    node = Node()
    queue, sender = node.declare("orders"), node.connect()
    receivers = [node.connect(), node.connect()]
    for receiver in receivers:
        node.consume(receiver, "orders", credit=5)
    for number in range(12):
        node.send(sender, queue, number + 1, b"%d" % number)
        node.turn()
    assert [len(receiver.bodies()) for receiver in receivers] == [5, 5]
    assert sorted(receivers[0].positions() + receivers[1].positions()) == list(range(1, 11))
    node.manager.add_credit(receivers[1].link, consumer=1, messages=10)
    node.turn()
    assert len(receivers[1].bodies()) == 7


def test_what_a_lost_connection_had_is_delivered_again_first_and_marked() -> None:
    node = Node()
    queue, sender, lost, other = node.declare("orders"), node.connect(), node.connect(), node.connect()
    for number in range(4):
        node.send(sender, queue, number + 1, b"%d" % number)
    node.turn()
    node.consume(lost, "orders", credit=3)
    assert lost.positions() == [1, 2, 3]
    node.manager.disconnect(lost.link)
    node.turn()
    node.consume(other, "orders")
    assert other.positions() == [1, 2, 3, 4]
    assert [redeliveries for _, redeliveries, _, _ in other.deliveries] == [1, 1, 1, 0]


def test_what_is_given_back_comes_again_before_anything_new() -> None:
    node = Node()
    queue, sender, receiver = node.declare("orders"), node.connect(), node.connect()
    node.consume(receiver, "orders", credit=2)
    for number in range(4):
        node.send(sender, queue, number + 1, b"%d" % number)
    node.turn()
    node.manager.give_back(receiver.link, consumer=1, number=1, ranges=[(1, 1)])
    node.turn()
    node.manager.add_credit(receiver.link, consumer=1, messages=5)
    node.turn()
    assert receiver.positions() == [1, 2, 1, 2, 3, 4]


def test_each_durable_subscription_of_a_topic_gets_every_message_and_holds_it() -> None:
    node = Node()
    topic, sender = node.declare("events", "topic"), node.connect()
    first, second = node.connect(), node.connect()
    node.consume(first, "events", subscription="one", is_durable=True)
    node.consume(second, "events", subscription="two", is_durable=True)
    node.send(sender, topic, 1, b"a")
    node.turn()
    assert first.bodies() == second.bodies() == [b"a"]
    node.acknowledge(first, 1, (1, 1))
    node.turn()
    assert node.journal.held.count == 1
    node.acknowledge(second, 1, (1, 1))
    node.turn()
    assert node.journal.held.count == 0


def test_a_topic_without_subscriptions_holds_nothing() -> None:
    node = Node()
    topic, sender = node.declare("events", "topic"), node.connect()
    node.send(sender, topic, 1, b"a")
    node.turn()
    assert sender.confirmed_sequences == {topic: 1}
    assert node.journal.held.count == 0


def test_a_private_subscription_goes_with_its_consumer() -> None:
    node = Node()
    topic, sender, receiver = node.declare("events", "topic"), node.connect(), node.connect()
    node.consume(receiver, "events")
    node.send(sender, topic, 1, b"a")
    node.turn()
    assert receiver.bodies() == [b"a"]
    node.manager.disconnect(receiver.link)
    node.turn()
    assert node.journal.held.count == 0
    assert not node.state.by_name["events"].subscriptions


def test_parts_of_a_transaction_become_visible_at_once_or_never() -> None:
    node = Node()
    one, two = node.declare("one"), node.declare("two")
    sender, receiver = node.connect(), node.connect()
    node.consume(receiver, "one")
    node.consume(receiver, "two", consumer=2)
    node.send(sender, one, 1, b"a", transaction=1)
    node.send(sender, two, 1, b"b", transaction=1)
    node.send(sender, one, 2, b"vanishes", transaction=2)
    node.turn()
    assert not receiver.bodies()
    outcomes: list[bool] = []
    node.manager.commit(sender.link, 1, outcomes.append)
    node.manager.rollback(sender.link, 2, lambda: None)
    node.turn()
    assert outcomes == [True]
    assert sorted(receiver.bodies()) == [b"a", b"b"]
    assert node.journal.held.count == 2


def test_received_messages_of_a_rolled_back_transaction_come_back() -> None:
    node = Node()
    queue, sender, receiver = node.declare("orders"), node.connect(), node.connect()
    node.send(sender, queue, 1, b"a")
    node.turn()
    node.consume(receiver, "orders", credit=1)
    node.acknowledge(receiver, 1, (1, 1), transaction=1)
    node.turn()
    node.manager.rollback(receiver.link, 1, lambda: None)
    node.manager.add_credit(receiver.link, consumer=1, messages=1)
    node.turn()
    assert receiver.positions() == [1, 1]


def test_the_outcome_of_a_commit_can_be_asked_again_after_a_restart() -> None:
    node = Node()
    queue, sender = node.declare("orders"), node.connect()
    node.send(sender, queue, 1, b"a", transaction=7)
    node.manager.commit(sender.link, 7, lambda is_committed: None)
    node.send(sender, queue, 2, b"never committed", transaction=8)
    node.turn()
    node = Node(node.storage)
    again = node.connect(sender.link_text())
    outcomes: list[bool] = []
    node.manager.commit(again.link, 7, outcomes.append)
    node.manager.commit(again.link, 8, outcomes.append)
    node.turn()
    assert outcomes == [True, False]
    assert node.journal.held.count == 1


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_after_a_restart_everything_is_as_it_was(with_checkpoint: bool) -> None:
    node = Node()
    queue, topic = node.declare("orders"), node.declare("events", "topic")
    sender, receiver = node.connect(), node.connect()
    node.consume(receiver, "events", subscription="audit", is_durable=True, credit=1)
    for number in range(20):
        node.send(sender, queue, number + 1, b"q%d" % number)
        node.send(sender, topic, number + 1, b"t%d" % number)
    node.turn()
    node.acknowledge(receiver, 1, (1, 1))
    node.manager.mark_delivered()
    node.turn()
    if with_checkpoint:
        node.checkpoint()
    before = node.state.snapshot()
    node = Node(node.storage)
    assert node.state.snapshot() == before
    again = node.connect(sender.link_text())
    assert again.is_resumed
    assert again.link.epoch == 2
    assert again.link.appended == {queue: 20, topic: 20}
    node.send(again, queue, 20, b"q19", b"q20")
    reader = node.connect()
    node.consume(reader, "orders")
    node.consume(reader, "events", subscription="audit", consumer=2)
    assert [b for b in reader.bodies() if b.startswith(b"q")] == [b"q%d" % number for number in range(21)]
    assert [b for b in reader.bodies() if b.startswith(b"t")] == [b"t%d" % number for number in range(1, 20)]


def test_what_was_delivered_before_a_crash_is_marked_as_redelivered() -> None:
    node = Node()
    queue, sender, receiver = node.declare("orders"), node.connect(), node.connect()
    for number in range(4):
        node.send(sender, queue, number + 1, b"%d" % number)
    node.turn()
    node.consume(receiver, "orders", credit=2)
    node.manager.mark_delivered()
    node.turn()
    node = Node(node.storage)
    again = node.connect()
    node.consume(again, "orders")
    assert [(first, redeliveries) for _, redeliveries, first, _ in again.deliveries] == [
        (1, 1),
        (2, 1),
        (3, 0),
        (4, 0),
    ]


def test_a_session_that_is_resumed_elsewhere_is_fenced() -> None:
    node = Node()
    first = node.connect()
    second = node.connect(first.link_text())
    assert first.is_fenced
    assert not first.link.is_open
    assert second.link.epoch == 2


def test_an_unknown_session_is_refused() -> None:
    node = Node()
    with pytest.raises(Refused) as refused:
        node.connect("00000000000000ff")
    assert refused.value.server_code == "session.unknown"


def test_a_batch_larger_than_the_credit_is_sliced() -> None:
    node = Node()
    queue, sender = node.declare("orders"), node.connect()
    receivers: list[Client] = [node.connect(), node.connect()]
    for receiver in receivers:
        node.consume(receiver, "orders", credit=3)
    node.send(sender, queue, 1, *[b"%d" % number for number in range(6)])
    node.turn()
    assert receivers[0].bodies() == [b"0", b"1", b"2"]
    assert receivers[1].bodies() == [b"3", b"4", b"5"]


def test_a_backlog_that_is_not_in_memory_is_read_from_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.node.distributor.CACHE_BYTES_MAX", 500)
    node = Node()
    queue, sender, receiver = node.declare("orders"), node.connect(), node.connect()
    for number in range(50):
        node.send(sender, queue, number + 1, b"%d" % number * 20)
    node.turn()
    node.consume(receiver, "orders")
    assert receiver.positions() == list(range(1, 51))


@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        ("", "queue", "destination.name"),
        ("a b", "queue", "destination.name"),
        ("_MINE", "queue", "destination.name"),
        ("x" * 300, "queue", "destination.name"),
        ("nowhere", "", "destination.unknown"),
        ("orders", "stack", "destination.kind"),
    ],
)
def test_destinations_that_cannot_be_are_refused(name: str, kind: str, code: str) -> None:
    with pytest.raises(Refused) as refused:
        Node().declare(name, kind)
    assert refused.value.server_code == code


def test_a_destination_is_made_once_whoever_asks() -> None:
    node = Node()
    numbers: list[int] = []
    for _ in range(3):
        node.manager.declare("orders", "queue", lambda destination: numbers.append(destination.number))
    node.turn()
    assert len(numbers) == 3
    assert len(set(numbers)) == 1
    with pytest.raises(Refused, match="is a queue"):
        node.declare("orders", "topic")
