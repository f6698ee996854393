"""A message manager through many lives, with clients that outlive it, judged by what these clients saw.

Producers, recipients of queues and of topics, and transactions work on one node at once. The node is killed, loses
power, finds its disk full or failing, and comes back; the clients resume. In the last life nothing fails, all
is drained, and the history checker has the last word.
"""

from __future__ import annotations

import hashlib
from random import Random

from holdfast.errors import HoldfastError, StorageError
from holdfast.journal.config import KIB, JournalConfig
from holdfast.journal.opening import Identity, open_journal
from holdfast.journal.work import Flush, Work
from holdfast.message import IdSource, Origin
from holdfast.node.manager import MessageManager
from holdfast.node.state import MessageState
from holdfast.simulation.history import History
from holdfast.simulation.journal_life import DISK_DELAY_US_MAX, NodeStopped
from holdfast.simulation.journal_model import Broken, require
from holdfast.simulation.journal_world import Fault, MakeStorage, Outcome
from holdfast.simulation.node_clients import Producer, Recipient, SimulatedClient, Transactor
from holdfast.simulation.scheduler import Action, Scheduler
from holdfast.simulation.storage import FaultyStorage, SimulatedCrash

LIVES_MAX = 5
LIFE_US_MAX = (5_000, 30_000, 80_000)
DRAIN_TURNS_MAX = 5_000
FAULTS = frozenset((Fault.POWER_LOSS, Fault.FULL_DISK, Fault.FAILED_SYNC))
DESTINATIONS = (("orders", "queue"), ("events", "topic"))


class NodeLife:
    """One life of the node, from recovery on."""

    def __init__(self, random: Random, storage: FaultyStorage, config: JournalConfig, *, salt: int) -> None:
        self._random = random
        self._storage = storage
        self._busy: set[str] = set()
        self.is_ending = False
        self.scheduler = Scheduler(random)
        self.state = MessageState()
        identity = Identity(salt=salt, site=1, node=1)
        self.journal, self.report = open_journal(storage, config, self.state, identity=identity)
        origin = Origin(site=1, node=1, start=self.journal.run)
        self.manager = MessageManager(self.journal, self.state, IdSource(origin))

    def run(self, clients: list[SimulatedClient], duration_us: int) -> None:
        for client in clients:
            self.scheduler.after(self._random.randint(0, 2_000), lambda c=client: c.connect(self.manager))  # type: ignore[misc]
            self.scheduler.every(1_500, client.act)
        self.scheduler.every(15_000, lambda: self._disturb(clients))
        self.scheduler.every(700, self._flush)
        self.scheduler.every(2_500, self._maintain)
        self.scheduler.every(4_000, self.manager.mark_delivered)
        self.scheduler.every(500, self._read)
        self.scheduler.run(self.scheduler.now_us + duration_us)

    def _disturb(self, clients: list[SimulatedClient]) -> None:
        """A connection breaks; its client comes back, perhaps before the node has noticed."""
        connected = [client for client in clients if client.link is not None]
        if not connected:
            return
        client = self._random.choice(connected)
        link = client.link
        assert link is not None
        client.lose_connection()
        if self._random.random() < 0.5:
            self.manager.disconnect(link)
        self.scheduler.after(self._random.randint(1, 3_000), lambda: client.connect(self.manager))

    # -- the disk ----------------------------------------------------------------------------------------

    def _flush(self) -> None:
        if not self.is_ending:
            self._start("flush", self.journal.begin_flush())

    def _maintain(self) -> None:
        if self.is_ending:
            return
        self.journal.retry_allocation()
        if self.journal.wants_checkpoint() or self._random.random() < 0.05:
            self._start("checkpoint", self.journal.begin_checkpoint())
        self._start("move", self.journal.begin_move())
        self._start("allocation", self.journal.begin_allocation())

    def _read(self) -> None:
        read = self.manager.distributor.begin_read()
        if read is not None:
            read.run(self._storage)
            self.manager.distributor.finish_read(read)
            self.manager.advance()

    def _start(self, name: str, work: Work | None) -> None:
        if work is None:
            return
        self._busy.add(name)
        steps: list[Action] = [lambda: work.run(self._storage)]
        if isinstance(work, Flush):
            steps = [lambda: work.write(self._storage), lambda: work.sync(self._storage)]
        self._step(name, work, steps)

    def _step(self, name: str, work: Work, steps: list[Action]) -> None:
        def act() -> None:
            if not steps:
                self._finish(name, work)
                return
            try:
                steps.pop(0)()
            except StorageError as error:
                self._busy.discard(name)
                self.journal.abort(work, error)
                if self.journal.failure is not None:
                    raise NodeStopped(str(error)) from error
                return
            self._step(name, work, steps)

        self.scheduler.after(self._random.randint(1, DISK_DELAY_US_MAX), act)

    def _finish(self, name: str, work: Work) -> None:
        self._busy.discard(name)
        self.journal.finish(work)
        if self.journal.failure is not None:
            raise NodeStopped(str(self.journal.failure))
        self.manager.advance()

    def finish_work(self) -> None:
        """Let nothing begin any more, and what is under way come to its end."""
        self.is_ending = True
        while self._busy:
            self.scheduler.run(self.scheduler.now_us + DISK_DELAY_US_MAX)
        self.scheduler.clear()


