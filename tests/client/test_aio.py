"""The asynchronous client over real sockets, against the fake server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps

import pytest

from holdfast import aio
from holdfast.client.limits import ClientLimits
from holdfast.errors import ConnectionLost, LimitExceeded, OutcomeUnknown, Refused, UsageError
from holdfast.message import Message
from holdfast.wire import Acknowledge, Commit, Credit, Declare, Hello, Send
from tests.client.loopback import Loopback
from tests.client.world import frames_of

TEST_TIMEOUT_S = 20.0
Test = Callable[[Loopback], Awaitable[None]]


def on_loopback(test: Test) -> Callable[[], None]:
    """Run an asynchronous test with a server that has the queues `q` and `out` and the topic `news`."""

    @wraps(test)
    def run() -> None:
        async def within() -> None:
            async with Loopback() as loopback:
                loopback.server.declare("q")
                loopback.server.declare("out")
                loopback.server.declare("news", "topic")
                await test(loopback)

        asyncio.run(asyncio.wait_for(within(), TEST_TIMEOUT_S))

    del run.__wrapped__  # pytest would look for the argument
    return run


async def until(condition: Callable[[], object]) -> None:
    """Let others run until it is so; the timeout of the test is the limit."""
    while not condition():
        await asyncio.sleep(0)


@on_loopback
async def test_a_send_returns_its_receipt(loopback: Loopback) -> None:
    async with await aio.connect(loopback.url) as connection, connection.session() as session:
        receipt = await session.send("q", b"one", type="greeting", properties={"n": 1})
        again = await session.send("q", Message(body=b"two"))

    assert (receipt.sequence, again.sequence) == (1, 2)
    assert loopback.server.destinations["q"].bodies == [b"one", b"two"]


@on_loopback
async def test_sends_of_many_tasks_are_gathered_and_keep_their_order(loopback: Loopback) -> None:
    async with await aio.connect(loopback.url) as connection, connection.session() as session:
        bodies = [b"%d" % number for number in range(500)]
        receipts = await asyncio.gather(*(session.send("q", body) for body in bodies))

    assert [receipt.sequence for receipt in receipts] == list(range(1, 501))
    assert loopback.server.destinations["q"].bodies == bodies
    assert len(frames_of(loopback.server, Send)) < 10


@on_loopback
async def test_a_batch_is_sent_as_one(loopback: Loopback) -> None:
    async with await aio.connect(loopback.url) as connection, connection.session() as session:
        receipt = await session.send_batch("q", [b"%d" % number for number in range(1000)])

    assert receipt.sequence == 1000
    assert len(frames_of(loopback.server, Send)) == 1


@on_loopback
async def test_a_batch_above_the_frame_of_the_server_is_split(loopback: Loopback) -> None:
    loopback.server.frame_bytes_max = 4096
    async with await aio.connect(loopback.url) as connection, connection.session() as session:
        receipt = await session.send_batch("q", [b"x" * 1000] * 10)
        with pytest.raises(LimitExceeded, match="FRAME_BYTES_MAX"):
            await session.send("q", b"x" * 5000)

    assert receipt.sequence == 10
    assert len(loopback.server.destinations["q"].rows) == 10


@on_loopback
async def test_messages_are_consumed_and_acknowledged_in_ranges(loopback: Loopback) -> None:
    loopback.put("q", *(b"%d" % number for number in range(300)))
    async with await aio.connect(loopback.url) as connection, connection.session() as session:
        seen = []
        async with session.consume("q", credit=100) as consumer:
            async for message in consumer:
                seen.append(message.body)
                await message.acknowledge()
                if len(seen) == 300:
                    break

    assert seen == [b"%d" % number for number in range(300)]
    assert loopback.server.destinations["q"].subscriptions[""].done == set(range(1, 301))
    assert len(frames_of(loopback.server, Acknowledge)) < 50
    assert sum(frame.messages for frame in frames_of(loopback.server, Credit)) <= 300


@on_loopback
async def test_a_received_message_has_all_that_was_sent(loopback: Loopback) -> None:
    async with await aio.connect(loopback.url) as connection, connection.session() as session:
        await session.send("q", b"body", properties={"a": 1}, priority=7, correlation_id="c")
        message = await session.receive("q", timeout_s=5)

        assert message is not None
        assert (message.body, message.properties, message.priority) == (b"body", {"a": 1}, 7)
        assert (message.correlation_id, message.position, message.redeliveries) == ("c", 1, 0)
        assert message.id is not None
        await message.acknowledge()
        with pytest.raises(UsageError, match="before"):
            await message.acknowledge()


@on_loopback
async def test_receive_gives_none_when_nothing_comes_and_fetches_nothing_ahead(loopback: Loopback) -> None:
    async with await aio.connect(loopback.url) as connection, connection.session() as session:
        assert await session.receive("q", timeout_s=0.01) is None
        loopback.put("q", b"1", b"2")
        message = await session.receive("q")

        assert message is not None
        assert message.body == b"1"
        assert list(loopback.server.destinations["q"].subscriptions[""].in_flight) == [1]


@on_loopback
async def test_a_rejected_message_comes_again_and_first(loopback: Loopback) -> None:
    loopback.put("q", b"1", b"2", b"3")
    async with await aio.connect(loopback.url) as connection, connection.session() as session:
        consumer = session.consume("q", credit=2)
        first = await consumer.receive()
        assert first is not None
        await first.reject()
        again = [await consumer.receive() for _ in range(3)]

        assert [message.body for message in again if message] == [b"1", b"2", b"3"]
        assert again[0] is not None
        assert again[0].redeliveries == 1


@on_loopback
async def test_closing_a_consumer_ends_the_iteration(loopback: Loopback) -> None:
    async with await aio.connect(loopback.url) as connection, connection.session() as session:
        consumer = session.consume("q")

        async def consume() -> int:
            return len([message async for message in consumer])

        task = asyncio.ensure_future(consume())
        await consumer.open()
        await consumer.close()

        assert await task == 0


@on_loopback
async def test_browsing_leaves_messages_where_they_are(loopback: Loopback) -> None:
    loopback.put("q", b"1", b"2", b"3")
    async with await aio.connect(loopback.url) as connection, connection.session() as session:
        found = await session.browse("q", from_position=2)

    assert [(message.position, message.body) for message in found] == [(2, b"2"), (3, b"3")]
    assert loopback.server.destinations["q"].subscriptions[""].in_flight == {}


@on_loopback
async def test_a_durable_subscription_keeps_messages_until_they_are_consumed(loopback: Loopback) -> None:
    async with await aio.connect(loopback.url) as connection, connection.session() as session:
        await session.subscribe("news", "mine")
        loopback.put("news", b"1")
        message = await session.receive("news", subscription="mine", timeout_s=5)
        await session.unsubscribe("news", "mine")

    assert message is not None
    assert message.body == b"1"
    assert "mine" not in loopback.server.destinations["news"].subscriptions


@on_loopback
async def test_declare_status_and_destinations(loopback: Loopback) -> None:
    async with await aio.connect(loopback.url) as connection:
        await connection.declare("new", "topic")

        assert loopback.server.destinations["new"].kind == "topic"
        assert await connection.status() == {"what": "status"}
        assert await connection.destinations() == {"what": "destinations"}
        assert (connection.server, connection.node) == ("fake", "n1")


@on_loopback
async def test_a_destination_that_does_not_exist_is_refused_and_may_be_declared(loopback: Loopback) -> None:
    async with await aio.connect(loopback.url) as connection, connection.session() as session:
        with pytest.raises(Refused) as refused:
            await session.send("missing", b"1")
        with pytest.raises(Refused):
            await session.receive("missing")
        await session.declare("missing")
        await session.send("missing", b"2")

    assert refused.value.server_code == "destination.unknown"
    assert loopback.server.destinations["missing"].bodies == [b"2"]


class TestTransactions:
    @staticmethod
    def test_a_commit_makes_sends_and_acknowledgements_true_together() -> None:
        @on_loopback
        async def test(loopback: Loopback) -> None:
            loopback.put("q", b"1")
            async with (
                await aio.connect(loopback.url) as connection,
                connection.session(transacted=True) as session,
            ):
                message = await session.receive("q")
                assert message is not None
                await message.acknowledge()
                receipt = await session.send("out", b"from " + message.body)
                assert receipt.sequence == 0
                assert loopback.server.destinations["out"].bodies == []
                await session.commit()

            assert loopback.server.destinations["out"].bodies == [b"from 1"]
            assert loopback.server.destinations["q"].subscriptions[""].done == {1}

        test()

    @staticmethod
    def test_a_rollback_returns_what_was_received_acknowledged_or_not() -> None:
        @on_loopback
        async def test(loopback: Loopback) -> None:
            loopback.put("q", b"1", b"2")
            async with (
                await aio.connect(loopback.url) as connection,
                connection.session(transacted=True) as session,
            ):
                consumer = session.consume("q")
                first, second = await consumer.receive(), await consumer.receive()
                assert first is not None
                assert second is not None
                await first.acknowledge()
                await session.send("out", b"never")
                await session.rollback()
                again = [await consumer.receive() for _ in range(2)]

                assert [message.body for message in again if message] == [b"1", b"2"]
                await session.commit()

            assert loopback.server.destinations["out"].bodies == []

        test()

    @staticmethod
    def test_closing_rolls_back() -> None:
        @on_loopback
        async def test(loopback: Loopback) -> None:
            async with (
                await aio.connect(loopback.url) as connection,
                connection.session(transacted=True) as session,
            ):
                await session.send("out", b"never")

            assert loopback.server.destinations["out"].bodies == []

        test()

    @staticmethod
    def test_a_transaction_has_a_size() -> None:
        @on_loopback
        async def test(loopback: Loopback) -> None:
            limits = ClientLimits(unconfirmed_messages_max=2)
            async with (
                await aio.connect(loopback.url, limits=limits) as connection,
                connection.session(transacted=True) as session,
            ):
                await session.send("out", b"1")
                await session.send("out", b"2")
                with pytest.raises(LimitExceeded, match="unconfirmed_messages_max"):
                    await session.send("out", b"3")

        test()

    @staticmethod
    def test_a_part_without_a_destination_makes_the_commit_fail() -> None:
        @on_loopback
        async def test(loopback: Loopback) -> None:
            async with (
                await aio.connect(loopback.url) as connection,
                connection.session(transacted=True) as session,
            ):
                await session.send("out", b"1")
                await session.send("missing", b"2")
                with pytest.raises(Refused):
                    await session.commit()
                await session.rollback()
                await session.send("out", b"3")
                await session.commit()

            assert loopback.server.destinations["out"].bodies == [b"3"]

        test()

    @staticmethod
    def test_commit_needs_a_transacted_session() -> None:
        @on_loopback
        async def test(loopback: Loopback) -> None:
            async with await aio.connect(loopback.url) as connection, connection.session() as session:
                with pytest.raises(UsageError, match="transacted=True"):
                    await session.commit()

        test()


class TestLostConnections:
    @staticmethod
    def test_a_program_that_sends_goes_on() -> None:
        @on_loopback
        async def test(loopback: Loopback) -> None:
            async with await aio.connect(loopback.url) as connection, connection.session() as session:
                for number in range(20):
                    if number % 4 == 2:
                        loopback.cut_when = lambda frame: isinstance(frame, Send)
                    await session.send("q", b"%d" % number)

            assert loopback.server.destinations["q"].bodies == [b"%d" % number for number in range(20)]

        test()

    @staticmethod
    def test_a_program_that_receives_goes_on() -> None:
        @on_loopback
        async def test(loopback: Loopback) -> None:
            loopback.put("q", *(b"%d" % number for number in range(50)))
            seen: list[bytes] = []
            async with await aio.connect(loopback.url) as connection, connection.session() as session:
                async for message in session.consume("q", credit=10):
                    seen.append(message.body)
                    if len(seen) % 10 == 5:
                        loopback.cut_when = lambda frame: isinstance(frame, Acknowledge | Credit)
                    await message.acknowledge()
                    if len(seen) == 50:
                        break

            assert seen == [b"%d" % number for number in range(50)]
            assert loopback.server.destinations["q"].subscriptions[""].done == set(range(1, 51))

        test()

    @staticmethod
    def test_a_program_that_commits_goes_on() -> None:
        @on_loopback
        async def test(loopback: Loopback) -> None:
            async with (
                await aio.connect(loopback.url) as connection,
                connection.session(transacted=True) as session,
            ):
                for number in range(6):
                    kind = Commit if number % 2 else Send
                    loopback.cut_when = lambda frame, kind=kind: isinstance(frame, kind)
                    await session.send("out", b"%d" % number)
                    await session.commit()

            assert loopback.server.destinations["out"].bodies == [b"%d" % number for number in range(6)]

        test()

    @staticmethod
    def test_a_server_that_is_away_for_a_while_is_waited_for() -> None:
        @on_loopback
        async def test(loopback: Loopback) -> None:
            async with await aio.connect(loopback.url) as connection, connection.session() as session:
                await session.send("q", b"1")
                loopback.go_down()
                sending = asyncio.ensure_future(session.send("q", b"2"))
                await until(lambda: not loopback.sockets)
                await loopback.listen()
                await sending

            assert loopback.server.destinations["q"].bodies == [b"1", b"2"]

        test()

    @staticmethod
    def test_another_host_takes_over() -> None:
        @on_loopback
        async def test(loopback: Loopback) -> None:
            async with Loopback(loopback.server) as other:
                url = f"holdfast://127.0.0.1:{loopback.port},127.0.0.1:{other.port}"
                async with await aio.connect(url) as connection, connection.session() as session:
                    await session.send("q", b"1")
                    loopback.go_down()
                    await session.send("q", b"2")
                    assert other.sockets

            assert loopback.server.destinations["q"].bodies == [b"1", b"2"]

        test()

    @staticmethod
    def test_it_is_given_up_when_the_time_is_over() -> None:
        @on_loopback
        async def test(loopback: Loopback) -> None:
            connection = await aio.connect(loopback.url, reconnect_timeout_s=0.01)
            session = connection.session()
            await session.send("q", b"1")
            loopback.go_down()
            with pytest.raises(ConnectionLost, match="no server answers"):
                await session.send("q", b"2")
            with pytest.raises(ConnectionLost):
                await connection.status()
            await connection.close()

        test()

    @staticmethod
    def test_a_forgotten_session_with_unconfirmed_sends_says_so() -> None:
        @on_loopback
        async def test(loopback: Loopback) -> None:
            async with await aio.connect(loopback.url) as connection:
                session = connection.session()
                loopback.server.holds_confirms = True
                sending = asyncio.ensure_future(session.send("q", b"1"))
                await until(lambda: frames_of(loopback.server, Send))
                loopback.server.sessions.clear()
                loopback.cut()
                with pytest.raises(OutcomeUnknown):
                    await sending
                with pytest.raises(OutcomeUnknown):
                    await session.send("q", b"2")

        test()


class TestLimits:
    @staticmethod
    def test_sends_wait_for_room() -> None:
        @on_loopback
        async def test(loopback: Loopback) -> None:
            loopback.server.holds_confirms = True
            limits = ClientLimits(unconfirmed_messages_max=3)
            async with await aio.connect(loopback.url, limits=limits) as connection:
                session = connection.session()
                tasks = [asyncio.ensure_future(session.send("q", b"%d" % number)) for number in range(9)]
                await until(lambda: frames_of(loopback.server, Send))
                assert not session.try_send("q", b"no room")
                loopback.server.holds_confirms = False
                loopback.release()
                await asyncio.gather(*tasks)

            assert loopback.server.destinations["q"].bodies == [b"%d" % number for number in range(9)]

        test()

    @staticmethod
    def test_try_send_is_confirmed_by_flush_and_its_failure_told_there() -> None:
        @on_loopback
        async def test(loopback: Loopback) -> None:
            async with await aio.connect(loopback.url) as connection, connection.session() as session:
                assert session.try_send("q", b"1")
                await session.flush()
                assert loopback.server.destinations["q"].bodies == [b"1"]
                assert session.try_send("missing", b"2")
                with pytest.raises(Refused):
                    await session.flush()
                await session.flush()

        test()

    @staticmethod
    def test_what_does_not_fit_is_said_at_once() -> None:
        @on_loopback
        async def test(loopback: Loopback) -> None:
            async with await aio.connect(loopback.url) as connection, connection.session() as session:
                with pytest.raises(UsageError, match="encode it first"):
                    await session.send("q", "text")  # type: ignore[arg-type]
                with pytest.raises(UsageError, match="colour"):
                    await session.send("q", b"1", colour="red")
                with pytest.raises(UsageError, match="priority"):
                    await session.send("q", b"1", priority=10)
                with pytest.raises(UsageError, match="next to a Message"):
                    await session.send("q", Message(), priority=1)
                with pytest.raises(UsageError, match="credit"):
                    session.consume("q", credit=0)

        test()


class TestConnecting:
    @staticmethod
    def test_a_server_that_refuses_us_is_not_tried_again() -> None:
        @on_loopback
        async def test(loopback: Loopback) -> None:
            loopback.server.refuses[Hello] = "protocol.version"
            with pytest.raises(Refused):
                await aio.connect(loopback.url)

            assert len(frames_of(loopback.server, Hello)) == 1

        test()

    @staticmethod
    def test_no_server_at_all() -> None:
        @on_loopback
        async def test(loopback: Loopback) -> None:
            loopback.go_down()
            with pytest.raises(ConnectionLost, match="no server answers"):
                await aio.connect(loopback.url, connect_timeout_s=0.01)

        test()

    @staticmethod
    def test_user_and_password_are_told() -> None:
        @on_loopback
        async def test(loopback: Loopback) -> None:
            async with await aio.connect(f"holdfast://me:se%40cret@127.0.0.1:{loopback.port}"):
                hello = frames_of(loopback.server, Hello)[0]

            assert (hello.user, hello.password) == ("me", "se@cret")

        test()

    @staticmethod
    def test_a_closed_session_says_so() -> None:
        @on_loopback
        async def test(loopback: Loopback) -> None:
            async with await aio.connect(loopback.url) as connection:
                session = connection.session()
                await session.close()
                await session.close()
                with pytest.raises(UsageError, match="closed"):
                    await session.send("q", b"1")

        test()

    @staticmethod
    def test_close_drains() -> None:
        @on_loopback
        async def test(loopback: Loopback) -> None:
            connection = await aio.connect(loopback.url)
            session = connection.session()
            for number in range(10):
                assert session.try_send("q", b"%d" % number)
            await connection.close()

            assert len(loopback.server.destinations["q"].rows) == 10
            assert loopback.server.sessions == {}
            assert len(frames_of(loopback.server, Declare)) == 1

        test()

    @staticmethod
    def test_close_says_what_it_could_not_drain() -> None:
        @on_loopback
        async def test(loopback: Loopback) -> None:
            loopback.server.holds_confirms = True
            connection = await aio.connect(loopback.url)
            session = connection.session()
            session.try_send("q", b"1")
            with pytest.raises(ConnectionLost, match="not closed within"):
                await connection.close(timeout_s=0.01)

        test()
