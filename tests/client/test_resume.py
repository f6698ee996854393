"""The connection is lost after each single frame of a conversation: nothing is lost, nothing is doubled.

Each scenario is first run without a cut, to count its frames, and then once for every place where it can be
cut: so every situation comes up, a send unconfirmed, confirmed with the answer lost, an acknowledgement lost,
a commit whose answer is lost, and those between.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from holdfast.client.incoming import Incoming
from holdfast.client.outgoing import Outgoing
from holdfast.client.session import SessionCore, SessionState
from holdfast.client.transaction_ending import TransactionEnding
from holdfast.errors import OutcomeUnknown, Refused
from holdfast.wire import Commit, OpenSession, Send
from tests.client.fake_server import FakeServer
from tests.client.world import Scenario, World, frames_of

BODIES = [b"%d" % number for number in range(6)]


def a_server() -> FakeServer:
    server = FakeServer()
    server.declare("in")
    server.declare("out")
    return server


class Plan:
    """A scenario, what it needs, and what must be true at its end."""

    def __init__(self) -> None:
        self.world = World(a_server())
        self.seen: list[bytes] = []

    def prepare(self) -> None:
        pass

    def scenario(self) -> Scenario:
        raise NotImplementedError

    def check(self) -> None:
        raise NotImplementedError

    def bodies(self, name: str) -> list[bytes]:
        return self.world.server.destinations[name].bodies

    def handle_all(self, session: SessionCore, consumer: int) -> None:
        for waiting in self.world.take(session, consumer):
            self.seen.append(waiting.message.body)
            session.acknowledge(consumer, waiting.position)


class SendsOneByOne(Plan):
    def scenario(self) -> Scenario:
        session = self.world.session()
        for body in BODIES:
            ticket = self.world.send(session, "out", body)
            yield partial(self.world.is_done, ticket)

    def check(self) -> None:
        assert self.bodies("out") == BODIES


class SendsTogether(SendsOneByOne):
    def scenario(self) -> Scenario:
        session = self.world.session()
        first = self.world.send(session, "out", BODIES[0])
        yield lambda: frames_of(self.world.server, Send) or self.world.is_done(first)
        tickets = [self.world.send(session, "out", body) for body in BODIES[1:]]
        yield lambda: self.world.is_done(first, *tickets)
        assert [self.world.results[ticket] for ticket in (first, *tickets)] == [1, 2, 3, 4, 5, 6]


class TwoSessions(Plan):
    def scenario(self) -> Scenario:
        sessions = [self.world.session(), self.world.session()]
        tickets = [self.world.send(session, "out", body) for session in sessions for body in BODIES]
        yield lambda: self.world.is_done(*tickets)

    def check(self) -> None:
        assert sorted(self.bodies("out")) == sorted(BODIES * 2)


class Receives(Plan):
    def prepare(self) -> None:
        self.world.server.put("in", *BODIES)

    def scenario(self) -> Scenario:
        session = self.world.session()
        consumer = self.world.consumer(session, "in", window=4)

        def all_seen() -> bool:
            self.handle_all(session, consumer)
            self.world.collect()
            return len(self.seen) == len(BODIES)

        yield all_seen
        flushed = self.world.call(session.when_idle)
        yield lambda: self.world.is_done(flushed)
        closed = self.world.call(lambda ticket: session.consumers.close(consumer, ticket))
        yield lambda: self.world.is_done(closed)

    def check(self) -> None:
        assert self.seen == BODIES
        assert self.world.server.destinations["in"].subscriptions[""].done == set(range(1, 7))


class HoldsBeforeAcknowledging(Receives):
    """Everything is handed out before anything is acknowledged, so a cut finds all of it in the program's hands."""

    def scenario(self) -> Scenario:
        session = self.world.session()
        consumer = self.world.consumer(session, "in", window=2)
        positions: list[int] = []

        def all_seen() -> bool:
            for waiting in self.world.take(session, consumer):
                self.seen.append(waiting.message.body)
                positions.append(waiting.position)
            self.world.collect()
            return len(positions) == len(BODIES)

        yield all_seen
        for position in positions:
            session.acknowledge(consumer, position)
        closed = self.world.call(session.close)
        yield lambda: self.world.is_done(closed)


