"""The core as a whole: greeting, silence, faults of the server, flow, and what is asked of it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import holdfast.client
from holdfast.client.core import ClientCore, ConnectionState
from holdfast.client.events import Event, Ready, Unusable
from holdfast.client.limits import ClientLimits
from holdfast.client.session import SessionState
from holdfast.errors import LimitExceeded, Refused
from holdfast.wire import (
    CLIENT_FRAMES,
    Commit,
    Confirm,
    Error,
    Flow,
    Frame,
    FrameDecoder,
    Hello,
    OpenSession,
    Ping,
    Pong,
    Send,
    SessionOpened,
    Subscribe,
    Welcome,
    encode_frame,
)
from tests.client.fake_server import FakeServer
from tests.client.world import World, frames_of

WELCOME = Welcome(version=1, server="s", node="n", frame_bytes_max=4096)


def a_core() -> ClientCore:
    core = ClientCore(client="test", user="me", password="secret", limits=ClientLimits())
    core.connection_made(0.0)
    return core


def written(core: ClientCore) -> list[tuple[int, Frame]]:
    return FrameDecoder(accepts=CLIENT_FRAMES).feed(b"".join(core.take_output()))


def told(core: ClientCore, frame: Frame, *, channel: int = 0, now_s: float = 0.0) -> list[Event]:
    core.receive(encode_frame(channel, frame), now_s)
    core.check_invariants()
    return core.take_events()


class TestGreeting:
    def test_hello_comes_first_and_sessions_wait_for_welcome(self) -> None:
        core = a_core()
        core.open_session(is_transacted=False, lifetime_s=60)
        assert written(core) == [(0, Hello(version=1, client="test", user="me", password="secret"))]

        assert told(core, WELCOME) == [Ready()]
        assert written(core) == [(1, OpenSession(request=1, lifetime_s=60))]
        assert (core.server, core.node, core.frame_bytes_max) == ("s", "n", 4096)

    def test_another_version_is_refused_for_good(self) -> None:
        core = a_core()
        (event,) = told(core, Welcome(version=2, server="s", node="n", frame_bytes_max=4096))

        assert isinstance(event, Unusable)
        assert event.is_permanent

    @pytest.mark.parametrize(
        ("code", "is_permanent"),
        [("protocol.version", True), ("user.denied", True), ("node.stopping", False)],
    )
    def test_an_error_before_welcome(self, code: str, is_permanent: bool) -> None:
        (event,) = told(a_core(), Error(code=code, message="no", is_fatal=True))

        assert isinstance(event, Unusable)
        assert event.is_permanent is is_permanent
        assert isinstance(event.error, Refused)


class TestSilence:
    def test_after_a_while_the_server_is_asked_and_after_longer_given_up(self) -> None:
        core = a_core()
        told(core, WELCOME)
        written(core)
        core.time_passed(9.0)
        assert written(core) == []
        core.time_passed(11.0)
        core.time_passed(12.0)
        assert written(core) == [(0, Ping(0))]
        assert told(core, Pong(0), now_s=13.0) == []
        core.time_passed(42.0)
        assert core.take_events() == []
        core.time_passed(44.0)

        (event,) = core.take_events()
        assert isinstance(event, Unusable)
        assert not event.is_permanent

    def test_a_ping_is_answered(self) -> None:
        core = a_core()
        told(core, WELCOME)
        written(core)
        told(core, Ping(77))

        assert written(core) == [(0, Pong(77))]


class TestFaultsOfTheServer:
    @pytest.mark.parametrize(
        ("channel", "frame"),
        [
            (0, WELCOME),
            (1, SessionOpened(request=9, session="s", epoch=1, is_resumed=False, confirmed={})),
            (0, Error(request=5, code="x", message="no such request")),
        ],
    )
    def test_an_unexpected_frame_ends_the_connection_and_not_the_session(
        self, channel: int, frame: Frame
    ) -> None:
        world = World()
        session = world.session()
        world.settle()
        world.core.receive(encode_frame(channel, frame), 0.0)

        (event,) = world.core.take_events()
        assert isinstance(event, Unusable)
        assert session.state is SessionState.OPEN

    def test_bytes_that_are_no_frame(self) -> None:
        core = a_core()
        core.receive(b"HTTP/1.1 400 Bad Request\r\n", 0.0)

        (event,) = core.take_events()
        assert isinstance(event, Unusable)

    def test_a_confirmation_of_what_was_never_sent(self) -> None:
        world = World()
        world.server.declare("q")
        session = world.session()
        world.send(session, "q", b"1")
        world.settle()
        world.core.receive(encode_frame(1, Confirm(1, 9)), 0.0)

        (event,) = world.core.take_events()
        assert isinstance(event, Unusable)

    def test_frames_for_a_session_that_has_ended_are_ignored(self) -> None:
        world = World()
        session = world.session()
        world.settle()
        closed = world.call(session.close)
        world.settle()
        world.core.receive(encode_frame(1, Confirm(1, 9)), 0.0)

        assert world.is_done(closed)
        assert world.core.take_events() == []


class TestFlow:
    @pytest.mark.parametrize(("channel", "destination"), [(0, 0), (0, 1), (1, 0), (1, 1)])
    def test_a_blocked_destination_gets_nothing_until_it_is_released(
        self, channel: int, destination: int
    ) -> None:
        world = World()
        world.server.declare("q")
        session = world.session()
        world.send(session, "q", b"1")
        world.settle()
        world.core.receive(encode_frame(channel, Flow(destination, True)), 0.0)
        second = world.send(session, "q", b"2")
        world.settle()
        assert not world.is_done(second)
        world.core.receive(encode_frame(channel, Flow(destination, False)), 0.0)
        world.settle()

        assert world.is_done(second)


class TestErrorsOfASession:
    def test_a_gap_is_cured_by_a_resume(self) -> None:
        world = World()
        world.settle()
        session = world.session()
        world.settle()
        world.core.receive(encode_frame(1, Error(code="session.gap", message="resend from 1")), 0.0)

        (event,) = world.core.take_events()
        assert isinstance(event, Unusable)
        assert session.state is SessionState.OPEN

    def test_an_error_that_belongs_to_nothing_ends_the_session(self) -> None:
        world = World()
        world.server.declare("q")
        world.server.refuses[Send] = "destination.name"
        session, other = world.session(), world.session()
        ticket = world.send(session, "q", b"1")
        world.settle()

        assert isinstance(world.errors[ticket], Refused)
        assert session.state is SessionState.ENDED
        assert other.state is SessionState.OPEN
        assert list(world.server.sessions) == ["s2"], "it was closed over there too"

    def test_a_refused_commit_leaves_the_transaction_as_it_was(self) -> None:
        world = World()
        world.server.declare("q")
        session = world.session(is_transacted=True)
        world.send(session, "q", b"1")
        world.server.refuses[Commit] = "limit.busy"
        refused = world.call(session.commit)
        world.settle()
        assert isinstance(world.errors[refused], Refused)
        world.server.refuses.clear()
        committed = world.call(session.commit)
        world.settle()

        assert world.is_done(committed)
        assert world.server.destinations["q"].bodies == [b"1"]

    def test_a_transaction_that_is_aborted_each_time_is_given_up(self) -> None:
        world = World(limits=ClientLimits(transaction_runs_max=3))
        world.server.declare("q")
        session = world.session(is_transacted=True)
        world.send(session, "q", b"1")
        world.server.refuses[Commit] = "transaction.unknown"
        ticket = world.call(session.commit)
        world.settle()

        assert isinstance(world.errors[ticket], Refused)
        assert len(frames_of(world.server, Commit)) == 3
        assert [frame.transaction for frame in frames_of(world.server, Send)] == [2, 3, 4]

    def test_a_consumer_that_cannot_come_back_ends_and_the_session_goes_on(self) -> None:
        world = World()
        world.server.put("q", b"1")
        world.server.declare("out")
        session = world.session()
        consumer = world.consumer(session, "q")
        world.settle()
        (waiting,) = world.take(session, consumer)
        world.cut()
        session.acknowledge(consumer, waiting.position)
        world.server.refuses[Subscribe] = "destination.unknown"
        world.connect()
        sent = world.send(session, "out", b"2")
        flushed = world.call(session.when_idle)
        world.settle()

        assert world.is_done(sent, flushed)
        with pytest.raises(Refused):
            session.consumers.take(consumer)


def test_sessions_and_consumers_and_requests_have_a_maximum() -> None:
    world = World(limits=ClientLimits(sessions_max=1, consumers_max=1, requests_max=1))
    session = world.session()
    with pytest.raises(LimitExceeded, match="sessions_max"):
        world.session()
    world.consumer(session, "q")
    with pytest.raises(LimitExceeded, match="consumers_max"):
        world.consumer(session, "q")
    session.calls.browse("q", from_position=0, messages_max=1, ticket=90)
    with pytest.raises(LimitExceeded, match="requests_max"):
        session.calls.browse("q", from_position=0, messages_max=1, ticket=91)


def test_the_end_of_the_connection_is_the_end_of_its_sessions() -> None:
    world = World(FakeServer())
    session = world.session()
    ticket = world.send(session, "q", b"1")
    world.core.end(None)
    world.collect()

    assert world.core.state is ConnectionState.ENDED
    assert session.state is SessionState.ENDED
    assert ticket in world.errors


SHELLS = {"aio.py", "aio_session.py", "aio_consumer.py", "link.py", "sync.py"}
WORLD_MODULES = {"asyncio", "socket", "time", "random", "threading", "concurrent", "os", "uuid", "secrets"}


def test_the_core_does_no_io_and_knows_no_clock() -> None:
    touched = {
        (path.name, module)
        for path in Path(holdfast.client.__file__).parent.glob("*.py")
        if path.name not in SHELLS
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for module in (
            [alias.name.partition(".")[0] for alias in node.names]
            if isinstance(node, ast.Import)
            else [str(node.module).partition(".")[0]]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        if module in WORLD_MODULES
    }

    assert touched == set()
