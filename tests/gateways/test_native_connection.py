"""The mapping of one native connection: requests, answers, sessions, transactions."""

from __future__ import annotations

import pytest

from holdfast.gateways.native import ConnectionLimits
from holdfast.message import Batch, Message, Origin, encode
from holdfast.wire import (
    Acknowledge,
    Acknowledged,
    Ask,
    Browse,
    Browsed,
    CloseConsumer,
    CloseSession,
    Commit,
    Confirm,
    Credit,
    Declare,
    Deliver,
    Done,
    Error,
    Frame,
    Hello,
    OpenSession,
    Outcome,
    Ping,
    Pong,
    Rollback,
    Send,
    SessionOpened,
    Subscribe,
    Unsubscribe,
    Welcome,
    encode_frame,
)
from tests.gateways.wire_client import LIMITS, ServedNode, WireClient, accept, batch_of, send


# ---- greeting ----------------------------------------------------------------------------------------------
def test_hello_is_answered_by_welcome() -> None:
    client = ServedNode().connect()
    welcome = client.last(Welcome)
    assert (welcome.version, welcome.node, welcome.server) == (1, "here", "test")
    assert welcome.frame_bytes_max == LIMITS.frame_bytes_max


def test_a_newer_client_is_answered_with_the_version_that_both_speak() -> None:
    client = ServedNode().connect(greet=False)
    client.say((0, Hello(version=9, client="newer")))
    assert client.last(Welcome).version == 1


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([(0, Ping(1))], "protocol.unexpected"),
        ([(1, OpenSession(request=1))], "protocol.unexpected"),
        ([(0, Hello(version=1, client="a")), (0, Hello(version=1, client="a"))], "protocol.unexpected"),
        ([(0, Hello(version=1, client="a")), (7, send(1, 1, b"x"))], "protocol.unexpected"),
        ([(0, Hello(version=1, client="a")), (7, CloseSession(request=1))], "protocol.unexpected"),
        (
            [(0, Hello(version=1, client="a")), *[(1, OpenSession(request=n)) for n in (1, 2)]],
            "protocol.unexpected",
        ),
        (
            [(0, Hello(version=1, client="a")), (1, OpenSession(request=1)), (1, send(1, 1, b"x"))],
            "protocol.unexpected",
        ),
        ([(0, Hello(version=1, client="a")), (0, Welcome(version=1, server="", node="", frame_bytes_max=1024))],
         "protocol.unexpected"),
    ],
)  # fmt: skip
def test_frames_out_of_order_end_the_connection_with_a_reason(
    frames: list[tuple[int, Frame]], code: str
) -> None:
    client = ServedNode().connect(greet=False)
    client.say(*frames)
    error = client.last(Error)
    assert (error.code, error.is_fatal) == (code, True)
    assert client.connection.is_closing
    client.connection.receive(b"more")  # is ignored
    assert client.error_codes() == [code]


def test_bytes_that_are_no_frames_end_the_connection() -> None:
    client = ServedNode().connect()
    client.connection.receive(b"GET / HTTP/1.1\r\n\r\n")
    client.read()
    assert client.last(Error).is_fatal
    assert client.connection.is_closing


def test_a_frame_above_the_limit_ends_the_connection() -> None:
    served = ServedNode()
    client = served.session()
    queue = client.declare("orders")
    client.say((1, send(queue, 1, bytes(70_000))))
    assert client.error_codes() == ["limit.frame"]


def test_ping_is_answered_on_its_channel() -> None:
    client = ServedNode().session()
    client.say((0, Ping(7)), (1, Ping(8)), (0, Pong(9)))
    assert [pong.token for pong in client.all(Pong, 0)] == [7]
    assert [pong.token for pong in client.all(Pong, 1)] == [8]


