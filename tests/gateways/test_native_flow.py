"""Full journals, clients that do not read, clients that ask too much: each waits by itself, and nothing is lost."""

from __future__ import annotations

import pytest

from holdfast.gateways.native import ConnectionLimits
from holdfast.wire import (
    Acknowledged,
    Ask,
    Commit,
    Confirm,
    Credit,
    Declare,
    Deliver,
    Done,
    Flow,
    OpenSession,
    Ping,
    Pong,
    SessionOpened,
    encode_frame,
)
from tests.gateways.wire_client import ServedNode, WireClient, accept, send

BODY = bytes(8_000)
LIMITS = ConnectionLimits(frame_bytes_max=16 * 1024, kept_bytes_max=20_000, output_bytes_max=64 * 1024)


def fill(client: WireClient, queue: int) -> int:
    """Send until the journal is full. The sequence of the first message that waits."""
    for sequence in range(1, 2000):
        client.say((1, send(queue, sequence, BODY)))
        if client.connection.is_blocked:
            return sequence
    raise AssertionError("the journal is never full")


@pytest.fixture
def served() -> ServedNode:
    return ServedNode()


@pytest.fixture
def full(served: ServedNode) -> tuple[WireClient, int, int]:
    """A producer whose last message found no room: itself, its queue, the sequence of that message."""
    client = served.session(LIMITS)
    queue = client.declare("orders")
    return client, queue, fill(client, queue)


@pytest.mark.spec("E4")
def test_a_producer_is_paused_not_disconnected_and_goes_on_when_space_returns(
    served: ServedNode, full: tuple[WireClient, int, int]
) -> None:
    client, queue, waiting = full
    assert client.connection.blocked_reason == "disk"
    assert client.last(Flow) == Flow(0, True)
    assert client.last(Confirm) == Confirm(queue, waiting - 1)
    assert not client.connection.is_paused  # a little more is taken, for what makes room may be behind it
    client.say((1, send(queue, waiting + 1, BODY)), (1, send(queue, waiting + 2, BODY)))
    assert client.connection.is_paused
    receiver = served.session()
    receiver.consume("orders", credit=10_000)
    assert receiver.positions() == list(range(1, waiting))
    receiver.say((1, accept(1, [(1, waiting - 1)])))
    served.turn()
    assert client.last(Confirm) == Confirm(queue, waiting + 2)
    assert client.last(Flow) == Flow(0, False)
    assert not client.connection.is_paused
    assert not client.connection.is_blocked
    assert receiver.positions() == list(range(1, waiting + 3))
    assert not client.error_codes() + receiver.error_codes()


def test_nothing_overtakes_a_waiting_send_but_what_makes_room(full: tuple[WireClient, int, int]) -> None:
    client, _, _ = full
    client.request(2, OpenSession)
    assert not client.all(SessionOpened, 2)
    client.say((1, Ping(5)))
    assert client.all(Pong) == [Pong(5)]


@pytest.mark.spec("E4")
def test_who_produces_and_consumes_on_one_session_frees_itself(served: ServedNode) -> None:
    client = served.session(LIMITS)
    queue = client.declare("orders")
    client.consume("orders", credit=1)
    waiting = fill(client, queue)
    client.say((1, send(queue, waiting + 1, BODY)), (1, Credit(1, waiting)), (1, accept(1, [(1, 1)])))
    assert client.last(Acknowledged) == Acknowledged(1)
    for _ in range(5):
        served.turn()
    assert len(client.all(Deliver)) == waiting - 1
    client.say((1, accept(2, [(2, waiting - 1)])))
    served.turn()
    assert client.last(Confirm) == Confirm(queue, waiting + 1)
    assert client.last(Flow) == Flow(0, False)


def test_what_depends_on_a_waiting_send_waits_behind_it(
    served: ServedNode, full: tuple[WireClient, int, int]
) -> None:
    client, queue, waiting = full
    client.say(
        (1, send(queue, waiting + 1, b"part", transaction=4)),
        (1, Commit(request=90, transaction=4)),
        (1, Declare(request=91, name="later", kind="queue")),
    )
    assert not [frame for frame in client.all(Done) if frame.request in (90, 91)]
    receiver = served.session()
    receiver.consume("orders", credit=10_000)
    receiver.say((1, accept(1, [(1, waiting - 1)])))
    served.turn()
    assert client.result(90) == {"outcome": "committed"}
    assert client.result(91)["kind"] == "queue"
    assert receiver.bodies()[-1] == b"part"


