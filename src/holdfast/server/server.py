"""The server's loop: sockets, the journal's writer, cold reads and timers around one message manager.

Everything happens in turns. Whatever comes in (bytes, finished work of the disk, a timer) changes the manager's
state and asks for a turn; a turn runs once after all that was ready, so that one group commit serves all of it:

    collect finished work -> write and sync the group -> advance: confirm, deliver -> resume who waits -> write output

Nothing is written to a client that stands on a record which is not committed. When the journal fails, the turn ends
the server; nothing is confirmed after it.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast import __version__
from holdfast.disk.writer import JournalWriter
from holdfast.errors import HoldfastError, JournalCorrupt, JournalFailed, JournalFull, LimitExceeded
from holdfast.gateways.native import ConnectionLimits, NativeConnection, NodeFacts
from holdfast.gateways.native.limits import frame_bytes_max
from holdfast.journal.lookup import HeldRead
from holdfast.message import Severity
from holdfast.server.client_protocol import ClientProtocol
from holdfast.server.configuration import Configuration
from holdfast.server.open_node import OpenNode, node_event
from holdfast.server.pressure import Pressure

# Delivered marks, exhaustion, idle attestation.
TICK_S = 0.1
# Every so many ticks: lifetimes, greetings, and the disk that refused an allocation.
SLOW_TICKS = 10
# A peer that has not said Hello by then is gone.
GREETING_S_MAX = 10.0
# Cold reads: few threads, so that they do not crowd out the journal's own work (decision 14).
READ_THREADS = 2
# How long clients are waited for, at the end, to take what was written to them.
STOP_S_MAX = 2.0


class Server:
    """Serves an open node on one loop. `ended` gives the failure, or None after a stop in good order."""

    def __init__(self, node: OpenNode, configuration: Configuration) -> None:
        self._loop = asyncio.get_running_loop()
        self._node = node
        self._configuration = configuration
        self._manager = node.manager
        self._journal = node.journal
        self._writer = JournalWriter(node.journal, node.storage, notify=self._notify)
        self._readers = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="cold-reads")
        self._pressure = Pressure(node.journal, node.log)
        self._limits = ConnectionLimits(frame_bytes_max=frame_bytes_max(configuration.journal))
        self._facts = NodeFacts(
            name=configuration.node_name, server=f"holdfast {__version__}", status=self._status
        )
        self._started_s = self._loop.time()
        self._clients: set[ClientProtocol] = set()
        self._with_output: list[ClientProtocol] = []
        self._waiting: set[ClientProtocol] = set()
        self._is_turn_due = False
        self._is_stopping = False
        self._is_state_too_large = False
        self._tick_count = 0
        self._last_lsn = 0
        self.ended: asyncio.Future[BaseException | None] = self._loop.create_future()
        self._tick_handle = self._loop.call_later(TICK_S, self._tick)

    # -- clients -----------------------------------------------------------------------------------------

    def new_connection(self, client: ClientProtocol) -> NativeConnection:
        return NativeConnection(
            self._manager,
            self._facts,
            limits=self._limits,
            has_output=lambda _: self._with_output.append(client),
        )

    def joined(self, client: ClientProtocol) -> None:
        client.since_s = self._loop.time()
        maximum = self._configuration.listen.connections_max
        if len(self._clients) >= maximum:
            client.connection.fail(
                "limit.connections", f"{maximum} clients are connected, which is the maximum"
            )
            self.wake()
        self._clients.add(client)

    def left(self, client: ClientProtocol) -> None:
        self._clients.discard(client)
        self._waiting.discard(client)
        if not self._is_stopping:
            self._guard(client, client.connection.lost)
            self.wake()

    def received(self, client: ClientProtocol, data: bytes) -> None:
        connection = client.connection
        try:
            connection.receive(data)
        except JournalFailed as error:
            self._end(error)
        except Exception as error:  # noqa: BLE001 (a fault of ours: this client pays for it, others go on)
            self._blame(client, error)
        if connection.is_blocked or connection.is_paused:
            self.waits(client)
        if not self._is_turn_due:
            self.wake()

    def waits(self, client: ClientProtocol) -> None:
        """It has something to go on with, now or later."""
        self._waiting.add(client)
        self.wake()

    def _guard(self, client: ClientProtocol, act: Callable[[], None]) -> None:
        try:
            act()
        except JournalFailed as error:
            self._end(error)
        except Exception as error:  # noqa: BLE001 (as in `received`)
            self._blame(client, error)

    def _blame(self, client: ClientProtocol, error: Exception) -> None:
        _report(f"a client's connection was ended by an error of this server: {error!r}", error)
        client.connection.fail("node.error", "an error of the server; connect again and resume")

    # -- turns -------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Ask for a turn, after all that is ready now."""
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._turn)

    def _notify(self) -> None:
        self._loop.call_soon_threadsafe(self.wake)

    def _turn(self) -> None:
        self._is_turn_due = False
        if self.ended.done():
            return
        try:
            self._take_turn()
        except Exception as error:  # noqa: BLE001 (whatever it is, nothing may be confirmed after it)
            self._end(error)

    def _take_turn(self) -> None:
        self._writer.collect()
        self._pump()
        if self._journal.failure is not None:
            raise JournalFailed(str(self._journal.failure))
        pumped_lsn = self._journal.next_lsn
        self._manager.advance()
        if self._waiting:
            self._resume()
        self._start_reads()
        clients, self._with_output = self._with_output, []
        for client in clients:
            client.write_output()
        if self._journal.next_lsn != pumped_lsn or self._manager.distributor.has_due or self._with_output:
            self.wake()

    def _pump(self) -> None:
        try:
            self._writer.pump()
        except LimitExceeded as error:
            # No checkpoint, so no space comes back; all else goes on until the disk is full, and waits then.
            if not self._is_state_too_large:
                self._is_state_too_large = True
                text = f"no checkpoint can be taken: {error}. Raise journal.state_bytes_max, and restart."
                _report(text)
                self._node.log.record(node_event("checkpoint_refused", text, Severity.ERROR))

    def _resume(self) -> None:
        now_s = self._loop.time()
        self._pressure.look()
        is_anyone_blocked = False
        for client in list(self._waiting):
            connection = client.connection
            self._guard(client, partial(connection.resume, has_room=not self._pressure.is_exhausted))
            if connection.is_blocked:
                is_anyone_blocked = True
                self._pressure.refused(connection.blocked_reason, now_s=now_s)
            if not (connection.is_blocked or connection.is_paused):
                self._waiting.discard(client)
            client.look_at_reading()
        if not is_anyone_blocked:
            self._pressure.nobody_waits()

    # -- cold reads --------------------------------------------------------------------------------------

    def _start_reads(self) -> None:
        while (read := self._manager.distributor.begin_read()) is not None:
            self._start_read(read)

    def _start_read(self, read: HeldRead) -> None:
        def ended(done: Future[None]) -> None:  # on the thread that has read
            self._loop.call_soon_threadsafe(self._read_ended, read, done)

        self._readers.submit(read.run, self._node.storage).add_done_callback(ended)

    def _read_ended(self, read: HeldRead, done: Future[None]) -> None:
        try:
            self._manager.distributor.finish_read(read)
        except JournalCorrupt as error:
            # What needs this record waits; nothing is skipped, and all others go on.
            text = f"{error} It is not delivered. ({done.exception() or 'the bytes are wrong'})"
            _report(text)
            self._node.log.record(node_event("record_damaged", text[:1000], Severity.ALERT, lsn=read.lsn))
        self.wake()

    # -- timers ------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._tick_handle = self._loop.call_later(TICK_S, self._tick)
        self._tick_count += 1
        try:
            if self._journal.next_lsn == self._last_lsn:
                self._writer.attest()
            self._manager.mark_delivered()
            self._last_lsn = self._journal.next_lsn
            self._node.log.retry()
            self._pressure.look()
            if self._tick_count % SLOW_TICKS == 0:
                self._slow_tick()
        except Exception as error:  # noqa: BLE001 (as in `_turn`)
            self._end(error)
        self.wake()

    def _slow_tick(self) -> None:
        self._writer.retry()
        now_s = self._loop.time()
        with suppress(JournalFull):  # the rest another time
            self._manager.expire_sessions(now_s)
        for client in list(self._clients):
            self._check_deadlines(client, now_s)

    def _check_deadlines(self, client: ClientProtocol, now_s: float) -> None:
        """Nobody stays who says nothing at the start, or reads nothing at the end."""
        connection = client.connection
        if connection.is_closing and not client.is_told_to_go:
            client.is_told_to_go = True
            client.since_s = now_s
        elif connection.is_closing and now_s - client.since_s > STOP_S_MAX:
            client.transport.abort()
        elif not connection.is_greeted and now_s - client.since_s > GREETING_S_MAX:
            connection.fail("protocol.unexpected", "HELLO did not come")

    def _status(self) -> dict[str, Any]:
        return {
            "node": self._facts.name,
            "server": self._facts.server,
            "uptime_s": int(self._loop.time() - self._started_s),
            "connections": len(self._clients),
            "waiting_connections": len(self._waiting),
            "exhausted": self._pressure.reason,
        }

    # -- the end -----------------------------------------------------------------------------------------

    def _end(self, error: BaseException) -> None:
        if not self.ended.done():
            self.ended.set_result(error)

    def request_stop(self) -> None:
        """A signal asks for it."""
        if not self.ended.done():
            self.ended.set_result(None)

    async def close(self, failure: BaseException | None) -> None:
        """Everything durable, everybody told, the journal closed. After a failure: only let go."""
        self._is_stopping = True
        self._tick_handle.cancel()
        self._readers.shutdown(wait=True, cancel_futures=True)
        if failure is None:
            self._settle()
            for client in list(self._clients):
                client.connection.stop(
                    "the node stops; what was confirmed is kept. Connect again and resume."
                )
                client.write_output()
            await self._let_clients_go()
        for client in list(self._clients):
            client.transport.abort()
        self._node.close(self._writer)

    def _settle(self) -> None:
        """Two rounds: what was appended, and what follows from it."""
        self._node.log.record(node_event("stopping", "the node stops in good order"))
        for _ in range(2):
            self._writer.drain()
            self._manager.advance()
            self._manager.mark_delivered()

    async def _let_clients_go(self) -> None:
        deadline_s = self._loop.time() + STOP_S_MAX
        while self._clients and self._loop.time() < deadline_s:
            await asyncio.sleep(0.01)


def _report(text: str, error: BaseException | None = None) -> None:
    """For the person who looks after the server."""
    print(f"holdfast: {text}", file=sys.stderr, flush=True)
    if error is not None and not isinstance(error, HoldfastError):
        traceback.print_exception(error)