# ---- sending and receiving ---------------------------------------------------------------------------------
def test_what_is_sent_is_confirmed_delivered_and_acknowledged() -> None:
    served = ServedNode()
    client = served.session()
    queue = client.declare("orders")
    client.say((1, send(queue, 1, b"a", b"b")))
    client.say((1, send(queue, 3, b"c")))
    assert client.last(Confirm) == Confirm(queue, 3)
    client.consume("orders")
    assert client.bodies() == [b"a", b"b", b"c"]
    assert [frame.first_position for frame in client.all(Deliver)] == [1, 3]
    assert all(Batch.parse(frame.batch).has_ids for frame in client.all(Deliver))
    client.say((1, accept(1, [(1, 3)])))
    assert client.last(Acknowledged) == Acknowledged(1)
    assert served.node.journal.held.count == 0


def test_nothing_is_confirmed_before_it_is_durable() -> None:
    served = ServedNode()
    client = served.session()
    queue = client.declare("orders")
    client.give((1, send(queue, 1, b"a")))
    served.node.manager.advance()
    client.read()
    assert not client.all(Confirm)
    served.turn()
    assert client.last(Confirm) == Confirm(queue, 1)


def test_sends_that_follow_each_other_become_one_record() -> None:
    served = ServedNode()
    client = served.session()
    orders, others = client.declare("orders"), client.declare("others")
    client.say(
        *[(1, send(orders, number, b"%d" % number)) for number in range(1, 6)],
        (1, send(others, 1, b"x")),
        (1, send(orders, 6, b"6", b"7")),
        (1, send(orders, 8, b"8")),
        (1, send(orders, 8, b"8")),  # again
        (1, send(orders, 9, b"9", transaction=1)),
        (1, send(orders, 10, b"10")),
    )
    assert served.node.journal.held.count == 5
    assert client.all(Confirm) == [Confirm(orders, 10), Confirm(others, 1)]
    client.consume("orders")
    assert client.bodies() == [b"%d" % number for number in range(1, 9)] + [b"10"]


def test_a_gap_in_many_sends_is_answered_once() -> None:
    served = ServedNode()
    client = served.session()
    queue = client.declare("orders")
    client.say(*[(1, send(queue, number, b"x")) for number in range(2, 50)])
    assert client.error_codes() == ["session.gap"]
    assert "resend from 1" in client.last(Error).message


def test_one_group_commit_gives_one_confirm() -> None:
    served = ServedNode()
    client = served.session()
    queue = client.declare("orders")
    client.say(*[(1, send(queue, number, b"x")) for number in range(1, 51)])
    assert client.all(Confirm) == [Confirm(queue, 50)]


def test_credit_opens_the_way() -> None:
    served = ServedNode()
    client = served.session()
    queue = client.declare("orders")
    client.consume("orders", credit=1)
    client.say((1, send(queue, 1, b"a", b"b", b"c")))
    assert client.bodies() == [b"a"]
    client.say((1, Credit(1, 5)))
    assert client.bodies() == [b"a", b"b", b"c"]


def test_returned_messages_come_again_in_a_newer_generation() -> None:
    served = ServedNode()
    client = served.session()
    queue = client.declare("orders")
    client.consume("orders")
    client.say((1, send(queue, 1, b"a")))
    client.say((1, Acknowledge(1, 0, Outcome.RETURNED, 1, ((1, 1),))))
    first, again = client.all(Deliver)
    assert again.generation > first.generation
    assert (first.redeliveries, again.redeliveries) == (0, 1)
    assert client.last(Acknowledged) == Acknowledged(1)


def test_a_closed_consumer_gives_back_what_it_had() -> None:
    served = ServedNode()
    client, other = served.session(), served.session()
    queue = client.declare("orders")
    client.consume("orders")
    client.say((1, send(queue, 1, b"a")))
    request = client.request(1, CloseConsumer, consumer=1)
    assert client.result(request) == {}
    other.consume("orders")
    assert other.bodies() == [b"a"]


