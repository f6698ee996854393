"""The blocking client over real sockets, from several threads."""

from __future__ import annotations

import inspect
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import holdfast
from holdfast import aio
from holdfast.client import sync
from holdfast.wire import Credit, Send
from tests.client.loopback import Loopback, ThreadedLoopback
from tests.client.world import frames_of


@pytest.fixture
def loopback() -> Iterator[ThreadedLoopback]:
    with ThreadedLoopback() as loopback:
        loopback.server.declare("q")
        loopback.server.declare("out")
        yield loopback


def test_a_message_goes_there_and_back(loopback: ThreadedLoopback) -> None:
    with holdfast.connect(loopback.url) as connection, connection.session() as session:
        assert session.send("q", b"one", type="greeting").sequence == 1
        assert session.send_batch("q", [b"two", holdfast.Message(body=b"three")]).sequence == 3
        assert session.try_send("q", b"four")
        session.flush()
        seen = []
        for message in session.consume("q"):
            assert isinstance(message, holdfast.ReceivedMessage)
            seen.append(message.body)
            message.acknowledge()
            if len(seen) == 4:
                break

    assert seen == [b"one", b"two", b"three", b"four"]
    assert loopback.server.destinations["q"].subscriptions[""].done == {1, 2, 3, 4}


def test_receive_browse_reject_and_declare(loopback: ThreadedLoopback) -> None:
    with holdfast.connect(loopback.url) as connection, connection.session() as session:
        connection.declare("new")
        session.declare("newer", "topic")
        session.send("new", b"1")
        assert [message.body for message in session.browse("new")] == [b"1"]
        message = session.receive("new", timeout_s=5)
        assert message is not None
        message.reject()
        again = session.receive("new", timeout_s=5)
        assert again is not None
        assert again.redeliveries == 1
        assert session.receive("new", timeout_s=0.01) is None
        session.subscribe("newer", "mine")
        session.unsubscribe("newer", "mine")
        assert connection.status() == {"what": "status"}
        assert connection.destinations() == {"what": "destinations"}


def test_many_messages_in_one_call(loopback: ThreadedLoopback) -> None:
    with holdfast.connect(loopback.url) as connection, connection.session() as session:
        session.send_batch("q", [b"%d" % number for number in range(50)])
        seen: list[bytes] = []
        with session.consume("q") as consumer:
            while len(seen) < 50:
                messages = consumer.receive_many(20)
                assert 1 <= len(messages) <= 20
                seen += [message.body for message in messages]
                session.acknowledge(*messages)
            assert consumer.receive_many(timeout_s=0.01) == []
            with pytest.raises(holdfast.UsageError, match="messages_max"):
                consumer.receive_many(0)

    assert seen == [b"%d" % number for number in range(50)]
    assert loopback.server.destinations["q"].subscriptions[""].done == set(range(1, 51))


def test_a_transaction(loopback: ThreadedLoopback) -> None:
    with (
        holdfast.connect(loopback.url) as connection,
        connection.session(transacted=True) as session,
    ):
        session.send("out", b"1")
        session.rollback()
        session.send("out", b"2")
        session.commit()

    assert loopback.server.destinations["out"].bodies == [b"2"]


def test_a_session_is_used_from_several_threads(loopback: ThreadedLoopback) -> None:
    with (
        holdfast.connect(loopback.url) as connection,
        connection.session() as session,
        ThreadPoolExecutor(8) as threads,
    ):
        receipts = list(threads.map(lambda number: session.send("q", b"%d" % number), range(200)))

    assert sorted(receipt.sequence for receipt in receipts) == list(range(1, 201))


def test_a_program_goes_on_when_the_connection_is_lost(loopback: ThreadedLoopback) -> None:
    with holdfast.connect(loopback.url) as connection, connection.session() as session:
        for number in range(10):
            if number % 3 == 1:
                loopback.loopback.cut_when = lambda frame: isinstance(frame, Send)
            session.send("q", b"%d" % number)

    assert loopback.server.destinations["q"].bodies == [b"%d" % number for number in range(10)]


def interrupt_when_credit_comes(loopback: Loopback) -> Callable[[object], bool]:
    """The call is under way for certain when its credit arrives. Nothing is cut."""

    def look(frame: object) -> bool:
        if isinstance(frame, Credit):
            loopback.cut_when = None
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return False

    return look


def test_ctrl_c_ends_a_call_and_the_connection_can_still_be_used(loopback: ThreadedLoopback) -> None:
    with holdfast.connect(loopback.url) as connection, connection.session() as session:
        assert session.receive("q", timeout_s=0) is None
        loopback.loopback.cut_when = interrupt_when_credit_comes(loopback.loopback)
        with pytest.raises(KeyboardInterrupt):
            session.receive("out")
        session.send("q", b"after")
        message = session.receive("q", timeout_s=5)

        assert message is not None
        assert message.body == b"after"


def test_a_closed_connection_says_so_and_leaves_no_thread(loopback: ThreadedLoopback) -> None:
    connection = holdfast.connect(loopback.url)
    session = connection.session()
    connection.close()
    connection.close()

    with pytest.raises(holdfast.UsageError, match="closed"):
        session.send("q", b"1")
    assert not [thread for thread in threading.enumerate() if thread.name == "holdfast-client"]


def test_closing_ends_a_call_of_another_thread(loopback: ThreadedLoopback) -> None:
    connection = holdfast.connect(loopback.url)
    consumer = connection.session().consume("q")
    consumer.open()
    with ThreadPoolExecutor(1) as threads:
        receiving = threads.submit(consumer.receive)
        connection.close()

        with pytest.raises(holdfast.UsageError, match="closed"):
            receiving.result(10)


def test_a_failed_connect_leaves_no_thread() -> None:
    with pytest.raises(holdfast.UsageError):
        holdfast.connect("http://localhost/")
    assert not [thread for thread in threading.enumerate() if thread.name == "holdfast-client"]


def test_nothing_is_sent_before_it_is_asked_for(loopback: ThreadedLoopback) -> None:
    with holdfast.connect(loopback.url):
        pass

    assert frames_of(loopback.server, Send) == []


TWINS = [
    (sync.Connection, aio.AsyncConnection),
    (sync.Session, aio.AsyncSession),
    (sync.Consumer, aio.AsyncConsumer),
    (sync.ReceivedMessage, aio.AsyncReceivedMessage),
]
SHELL_NAMES = {"on_available", "on_roomier", "on_ended", "register", "unregister"}  # for the link alone


def public_names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")} - SHELL_NAMES


@pytest.mark.parametrize(("blocking", "asynchronous"), TWINS)
def test_both_clients_have_the_same_names(blocking: type, asynchronous: type) -> None:
    assert public_names(blocking) == public_names(asynchronous)


@pytest.mark.parametrize(("blocking", "asynchronous"), TWINS)
def test_both_clients_take_the_same_arguments(blocking: type, asynchronous: type) -> None:
    for name in public_names(blocking):
        ours, theirs = getattr(blocking, name), getattr(asynchronous, name)
        if inspect.isfunction(ours):
            assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters), (
                name
            )
    assert inspect.signature(sync.connect).parameters == inspect.signature(aio.connect).parameters
