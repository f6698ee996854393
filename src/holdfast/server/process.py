"""One server from start to stop: what the commands `up` and `serve` run."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import traceback
from collections.abc import Callable

import msgspec

from holdfast.errors import HoldfastError, LimitExceeded
from holdfast.server.client_protocol import ClientProtocol
from holdfast.server.configuration import Configuration
from holdfast.server.listening import BACKLOG_MAX, open_listener, port_of
from holdfast.server.open_node import OpenNode
from holdfast.server.server import Server

EXIT_STOPPED = 0
EXIT_FAILED = 3


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The server takes connections now."""

    host: str
    port: int
    node: str
    data: str
    run: int
    held_records: int
    is_first_start: bool


def run_server(configuration: Configuration, *, ready: Callable[[Ready], None]) -> int:
    """Serve until a signal, or a failure. The exit code. Raises `HoldfastError` if it cannot start."""
    configuration.check()
    with contextlib.closing(open_listener(configuration.listen)) as listener:
        node = OpenNode(configuration)
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            failure = runner.run(_serve(node, configuration, listener, ready))
    if failure is None:
        return EXIT_STOPPED
    _report_failure(failure)
    return EXIT_FAILED


def _new_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it is there: the same calls, at about half the cost."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _serve(
    node: OpenNode, configuration: Configuration, listener: socket.socket, ready: Callable[[Ready], None]
) -> BaseException | None:
    loop = asyncio.get_running_loop()
    server = Server(node, configuration)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.request_stop)
    accepting = await loop.create_server(lambda: ClientProtocol(server), sock=listener, backlog=BACKLOG_MAX)
    ready(_ready(node, configuration, listener))
    failure = await server.ended
    accepting.close()
    try:
        await server.close(failure)
    except LimitExceeded as error:  # no last checkpoint: the next start reads the log instead
        print(f"holdfast: stopped without a checkpoint: {error}", file=sys.stderr, flush=True)
    except HoldfastError as error:
        return failure or error
    return failure or node.journal.failure


def _ready(node: OpenNode, configuration: Configuration, listener: socket.socket) -> Ready:
    return Ready(
        host=configuration.listen.host,
        port=port_of(listener),
        node=configuration.node_name,
        data=str(configuration.data_directory),
        run=node.report.run,
        held_records=node.report.held_records,
        is_first_start=node.report.is_first_start,
    )


def _report_failure(failure: BaseException) -> None:
    print(
        f"holdfast: stopped: {failure}. Nothing was confirmed after that; all that was confirmed before is kept. "
        f"Check the disk, then start again: clients resume and send what was not confirmed.",
        file=sys.stderr,
        flush=True,
    )
    if not isinstance(failure, HoldfastError):
        traceback.print_exception(failure)
