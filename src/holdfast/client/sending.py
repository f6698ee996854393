"""All that one session sends: an `Outgoing` for each destination, and its number on this connection.

A destination is declared, with "it must exist", before the first send to it on each connection. If it does
not exist, what was given for it fails, and the destination is forgotten: the program may declare it and send
again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.client.events import Confirmed, Event, Failed, Roomier
from holdfast.client.limits import ClientLimits
from holdfast.client.outgoing import Allowance, Outgoing
from holdfast.client.requests import Call, Calls, declare_frame
from holdfast.errors import HoldfastError, ProtocolError
from holdfast.wire.frames import Confirm, Flow, Frame


class Sending:
    """The destinations of one session. `unsendable` is told why parts of a transaction are missing."""

    def __init__(
        self,
        channel: int,
        *,
        limits: ClientLimits,
        is_transacted: bool,
        calls: Calls,
        write: Callable[[Frame], None],
        emit: Callable[[Event], None],
        unsendable: Callable[[HoldfastError], None],
    ) -> None:
        self.allowance = Allowance(limits)
        self._channel = channel
        self._limits = limits
        self._is_transacted = is_transacted
        self._calls = calls
        self._write = write
        self._emit = emit
        self._unsendable = unsendable
        self._outgoing: dict[str, Outgoing] = {}
        self._by_number: dict[int, Outgoing] = {}
        self._is_all_blocked = False

    def to(self, destination: str) -> Outgoing:
        found = self._outgoing.get(destination)
        if found is None:
            found = Outgoing(
                destination, limits=self._limits, allowance=self.allowance, is_transacted=self._is_transacted
            )
            self._outgoing[destination] = found
        return found

    @property
    def is_idle(self) -> bool:
        return all(each.is_idle for each in self._outgoing.values())

    @property
    def is_sent(self) -> bool:
        return all(each.is_sent for each in self._outgoing.values())

    @property
    def has_unknown(self) -> bool:
        return any(each.has_unknown for each in self._outgoing.values())

    # ---- the wire --------------------------------------------------------------------------------------

    def pump(self, *, transaction: int, is_forced: bool) -> None:
        for outgoing in list(self._outgoing.values()):
            if outgoing.needs_number:
                outgoing.is_declaring = True
                self._calls.ask(self._declaring(outgoing))
            for send in outgoing.due(transaction=transaction, is_forced=is_forced):
                self._write(send)

    def _declaring(self, outgoing: Outgoing) -> Call:
        def done(result: dict[str, Any]) -> None:
            number = result.get("number")
            if not isinstance(number, int) or number < 1:
                raise ProtocolError("Declare: the answer has no number", reason_code="protocol.malformed")
            outgoing.number = number
            outgoing.is_declaring = False
            outgoing.is_blocked = self._is_all_blocked
            self._by_number[number] = outgoing

        def failed(error: HoldfastError) -> None:
            self._outgoing.pop(outgoing.name, None)
            self._unsendable(error)
            for ticket in outgoing.drop_all():
                self._emit(Failed(ticket, error))
            self._emit(Roomier(self._channel))

        return Call(declare_frame(outgoing.name, ""), done=done, failed=failed)

    def confirm(self, frame: Confirm) -> None:
        outgoing = self._by_number.get(frame.destination)
        if outgoing is not None and not self._is_transacted:
            self._confirmed(outgoing.confirm(frame.sequence))

    def _confirmed(self, receipts: list[tuple[int, int]]) -> None:
        if receipts:
            self._emit(Confirmed(receipts))
            self._emit(Roomier(self._channel))

    def flow(self, frame: Flow) -> None:
        if not frame.destination:
            self._is_all_blocked = frame.is_blocked
        for outgoing in self._outgoing.values():
            if frame.destination in (0, outgoing.number):
                outgoing.is_blocked = frame.is_blocked

    # ---- connections -----------------------------------------------------------------------------------

    def lost(self) -> None:
        self._by_number.clear()
        self._is_all_blocked = False
        for outgoing in self._outgoing.values():
            outgoing.lost()

    def resumed(self, recorded: dict[str, int]) -> None:
        for name, outgoing in self._outgoing.items():
            self._confirmed(outgoing.resumed(recorded.get(name, 0)))

    def run_again(self, recorded: dict[str, int] | None) -> None:
        """All of a transaction anew: from what the server has recorded, after a resume."""
        for name, outgoing in self._outgoing.items():
            outgoing.run_again(None if recorded is None else recorded.get(name, 0))

    def new_session(self) -> None:
        for outgoing in self._outgoing.values():
            outgoing.new_session()

    def drop_all(self) -> list[int]:
        """Forget all that is kept; the tickets of those who wait for it."""
        return [ticket for outgoing in self._outgoing.values() for ticket in outgoing.drop_all()]

    def check_invariants(self) -> None:
        for outgoing in self._outgoing.values():
            outgoing.check_invariants()
        assert self.allowance.messages >= 0
        assert self.allowance.bytes >= 0
        assert not self.is_idle or self.allowance.messages == self.allowance.bytes == 0