def test_two_sessions_of_one_connection_do_not_mix() -> None:
    served = ServedNode()
    client = served.session()
    client.open(channel=2)
    queue = client.declare("orders")
    client.say((1, send(queue, 1, b"one")), (2, send(queue, 1, b"two")))
    assert client.all(Confirm, 1) == client.all(Confirm, 2) == [Confirm(queue, 1)]
    client.consume("orders", channel=2)
    assert client.bodies(2) == [b"one", b"two"]
    assert client.bodies(1) == []


# ---- refusals ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (send(99, 1, b"x"), "destination.unknown"),
        (send(1, 5, b"x"), "session.gap"),
        (Credit(4, 1), "consumer.unknown"),
        (Credit(1, 1_000_000), "limit.credit"),
        (Acknowledge(4, 0, Outcome.ACCEPTED, 1, ((1, 1),)), "consumer.unknown"),
        (accept(1, [(1, 99)]), "consumer.position"),
        (Subscribe(request=50, consumer=2, destination="nowhere", credit=1), "destination.unknown"),
        (Subscribe(request=50, consumer=1, destination="orders", credit=1), "consumer.known"),
        (Subscribe(request=50, consumer=2, destination="orders", subscription="s", credit=1), "destination.kind"),
        (Subscribe(request=50, consumer=2, destination="orders", credit=200_000), "limit.credit"),
        (CloseConsumer(request=50, consumer=9), "consumer.unknown"),
        (Declare(request=50, name="orders", kind="topic"), "destination.kind"),
        (Declare(request=50, name="_MINE", kind="queue"), "destination.name"),
        (Declare(request=50, name="_ADMIN", kind="queue"), "destination.name"),
        (Unsubscribe(request=50, destination="orders", subscription="s"), "subscription.unknown"),
        (Browse(request=50, destination="nowhere"), "destination.unknown"),
    ],
)  # fmt: skip
def test_a_refused_request_changes_nothing_and_the_session_goes_on(frame: Frame, code: str) -> None:
    served = ServedNode()
    client = served.session()
    queue = client.declare("orders")
    assert queue == 1
    client.consume("orders")
    client.say((1, frame))
    error = client.last(Error)
    assert (error.code, error.is_fatal, error.request) == (code, False, getattr(frame, "request", 0))
    client.say((1, send(queue, 1, b"still here")))
    assert client.bodies() == [b"still here"]


@pytest.mark.parametrize(
    "batch",
    [
        b"",
        b"\x01",
        bytes(200),
        batch_of(b"x", b"y")[:-1],
        encode([Message(body=b"x")], origin=Origin(site=1, node=1, start=1), first_sequence=1),
    ],
)
def test_a_batch_that_is_none_or_has_ids_ends_the_connection_and_records_nothing(batch: bytes) -> None:
    served = ServedNode()
    client = served.session()
    queue = client.declare("orders")
    lsn = served.node.journal.next_lsn
    client.give((1, Send(queue, 0, 1, batch)))
    client.read()
    assert client.error_codes() == ["protocol.malformed"]
    assert served.node.journal.next_lsn == lsn


def test_clients_do_not_send_to_the_log_of_the_node() -> None:
    served = ServedNode()
    served.node.declare("_LOG", "topic")
    client = served.session()
    log = client.declare("_LOG", "")
    client.say((1, send(log, 1, b"I am the node")))
    assert client.error_codes() == ["destination.name"]


def test_two_kinds_of_one_name_in_one_piece_do_not_disturb_the_node() -> None:
    served = ServedNode()
    client = served.session()
    client.say(
        (1, Declare(request=1, name="x", kind="queue")), (1, Declare(request=2, name="x", kind="topic"))
    )
    assert client.result(1)["kind"] == "queue"
    assert client.error_codes() == ["destination.kind"]


def test_one_consumer_number_twice_in_one_piece_is_refused() -> None:
    served = ServedNode()
    client = served.session()
    topic = client.declare("events", "topic")
    subscribe = [Subscribe(request=n, consumer=1, destination="events", credit=10) for n in (50, 51)]
    client.say(*[(1, frame) for frame in subscribe])
    assert client.error_codes() == ["consumer.known"]
    client.say((1, send(topic, 1, b"once")))
    assert client.bodies() == [b"once"]