def test_other_clients_are_served_while_one_waits(
    served: ServedNode, full: tuple[WireClient, int, int]
) -> None:
    other = served.session()
    assert other.declare("small") > 0
    assert other.result(other.request(0, Ask, what="status"))["held_records"] > 0


def test_nothing_kept_is_lost_when_the_room_comes_back_bit_by_bit(
    served: ServedNode, full: tuple[WireClient, int, int]
) -> None:
    client, queue, waiting = full
    for extra in range(1, 3):
        client.say((1, send(queue, waiting + extra, BODY)))
    receiver = served.session()
    receiver.consume("orders", credit=10_000)
    for position in range(1, waiting):
        receiver.say((1, accept(position, [(position, position)])))
    assert client.last(Confirm) == Confirm(queue, waiting + 2)
    assert len(receiver.bodies()) == waiting + 2


def test_a_lost_connection_forgets_what_it_kept(
    served: ServedNode, full: tuple[WireClient, int, int]
) -> None:
    client, _, waiting = full
    session = client.last(SessionOpened).session
    client.connection.lost()
    again = served.connect()
    assert again.open(session=session).confirmed == {"orders": waiting - 1}


# ---- clients that do not read ------------------------------------------------------------------------------
def test_a_consumer_that_does_not_read_gets_no_more_and_others_get_its_share(served: ServedNode) -> None:
    sender = served.session()
    queue = sender.declare("orders")
    slow, quick = served.session(LIMITS), served.session()
    slow.consume("orders", credit=1000)
    slow.connection.congested()
    for sequence in range(1, 31):
        sender.say((1, send(queue, sequence, BODY)))
    quick.consume("orders", credit=1000)
    assert not slow.bodies()
    assert len(quick.bodies()) == 30
    slow.connection.drained()
    for sequence in (31, 32):
        sender.say((1, send(queue, sequence, BODY)))
    assert len(slow.bodies()) == 1


def test_deliveries_stop_at_the_limit_of_the_output_and_go_on_when_it_is_taken(served: ServedNode) -> None:
    client = served.session(LIMITS)
    queue = client.declare("orders")
    for sequence in range(1, 101):
        client.say((1, send(queue, sequence, BODY)))
    served.unread.add(id(client))
    client.consume("orders", credit=1000)
    taken = client.connection.take_output()
    assert LIMITS.output_bytes_max <= sum(map(len, taken)) < LIMITS.output_bytes_max + 2 * len(BODY)
    client.frames += client._decoder.feed(b"".join(taken))
    served.unread.clear()
    served.turn()
    assert len(client.bodies()) == 100


def test_requests_wait_when_their_answers_are_not_read(served: ServedNode) -> None:
    client = served.connect(LIMITS)
    for number in range(40):
        client.declare(f"a-rather-long-name-of-a-destination.{number}")
    served.unread.add(id(client))
    ask = encode_frame(0, Ask(request=1, what="destinations"))
    client.connection.receive(ask * 1000)
    assert client.connection.is_paused
    served.turn()
    taken = client.connection.take_output()
    assert sum(map(len, taken)) < LIMITS.output_bytes_max + 16 * 1024
    client.frames += client._decoder.feed(b"".join(taken))
    served.unread.clear()
    for _ in range(10):
        served.turn()
    assert len([frame for frame in client.all(Done) if "destinations" in frame.result]) == 1000
    assert not client.connection.is_paused


def test_only_so_many_requests_are_under_way(served: ServedNode) -> None:
    client = served.connect(ConnectionLimits(frame_bytes_max=4096, requests_max=10))
    client.give(*[(0, Declare(request=n, name="x", kind="queue")) for n in range(1, 31)])
    assert client.connection.is_paused
    served.turn()
    assert not client.connection.is_paused
    assert [frame.request for frame in client.all(Done)] == list(range(1, 31))


def test_resends_without_end_wait_for_the_disk_too(served: ServedNode) -> None:
    client = served.session(ConnectionLimits(frame_bytes_max=4096, unconfirmed_max=10))
    queue = client.declare("orders")
    client.give((1, send(queue, 1, b"x")), *[(1, send(queue, 1, b"x")) for _ in range(100)])
    assert client.connection.is_blocked
    assert client.connection.blocked_reason == "memory"
    served.turn()
    assert not client.connection.is_blocked
    assert client.last(Confirm) == Confirm(queue, 1)
