"""The consumers of one session.

A consumer is subscribed again on every connection, under its number. To close one means that all it has not
acknowledged returns, so its acknowledgements are confirmed first. In a transaction they are not before the
commit, and to run the transaction again the consumer is needed: there the program's `close` is done at once,
and the consumer goes when the transaction ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from holdfast.client.acknowledging import Settled
from holdfast.client.events import Available, Completed, Event, Failed
from holdfast.client.incoming import Incoming, Subscription, Waiting
from holdfast.client.limits import CREDIT_MAX, ClientLimits
from holdfast.client.requests import Call, Calls
from holdfast.errors import HoldfastError, LimitExceeded, UsageError
from holdfast.wire.frames import CloseConsumer, Credit, Deliver, Frame


class Consumers:
    """An `Incoming` for each consumer, by number. `gone` is told of one that cannot be subscribed again."""

    def __init__(
        self,
        channel: int,
        *,
        limits: ClientLimits,
        calls: Calls,
        write: Callable[[Frame], None],
        emit: Callable[[Event], None],
        gone: Callable[[int, HoldfastError], None],
    ) -> None:
        self._gone = gone
        self.open_numbers: set[int] = set()
        self._channel = channel
        self._limits = limits
        self._calls = calls
        self._write = write
        self._emit = emit
        self._incoming: dict[int, Incoming] = {}
        self._subscribing: set[int] = set()
        self._open_tickets: dict[int, int] = {}
        self._errors: dict[int, HoldfastError] = {}
        self._next_number = 1

    # ---- calls of the program --------------------------------------------------------------------------

    def open(self, subscription: Subscription, *, window: int, ticket: int) -> int:
        """Open a consumer; its number."""
        if len(self._incoming) >= self._limits.consumers_max:
            maximum = self._limits.consumers_max
            raise LimitExceeded("consumers_max", value=maximum + 1, maximum=maximum)
        if not 0 <= window <= CREDIT_MAX:
            raise UsageError(f"credit: not a whole number from 1 to {CREDIT_MAX}")
        number = self._next_number
        self._next_number += 1
        self._incoming[number] = Incoming(number, subscription, window=window)
        self._open_tickets[number] = ticket
        return number

    def take(self, number: int) -> Waiting | None:
        """Hand out a message; None if there is none now. Raises what ended the consumer."""
        return self._of(number).take()

    def want(self, number: int, messages: int) -> None:
        self._of(number).want(messages)

    def settle(self, number: int, position: int) -> None:
        incoming = self._of(number)
        if not incoming.is_held(position):
            raise UsageError(f"message {position}: it was acknowledged or returned before")
        incoming.settle(position)

    def give_back(self, number: int, positions: list[int]) -> list[int]:
        """Return what the program holds: all positions that go back."""
        incoming = self._of(number)
        if not all(map(incoming.is_held, positions)):
            raise UsageError("message: it was acknowledged or returned before")
        return incoming.give_back(positions)

    def close(self, number: int, ticket: int) -> None:
        incoming = self._of(number)
        incoming.give_back(incoming.held_positions)
        incoming.close_ticket = ticket
        self._emit(Available(self._channel, number))

    def _of(self, number: int) -> Incoming:
        incoming = self._incoming.get(number)
        if incoming is None or incoming.close_ticket is not None:
            raise self._errors.get(number) or UsageError(
                "consumer: it is closed, and what it had not acknowledged was returned"
            )
        return incoming

    def held(self) -> list[tuple[int, list[int]]]:
        """What the program holds: (number, positions) of each consumer."""
        return [
            (number, incoming.held_positions)
            for number, incoming in self._incoming.items()
            if incoming.held_positions and incoming.close_ticket is None
        ]

    # ---- the wire --------------------------------------------------------------------------------------

    def deliver(self, frame: Deliver) -> list[int]:
        """Take a delivery; the positions that are to be returned at once."""
        incoming = self._incoming.get(frame.consumer)
        if incoming is None:  # it was closed while this was on its way
            return []
        is_available, stale = incoming.deliver(frame)
        if is_available:
            self._emit(Available(self._channel, frame.consumer))
        return stale

    def settled(self, settled: Iterable[Settled]) -> None:
        for each in settled:
            incoming = self._incoming.get(each.consumer)
            if incoming is not None:
                for positions in each.positions():
                    incoming.settled(positions)

    def rolled_back(self, settled: Iterable[Settled]) -> None:
        """All that was received comes again; `settled` is what was acknowledged in the transaction."""
        acknowledged: dict[int, list[int]] = {}
        for each in settled:
            for positions in each.positions():
                acknowledged.setdefault(each.consumer, []).extend(positions)
        for number, incoming in self._incoming.items():
            incoming.rolled_back(acknowledged.get(number, []))

    def pump(self) -> None:
        for number, incoming in self._incoming.items():
            if number not in self._subscribing and not incoming.is_subscribed:
                self._subscribing.add(number)
                self._calls.ask(self._subscribe(incoming))
            credit = incoming.take_credit()
            if credit:
                self._write(Credit(number, credit))

    def _subscribe(self, incoming: Incoming) -> Call:
        number = incoming.number

        def done(_: object) -> None:
            self._subscribing.discard(number)
            self.open_numbers.add(number)
            incoming.subscribed()
            self._complete(self._open_tickets.pop(number, 0))

        def failed(error: HoldfastError) -> None:
            self._note_error(number, error)
            self._gone(number, error)
            self._complete(self._forget(number) or 0)
            self._fail(self._open_tickets.pop(number, 0), error)

        return Call(incoming.subscribe, done=done, failed=failed)

    def _note_error(self, number: int, error: HoldfastError) -> None:
        """Why it ended, for who asks later; of the last few."""
        self._errors[number] = error
        if len(self._errors) > self._limits.consumers_max:
            del self._errors[next(iter(self._errors))]

    def _complete(self, ticket: int) -> None:
        if ticket:
            self._emit(Completed(ticket, None))

    def _fail(self, ticket: int, error: HoldfastError) -> None:
        if ticket:
            self._emit(Failed(ticket, error))

    # ---- closing ---------------------------------------------------------------------------------------

    @property
    def is_any_closing(self) -> bool:
        return any(incoming.close_ticket is not None for incoming in self._incoming.values())

    def _closing(self) -> Iterator[Incoming]:
        return (incoming for incoming in list(self._incoming.values()) if incoming.close_ticket is not None)

    def close_due(self, busy: set[int], *, is_transacted: bool) -> None:
        """Close those that want to and whose acknowledgements are confirmed: `busy` are the others."""
        for incoming in self._closing():
            if incoming.number not in busy and incoming.is_subscribed and not incoming.is_close_sent:
                incoming.is_close_sent = True
                self._calls.ask(self._close(incoming))
            elif incoming.number in busy and is_transacted:
                self._complete(incoming.close_ticket or 0)
                incoming.close_ticket = 0

    def _close(self, incoming: Incoming) -> Call:
        number = incoming.number

        def ended(_: object) -> None:
            self._complete(self._forget(number) or 0)

        return Call(lambda request: CloseConsumer(request=request, consumer=number), done=ended, failed=ended)

    def _forget(self, number: int) -> int | None:
        """The consumer is gone; the ticket of who closed it."""
        incoming = self._incoming.pop(number, None)
        self._subscribing.discard(number)
        self.open_numbers.discard(number)
        self._emit(Available(self._channel, number))
        return None if incoming is None else incoming.close_ticket

    # ---- connections -----------------------------------------------------------------------------------

    def lost(self) -> None:
        self.open_numbers.clear()
        self._subscribing.clear()
        for incoming in self._incoming.values():
            incoming.lost()

    def opened(self, busy: set[int]) -> None:
        """The session is open on a new connection, which knows no consumers: those that were closing are closed."""
        for incoming in self._closing():
            if incoming.number not in busy:
                self._complete(self._forget(incoming.number) or 0)

    def fail_all(self, error: HoldfastError) -> None:
        for number, incoming in list(self._incoming.items()):
            self._note_error(number, error)
            self._fail(self._open_tickets.pop(number, 0), error)
            self._complete(incoming.close_ticket or 0)
            self._forget(number)

    def check_invariants(self) -> None:
        for number, incoming in self._incoming.items():
            assert number == incoming.number
            assert (number in self.open_numbers) == incoming.is_subscribed
            incoming.check_invariants()