def test_a_shared_subscription_is_made_once_though_two_ask_in_one_moment() -> None:
    served = ServedNode()
    one, two = served.session(), served.session()
    topic = one.declare("events", "topic")
    frame = Subscribe(request=50, consumer=1, destination="events", subscription="shared", credit=10)
    one.give((1, frame))
    two.give((1, frame))
    served.turn()
    one.say((1, send(topic, 1, b"a", b"b")), (1, send(topic, 3, b"c")))
    assert sorted(one.bodies() + two.bodies()) == [b"a", b"b", b"c"]


def test_a_subscription_that_just_ended_is_made_anew() -> None:
    served = ServedNode()
    client = served.session()
    topic = client.declare("events", "topic")
    client.consume("events")
    client.say(
        (1, CloseConsumer(request=50, consumer=1)),
        (1, Subscribe(request=51, consumer=1, destination="events", credit=10)),
    )
    client.say((1, send(topic, 1, b"a")))
    assert client.bodies() == [b"a"]


def test_a_subscription_in_use_is_not_removed() -> None:
    served = ServedNode()
    client = served.session()
    client.declare("events", "topic")
    client.consume("events", subscription="s", is_durable=True)
    client.request(1, Unsubscribe, destination="events", subscription="s")
    assert client.error_codes() == ["subscription.in_use"]
    client.request(1, CloseConsumer, consumer=1)
    assert client.result(client.request(1, Unsubscribe, destination="events", subscription="s")) == {}


# ---- sessions ----------------------------------------------------------------------------------------------
def test_a_session_is_resumed_on_another_connection_and_the_old_one_is_fenced() -> None:
    served = ServedNode()
    old = served.session()
    queue = old.declare("orders")
    old.say((1, send(queue, 1, b"a", b"b")))
    session = old.last(SessionOpened).session
    new = served.connect()
    opened = new.open(session=session)
    assert (opened.is_resumed, opened.epoch, opened.confirmed) == (True, 2, {"orders": 2})
    assert old.last(Error).code == "session.fenced"
    assert old.last(Error).is_fatal
    old.say((1, send(queue, 3, b"too late")), (1, Commit(request=60, transaction=1)))  # is ignored
    assert old.error_codes() == ["session.fenced"]
    new.say((1, send(queue, 2, b"b", b"c")))
    new.consume("orders")
    assert new.bodies() == [b"a", b"b", b"c"]
    assert not old.open(channel=1).is_resumed  # the channel may be used anew


def test_of_two_who_resume_in_one_moment_the_later_has_the_session() -> None:
    served = ServedNode()
    session = served.session().last(SessionOpened).session
    one, two = served.connect(), served.connect()
    one.give((1, OpenSession(request=1, session=session)))
    two.give((1, OpenSession(request=1, session=session)))
    served.turn()
    assert one.error_codes() == ["session.fenced"]
    assert two.last(SessionOpened).epoch == 3


def test_an_unknown_session_ends_only_its_channel() -> None:
    served = ServedNode()
    client = served.session()
    client.request(2, OpenSession, session="00000000000000ff")
    assert client.last(Error).code == "session.unknown"
    assert client.last(Error).is_fatal
    assert not client.connection.is_closing
    assert not client.open(channel=2).is_resumed


def test_a_closed_session_is_gone_and_its_channel_free() -> None:
    served = ServedNode()
    client = served.session()
    session = client.last(SessionOpened).session
    assert client.result(client.request(1, CloseSession)) == {}
    client.request(1, OpenSession, session=session)
    assert client.error_codes() == ["session.unknown"]
    assert not client.open(channel=1).is_resumed


