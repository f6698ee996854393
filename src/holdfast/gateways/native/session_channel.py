"""One session on a connection: its requests to the manager, and what the manager tells it.

    OPENING --(committed)--> OPEN --(CloseSession)--> CLOSING --(committed)--> gone, the channel is free
       |                       |
       +------(resumed elsewhere)------> FENCED: what still comes is ignored, until the client opens it anew

A frame that comes in another state than OPEN is the client's fault, but for FENCED, which it could not know of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final

from holdfast.errors import JournalFull, ProtocolError, Refused, refusal
from holdfast.gateways.native.gathering import as_one, gather_sends
from holdfast.gateways.native.limits import GATHER_BYTES_MAX, ConnectionLimits
from holdfast.gateways.native.output import Output
from holdfast.node.distributor import Parts
from holdfast.node.links import SessionLink
from holdfast.node.manager import MessageManager
from holdfast.sessions.session import session_text
from holdfast.wire import (
    Acknowledge,
    Acknowledged,
    CloseConsumer,
    CloseSession,
    Commit,
    Confirm,
    Credit,
    Error,
    Flow,
    Frame,
    OpenSession,
    Outcome,
    Rollback,
    Send,
    SessionOpened,
    Subscribe,
)


class ChannelState(Enum):
    OPENING = "is being opened: wait for SessionOpened"
    OPEN = "is open"
    CLOSING = "is being closed"
    FENCED = "was resumed elsewhere"


class SessionChannel:
    """The `Outlet` of one session."""

    def __init__(
        self, manager: MessageManager, output: Output, number: int, limits: ConnectionLimits
    ) -> None:
        self._manager = manager
        self._output = output
        self._number = number
        self._limits = limits
        self._link: SessionLink | None = None
        self._gather_bytes_max = min(GATHER_BYTES_MAX, limits.frame_bytes_max // 2)
        self._sendable: set[int] = set()
        self._is_held = False
        self._is_flow_blocked = False
        self._is_lost = False
        self.state = ChannelState.OPENING
        # Whether a frame of it waits for room, and whether that is an acknowledgement.
        self.is_keeping = False
        self.keeps_acknowledgement = False

    # -- opening and closing -----------------------------------------------------------------------------

    def open(self, frame: OpenSession) -> None:
        """Raises `Refused`, `JournalFull`."""

        def opened(link: SessionLink, is_resumed: bool) -> None:
            if self._is_lost:
                self._manager.disconnect(link)
                return
            self._link = link
            self.state = ChannelState.OPEN
            self._output.awaited -= 1
            self._hold(link)
            self._output.put(self._number, self._greeting(frame.request, link, is_resumed))

        self._manager.open_session(self, text=frame.session, lifetime_s=frame.lifetime_s, opened=opened)
        self._output.awaited += 1

    def _greeting(self, request: int, link: SessionLink, is_resumed: bool) -> SessionOpened:
        destinations = self._manager.state.destinations
        return SessionOpened(
            request=request,
            session=session_text(link.number),
            epoch=link.epoch,
            is_resumed=is_resumed,
            confirmed={destinations[number].name: sequence for number, sequence in link.appended.items()},
        )

    def close(self, frame: CloseSession, closed: Callable[[], None]) -> None:
        """End the session for good. `closed` when that is durable, and the channel is free."""
        link = self.link

        def ended() -> None:
            self._output.done(self._number, frame.request, {})
            closed()

        self._manager.end_session(link, ended)
        self.state = ChannelState.CLOSING
        self._output.awaited += 1

    def lost(self) -> None:
        """The connection is gone: the session waits for its client."""
        self._is_lost = True
        if self._link is not None:
            self._manager.disconnect(self._link)

    @property
    def link(self) -> SessionLink:
        if self._link is None or self.state is not ChannelState.OPEN:
            raise ProtocolError(
                f"the session of channel {self._number} {self.state.value}", reason_code="protocol.unexpected"
            )
        return self._link

    # -- what the client asks ----------------------------------------------------------------------------

    def handle(self, frame: Frame) -> None:
        """Raises `Refused`, `ProtocolError`, `LimitExceeded`; `JournalFull`: again later, nothing has changed."""
        _HANDLERS[type(frame)](self, frame)

    def send(self, frame: Send, following: Iterable[tuple[int, Frame]]) -> int:
        """Record a send, with those that follow it and carry it on as one batch: so many were taken, at least 1.

        Raises `Refused` for the destination, and else as `handle`, having taken none.
        """
        link = self.link
        if frame.destination not in self._sendable:
            self._check_sendable(frame.destination)
        if len(link.unconfirmed) >= self._limits.unconfirmed_max:
            raise JournalFull("memory", f"{len(link.unconfirmed)} sends of one session wait for the disk")
        batches = gather_sends(
            frame, following, channel=self._number, record_bytes_max=self._gather_bytes_max
        )
        try:
            self._manager.send(
                link,
                destination=frame.destination,
                transaction=frame.transaction,
                first_sequence=frame.first_sequence,
                batch=as_one(batches),
            )
        except (
            Refused
        ) as refused:  # one answer for all of them: what is wrong with the first is wrong with the rest
            self._output.put(self._number, Error(code=refused.server_code, message=str(refused)))
        return len(batches)

    def _check_sendable(self, number: int) -> None:
        destination = self._manager.state.destinations.get(number)
        if destination is None:
            raise refusal("destination.unknown", f"there is no destination number {number}")
        if destination.name.startswith("_"):  # C17
            raise refusal(
                "destination.name", f"{destination.name} is the system's own: only the node sends to it"
            )
        self._sendable.add(number)

    def _acknowledge(self, frame: Acknowledge) -> None:
        if frame.outcome is Outcome.ACCEPTED:
            self._manager.acknowledge(
                self.link,
                consumer=frame.consumer,
                transaction=frame.transaction,
                number=frame.number,
                ranges=frame.ranges,
            )
        else:
            self._manager.give_back(
                self.link, consumer=frame.consumer, number=frame.number, ranges=frame.ranges
            )

    def _credit(self, frame: Credit) -> None:
        link = self.link
        opened = link.consumers.get(frame.consumer)
        if opened is not None:
            self._check_credit(opened.consumer.credit + frame.messages)
        self._manager.add_credit(link, consumer=frame.consumer, messages=frame.messages)

    def _check_credit(self, credit: int) -> None:
        if credit > self._limits.credit_max:
            raise refusal(
                "limit.credit", f"a credit of {credit} is above the maximum of {self._limits.credit_max}"
            )

    def _subscribe(self, frame: Subscribe) -> None:
        self._check_credit(frame.credit)
        self._manager.subscribe(
            self.link,
            consumer=frame.consumer,
            destination_name=frame.destination,
            subscription_name=frame.subscription,
            is_durable=frame.is_durable,
            from_start=frame.from_start,
            credit=frame.credit,
            then=lambda: self._done(frame.request),
        )
        self._output.awaited += 1

    def _close_consumer(self, frame: CloseConsumer) -> None:
        self._manager.close_consumer(self.link, frame.consumer)
        self._output.awaited += 1
        self._done(frame.request)

    def _commit(self, frame: Commit) -> None:
        def ended(is_committed: bool) -> None:
            outcome = "committed" if is_committed else "unknown"
            self._output.done(self._number, frame.request, {"outcome": outcome})

        self._manager.commit(self.link, frame.transaction, ended)
        self._output.awaited += 1

    def _rollback(self, frame: Rollback) -> None:
        self._manager.rollback(self.link, frame.transaction, lambda: self._done(frame.request))
        self._output.awaited += 1

    def _done(self, request: int) -> None:
        self._output.done(self._number, request, {})

    # -- what the manager tells --------------------------------------------------------------------------

    def confirmed(self, destination: int, sequence: int) -> None:
        self._output.put(self._number, Confirm(destination, sequence))

    def acknowledged(self, number: int) -> None:
        self._output.put(self._number, Acknowledged(number))

    def delivered(
        self, *, consumer: int, generation: int, redeliveries: int, first_position: int, batch: Parts
    ) -> None:
        self._output.deliver(
            self._number,
            consumer=consumer,
            generation=generation,
            redeliveries=redeliveries,
            first_position=first_position,
            batch=batch,
        )
        if not self._is_held and self._output.is_full:
            self.hold(True)

    def fenced(self) -> None:
        if self.state is ChannelState.OPENING:
            self._output.awaited -= 1
        self.state = ChannelState.FENCED
        self._output.put(
            self._number,
            Error(
                code="session.fenced",
                message="the session was resumed on another connection, which has it now",
                is_fatal=True,
            ),
        )

    # -- flow --------------------------------------------------------------------------------------------

    def hold(self, is_held: bool) -> None:
        """Whether deliveries wait: the client does not read as fast as they come."""
        if is_held is not self._is_held:
            self._is_held = is_held
            if self._link is not None:
                self._hold(self._link)

    def _hold(self, link: SessionLink) -> None:
        self._manager.hold_deliveries(link, is_held=self._is_held)

    def tell_flow(self) -> None:
        """Tell the client to pause, or to go on, if it does not know yet (E4)."""
        if self.is_keeping is not self._is_flow_blocked:
            self._is_flow_blocked = self.is_keeping
            self._output.put(self._number, Flow(0, self.is_keeping))


_HANDLERS: Final[dict[type[Frame], Callable[[SessionChannel, Any], None]]] = {
    Acknowledge: SessionChannel._acknowledge,
    Credit: SessionChannel._credit,
    Subscribe: SessionChannel._subscribe,
    CloseConsumer: SessionChannel._close_consumer,
    Commit: SessionChannel._commit,
    Rollback: SessionChannel._rollback,
}
