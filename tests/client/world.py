"""A client core and the fake server in one process, frame by frame, with a connection that can be cut
anywhere.

A scenario is a generator: it makes calls, and yields a condition that it waits for. Frames move one at a
time, those of the client first, so that a run is the same each time and "after frame 7" means something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from holdfast.client.core import ClientCore
from holdfast.client.events import Completed, Confirmed, Failed, Unusable
from holdfast.client.incoming import Subscription, Waiting
from holdfast.client.limits import ClientLimits
from holdfast.client.session import SessionCore
from holdfast.errors import HoldfastError
from holdfast.message import Message, encode
from holdfast.wire import Frame, encode_frame
from tests.client.fake_server import FakeConnection, FakeServer

Condition = Callable[[], object]
Scenario = Iterator[Condition]
STEPS_MAX = 2000


class World:
    def __init__(self, server: FakeServer | None = None, *, limits: ClientLimits | None = None) -> None:
        self.server = server or FakeServer()
        self.core = ClientCore(client="test", limits=limits or ClientLimits())
        self.results: dict[int, Any] = {}
        self.errors: dict[int, HoldfastError] = {}
        self.unusable: list[Unusable] = []
        self.steps = 0
        self.connection: FakeConnection | None = None
        self._to_server: list[tuple[int, Frame]] = []
        self._to_client: list[tuple[int, Frame]] = []
        self.connect()

    # ---- the network -----------------------------------------------------------------------------------

    def connect(self) -> None:
        self.connection = FakeConnection(self.server)
        self.core.connection_made(0.0)
        self.collect()

    def cut(self) -> None:
        """Whatever is on its way is lost."""
        assert self.connection is not None
        self._to_server.clear()
        self._to_client.clear()
        self.connection.lost()
        self.connection = None
        self.core.connection_lost()
        self.collect()

    def collect(self) -> None:
        data = b"".join(self.core.take_output())
        if self.connection is not None and data:
            self._to_server += self.connection.decode(data)
        for event in self.core.take_events():
            match event:
                case Confirmed():
                    self.results.update(event.receipts)
                case Completed():
                    assert event.ticket not in self.results, "a call is completed once"
                    self.results[event.ticket] = event.result
                case Failed():
                    self.errors[event.ticket] = event.error
                case Unusable():
                    self.unusable.append(event)
        self.core.check_invariants()

    def step(self) -> bool:
        """Move one frame; False if there is none."""
        assert self.connection is not None
        self._to_client += self.connection.take_output()
        if self._to_server:
            self.connection.handle(*self._to_server.pop(0))
        elif self._to_client:
            self.core.receive(encode_frame(*self._to_client.pop(0)), 0.0)
        else:
            return False
        self.collect()
        self.steps += 1
        return True

    def settle(self) -> None:
        """Move frames until none is left."""
        self.collect()
        while self.step():
            assert self.steps < STEPS_MAX
        assert not self.unusable, self.unusable

    def run(self, scenario: Scenario, *, cut_after: int | None = None) -> None:
        """Run it to its end, with the connection cut after so many frames and made again."""
        for condition in scenario:
            self.collect()
            while not condition():
                if self.steps == cut_after:
                    cut_after = None
                    self.cut()
                    self.connect()
                assert self.step(), "the scenario waits for what never comes"
                assert self.steps < STEPS_MAX
            assert not self.unusable, self.unusable

    # ---- the program -----------------------------------------------------------------------------------

    def session(self, *, is_transacted: bool = False) -> SessionCore:
        return self.core.open_session(is_transacted=is_transacted, lifetime_s=60)

    def send(self, session: SessionCore, destination: str, body: bytes) -> int:
        batch = encode([Message(body=body)])
        assert session.takes(messages=1, size_bytes=len(batch))
        ticket = self.core.new_ticket()
        session.send_single(destination, batch, ticket=ticket, batch_bytes_max=self.core.batch_bytes_max)
        return ticket

    def consumer(self, session: SessionCore, destination: str, *, window: int = 10) -> int:
        ticket = self.core.new_ticket()
        return session.consumers.open(Subscription(destination), window=window, ticket=ticket)

    def take(self, session: SessionCore, consumer: int) -> Iterator[Waiting]:
        while (waiting := session.consumers.take(consumer)) is not None:
            yield waiting

    def call(self, method: Callable[[int], None]) -> int:
        ticket = self.core.new_ticket()
        method(ticket)
        return ticket

    def is_done(self, *tickets: int) -> bool:
        return all(ticket in self.results for ticket in tickets)


def frames_of(server: FakeServer, kind: type[Any]) -> list[Any]:
    return [frame for frame in server.log if isinstance(frame, kind)]