def test_a_session_whose_client_is_gone_too_long_is_ended() -> None:
    served = ServedNode()
    manager = served.node.manager
    client, waiting = served.session(), served.session()
    session = client.last(SessionOpened).session
    client.connection.lost()
    assert manager.expire_sessions(1000.0) == 0
    assert manager.expire_sessions(1059.0) == 0
    assert manager.expire_sessions(1060.0) == 1
    assert manager.expire_sessions(1061.0) == 0
    waiting.request(2, OpenSession, session=session)  # its end is recorded, but not committed yet
    assert waiting.error_codes() == ["session.unknown"]
    assert len(served.node.state.sessions) == 1


def test_a_connection_that_is_lost_while_a_session_opens_leaves_nothing_behind() -> None:
    served = ServedNode()
    client, other = served.connect(), served.session()
    client.give((1, OpenSession(request=1)))
    client.connection.lost()
    served.turn()
    queue = other.declare("orders")
    other.consume("orders")
    other.say((1, send(queue, 1, b"x")))
    assert other.bodies() == [b"x"]
    assert served.node.manager.expire_sessions(0.0) == 0


def test_a_private_subscription_whose_client_was_lost_meanwhile_ends() -> None:
    served = ServedNode()
    client, other = served.session(), served.session()
    topic = other.declare("events", "topic")
    client.give((1, Subscribe(request=50, consumer=1, destination="events", credit=1)))
    client.connection.lost()
    served.turn()
    other.say((1, send(topic, 1, b"x")))
    assert served.node.journal.held.count == 0


def test_a_connection_has_a_maximum_of_sessions() -> None:
    client = ServedNode().connect(ConnectionLimits(frame_bytes_max=4096, channels_max=2))
    for channel in (1, 2):
        client.open(channel=channel)
    client.request(3, OpenSession)
    assert client.error_codes() == ["limit.sessions"]


# ---- transactions ------------------------------------------------------------------------------------------
def test_a_transaction_is_committed_once_however_often_it_is_asked() -> None:
    served = ServedNode()
    client, receiver = served.session(), served.session()
    queue = client.declare("orders")
    receiver.consume("orders")
    client.say((1, send(queue, 1, b"a", transaction=3)))
    assert receiver.bodies() == []
    assert not client.all(Confirm)
    assert [client.commit(3), client.commit(3), client.commit(4)] == ["committed", "committed", "unknown"]
    assert receiver.bodies() == [b"a"]


def test_a_rolled_back_transaction_vanishes_and_cannot_be_committed_behind_it() -> None:
    served = ServedNode()
    client = served.session()
    queue = client.declare("orders")
    client.say((1, send(queue, 1, b"a", transaction=3)))
    client.say((1, Rollback(request=70, transaction=3)), (1, Commit(request=71, transaction=3)))
    assert client.result(70) == {}
    assert client.result(71) == {"outcome": "unknown"}
    client.consume("orders")
    assert client.bodies() == []


def test_many_ranges_are_acknowledged_at_once() -> None:
    served = ServedNode()
    client = served.session()
    queue = client.declare("orders")
    client.consume("orders", credit=5000)
    for first in range(1, 2401, 400):
        client.say((1, send(queue, first, *[b"x"] * 400)))
    odd = [(position, position) for position in range(1, 2401, 2)]  # more than one record can hold
    client.say((1, accept(1, odd)))
    assert client.last(Acknowledged) == Acknowledged(1)
    client.connection.lost()  # what comes back has as many ranges
    other = served.session()
    other.consume("orders", credit=5000)
    positions = [frame.first_position for frame in other.all(Deliver)]
    assert positions == list(range(2, 2401, 2))


# ---- browsing and asking -----------------------------------------------------------------------------------
def browse(client: WireClient, destination: str, **fields: int) -> list[tuple[int, list[bytes]]]:
    request = client.request(0, Browse, destination=destination, **fields)
    frames = [frame for frame in client.all(Browsed) if frame.request == request]
    assert [frame.is_last for frame in frames] == [False] * (len(frames) - 1) + [True]
    return [
        (frame.first_position, [m.body for m in Batch.parse(frame.batch).messages()]) for frame in frames[:-1]
    ]