class Transacts(Plan):
    """Moves messages from one queue to another, two at a time."""

    def prepare(self) -> None:
        self.world.server.put("in", *BODIES)

    def scenario(self) -> Scenario:
        session = self.world.session(is_transacted=True)
        consumer = self.world.consumer(session, "in", window=4)
        while len(self.seen) < len(BODIES):
            moved: list[int] = []

            def two_moved(moved: list[int] = moved) -> bool:
                while len(moved) < 2 and (waiting := session.consumers.take(consumer)) is not None:
                    self.seen.append(waiting.message.body)
                    self.world.send(session, "out", waiting.message.body)
                    session.acknowledge(consumer, waiting.position)
                    moved.append(waiting.position)
                self.world.collect()
                return len(moved) == 2

            yield two_moved
            committed = self.world.call(session.commit)
            yield partial(self.world.is_done, committed)

    def check(self) -> None:
        assert self.seen == BODIES
        assert self.bodies("out") == BODIES
        assert self.world.server.destinations["in"].subscriptions[""].done == set(range(1, 7))


class RollsBack(Plan):
    session_id = ""

    def prepare(self) -> None:
        self.world.server.put("in", *BODIES[:3])

    def scenario(self) -> Scenario:
        session = self.world.session(is_transacted=True)
        consumer = self.world.consumer(session, "in", window=2)
        first: list[bytes] = []

        def one_seen() -> bool:
            waiting = session.consumers.take(consumer)
            if waiting is not None:
                first.append(waiting.message.body)
                session.acknowledge(consumer, waiting.position)
                self.world.send(session, "out", b"vanishes")
            self.world.collect()
            return bool(first)

        yield one_seen
        rolled_back = self.world.call(session.roll_back)
        yield lambda: self.world.is_done(rolled_back)

        def all_seen() -> bool:
            self.handle_all(session, consumer)
            self.world.collect()
            return len(self.seen) == 3

        yield all_seen
        self.world.send(session, "out", b"stays")
        committed = self.world.call(session.commit)
        yield lambda: self.world.is_done(committed)
        self.session_id = session.id
        closed = self.world.call(session.close)
        yield lambda: self.world.is_done(closed)

    def check(self) -> None:
        assert self.seen == BODIES[:3]
        assert self.bodies("out") == [b"stays"]
        assert self.session_id not in self.world.server.sessions


class Rejects(Plan):
    """Returns the first message once, while others wait behind it: all come again."""

    def prepare(self) -> None:
        self.world.server.delivery_rows_max = 1
        self.world.server.put("in", *BODIES)

    def scenario(self) -> Scenario:
        session = self.world.session()
        consumer = self.world.consumer(session, "in", window=4)
        rejected: list[int] = []

        def one_rejected() -> bool:
            waiting = session.consumers.take(consumer)
            if waiting is not None:
                rejected.append(waiting.position)
                session.give_back(consumer, [waiting.position])
            self.world.collect()
            return bool(rejected)

        yield one_rejected

        def all_seen() -> bool:
            self.handle_all(session, consumer)
            self.world.collect()
            return len(self.seen) == len(BODIES)

        yield all_seen
        closed = self.world.call(session.close)
        yield lambda: self.world.is_done(closed)

    def check(self) -> None:
        assert sorted(self.seen) == BODIES
        assert self.world.server.destinations["in"].subscriptions[""].done == set(range(1, 7))


class RejectsWhereAllIsTakenBack(Rejects):
    """With a server that takes back, on a return, all that is in flight to the consumer: order is kept, too."""

    def prepare(self) -> None:
        self.world.server.takes_all_back = True
        super().prepare()

    def check(self) -> None:
        super().check()
        assert self.seen == BODIES


