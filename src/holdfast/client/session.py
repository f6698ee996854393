"""One session: what the program does in order, over as many connections as it takes.

    DETACHED   no connection, or not yet greeted; calls are taken in and wait
    OPENING    OpenSession is sent
    OPEN       frames flow
    ENDED      closed, or failed: every call is refused

Whoever calls changes the machines below (`Sending`, `Consumers`, `Acknowledgements`, `Transactions`,
`Calls`); `pump` then looks at all that may be due and puts it on the wire. So a resume is nothing special:
the machines are told what the server has, and the next `pump` sends what is missing.

Order on the wire: the outcome of a commit whose answer was lost is asked for before anything else; sends and
acknowledgements go only to destinations and consumers that were declared and subscribed on this connection;
Commit, Rollback and the closing of a consumer go after all that belongs before them.

A session that the server no longer knows is opened anew if nothing can have been recorded without our
knowledge. If something may have been, it fails with OutcomeUnknown: to send it again might make doubles.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from holdfast.client.acknowledging import Acknowledgements
from holdfast.client.consumers import Consumers
from holdfast.client.events import Completed, Event, Failed, Roomier, SessionEnded, Unusable
from holdfast.client.limits import ClientLimits
from holdfast.client.requests import Call, Calls
from holdfast.client.sending import Sending
from holdfast.client.transaction_ending import TransactionEnding
from holdfast.client.transactions import Transactions, TransactionState
from holdfast.errors import HoldfastError, LimitExceeded, OutcomeUnknown, ProtocolError, Refused, UsageError
from holdfast.wire.frames import (
    Acknowledged,
    Browsed,
    CloseSession,
    Confirm,
    Deliver,
    Done,
    Error,
    Flow,
    Frame,
    OpenSession,
    SessionOpened,
)

TRANSIENT_CODES = frozenset({"session.gap", "journal.full"})
"""What a resume cures: it tells both sides what the other has, and the back-off gives the server time."""


def _close_frame(request: int) -> CloseSession:
    return CloseSession(request=request)


class SessionState(Enum):
    DETACHED = auto()
    OPENING = auto()
    OPEN = auto()
    ENDED = auto()


class SessionCore:
    """The machine of one session. `write` and `emit` lead out; `channel` names it on every connection."""

    def __init__(
        self,
        channel: int,
        *,
        limits: ClientLimits,
        lifetime_s: int,
        is_transacted: bool,
        write: Callable[[Frame], None],
        emit: Callable[[Event], None],
    ) -> None:
        self.channel = channel
        self.is_transacted = is_transacted
        self.state = SessionState.DETACHED
        self.error: HoldfastError | None = None
        self.id = ""
        self.epoch = 0
        self.calls = Calls(limits, send=write, emit=emit)
        self.transactions = Transactions()
        self.acknowledgements = Acknowledgements(limits=limits, is_transacted=is_transacted)
        self.consumers = Consumers(
            channel, limits=limits, calls=self.calls, write=write, emit=emit, gone=self._consumer_gone
        )
        self.sending = Sending(
            channel,
            limits=limits,
            is_transacted=is_transacted,
            calls=self.calls,
            write=write,
            emit=emit,
            unsendable=lambda error: self.ending.impossible(error),
        )
        self.ending = TransactionEnding(
            self.transactions,
            self.sending,
            self.consumers,
            self.acknowledgements,
            self.calls,
            runs_max=limits.transaction_runs_max,
            emit=emit,
            roomier=Roomier(channel),
            fail=self.fail,
        )
        self._limits = limits
        self._lifetime_s = lifetime_s
        self._write = write
        self._emit = emit
        self._close_ticket = 0
        self._is_close_sent = False
        self._idle_tickets: list[int] = []

    # ---- calls of the program --------------------------------------------------------------------------

    @property
    def is_usable(self) -> bool:
        return self.state is not SessionState.ENDED and not self._close_ticket

    def check_usable(self) -> None:
        """Raise what ended this session, if something did."""
        if self.error is not None:
            raise self.error
        if not self.is_usable:
            raise UsageError("session: it is closed")

    def takes(self, *, messages: int, size_bytes: int) -> bool:
        """Whether a send of this size can be taken now. Raises LimitExceeded for what never can."""
        self.check_usable()
        allowance = self.sending.allowance
        allowance.check_fits(messages=messages, size_bytes=size_bytes)
        if not self.transactions.takes_parts:
            return False
        if allowance.has_room(messages=messages, size_bytes=size_bytes):
            return True
        if self.is_transacted:  # only the commit makes room, and it would never come
            allowance.check_fits(
                messages=allowance.messages + messages, size_bytes=allowance.bytes + size_bytes
            )
        return False

    @property
    def takes_acknowledgements(self) -> bool:
        self.check_usable()
        if not self.transactions.takes_parts:
            return False
        if self.is_transacted and not self.acknowledgements.has_room:
            maximum = self._limits.unconfirmed_acknowledgements_max
            raise LimitExceeded("unconfirmed_acknowledgements_max", value=maximum + 1, maximum=maximum)
        return self.acknowledgements.has_room

    def send_single(self, destination: str, batch: bytes, *, ticket: int, batch_bytes_max: int) -> None:
        """One message, as a batch of one row, that `takes` has said yes to."""
        self.sending.to(destination).add_single(batch, ticket, batch_bytes_max=batch_bytes_max)
        self._joined(ticket)

    def send_batches(self, destination: str, batches: list[tuple[bytes, int]], *, ticket: int) -> None:
        """Batches with their row counts, that `takes` has said yes to as a whole."""
        outgoing = self.sending.to(destination)
        for batch, row_count in batches[:-1]:
            outgoing.add_batch(batch, row_count, None)
        batch, row_count = batches[-1]
        outgoing.add_batch(batch, row_count, ticket)
        self._joined(ticket)

    def _joined(self, ticket: int) -> None:
        """In a transaction a send is done when it is taken: the commit confirms it."""
        if self.is_transacted:
            self.transactions.part()
            self._emit(Completed(ticket, None))

    def acknowledge(self, consumer: int, position: int) -> None:
        """Accept a message that the program holds. `takes_acknowledgements` has said yes."""
        self.consumers.settle(consumer, position)
        if self.is_transacted:
            self.transactions.part()
        self.acknowledgements.accept(consumer, position)

    def give_back(self, consumer: int, positions: list[int]) -> None:
        """Return messages that the program holds."""
        self.check_usable()
        returned = self.consumers.give_back(consumer, positions)
        if self.state is SessionState.OPEN:  # else the resume returns them
            self.acknowledgements.give_back(consumer, returned)

    def commit(self, ticket: int) -> None:
        self._check_transacted()
        if self.transactions.state is TransactionState.EMPTY:
            self._emit(Completed(ticket, None))
        else:
            self.transactions.commit(ticket)

    def roll_back(self, ticket: int) -> None:
        """Sent ones vanish; all that was received and is not committed returns."""
        self._check_transacted()
        if self.transactions.state is TransactionState.EMPTY:
            for number, positions in self.consumers.held():
                self.give_back(number, positions)
            self._emit(Completed(ticket, None))
        else:  # the server takes back all that is in flight, acknowledged or not
            self.consumers.rolled_back(self.ending.roll_back(ticket))

    def _check_transacted(self) -> None:
        self.check_usable()
        if not self.is_transacted:
            raise UsageError("session: it is not transacted; open it with session(transacted=True)")

    def when_idle(self, ticket: int) -> None:
        """Complete this ticket when all that was sent and acknowledged is confirmed; a commit does that by itself."""
        self.check_usable()
        if self.is_transacted:
            self._emit(Completed(ticket, None))
        else:
            self._idle_tickets.append(ticket)

    def close(self, ticket: int) -> None:
        """End it, after all that was given has been confirmed. A transaction must have ended before."""
        self.check_usable()
        if self.transactions.state is not TransactionState.EMPTY:
            raise UsageError("session: commit or roll back before closing it")
        self._close_ticket = ticket
        if not self.id and self.state is SessionState.DETACHED and self.is_idle:
            self._closed({})

    @property
    def is_idle(self) -> bool:
        """All that was sent and acknowledged is confirmed."""
        return self.acknowledgements.is_idle and self.sending.is_idle

    # ---- connections -----------------------------------------------------------------------------------

    def greeted(self) -> None:
        """The connection is ready: open the session, or resume it."""
        if self.state is not SessionState.DETACHED:
            return
        self.state = SessionState.OPENING
        asked, lifetime_s = self.id, self._lifetime_s
        self.calls.ask_now(
            Call(
                lambda request: OpenSession(request=request, session=asked, lifetime_s=lifetime_s),
                done=lambda _: None,
                failed=self._opening_failed,
            )
        )

    def lost(self) -> None:
        """The connection is gone."""
        if self.state is SessionState.ENDED:
            return
        self.state = SessionState.DETACHED
        self._is_close_sent = False
        self.calls.lost()
        self.sending.lost()
        self.consumers.lost()
        self.acknowledgements.lost()
        self.transactions.lost()

    def _opening_failed(self, error: HoldfastError) -> None:
        if not isinstance(error, Refused) or error.server_code != "session.unknown" or not self.id:
            self.fail(error)
        elif self._begin_anew():
            self.state = SessionState.DETACHED
            self.greeted()

    def _begin_anew(self) -> bool:
        """The server has forgotten us. Whether we may go on as a new session; if not, this one has ended."""
        if self._close_ticket and self.is_idle:
            self._closed({})
            return False
        is_asking = self.transactions.state is TransactionState.ASKING
        if is_asking or (not self.is_transacted and self.sending.has_unknown):
            self.fail(
                OutcomeUnknown(
                    f"session {self.id}: the server no longer knows it, and part of its work was not confirmed. "
                    f"What was confirmed is safe. Look at the destinations before doing the rest again."
                )
            )
            return False
        self.id = ""
        self.sending.new_session()
        self.acknowledgements.new_session()
        return True

    def _opened(self, frame: SessionOpened) -> None:
        self.calls.done(frame.request, {})
        if self.id and not frame.is_resumed and not self._begin_anew():
            return
        is_resumed, self.id, self.epoch = bool(self.id), frame.session, frame.epoch
        self.state = SessionState.OPEN
        if self.is_transacted:
            self.ending.resumed(frame.confirmed if is_resumed else {})
        elif is_resumed:
            try:
                self.sending.resumed(frame.confirmed)
            except OutcomeUnknown as error:
                self.fail(error)
                return
        self.consumers.opened(self.acknowledgements.consumers())
        if self.transactions.is_ask_due:
            self.ending.ask_outcome()
        else:
            self.calls.attach()

    # ---- frames of the server --------------------------------------------------------------------------

    def receive(self, frame: Frame) -> None:
        """Take a frame of this channel. Raises ProtocolError; the session stays as it is, for a resume."""
        match frame:
            case Confirm():
                self.sending.confirm(frame)
            case Deliver():
                stale = self.consumers.deliver(frame)
                if stale:
                    self.acknowledgements.give_back(frame.consumer, stale)
            case Acknowledged():
                self.consumers.settled(self.acknowledgements.confirm(frame.number))
                self._emit(Roomier(self.channel))
            case Done():
                self.calls.done(frame.request, frame.result)
            case Browsed():
                self.calls.browsed(frame)
            case Error():
                self._refused(frame)
            case SessionOpened() if self.state is SessionState.OPENING:
                self._opened(frame)
            case Flow():
                self.sending.flow(frame)
            case _:
                raise ProtocolError(type(frame).__name__, reason_code="protocol.unexpected")

    def _refused(self, frame: Error) -> None:
        error = Refused(frame.message, server_code=frame.code)
        is_answer = frame.request > 0 and self.state is not SessionState.OPENING
        if frame.code in TRANSIENT_CODES and not is_answer:
            self._emit(Unusable(error, is_permanent=False))
        elif frame.request:
            self.calls.failed(frame.request, error)
        else:  # nothing tells what it is about, so nothing of this session can be relied on
            self.fail(error)

    # ---- what is due -----------------------------------------------------------------------------------

    def pump(self) -> None:
        """Put on the wire whatever can go."""
        if self.state is not SessionState.OPEN or not self.calls.is_attached:
            return
        self.consumers.pump()
        transactions = self.transactions
        is_ending = not transactions.takes_parts or bool(self._close_ticket)
        number = transactions.number if self.is_transacted else 0
        if transactions.state is not TransactionState.ROLLING_BACK:
            self.sending.pump(transaction=number, is_forced=is_ending)
        for acknowledge in self.acknowledgements.due(
            transaction=number,
            is_forced=is_ending or self.consumers.is_any_closing or bool(self._idle_tickets),
            open_consumers=self.consumers.open_numbers,
        ):
            self._write(acknowledge)
        self.ending.pump()
        self.consumers.close_due(self.acknowledgements.consumers(), is_transacted=self.is_transacted)
        self._end_waiting()

    def _end_waiting(self) -> None:
        """Complete those who wait until nothing is under way, and close if that is wanted."""
        if not self.is_idle:
            return
        tickets, self._idle_tickets = self._idle_tickets, []
        for ticket in tickets:
            self._emit(Completed(ticket, None))
        if self._close_ticket and not self._is_close_sent:
            self._is_close_sent = True
            self.calls.ask_now(Call(_close_frame, done=self._closed, failed=self._closed))

    def _consumer_gone(self, number: int, error: HoldfastError) -> None:
        """What was acknowledged there cannot be any more; a transaction must not be committed without it."""
        if self.acknowledgements.forget(number):
            self.ending.impossible(error)

    # ---- the end ---------------------------------------------------------------------------------------

    def _closed(self, _: object) -> None:
        ticket, self._close_ticket = self._close_ticket, 0
        self._end(UsageError("session: it is closed"))
        self._emit(SessionEnded(self.channel, None))
        self._emit(Completed(ticket, None))

    def fail(self, error: HoldfastError) -> None:
        """It cannot go on: everybody who waits is told why, and so is everybody who calls."""
        if self.state is SessionState.ENDED:
            return
        self.error = error
        if self.state is SessionState.OPEN:  # the server is told, so that what is in flight returns
            ignored = Call(_close_frame, done=lambda _: None, failed=lambda _: None)
            self.calls.ask_now(ignored)
        self._end(error)
        self._emit(SessionEnded(self.channel, error))

    def _end(self, error: HoldfastError) -> None:
        self.state = SessionState.ENDED
        tickets = [
            *self.sending.drop_all(),
            *self._idle_tickets,
            self.transactions.ticket,
            self._close_ticket,
        ]
        self._idle_tickets, self._close_ticket = [], 0
        for ticket in filter(None, tickets):
            self._emit(Failed(ticket, error))
        self.calls.fail_all(error)
        self.consumers.fail_all(error)
        self._emit(Roomier(self.channel))

    def check_invariants(self) -> None:
        self.sending.check_invariants()
        self.consumers.check_invariants()
        self.acknowledgements.check_invariants()
        self.transactions.check_invariants()
