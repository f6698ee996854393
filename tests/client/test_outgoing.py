from __future__ import annotations

import pytest

from holdfast.client.limits import ClientLimits
from holdfast.client.outgoing import Allowance, Outgoing
from holdfast.errors import LimitExceeded, OutcomeUnknown, ProtocolError, UsageError
from holdfast.message import Batch, Message, encode
from holdfast.wire import Send

BATCH_BYTES_MAX = 10_000


class Sender:
    """An `Outgoing` that is declared, with what it would send."""

    def __init__(self, *, is_transacted: bool = False, limits: ClientLimits | None = None) -> None:
        limits = limits or ClientLimits()
        self.allowance = Allowance(limits)
        self.outgoing = Outgoing("q", limits=limits, allowance=self.allowance, is_transacted=is_transacted)
        self.outgoing.number = 7

    def add(self, *tickets: int, body: bytes = b"") -> None:
        for ticket in tickets:
            batch = encode([Message(body=body or b"%d" % ticket)])
            self.outgoing.add_single(batch, ticket, batch_bytes_max=BATCH_BYTES_MAX)

    def due(self, *, is_forced: bool = False) -> list[Send]:
        sends = list(self.outgoing.due(transaction=0, is_forced=is_forced))
        self.outgoing.check_invariants()
        return sends

    def spans(self, *, is_forced: bool = False) -> list[tuple[int, int]]:
        return [(send.first_sequence, len(Batch.parse(send.batch))) for send in self.due(is_forced=is_forced)]


def test_a_single_send_goes_at_once_when_nothing_is_on_its_way() -> None:
    sender = Sender()
    sender.add(1)

    assert sender.spans() == [(1, 1)]


def test_sends_are_gathered_while_one_is_on_its_way() -> None:
    sender = Sender()
    sender.add(1)
    sender.due()
    sender.add(2, 3, 4)

    assert sender.due() == []
    assert sender.outgoing.confirm(1) == [(1, 1)]
    (send,) = sender.due()
    assert [message.body for message in Batch.parse(send.batch).messages()] == [b"2", b"3", b"4"]
    assert sender.outgoing.confirm(4) == [(2, 2), (3, 3), (4, 4)]
    assert sender.outgoing.is_idle


def test_gathered_sends_that_fill_a_batch_do_not_wait() -> None:
    sender = Sender(limits=ClientLimits(gathered_messages_max=3))
    sender.add(1)
    sender.due()
    sender.add(*range(2, 9))

    assert sender.spans() == [(2, 3), (5, 3)]


def test_gathered_bytes_have_a_maximum() -> None:
    sender = Sender(limits=ClientLimits(gathered_bytes_max=300))
    sender.add(1)
    sender.due()
    sender.add(2, 3, 4, body=b"x" * 100)

    assert sender.spans() == [(2, 2)]


def test_a_batch_of_the_program_goes_behind_what_was_gathered_and_stays_one() -> None:
    sender = Sender()
    sender.add(1)
    sender.due()
    sender.add(2, 3)
    sender.outgoing.add_batch(encode([Message()] * 5), 5, 9)

    assert sender.spans() == [(2, 2), (4, 5)]
    assert sender.outgoing.confirm(8) == [(1, 1), (2, 2), (3, 3), (9, 8)]


def test_nothing_goes_before_it_is_declared_or_while_it_is_blocked() -> None:
    sender = Sender()
    sender.outgoing.number = 0
    sender.add(1)
    assert sender.outgoing.needs_number
    assert sender.due() == []
    sender.outgoing.number = 7
    sender.outgoing.is_blocked = True
    assert sender.due() == []
    sender.outgoing.is_blocked = False

    assert sender.spans() == [(1, 1)]


def test_a_partly_confirmed_batch_is_kept() -> None:
    sender = Sender()
    sender.outgoing.add_batch(encode([Message()] * 3), 3, 1)
    sender.due()

    assert sender.outgoing.confirm(2) == []
    assert sender.outgoing.confirm(3) == [(1, 3)]


def test_what_was_never_sent_cannot_be_confirmed() -> None:
    with pytest.raises(ProtocolError):
        Sender().outgoing.confirm(1)


def test_after_a_resume_the_rest_is_sent_again_with_the_same_sequences() -> None:
    sender = Sender(limits=ClientLimits(gathered_messages_max=1))
    sender.add(1, 2, 3)
    sender.due()
    sender.outgoing.lost()
    assert sender.due() == []
    assert sender.outgoing.resumed(1) == [(1, 1)]
    sender.outgoing.number = 9

    assert sender.spans() == [(2, 1), (3, 1)]


def test_a_server_that_has_less_than_it_confirmed_is_not_trusted() -> None:
    sender = Sender()
    sender.add(1)
    sender.due()
    sender.outgoing.confirm(1)
    sender.outgoing.lost()

    with pytest.raises(OutcomeUnknown, match="confirmed 1"):
        sender.outgoing.resumed(0)


class TestTransactions:
    def test_sends_wait_until_they_fill_a_batch_or_the_commit_wants_them(self) -> None:
        sender = Sender(is_transacted=True, limits=ClientLimits(gathered_messages_max=2))
        sender.add(1)
        assert sender.due() == []
        sender.add(2, 3)

        assert sender.spans() == [(1, 2)]
        assert sender.spans(is_forced=True) == [(3, 1)]

    def test_a_new_run_takes_new_sequences_from_what_is_recorded(self) -> None:
        sender = Sender(is_transacted=True)
        sender.add(1, 2)
        sender.due(is_forced=True)
        sender.outgoing.lost()
        sender.outgoing.run_again(2)
        sender.outgoing.number = 7

        assert sender.spans() == [(3, 2)]

    def test_a_new_run_on_the_same_connection_goes_on_counting(self) -> None:
        sender = Sender(is_transacted=True)
        sender.add(1, 2)
        sender.due(is_forced=True)
        sender.outgoing.run_again()

        assert sender.spans() == [(3, 2)]


class TestAllowance:
    def test_room_is_given_back_when_sends_are_confirmed(self) -> None:
        sender = Sender(limits=ClientLimits(unconfirmed_messages_max=2))
        sender.add(1, 2)
        assert not sender.allowance.has_room(messages=1, size_bytes=1)
        sender.due()
        sender.outgoing.confirm(2)

        assert sender.allowance.has_room(messages=2, size_bytes=1)
        assert sender.allowance.bytes == 0

    def test_bytes_count_too(self) -> None:
        allowance = Allowance(ClientLimits(unconfirmed_bytes_max=10))

        assert not allowance.has_room(messages=1, size_bytes=11)
        with pytest.raises(LimitExceeded, match="unconfirmed_bytes_max"):
            allowance.check_fits(messages=1, size_bytes=11)
        with pytest.raises(LimitExceeded, match="unconfirmed_messages_max"):
            allowance.check_fits(messages=1_000_000, size_bytes=1)

    def test_dropping_gives_all_back(self) -> None:
        sender = Sender()
        sender.add(1, 2)

        assert sender.outgoing.drop_all() == [1, 2]
        assert (sender.allowance.messages, sender.allowance.bytes) == (0, 0)


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="gathered_messages_max"):
        ClientLimits(gathered_messages_max=0)