def test_a_browse_shows_what_is_not_confirmed_and_takes_nothing() -> None:
    served = ServedNode()
    client = served.session()
    queue = client.declare("orders")
    assert browse(client, "orders") == []
    client.say((1, send(queue, 1, b"a", b"b", b"c")))
    client.say((1, send(queue, 4, b"d")))
    client.consume("orders", credit=2)
    client.say((1, accept(1, [(2, 2)])))
    assert browse(client, "orders") == [(1, [b"a"]), (3, [b"c"]), (4, [b"d"])]
    assert browse(client, "orders", from_position=2, messages_max=1) == [(3, [b"c"])]
    assert browse(client, "orders", from_position=10**12) == []
    assert browse(client, "orders", messages_max=0) == []
    client.say((1, Credit(1, 10)))
    assert client.bodies() == [b"a", b"b", b"c", b"d"]


def test_a_browse_reads_what_is_no_longer_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.node.distributor.CACHE_BYTES_MAX", 100)
    served = ServedNode()
    client = served.session()
    queue = client.declare("orders")
    for number in range(1, 20):
        client.say((1, send(queue, number, b"%d" % number * 10)))
    assert [bodies for _, bodies in browse(client, "orders")] == [[b"%d" % n * 10] for n in range(1, 20)]


def test_a_browse_goes_on_as_the_client_reads() -> None:
    served = ServedNode()
    writer = served.session()
    queue = writer.declare("orders")
    for number in range(1, 31):
        writer.say((1, send(queue, number, bytes(1000))))
    client = served.connect(ConnectionLimits(frame_bytes_max=4096, output_bytes_max=3000))
    client.give((0, Browse(request=1, destination="orders")))
    served.node.turn()
    client.read()
    assert 0 < len(client.all(Browsed)) <= 4
    served.turn()
    assert len(client.all(Browsed)) == 31


def test_only_so_many_browses_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.node.distributor.CACHE_BYTES_MAX", 0)
    served = ServedNode()
    client = served.session()
    queue = client.declare("orders")
    client.say((1, send(queue, 1, b"x")))
    client.say(*[(0, Browse(request=request, destination="orders")) for request in range(1, 10)])
    assert client.error_codes() == ["limit.browses"]
    assert sum(frame.is_last for frame in client.all(Browsed)) == 8


def test_status_and_destinations_can_be_asked() -> None:
    served = ServedNode()
    client = served.session()
    queue = client.declare("orders")
    client.say((1, send(queue, 1, b"x")))
    client.consume("orders")
    status = client.result(client.request(0, Ask, what="status"))
    assert status["node"] == "here"
    assert (status["held_records"], status["destinations"], status["sessions"]) == (1, 1, 1)
    (described,) = client.result(client.request(1, Ask, what="destinations"))["destinations"]
    assert (described["name"], described["kind"], described["next_position"]) == ("orders", "queue", 2)
    assert described["subscriptions"][0]["consumers"] == 1


def test_a_frame_in_many_pieces_is_the_same_frame() -> None:
    served = ServedNode()
    client = served.session()
    queue = client.declare("orders")
    data = b"".join(encode_frame(1, send(queue, number, b"x" * number)) for number in range(1, 40))
    for byte in data:
        client.connection.receive(bytes((byte,)))
    served.turn()
    assert client.last(Confirm) == Confirm(queue, 39)


def test_the_shell_is_told_once_that_there_is_output() -> None:
    served = ServedNode()
    client = served.session()
    before = client.output_calls
    client.give((0, Ping(1)), (0, Ping(2)))
    assert client.output_calls == before + 1
    client.read()
    client.give((0, Ping(3)))
    assert client.output_calls == before + 2
    assert isinstance(client.frames[-1][1], Pong | Done)