class NodeWorld:
    """One run from one seed."""

    def __init__(
        self,
        seed: int,
        *,
        faults: frozenset[Fault] = FAULTS,
        make_storage: MakeStorage = FaultyStorage,
    ) -> None:
        self._random = Random(seed)
        self._faults = frozenset(fault for fault in Fault if fault in faults & FAULTS)
        self._config = JournalConfig(
            segment_bytes=self._random.choice((16, 32)) * KIB,
            segments_max=40,
            segments_ahead=1,
            record_bytes_max=4 * KIB,
            group_bytes_max=24 * KIB,
            group_reserve_bytes=4 * KIB,
            held_records_max=600,
            reserve_acknowledgements=400,
            reserve_system_events=4,
            state_bytes_max=64 * KIB,
            checkpoint_interval_bytes=self._random.choice((16, 64)) * KIB,
            boot_bytes=2 * KIB,
        )
        self._storage = make_storage(self._random)
        self._salt = self._random.getrandbits(64)
        self._history = History()
        self._clients: list[SimulatedClient] = []
        self._trace = hashlib.blake2b(digest_size=8)
        self.outcome = Outcome(seed)

    def run(self) -> Outcome:
        """Never raises: the outcome says what was broken."""
        try:
            self._prepare()
            for number in range(self._random.randint(1, LIVES_MAX)):
                self.outcome.lives = number + 1
                self._live()
            self._drain()
        except Broken as broken:
            self.outcome.broken = str(broken)
        except (HoldfastError, AssertionError, LookupError, ValueError, TypeError) as error:
            self.outcome.broken = f"{type(error).__name__}: {error}"
        self.outcome.records = len(self._history.sent)
        self.outcome.digest = self._trace.hexdigest()
        return self.outcome

    def _prepare(self) -> None:
        """Make the destinations, and the clients that use them."""
        life = NodeLife(self._random, self._storage, self._config, salt=self._salt)
        numbers: dict[str, int] = {}
        for name, kind in DESTINATIONS:
            life.manager.declare(
                name,
                kind,
                lambda made, name=name: numbers.__setitem__(name, made.number),  # type: ignore[misc]
            )
        life.run([], 10_000)
        random, history = self._random, self._history
        places = [(name, numbers[name]) for name, _ in DESTINATIONS]
        self._clients = [
            Recipient("r1", random, history, destination="orders", subscription=""),
            Recipient("r2", random, history, destination="orders", subscription=""),
            Recipient("s1", random, history, destination="events", subscription="audit"),
            Producer("p1", random, history, places[0]),
            Producer("p2", random, history, places[1]),
            Transactor("t1", random, history, places),
        ]
        # The subscription must be there before anything is sent to the topic, or it does not concern it.
        life = NodeLife(self._random, self._storage, self._config, salt=self._salt)
        life.run(self._clients[:3], 20_000)
        self._lose_connections()

    def _live(self) -> None:
        self._arrange_faults()
        try:
            life = NodeLife(self._random, self._storage, self._config, salt=self._salt)
            self.outcome.torn_tails += life.report.is_torn
            life.run(self._clients, self._random.randint(1, self._random.choice(LIFE_US_MAX)))
        except (SimulatedCrash, NodeStopped, StorageError):
            # The node is gone, whatever ended it; the clients notice that their connections are.
            self.outcome.refused += 1
        self._die()

    def _arrange_faults(self) -> None:
        random, storage = self._random, self._storage
        storage.set_capacity(None)
        if random.random() < 0.8:
            storage.crash_after(random.choice((random.randint(1, 40), random.randint(1, 400))))
        if Fault.FULL_DISK in self._faults and random.random() < 0.4:
            storage.set_capacity(storage.allocated_bytes)
        if Fault.FAILED_SYNC in self._faults and random.random() < 0.3:
            storage.fail_sync(after=random.randint(0, 40))

    def _die(self) -> None:
        self._trace.update(self._storage.digest().encode())
        self._storage.disarm()
        if Fault.POWER_LOSS in self._faults and self._random.random() < 0.6:
            self._storage.power_loss()
        else:
            self._storage.kill()
        self._lose_connections()

    def _lose_connections(self) -> None:
        self._history.restart()
        for client in self._clients:
            client.lose_connection()

    # -- the end -----------------------------------------------------------------------------------------

    def _drain(self) -> None:
        """No more faults: everything is delivered and acknowledged, and then nothing is held."""
        self._storage.set_capacity(None)
        life = NodeLife(self._random, self._storage, self._config, salt=self._salt)
        life.run(self._clients, 20_000)
        life.finish_work()
        for _ in range(DRAIN_TURNS_MAX):
            if self._is_drained(life):
                break
            self._drain_turn(life)
        self._history.check_delivered(recipient="orders/", destination="orders")
        self._history.check_delivered(recipient="events/audit", destination="events")
        self._history.check_session_order()
        violations = self._history.violations
        require(not violations, "; ".join(map(str, violations[:3])))
        require(
            self._is_drained(life), f"{life.journal.held.count} records are held though all was acknowledged"
        )
        life.journal.check_invariants()

    def _is_drained(self, life: NodeLife) -> bool:
        return life.journal.held.count == 0 and all(
            client.is_idle for client in self._clients if isinstance(client, Producer | Transactor)
        )

    def _drain_turn(self, life: NodeLife) -> None:
        """One round in which nobody begins anything new."""
        for client in self._clients:
            if client.link is None:
                client.connect(life.manager)
            elif isinstance(client, Recipient):
                client.acknowledge_all()
            elif isinstance(client, Producer):
                client.send_unsent()
            elif not client.is_idle:  # type: ignore[attr-defined]
                client.act()
        self._settle(life)

    def _settle(self, life: NodeLife) -> None:
        journal = life.journal
        works: list[Work | None] = [journal.begin_flush(), journal.begin_allocation(), journal.begin_move()]
        if journal.wants_checkpoint():
            works.append(journal.begin_checkpoint())
        for work in works:
            if work is not None:
                work.run(self._storage)
                journal.finish(work)
        life.manager.advance()
        read = life.manager.distributor.begin_read()
        if read is not None:
            read.run(self._storage)
            life.manager.distributor.finish_read(read)
            life.manager.advance()
