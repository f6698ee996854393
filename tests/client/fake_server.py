"""A small server without a journal, for tests only: deterministic, in memory, on the same wire codec.

It keeps what the protocol promises to keep (sequences, sessions, outcomes, what is in flight), so that every
way to lose a connection can be tried against it. `log` has every frame that came. Knobs make it slow
(`holds_confirms`) or differ where servers may (`takes_all_back`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from holdfast.message import Batch, Origin, gather, slice_rows, stamp
from holdfast.wire import (
    CLIENT_FRAMES,
    Acknowledge,
    Acknowledged,
    Ask,
    Browse,
    Browsed,
    CloseConsumer,
    CloseSession,
    Commit,
    Confirm,
    Credit,
    Declare,
    Deliver,
    Done,
    Error,
    Frame,
    FrameDecoder,
    Hello,
    OpenSession,
    Outcome,
    Ping,
    Pong,
    Rollback,
    Send,
    SessionOpened,
    Subscribe,
    Unsubscribe,
    Welcome,
    encode_frame,
)

ORIGIN = Origin(site=1, node=1, start=1)


class Subscription:
    """What one subscription has not confirmed: due, or in flight to a consumer."""

    def __init__(self, first: int) -> None:
        self.next = first
        self.returned: list[int] = []
        self.in_flight: dict[int, Consumer] = {}
        self.done: set[int] = set()
        self.redeliveries: Counter[int] = Counter()

    def give_again(self, positions: list[int]) -> None:
        for position in positions:
            if position not in self.done:
                self.redeliveries[position] += 1
                self.returned.append(position)
        self.returned.sort()

    def due(self, end: int) -> int | None:
        if self.returned:
            return self.returned[0]
        while self.next in self.done:
            self.next += 1
        return self.next if self.next < end else None


class Destination:
    def __init__(self, number: int, name: str, kind: str) -> None:
        self.number = number
        self.name = name
        self.kind = kind
        self.rows: dict[int, bytes] = {}
        self.subscriptions: dict[str, Subscription] = {"": Subscription(1)} if kind == "queue" else {}

    @property
    def end(self) -> int:
        return len(self.rows) + 1

    @property
    def bodies(self) -> list[bytes]:
        return [Batch.parse(row).message(0).body for row in self.rows.values()]


class Consumer:
    def __init__(
        self, number: int, destination: Destination, subscription: Subscription, credit: int
    ) -> None:
        self.number = number
        self.destination = destination
        self.subscription = subscription
        self.credit = credit
        self.generation = 0
        self.credit_given = [credit]

    def in_flight(self) -> list[int]:
        return [position for position, who in self.subscription.in_flight.items() if who is self]

    def take_back(self, positions: list[int]) -> None:
        taken = [position for position in positions if self.subscription.in_flight.get(position) is self]
        for position in taken:
            del self.subscription.in_flight[position]
        if taken:
            self.generation += 1
        self.subscription.give_again(taken)


class Session:
    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = 0
        self.sequences: dict[str, int] = {}
        self.committed: list[int] = []
        self.open: dict[int, list[Callable[[], None]]] = {}
        self.connection: FakeConnection | None = None
        self.consumers: dict[int, Consumer] = {}

    def detach(self) -> None:
        self.connection = None
        self.open.clear()
        for consumer in self.consumers.values():
            consumer.take_back(consumer.in_flight())
        self.consumers.clear()


class FakeServer:
    """What outlives a connection."""

    def __init__(self, *, frame_bytes_max: int = 1 << 20) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.destinations: dict[str, Destination] = {}
        self.sessions: dict[str, Session] = {}
        self.log: list[Frame] = []
        self.holds_confirms = False
        self.takes_all_back = False
        self.delivery_rows_max = 1000
        self.refuses: dict[type[Frame], str] = {}
        self._session_count = 0

    def declare(self, name: str, kind: str = "queue") -> Destination:
        if name not in self.destinations:
            self.destinations[name] = Destination(len(self.destinations) + 1, name, kind)
        return self.destinations[name]

    def by_number(self, number: int) -> Destination:
        return next(each for each in self.destinations.values() if each.number == number)

    def put(self, name: str, *bodies: bytes) -> None:
        """Messages that somebody else has sent."""
        from holdfast.message import Message, encode

        for body in bodies:
            self.append(self.declare(name), Batch.parse(encode([Message(body=body)])))
        self.distribute()

    def append(self, destination: Destination, batch: Batch) -> None:
        for row in range(len(batch)):
            single = Batch.parse(slice_rows(batch, row, row + 1))
            position = destination.end
            destination.rows[position] = b"".join(stamp(single, ORIGIN, position))

    def open_session(self, name: str, connection: FakeConnection) -> Session | None:
        if name:
            session = self.sessions.get(name)
            if session is None:
                return None
            session.detach()
        else:
            self._session_count += 1
            session = self.sessions[f"s{self._session_count}"] = Session(f"s{self._session_count}")
        session.epoch += 1
        session.connection = connection
        return session

    def distribute(self) -> None:
        for session in self.sessions.values():
            for consumer in list(session.consumers.values()):
                while session.connection is not None and consumer.credit and self._deliver(session, consumer):
                    pass

    def _deliver(self, session: Session, consumer: Consumer) -> bool:
        subscription, destination = consumer.subscription, consumer.destination
        first = subscription.due(destination.end)
        if first is None or session.connection is None:
            return False
        positions: list[int] = []
        rows_max = min(consumer.credit, self.delivery_rows_max)
        while len(positions) < rows_max and subscription.due(destination.end) == first + len(positions):
            position = first + len(positions)
            if positions and subscription.redeliveries[position] != subscription.redeliveries[first]:
                break
            if subscription.returned:
                subscription.returned.pop(0)
            else:
                subscription.next += 1
            positions.append(position)
            subscription.in_flight[position] = consumer
        consumer.credit -= len(positions)
        batch = gather([Batch.parse(destination.rows[position]) for position in positions])
        redeliveries = subscription.redeliveries[first]
        session.connection.deliver(
            session, Deliver(consumer.number, consumer.generation, redeliveries, first, batch)
        )
        return True


class FakeConnection:
    """One connection to it: frames in, frames out."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.output: list[tuple[int, Frame]] = []
        self.held: list[tuple[int, Frame]] = []
        self.channels: dict[int, Session] = {}
        self._decoder = FrameDecoder(accepts=CLIENT_FRAMES)

    def decode(self, data: bytes) -> list[tuple[int, Frame]]:
        return self._decoder.feed(data)

    def take_output(self) -> list[tuple[int, Frame]]:
        output, self.output = self.output, []
        return output

    def take_bytes(self) -> bytes:
        return b"".join(encode_frame(channel, frame) for channel, frame in self.take_output())

    def release_confirms(self) -> None:
        self.output += self.held
        self.held = []

    def lost(self) -> None:
        for session in self.channels.values():
            if session.connection is self:
                session.detach()
        self.channels.clear()
        self.server.distribute()

    def deliver(self, session: Session, frame: Deliver) -> None:
        channel = next(number for number, each in self.channels.items() if each is session)
        self.output.append((channel, frame))

    def handle(self, channel: int, frame: Frame) -> None:
        self.server.log.append(frame)
        code = self.server.refuses.get(type(frame))
        if code is not None:
            self._fail(channel, frame, code)
            return
        match frame:
            case Hello():
                welcome = Welcome(
                    version=1, server="fake", node="n1", frame_bytes_max=self.server.frame_bytes_max
                )
                self._put(0, welcome)
            case Ping():
                self._put(channel, Pong(frame.token))
            case OpenSession():
                self._open(channel, frame)
            case Declare():
                self._declare(channel, frame)
            case Ask():
                self._done(channel, frame.request, {"what": frame.what})
            case Browse():
                self._browse(channel, frame)
            case Unsubscribe():
                self.server.destinations[frame.destination].subscriptions.pop(frame.subscription, None)
                self._done(channel, frame.request)
            case _:
                self._handle_session(channel, self.channels[channel], frame)
        self.server.distribute()

    def _handle_session(self, channel: int, session: Session, frame: Frame) -> None:
        match frame:
            case CloseSession():
                session.detach()
                del self.server.sessions[session.name], self.channels[channel]
                self._done(channel, frame.request)
            case Send():
                self._send(channel, session, frame)
            case Subscribe():
                self._subscribe(channel, session, frame)
            case Credit():
                session.consumers[frame.consumer].credit += frame.messages
                session.consumers[frame.consumer].credit_given.append(frame.messages)
            case Acknowledge():
                self._acknowledge(channel, session, frame)
            case CloseConsumer():
                consumer = session.consumers.pop(frame.consumer)
                consumer.take_back(consumer.in_flight())
                self._done(channel, frame.request)
            case Commit():
                self._commit(channel, session, frame)
            case Rollback():
                session.open.pop(frame.transaction, None)
                for consumer in session.consumers.values():
                    consumer.take_back(consumer.in_flight())
                self._done(channel, frame.request)

    # ---- requests --------------------------------------------------------------------------------------

    def _put(self, channel: int, frame: Frame) -> None:
        self.output.append((channel, frame))

    def _done(self, channel: int, request: int, result: dict[str, object] | None = None) -> None:
        self._put(channel, Done(request=request, result=result or {}))

    def _fail(self, channel: int, frame: Frame, code: str) -> None:
        request = getattr(frame, "request", 0)
        self._put(channel, Error(request=request, code=code, message=f"no: {code}", is_fatal=channel == 0))

    def _open(self, channel: int, frame: OpenSession) -> None:
        session = self.server.open_session(frame.session, self)
        if session is None:
            self._fail(channel, frame, "session.unknown")
            return
        self.channels[channel] = session
        opened = SessionOpened(
            request=frame.request,
            session=session.name,
            epoch=session.epoch,
            is_resumed=bool(frame.session),
            confirmed=dict(session.sequences),
        )
        self._put(channel, opened)

    def _declare(self, channel: int, frame: Declare) -> None:
        if frame.kind:
            self.server.declare(frame.name, frame.kind)
        destination = self.server.destinations.get(frame.name)
        if destination is None:
            self._fail(channel, frame, "destination.unknown")
        else:
            self._done(channel, frame.request, {"number": destination.number, "kind": destination.kind})

    def _browse(self, channel: int, frame: Browse) -> None:
        destination = self.server.destinations[frame.destination]
        positions = [each for each in destination.rows if each >= frame.from_position][: frame.messages_max]
        for position in positions:
            self._put(channel, Browsed(frame.request, False, position, destination.rows[position]))
        self._put(channel, Browsed(frame.request, True, 0, b""))

    def _subscribe(self, channel: int, session: Session, frame: Subscribe) -> None:
        destination = self.server.destinations.get(frame.destination)
        if destination is None:
            self._fail(channel, frame, "destination.unknown")
            return
        name = frame.subscription or (
            "" if destination.kind == "queue" else f"{session.name}.{frame.consumer}"
        )
        if name not in destination.subscriptions:
            destination.subscriptions[name] = Subscription(1 if frame.from_start else destination.end)
        consumer = Consumer(frame.consumer, destination, destination.subscriptions[name], frame.credit)
        session.consumers[frame.consumer] = consumer
        self._done(channel, frame.request)

    # ---- sends, acknowledgements, transactions ---------------------------------------------------------

    def _send(self, channel: int, session: Session, frame: Send) -> None:
        destination = self.server.by_number(frame.destination)
        batch = Batch.parse(bytes(frame.batch)).validate()
        recorded = session.sequences.get(destination.name, 0)
        if frame.first_sequence > recorded + 1:
            self._fail(channel, frame, "session.gap")
            return
        last = frame.first_sequence + len(batch) - 1
        known = recorded + 1 - frame.first_sequence
        if frame.transaction:
            assert known == 0, "a new run of a transaction takes new sequences"
            session.open.setdefault(frame.transaction, []).append(
                lambda: self.server.append(destination, batch)
            )
        elif known < len(batch):
            self.server.append(destination, Batch.parse(slice_rows(batch, known, len(batch))))
        session.sequences[destination.name] = max(recorded, last)
        if not frame.transaction:
            confirm = (channel, Confirm(frame.destination, session.sequences[destination.name]))
            (self.held if self.server.holds_confirms else self.output).append(confirm)

    def _acknowledge(self, channel: int, session: Session, frame: Acknowledge) -> None:
        consumer = session.consumers[frame.consumer]
        positions = [each for first, last in frame.ranges for each in range(first, last + 1)]
        if frame.outcome is Outcome.RETURNED:
            consumer.take_back(consumer.in_flight() if self.server.takes_all_back else positions)
        elif frame.transaction:
            session.open.setdefault(frame.transaction, []).append(
                lambda: self._settle(consumer.subscription, positions)
            )
        else:
            self._settle(consumer.subscription, positions)
        acknowledged = (channel, Acknowledged(frame.number))
        (self.held if self.server.holds_confirms else self.output).append(acknowledged)

    def _settle(self, subscription: Subscription, positions: list[int]) -> None:
        for position in positions:
            subscription.done.add(position)
            subscription.in_flight.pop(position, None)
            if position in subscription.returned:
                subscription.returned.remove(position)

    def _commit(self, channel: int, session: Session, frame: Commit) -> None:
        parts = session.open.pop(frame.transaction, None)
        if parts is not None:
            for part in parts:
                part()
            session.committed.append(frame.transaction)
        outcome = "committed" if frame.transaction in session.committed else "unknown"
        self._done(channel, frame.request, {"outcome": outcome})
