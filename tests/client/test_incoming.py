from __future__ import annotations

import pytest

from holdfast.client.incoming import Incoming, Subscription
from holdfast.errors import ProtocolError
from holdfast.message import Message, encode
from holdfast.wire import Deliver


def a_consumer(*, window: int = 10, from_start: bool = False) -> Incoming:
    incoming = Incoming(1, Subscription("q", "", False, from_start), window=window)
    incoming.subscribe(1)
    incoming.subscribed()
    return incoming


def deliver(incoming: Incoming, first: int, last: int, *, generation: int = 0) -> tuple[bool, list[int]]:
    batch = encode([Message(body=b"%d" % position) for position in range(first, last + 1)])
    result = incoming.deliver(Deliver(1, generation, 0, first, batch))
    incoming.check_invariants()
    return result


def taken(incoming: Incoming, count: int = 1000) -> list[int]:
    positions: list[int] = []
    while len(positions) < count and (waiting := incoming.take()) is not None:
        positions.append(waiting.position)
    return positions


def test_messages_are_handed_out_in_order() -> None:
    incoming = a_consumer()

    assert deliver(incoming, 1, 3) == (True, [])
    assert taken(incoming) == [1, 2, 3]
    assert incoming.held_positions == [1, 2, 3]


class TestCredit:
    def test_subscribing_gives_the_whole_window(self) -> None:
        assert Incoming(1, Subscription("q"), window=10).subscribe(1).credit == 10

    def test_it_is_replenished_in_portions_of_half_a_window(self) -> None:
        incoming = a_consumer(window=10)
        deliver(incoming, 1, 10)
        taken(incoming, 4)
        assert incoming.take_credit() == 0
        taken(incoming, 1)

        assert incoming.take_credit() == 5
        assert incoming.take_credit() == 0

    def test_what_waits_or_is_on_its_way_never_exceeds_the_window(self) -> None:
        incoming = a_consumer(window=4)
        position, outstanding = 1, 4
        for count in (1, 3, 2, 4, 1, 2):
            arriving = min(count, outstanding)
            if arriving:
                deliver(incoming, position, position + arriving - 1)
            position, outstanding = position + arriving, outstanding - arriving
            taken(incoming, count)
            outstanding += incoming.take_credit()
            incoming.check_invariants()

    def test_without_a_window_only_what_is_wanted_is_fetched(self) -> None:
        incoming = a_consumer(window=0)
        assert incoming.take_credit() == 0
        incoming.want(1)
        assert incoming.take_credit() == 1
        assert incoming.take_credit() == 0
        deliver(incoming, 1, 1)
        taken(incoming)

        assert incoming.take_credit() == 0

    def test_a_message_that_is_not_handed_out_makes_room_all_the_same(self) -> None:
        incoming = a_consumer(window=2)
        deliver(incoming, 1, 2)
        taken(incoming)
        incoming.lost()
        assert incoming.subscribe(2).credit == 2
        incoming.subscribed()
        deliver(incoming, 1, 2)

        assert taken(incoming) == []
        assert incoming.take_credit() == 2


class TestRedelivery:
    def test_what_is_held_or_settling_is_not_handed_out_twice(self) -> None:
        incoming = a_consumer()
        deliver(incoming, 1, 4)
        taken(incoming, 3)
        incoming.settle(1)
        incoming.lost()
        incoming.subscribe(2)

        assert deliver(incoming, 1, 5) == (True, [])
        assert taken(incoming) == [4, 5]

    def test_what_was_settled_is_forgotten(self) -> None:
        incoming = a_consumer()
        deliver(incoming, 1, 1)
        taken(incoming)
        incoming.settle(1)
        incoming.settled(range(1, 2))

        assert deliver(incoming, 1, 1) == (True, [])

    def test_from_the_start_is_said_once(self) -> None:
        incoming = Incoming(1, Subscription("news", "", False, True), window=1)
        assert incoming.subscribe(1).from_start
        incoming.subscribed()
        incoming.lost()

        assert not incoming.subscribe(2).from_start


class TestGeneration:
    def test_what_waits_goes_back_with_what_is_returned(self) -> None:
        incoming = a_consumer()
        deliver(incoming, 1, 4)
        taken(incoming, 2)

        assert incoming.give_back([1]) == [1, 3, 4]
        assert taken(incoming) == []
        assert incoming.held_positions == [2]

    def test_what_still_comes_of_the_old_generation_is_returned(self) -> None:
        incoming = a_consumer()
        deliver(incoming, 1, 1)
        taken(incoming)
        incoming.give_back([1])

        assert deliver(incoming, 2, 3, generation=0) == (False, [2, 3])
        assert deliver(incoming, 1, 1, generation=1) == (True, [])

    def test_after_a_rollback_it_is_dropped_for_the_server_has_taken_it_back(self) -> None:
        incoming = a_consumer()
        deliver(incoming, 1, 3)
        taken(incoming, 2)
        incoming.settle(1)
        incoming.rolled_back([1])

        assert deliver(incoming, 4, 4, generation=0) == (False, [])
        assert deliver(incoming, 1, 4, generation=1) == (True, [])
        assert taken(incoming) == [1, 2, 3, 4]

    def test_a_resume_begins_anew(self) -> None:
        incoming = a_consumer()
        deliver(incoming, 1, 1, generation=3)
        taken(incoming)
        incoming.give_back([1])
        incoming.lost()
        incoming.subscribe(2)

        assert deliver(incoming, 1, 1, generation=0) == (True, [])


def test_a_damaged_batch_is_the_servers_fault() -> None:
    with pytest.raises(ProtocolError, match="delivery"):
        a_consumer().deliver(Deliver(1, 0, 0, 1, b"no batch"))
