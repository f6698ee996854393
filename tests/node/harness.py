"""A message manager over a storage in memory, driven by hand, with clients that write down what they are told."""

from __future__ import annotations

from holdfast.journal.config import KIB, JournalConfig
from holdfast.journal.memory_storage import MemoryStorage
from holdfast.journal.opening import Identity, open_journal, run_work
from holdfast.journal.storage import Storage
from holdfast.message import Batch, IdSource, Message, Origin, encode
from holdfast.node.distributor import Parts
from holdfast.node.links import SessionLink
from holdfast.node.manager import MessageManager
from holdfast.node.state import MessageState
from holdfast.sessions.session import session_text

CONFIG = JournalConfig(
    segment_bytes=64 * KIB,
    segments_max=60,
    segments_ahead=2,
    record_bytes_max=16 * KIB,
    group_bytes_max=64 * KIB,
    group_reserve_bytes=8 * KIB,
    held_records_max=5_000,
    reserve_acknowledgements=1_000,
    reserve_system_events=4,
    state_bytes_max=256 * KIB,
    checkpoint_interval_bytes=256 * KIB,
    boot_bytes=8 * KIB,
)


class Client:
    """An outlet that remembers."""

    def __init__(self) -> None:
        self.link: SessionLink
        self.is_resumed = False
        self.is_fenced = False
        self.confirmed_sequences: dict[int, int] = {}
        self.acknowledged_number = 0
        self.deliveries: list[tuple[int, int, int, list[bytes]]] = []

    def confirmed(self, destination: int, sequence: int) -> None:
        assert sequence >= self.confirmed_sequences.get(destination, 0)
        self.confirmed_sequences[destination] = sequence

    def acknowledged(self, number: int) -> None:
        assert number > self.acknowledged_number
        self.acknowledged_number = number

    def delivered(
        self, *, consumer: int, generation: int, redeliveries: int, first_position: int, batch: Parts
    ) -> None:
        opened = Batch.parse(b"".join(batch)).validate()
        bodies = [message.body for message in opened.messages()]
        self.deliveries.append((consumer, redeliveries, first_position, bodies))

    def fenced(self) -> None:
        self.is_fenced = True

    def link_text(self) -> str:
        return session_text(self.link.number)

    def bodies(self) -> list[bytes]:
        return [body for _, _, _, bodies in self.deliveries for body in bodies]

    def positions(self) -> list[int]:
        return [first + row for _, _, first, bodies in self.deliveries for row in range(len(bodies))]


class Node:
    """One life of a node."""

    def __init__(self, storage: Storage | None = None) -> None:
        self.storage: Storage = MemoryStorage() if storage is None else storage
        self.state = MessageState()
        self.journal, self.report = open_journal(
            self.storage, CONFIG, self.state, identity=Identity(salt=11, site=1, node=1)
        )
        origin = Origin(site=1, node=1, start=self.journal.run)
        self.manager = MessageManager(self.journal, self.state, IdSource(origin))

    def turn(self) -> None:
        """Let everything happen that is due: group commits, reads, checkpoints."""
        for _ in range(100):
            flush = self.journal.begin_flush()
            if flush is not None:
                run_work(self.storage, self.journal, flush)
            self.manager.advance()
            read = self.manager.distributor.begin_read()
            if read is not None:
                read.run(self.storage)
                self.manager.distributor.finish_read(read)
                self.manager.advance()
            if flush is None and read is None:
                break
        if self.journal.wants_checkpoint():
            checkpoint = self.journal.begin_checkpoint()
            assert checkpoint is not None
            run_work(self.storage, self.journal, checkpoint)
        allocation = self.journal.begin_allocation()
        if allocation is not None:
            run_work(self.storage, self.journal, allocation)

    def checkpoint(self) -> None:
        work = self.journal.begin_checkpoint()
        assert work is not None
        run_work(self.storage, self.journal, work)

    def connect(self, text: str = "") -> Client:
        client = Client()

        def opened(link: SessionLink, is_resumed: bool) -> None:
            client.link, client.is_resumed = link, is_resumed

        self.manager.open_session(client, text=text, lifetime_s=60, opened=opened)
        self.turn()
        return client

    def declare(self, name: str, kind: str = "queue") -> int:
        numbers: list[int] = []
        self.manager.declare(name, kind, lambda destination: numbers.append(destination.number))
        self.turn()
        return numbers[0]

    def send(
        self, client: Client, destination: int, first_sequence: int, *bodies: bytes, transaction: int = 0
    ) -> None:
        batch = Batch.parse(encode([Message(body=body) for body in bodies]))
        self.manager.send(
            client.link,
            destination=destination,
            transaction=transaction,
            first_sequence=first_sequence,
            batch=batch,
        )

    def consume(
        self,
        client: Client,
        destination: str,
        *,
        subscription: str = "",
        credit: int = 100,
        consumer: int = 1,
        is_durable: bool = False,
        from_start: bool = False,
    ) -> None:
        self.manager.subscribe(
            client.link,
            consumer=consumer,
            destination_name=destination,
            subscription_name=subscription,
            is_durable=is_durable,
            from_start=from_start,
            credit=credit,
            then=lambda: None,
        )
        self.turn()

    def acknowledge(
        self, client: Client, number: int, *ranges: tuple[int, int], transaction: int = 0, consumer: int = 1
    ) -> None:
        self.manager.acknowledge(
            client.link, consumer=consumer, transaction=transaction, number=number, ranges=ranges
        )
