"""A real server over real sockets: it serves, is killed, comes back, stops in good order."""

from __future__ import annotations

import signal
import socket
import subprocess
from pathlib import Path
from threading import Thread

import pytest

from holdfast.message import Batch
from holdfast.wire import Acknowledged, Ask, Credit, Deliver, Error, Ping, Pong, Unsubscribe
from tests.gateways.wire_client import send
from tests.server.raw_client import RawClient, ServerSaysNo
from tests.server.server_process import WAIT_S, ServerProcess, command, write_config


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_config(tmp_path)


def next_event_type(watcher: RawClient) -> str:
    (event,) = Batch.parse(watcher.wait_for(Deliver).batch).validate().messages()
    return event.type


def test_up_starts_with_nothing_configured_and_says_where_it_is(tmp_path: Path) -> None:
    with ServerProcess("up", "--port", "0", "--data", tmp_path / "data") as server:
        assert server.ready["host"] == "127.0.0.1"
        assert server.ready["is_first_start"] is True
        with RawClient(server.port) as client:
            client.open()
            queue = client.declare("orders")
            client.say(1, send(queue, 1, b"hello"))
            client.wait_for_confirm(1)
            client.consume("orders")
            assert client.receive(1) == [(1, b"hello")]
        assert server.stop() == 0


@pytest.mark.spec("E2")
def test_what_was_confirmed_survives_a_kill_and_is_received_once(config: Path) -> None:
    with ServerProcess("serve", "--config", config) as server:
        sender = RawClient(server.port)
        session = sender.open().session
        queue = sender.declare("orders")
        for first in range(1, 301, 3):
            sender.say(1, send(queue, first, *[b"%d" % number for number in range(first, first + 3)]))
        sender.wait_for_confirm(150)  # some are confirmed, others are on their way: nobody knows
        server.kill()
        sender.close()
    with ServerProcess("serve", "--config", config) as server:
        sender = RawClient(server.port)
        opened = sender.open(session)
        assert opened.is_resumed
        assert opened.confirmed["orders"] >= 150
        assert sender.declare("orders", "") == queue
        for first in range(1, 301, 3):  # all of it again: what is known is recognised
            sender.say(1, send(queue, first, *[b"%d" % number for number in range(first, first + 3)]))
        sender.wait_for_confirm(300)
        with RawClient(server.port) as receiver:
            receiver.open()
            receiver.consume("orders", credit=1000)
            received = receiver.receive(300)
            assert received == [(number, b"%d" % number) for number in range(1, 301)]
            receiver.accept(1, 1, 300)
            assert receiver.wait_for(Acknowledged).number == 1
            assert receiver.request(0, Ask, what="status")["held_records"] == 0
        sender.close()


@pytest.mark.spec("D")
def test_many_kills_under_load_lose_and_double_nothing(config: Path) -> None:
    session, queue, sent = "", 0, 0
    for _ in range(5):
        with ServerProcess("serve", "--config", config) as server:
            client = RawClient(server.port)
            opened = client.open(session)
            session = opened.session
            queue = client.declare("orders")
            sent = opened.confirmed.get("orders", 0)
            frames = [send(queue, sent + number, b"%d" % (sent + number)) for number in range(1, 401)]
            client.say(1, *frames)
            client.wait_for_confirm(sent + 100)
            server.kill()
            client.close()
    with ServerProcess("serve", "--config", config) as server:
        client = RawClient(server.port)
        recorded = client.open(session).confirmed["orders"]
        assert recorded >= sent + 100
        client.consume("orders", credit=10_000)
        assert client.receive(recorded) == [(number, b"%d" % number) for number in range(1, recorded + 1)]
        client.close()
        assert server.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_in_good_order(config: Path, number: signal.Signals) -> None:
    with ServerProcess("serve", "--config", config) as server:
        client = RawClient(server.port)
        session = client.open().session
        queue = client.declare("orders")
        client.say(1, send(queue, 1, b"a"), send(queue, 2, b"b"))
        client.wait_for_confirm(2)
        client.consume("orders", credit=1)
        assert client.receive(1) == [(1, b"a")]
        server.process.send_signal(number)
        error = client.wait_for(Error)
        assert (error.code, error.is_fatal) == ("node.stopping", True)
        client.wait_for_end()
        client.close()
        assert server.wait()[0] == 0
    with ServerProcess("serve", "--config", config) as server:
        with RawClient(server.port) as client:
            assert client.open(session).is_resumed
            client.consume("orders")
            deliveries = [client.wait_for(Deliver), client.wait_for(Deliver)]
            assert [(d.first_position, d.redeliveries) for d in deliveries] == [(1, 1), (2, 0)]
        assert server.stop() == 0


@pytest.mark.spec("E5")
def test_the_node_tells_of_its_starts_on_its_log_those_of_the_boot_first(config: Path) -> None:
    with ServerProcess("serve", "--config", config) as server:
        assert server.stop() == 0
    with ServerProcess("serve", "--config", config) as server, RawClient(server.port) as client:
        client.open()
        client.consume("_LOG", subscription="audit", is_durable=True)
    with ServerProcess("serve", "--config", config) as server, RawClient(server.port) as client:
        # The boot event and the start itself, of the third start, in this order (E5).
        client.open()
        client.consume("_LOG", subscription="audit")
        types: list[str] = []
        while len(types) < 2:
            batch = Batch.parse(client.wait_for(Deliver).batch).validate()
            assert batch.has_ids
            types += [message.type for message in batch.messages()]
        assert types == ["holdfast.node.starting", "holdfast.node.started"]
        assert server.stop() == 0


