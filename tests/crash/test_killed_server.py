"""A real server is killed with -9 while real clients send, receive and commit. They notice nothing but a delay.

No client sees an exception; the history checker finds nothing lost, doubled, invented or out of order; what was
rolled back is never seen.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

import holdfast
from holdfast.simulation.history import History

# What is done to which file, on which side of it the server dies, and at which time that it is done.
POINTS = {
    "before append": "write:segment:before:60",
    "after append, before fdatasync": "write:segment:after:60",
    "after fdatasync, before confirm": "sync:segment:after:60",
    "while delivering and acknowledging": "sync:segment:before:150",
    "in a checkpoint": "write:checkpoint:after:1",
    "after a checkpoint, before segments are recycled": "sync:checkpoint:after:1",
}
MESSAGES = 1_500


class Servers:
    """One server after another, on one port and one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"holdfast://127.0.0.1:{self._port}/"

    def start(self, *point: str) -> None:
        arguments = [str(self._directory), str(self._port), *point]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.server_process", *arguments], stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == str(self._port).encode()

    def wait_killed(self) -> None:
        assert self._process is not None
        assert self._process.wait(timeout=60) == -9
        self._close()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self.wait_killed()

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        assert self._process.wait(timeout=30) == 0
        self._close()

    def _close(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None


class Clients:
    """Programs that send, move by transactions, and receive, each in its own thread."""

    def __init__(self, url: str, seed: int) -> None:
        self._url = url
        self._random = Random(seed)
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.errors: list[BaseException] = []
        self.history = History()
        with holdfast.connect(url) as connection:
            connection.declare("orders")
            connection.declare("archive")

    def start(self) -> None:
        for work in (self._produce, self._transact, self._receive_orders, self._receive_archive):
            self._threads.append(threading.Thread(target=self._guard, args=(work,), daemon=True))
            self._threads[-1].start()

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.errors.append(error)
            raise

    def join(self) -> None:
        for thread in self._threads:
            thread.join(timeout=120)
            assert not thread.is_alive(), "a client is stuck"
        assert not self.errors, self.errors

    def note_restart(self) -> None:
        with self._lock:
            self.history.restart()

    def _new(self, session: str, number: int, destination: str) -> tuple[str, bytes]:
        token = f"{session}-{number}"
        body = token.encode() + b" " + bytes(number % 300)
        with self._lock:
            self.history.send(token, session=session, destination=destination, body=body)
        return token, body

    def _produce(self) -> None:
        with holdfast.connect(self._url) as connection, connection.session() as session:
            for start in range(0, MESSAGES, 10):
                made = [self._new("p", start + row, "orders") for row in range(10)]
                if start % 20:
                    # One by one, without waiting: the server makes one record of those that arrive together.
                    assert all(session.try_send("orders", body) for _, body in made)
                    session.flush()
                else:
                    session.send_batch("orders", [body for _, body in made])
                with self._lock:
                    for token, _ in made:
                        self.history.confirm(token)

    def _transact(self) -> None:
        with holdfast.connect(self._url) as connection, connection.session(transacted=True) as session:
            for number in range(MESSAGES // 15):
                made = [self._new("t", 3 * number + part, "archive") for part in range(3)]
                for _, body in made:
                    session.send("archive", body)
                if number % 4 == 3:
                    session.rollback()
                else:
                    session.commit()
                with self._lock:
                    for token, _ in made:
                        (self.history.vanish if number % 4 == 3 else self.history.confirm)(token)

    def _receive_orders(self) -> None:
        self._receive("orders")

    def _receive_archive(self) -> None:
        self._receive("archive")

    def _receive(self, destination: str) -> None:
        with (
            holdfast.connect(self._url) as connection,
            connection.session() as session,
            session.consume(destination, credit=50) as consumer,
        ):
            tokens: list[str] = []
            while not self._is_complete(destination):
                message = consumer.receive(timeout_s=0.5)
                if message is not None:
                    tokens.append(self._note(destination, message))
                    message.acknowledge()
                if len(tokens) >= 20 or message is None:
                    session.flush()
                    with self._lock:
                        for token in tokens:
                            self.history.acknowledged(token, recipient=destination)
                    tokens = []

    def _note(self, destination: str, message: holdfast.ReceivedMessage) -> str:
        token = message.body.split(b" ")[0].decode()
        with self._lock:
            self.history.receive(
                token,
                recipient=destination,
                destination=destination,
                position=message.position,
                body=message.body,
                is_redelivered=message.redeliveries > 0,
            )
        return token

    def _is_complete(self, destination: str) -> bool:
        """Everybody has sent all, and all that was confirmed has come."""
        if self._threads[0].is_alive() or self._threads[1].is_alive():
            return False
        with self._lock:
            return not self.history.undelivered(recipient=destination, destination=destination)

    def check(self) -> None:
        for destination in ("orders", "archive"):
            self.history.check_delivered(recipient=destination, destination=destination)
        self.history.check_session_order()
        assert not self.history.violations, "; ".join(map(str, self.history.violations[:5]))
        assert len(self.history.confirmed) > MESSAGES


@pytest.mark.spec("E2", "E8", "C5")
@pytest.mark.parametrize("name", POINTS)
def test_clients_go_on_through_the_death_of_the_server(name: str, tmp_path: Path) -> None:
    point, _, nth = POINTS[name].rpartition(":")
    servers = Servers(tmp_path)
    servers.start(point, nth)
    clients = Clients(servers.url, seed=1)
    clients.start()
    servers.wait_killed()
    clients.note_restart()
    servers.start()
    clients.join()
    clients.check()
    servers.stop()


@pytest.mark.soak
def test_clients_go_on_through_many_deaths_of_the_server(tmp_path: Path) -> None:
    random = Random(7)
    for run in range(40):
        servers = Servers(tmp_path / str(run))
        servers.start()
        clients = Clients(servers.url, seed=run)
        clients.start()
        for _ in range(6):
            threading.Event().wait(random.uniform(0.05, 0.6))
            servers.kill()
            clients.note_restart()
            servers.start()
        clients.join()
        clients.check()
        servers.stop()


@pytest.mark.control("E2", "E8", "C5")
def test_the_judge_finds_a_message_that_never_came(tmp_path: Path) -> None:
    servers = Servers(tmp_path)
    servers.start()
    clients = Clients(servers.url, seed=1)
    clients.start()
    clients.join()
    clients.history.send("lost-1", session="l", destination="orders", body=b"lost-1 ")
    clients.history.confirm("lost-1")
    with pytest.raises(AssertionError, match="nothing is lost"):
        clients.check()
    servers.stop()