class Browses(Plan):
    def prepare(self) -> None:
        self.world.server.put("in", *BODIES)

    def scenario(self) -> Scenario:
        session = self.world.session()
        ticket = self.world.core.new_ticket()
        session.calls.browse("in", from_position=2, messages_max=4, ticket=ticket)
        yield lambda: self.world.is_done(ticket)
        self.seen = [waiting.message.body for waiting in self.world.results[ticket]]

    def check(self) -> None:
        assert self.seen == BODIES[1:5]


PLANS: list[type[Plan]] = [
    SendsOneByOne,
    SendsTogether,
    TwoSessions,
    Receives,
    HoldsBeforeAcknowledging,
    Transacts,
    RollsBack,
    Rejects,
    RejectsWhereAllIsTakenBack,
    Browses,
]


def run(make: Callable[[], Plan], cut_after: int | None) -> Plan:
    plan = make()
    plan.prepare()
    plan.world.run(plan.scenario(), cut_after=cut_after)
    plan.check()
    return plan


@pytest.mark.parametrize("make", PLANS)
def test_nothing_is_lost_or_doubled_wherever_the_connection_is_cut(make: type[Plan]) -> None:
    frame_count = run(make, None).world.steps

    assert frame_count > 5
    for cut_after in range(frame_count):
        run(make, cut_after)


@pytest.mark.parametrize("make", PLANS)
def test_nothing_is_lost_or_doubled_when_it_is_cut_twice(make: type[Plan]) -> None:
    for first in range(0, 40, 3):
        for second in range(first + 1, first + 12, 2):
            plan = make()
            plan.prepare()
            cuts = [first, second]
            for condition in plan.scenario():
                plan.world.collect()
                while not condition():
                    if cuts and plan.world.steps >= cuts[0]:
                        cuts.pop(0)
                        plan.world.cut()
                        plan.world.connect()
                    assert plan.world.step()
            plan.check()


class TestTheProofCanFail:
    """Clients that forget something, for each thing that a client must remember."""

    def test_a_client_that_drops_unconfirmed_sends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lost = Outgoing.lost

        def forgetful(self: Outgoing) -> None:
            lost(self)
            self.drop_all()

        monkeypatch.setattr(Outgoing, "lost", forgetful)
        self.fails(SendsTogether)

    def test_a_client_that_gives_a_resend_new_sequences(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Outgoing, "resumed", lambda self, recorded: self.run_again(recorded) or [])
        self.fails(SendsOneByOne)

    def test_a_client_that_does_not_know_what_it_handed_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lost = Incoming.lost

        def forgetful(self: Incoming) -> None:
            lost(self)
            self._known = set(self._held)
            self._held = self._known

        monkeypatch.setattr(Incoming, "lost", forgetful)
        monkeypatch.setattr(Incoming, "is_held", lambda self, position: True)
        monkeypatch.setattr(Incoming, "settle", lambda self, position: self._known.discard(position))
        self.fails(Receives)

    def test_a_client_that_takes_a_lost_commit_for_done(self, monkeypatch: pytest.MonkeyPatch) -> None:
        outcome = TransactionEnding._outcome
        monkeypatch.setattr(
            TransactionEnding, "_outcome", lambda self, result: outcome(self, {"outcome": "committed"})
        )
        self.fails(Transacts)

    @staticmethod
    def fails(make: type[Plan]) -> None:
        def run_all() -> None:
            for cut_after in range(40):
                run(make, cut_after)

        with pytest.raises(AssertionError):
            run_all()


