"""Requests that need no session: declare, unsubscribe, browse, ask. They stand on any channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from holdfast.destinations.destination import Destination, Subscription
from holdfast.errors import refusal
from holdfast.gateways.native.browsing import Browsing
from holdfast.gateways.native.limits import ConnectionLimits
from holdfast.gateways.native.output import Output
from holdfast.node.manager import MessageManager
from holdfast.wire import Ask, Browse, Declare, Frame, Unsubscribe

Status = Callable[[], dict[str, Any]]


class NodeRequests:
    """`status` is what the shell knows of the node."""

    def __init__(
        self, manager: MessageManager, output: Output, limits: ConnectionLimits, status: Status
    ) -> None:
        self._manager = manager
        self._output = output
        self._limits = limits
        self._status = status
        self._browsing: list[Browsing] = []

    def handle(self, channel: int, frame: Frame) -> None:
        """Raises `Refused`; `JournalFull`: again later, nothing has changed."""
        HANDLERS[type(frame)](self, channel, frame)

    def go_on(self) -> None:
        """The client has read: browses go on."""
        for browsing in self._browsing:
            browsing.go_on()

    def cancel(self) -> None:
        """The connection is gone."""
        for browsing in self._browsing:
            browsing.cancel()
        self._browsing = []

    def _declare(self, channel: int, frame: Declare) -> None:
        if frame.name.startswith("_") and frame.name not in self._manager.state.by_name:
            raise refusal(
                "destination.name", f"{frame.name!r} is the system's: clients do not make it"
            )  # C17

        def declared(destination: Destination) -> None:
            result = {"number": destination.number, "kind": str(destination.kind)}
            self._output.done(channel, frame.request, result)

        self._manager.declare(frame.name, frame.kind, declared)
        self._output.awaited += 1

    def _unsubscribe(self, channel: int, frame: Unsubscribe) -> None:
        self._manager.unsubscribe(
            frame.destination,
            frame.subscription,
            lambda: self._output.done(channel, frame.request, {}),
        )
        self._output.awaited += 1

    def _browse(self, channel: int, frame: Browse) -> None:
        self._browsing = [browsing for browsing in self._browsing if not browsing.is_done]
        if len(self._browsing) >= self._limits.browses_max:
            raise refusal(
                "limit.browses",
                f"{self._limits.browses_max} browses are under way on this connection: wait for one",
            )
        destination = self._manager.destination(frame.destination)
        browsing = Browsing(self._manager.distributor, self._output, channel, destination, frame)
        self._browsing.append(browsing)
        browsing.go_on()

    def _ask(self, channel: int, frame: Ask) -> None:
        if frame.what == "status":
            result = self._status() | self._journal_status()
        else:
            result = {"destinations": list(map(self._describe, self._manager.state.destinations.values()))}
        self._output.awaited += 1
        self._output.done(channel, frame.request, result)

    def _journal_status(self) -> dict[str, Any]:
        journal, state = self._manager.journal, self._manager.state
        return {
            "run": journal.run,
            "durable_lsn": journal.durable_lsn,
            "held_records": journal.held.count,
            "open_bytes": journal.space.open_bytes,
            "reserved_bytes": journal.space.reserved_bytes,
            "segments": journal.pool.total_count,
            "free_segments": journal.pool.free_count,
            "destinations": len(state.destinations),
            "subscriptions": len(state.subscriptions),
            "sessions": len(state.sessions),
            "transactions": len(state.transactions),
        }

    def _describe(self, destination: Destination) -> dict[str, Any]:
        def describe(subscription: Subscription) -> dict[str, Any]:
            return {
                "name": subscription.name,
                "is_durable": subscription.is_durable,
                "cursor": subscription.cursor,
                "consumers": self._manager.distributor.consumer_count(subscription.number),
            }

        return {
            "name": destination.name,
            "number": destination.number,
            "kind": str(destination.kind),
            "next_position": destination.next_position,
            "held_batches": destination.batch_count,
            "subscriptions": list(map(describe, destination.subscriptions.values())),
        }


HANDLERS: Final[dict[type[Frame], Callable[[NodeRequests, int, Any], None]]] = {
    Declare: NodeRequests._declare,
    Unsubscribe: NodeRequests._unsubscribe,
    Browse: NodeRequests._browse,
    Ask: NodeRequests._ask,
}