def test_subscriptions_that_should_have_gone_with_their_client_are_ended_at_the_next_start(
    config: Path,
) -> None:
    with ServerProcess("serve", "--config", config) as server:
        client = RawClient(server.port)
        client.open()
        topic = client.declare("events", "topic")
        client.consume("events")
        server.kill()
        client.close()
    with ServerProcess("serve", "--config", config) as server, RawClient(server.port) as client:
        client.open()
        (events,) = [
            d for d in client.request(0, Ask, what="destinations")["destinations"] if d["name"] == "events"
        ]
        assert events["subscriptions"] == []
        client.say(1, send(topic, 1, b"for nobody"))
        client.wait_for_confirm(1)
        assert client.request(0, Ask, what="status")["held_records"] == 0


def test_a_session_ends_when_its_client_stays_away(config: Path) -> None:
    with ServerProcess("serve", "--config", config) as server, RawClient(server.port) as watcher:
        client = RawClient(server.port)
        session = client.open(lifetime_s=0).session
        client.close()
        while watcher.request(0, Ask, what="status")["sessions"]:
            watcher.say(0, Ping(1))
            watcher.wait_for(Pong)
        with pytest.raises(ServerSaysNo, match=r"session\.unknown"):
            watcher.open(session)


@pytest.mark.spec("E4")
def test_a_full_journal_pauses_producers_is_told_and_passes(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    with ServerProcess("serve", "--config", config) as server:
        watcher, sender, receiver = (RawClient(server.port) for _ in range(3))
        watcher.open()
        watcher.consume("_LOG", subscription="watch")
        sender.open()
        queue = sender.declare("orders")
        body = bytes(60_000)
        total = 300  # some 18 MB, where there is room for some 15
        frames = [send(queue, number, body) for number in range(1, total + 1)]
        sending = Thread(target=sender.say, args=(1, *frames))  # it stands while the server reads nothing
        sending.start()
        assert next_event_type(watcher) == "holdfast.journal.exhausted"
        receiver.open()
        receiver.consume("orders", credit=10)
        for number in range(1, total + 1):
            ((position, received),) = receiver.receive(1)
            assert (position, received) == (number, body)
            receiver.accept(number, position, position)
            receiver.say(1, Credit(1, 1))
        assert next_event_type(watcher) == "holdfast.journal.resumed"
        sending.join(WAIT_S)
        sender.wait_for_confirm(total)
        for client in (watcher, sender, receiver):
            client.close()
        assert server.stop() == 0


def test_a_stranger_does_not_disturb(config: Path) -> None:
    with ServerProcess("serve", "--config", config) as server, RawClient(server.port) as client:
        client.open()
        for noise in (b"GET / HTTP/1.1\r\n\r\n", bytes(100), b"\xff" * 5000):
            with RawClient(server.port, greet=False) as stranger:
                stranger.send_bytes(noise)
                stranger.wait_for_end()
        for _ in range(20):
            socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S).close()
        client.say(0, Ping(4))
        assert client.wait_for(Pong).token == 4


def test_clients_beyond_the_maximum_are_told(tmp_path: Path) -> None:
    config = write_config(tmp_path, listen="port = 0\nconnections_max = 1")
    with (
        ServerProcess("serve", "--config", config) as server,
        RawClient(server.port),
        RawClient(server.port, greet=False) as second,
    ):
        assert second.wait_for(Error).code == "limit.connections"
        second.wait_for_end()


def test_a_consumer_that_does_not_read_holds_up_nobody(config: Path) -> None:
    with ServerProcess("serve", "--config", config) as server:
        sender, deaf, receiver = (RawClient(server.port) for _ in range(3))
        for client in (sender, deaf, receiver):
            client.open()
        queue, own = sender.declare("shared"), sender.declare("own")
        deaf.consume("shared", credit=1000)  # and never reads again
        body = bytes(50_000)
        for number in range(1, 101):
            sender.say(1, send(queue, number, body), send(own, number, b"%d" % number))
        receiver.consume("own", credit=1000)
        assert receiver.receive(100) == [(number, b"%d" % number) for number in range(1, 101)]
        for client in (sender, deaf, receiver):
            client.close()
        assert server.stop() == 0


def test_removing_a_subscription_over_the_wire(config: Path) -> None:
    with ServerProcess("serve", "--config", config) as server, RawClient(server.port) as client:
        client.open()
        client.declare("events", "topic")
        with RawClient(server.port) as other:
            other.open()
            other.consume("events", subscription="s", is_durable=True)
            with pytest.raises(ServerSaysNo, match=r"subscription\.in_use"):
                client.request(1, Unsubscribe, destination="events", subscription="s")


def test_up_tells_people_what_to_do_next(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command("up", "--port", "0", "--data", tmp_path / "data"), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(4)]
    process.terminate()
    process.communicate(timeout=WAIT_S)
    assert lines[0].startswith("Holdfast is up: holdfast://127.0.0.1:")
    assert "Next" in lines[3]
    assert process.returncode == 0