class TestWhatIsAskedAfterAResume:
    def test_a_lost_commit_is_asked_again_and_not_run_again(self) -> None:
        world = World(a_server())
        session = world.session(is_transacted=True)
        world.send(session, "out", b"1")
        committed = world.call(session.commit)
        world.collect()
        while not frames_of(world.server, Commit):
            world.step()
        world.cut()
        world.connect()
        world.settle()

        assert world.is_done(committed)
        assert [frame.transaction for frame in frames_of(world.server, Commit)] == [2, 2]
        assert len(frames_of(world.server, Send)) == 1

    def test_an_unknown_commit_is_run_again_under_a_new_number(self) -> None:
        world = World(a_server())
        session = world.session(is_transacted=True)
        world.send(session, "out", b"1")
        world.settle()
        committed = world.call(session.commit)
        world.collect()  # Commit is on its way, and will not arrive
        world.cut()
        world.connect()
        world.settle()

        assert world.is_done(committed)
        first, *_, last = [frame.transaction for frame in frames_of(world.server, Commit)]
        assert last == first + 1
        assert world.server.destinations["out"].bodies == [b"1"]

    def test_a_session_is_resumed_by_name(self) -> None:
        world = World(a_server())
        session = world.session()
        world.settle()
        world.cut()
        world.connect()
        world.settle()

        assert [frame.session for frame in frames_of(world.server, OpenSession)] == ["", "s1"]
        assert session.epoch == 2


class TestASessionThatTheServerForgot:
    def test_it_is_opened_anew_where_all_was_confirmed(self) -> None:
        world = World(a_server())
        session = world.session()
        first = world.send(session, "out", b"1")
        world.settle()
        world.cut()
        world.server.sessions.clear()
        world.connect()
        second = world.send(session, "out", b"2")
        world.settle()

        assert (world.results[first], world.results[second]) == (1, 1)
        assert session.id == "s2"
        assert world.server.destinations["out"].bodies == [b"1", b"2"]

    def test_it_fails_where_something_was_not_confirmed(self) -> None:
        world = World(a_server())
        session = world.session()
        world.settle()
        world.server.holds_confirms = True
        ticket = world.send(session, "out", b"1")
        world.settle()
        world.cut()
        world.server.sessions.clear()
        world.connect()
        world.settle()

        assert isinstance(world.errors[ticket], OutcomeUnknown)
        assert session.state is SessionState.ENDED
        with pytest.raises(OutcomeUnknown):
            session.takes(messages=1, size_bytes=1)

    def test_it_fails_where_a_commit_was_not_answered(self) -> None:
        world = World(a_server())
        session = world.session(is_transacted=True)
        world.send(session, "out", b"1")
        world.settle()
        committed = world.call(session.commit)
        world.collect()
        world.cut()
        world.server.sessions.clear()
        world.connect()
        world.settle()

        assert isinstance(world.errors[committed], OutcomeUnknown)

    def test_an_open_transaction_is_run_again(self) -> None:
        world = World(a_server())
        session = world.session(is_transacted=True)
        world.send(session, "out", b"1")
        world.settle()
        world.cut()
        world.server.sessions.clear()
        world.connect()
        committed = world.call(session.commit)
        world.settle()

        assert world.is_done(committed)
        assert world.server.destinations["out"].bodies == [b"1"]

    def test_what_was_never_sent_is_sent_in_the_new_one(self) -> None:
        world = World(a_server())
        session = world.session()
        world.settle()
        world.cut()
        ticket = world.send(session, "out", b"1")
        world.server.sessions.clear()
        world.connect()
        world.settle()

        assert world.results[ticket] == 1

    def test_a_server_that_lost_what_it_confirmed_is_not_trusted(self) -> None:
        world = World(a_server())
        session = world.session()
        world.send(session, "out", b"1")
        world.settle()
        world.server.holds_confirms = True
        ticket = world.send(session, "out", b"2")
        world.settle()
        world.cut()
        world.server.sessions["s1"].sequences.clear()
        world.connect()
        world.settle()

        assert isinstance(world.errors[ticket], OutcomeUnknown)

    def test_closing_it_succeeds(self) -> None:
        world = World(a_server())
        session = world.session()
        world.settle()
        world.cut()
        world.server.sessions.clear()
        closed = world.call(session.close)
        world.connect()
        world.settle()

        assert world.is_done(closed)


def test_a_fenced_session_fails_and_does_not_fight_for_its_name() -> None:
    world = World(a_server())
    session = world.session()
    world.settle()
    world.server.refuses[Send] = "session.fenced"
    ticket = world.send(session, "out", b"1")
    world.settle()

    assert isinstance(world.errors[ticket], Refused)
    assert session.state is SessionState.ENDED
