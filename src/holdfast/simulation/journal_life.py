"""One life of a simulated node: from recovery to crash, with everything going on at once.

Producers record, recipients confirm, groups are written and synced while others gather, checkpoints are taken,
segments are allocated and moved, a reader follows: each at moments that the seed decides, over a storage that may
crash in the middle of any of it.
"""

from __future__ import annotations

from random import Random

from holdfast.errors import JournalFull, NotHeld, StorageError
from holdfast.journal.boot import BootSection
from holdfast.journal.config import JournalConfig
from holdfast.journal.journal import Journal
from holdfast.journal.opening import Identity, close_journal, open_journal, prepare_journal
from holdfast.journal.persistent_memory import Confirmations, PersistentMemory
from holdfast.journal.reader import Reader
from holdfast.journal.work import Flush, Work
from holdfast.message import Message, encode
from holdfast.simulation.journal_model import JournalModel, require
from holdfast.simulation.scheduler import Action, Scheduler
from holdfast.simulation.storage import FaultyStorage

DISK_DELAY_US_MAX = 600


class NodeStopped(Exception):
    """The journal failed, and the node stopped with the reason."""


class BootEvents:
    """Tokens of boot events by what is known of them."""

    def __init__(self) -> None:
        self.recorded: list[bytes] = []
        self.count = 0


class Life:
    """Opens the journal, and runs it until something ends it."""

    def __init__(
        self,
        *,
        random: Random,
        storage: FaultyStorage,
        config: JournalConfig,
        model: JournalModel,
        boot_events: BootEvents,
        commits_when_durable: bool,
        salt: int,
    ) -> None:
        self._random = random
        self._storage = storage
        self._config = config
        self._model = model
        self._boot_events = boot_events
        self._commits_when_durable = commits_when_durable
        self._salt = salt
        self._scheduler = Scheduler(random)
        self._work: set[str] = set()
        self._aborted: list[Work] = []
        self._is_ending = False
        self._reader: Reader | None = None
        self._boot_clear_lsn: int | None = None
        self.opened: Journal | None = None
        self.refused = 0

    # -- starting ----------------------------------------------------------------------------------------

    def boot(self) -> None:
        """Recover. Events of the node itself are recorded before the journal is ready (E5)."""
        identity = Identity(salt=self._salt, site=1, node=2)
        state = prepare_journal(self._storage, self._config, identity)
        self._boot = BootSection(self._storage, salt=state.salt)
        for _ in range(self._random.randint(0, 2)):
            self._boot_events.count += 1
            token = f"<boot event {self._boot_events.count}>".encode()
            if self._boot.record(token):
                self._boot_events.recorded.append(token)
        confirmations = Confirmations()
        journal, self.report = open_journal(
            self._storage,
            self._config,
            confirmations,
            identity=identity,
            commits_when_durable=self._commits_when_durable,
        )
        self.journal = self.opened = journal
        self.memory = PersistentMemory(journal, confirmations)
        if not self._commits_when_durable:
            self.journal.commit_to(self.journal.durable_lsn)

    def take_over_boot_events(self) -> None:
        self._boot_clear_lsn = self.memory.take_over_boot_events(self._boot)
        self._model.absorb(self.journal)

    # -- running -----------------------------------------------------------------------------------------

    def run(self, duration_us: int) -> None:
        """Let everything go on for so long. Raises `SimulatedCrash` or `NodeStopped`."""
        every = self._scheduler.every
        every(600, self._produce)
        every(1_500, self._consume)
        every(800, self._flush)
        every(2_500, self._maintain)
        every(9_000, self._attest)
        every(3_000, self._follow)
        every(20_000, self._retry)
        if not self._commits_when_durable:
            every(1_500, self._commit)
        self._scheduler.run(self._scheduler.now_us + duration_us)

    def _produce(self) -> None:
        if self.memory.is_paused and self._random.random() < 0.9:
            return
        for _ in range(self._random.randint(1, 4)):
            count = self._random.choice((1, 1, 1, 3))
            messages = [
                Message(body=self._random.randbytes(self._random.randint(0, 250)), type="simulated")
                for _ in range(count)
            ]
            try:
                self.memory.record((encode(messages),), time_us=self._scheduler.now_us)
            except JournalFull:
                self.refused += 1
                require(self.memory.is_paused, "a message was refused, but nobody was told")
            self._model.absorb(self.journal)

    def _consume(self) -> None:
        """Confirm some of what is held: mostly the oldest, leaving a few behind for long."""
        held = [lsn for _, lsn in self.journal.replay_order()]
        patience = 0.05 if self.memory.is_paused else 0.35
        chosen = [lsn for lsn in held[: self._random.randint(0, 40)] if self._random.random() > patience]
        for start in range(0, len(chosen), 7):
            try:
                self.memory.confirm(chosen[start : start + 7])
            except NotHeld:
                continue
            except JournalFull as error:
                require(error.reason == "memory", f"a confirmation found no room: {error}")
            self._model.absorb(self.journal)

    def _flush(self) -> None:
        if "flush" not in self._work and not self._is_ending:
            self._start("flush", self.journal.begin_flush())

    def _attest(self) -> None:
        if "flush" not in self._work and not self._is_ending:
            self._start("flush", self.journal.begin_attestation())

    def _maintain(self) -> None:
        if self._is_ending:
            return
        self.memory.watch(time_us=self._scheduler.now_us)
        self._model.absorb(self.journal)
        if self.journal.wants_checkpoint() or self._random.random() < 0.05:
            self._start("checkpoint", self.journal.begin_checkpoint())
        self._start("move", self.journal.begin_move())
        self._start("allocation", self.journal.begin_allocation())

    def _retry(self) -> None:
        self.journal.retry_allocation()

    def _commit(self) -> None:
        lag = self._random.choice((0, 0, 1, 5))
        self.journal.commit_to(max(self.journal.commit_lsn, self.journal.durable_lsn - lag))

    def _follow(self) -> None:
        """A reader follows the end of the log, or limps behind it, and is closed now and then."""
        if self._reader is None:
            first_lsn = self.journal.segments.first_unbroken.base_lsn
            self._reader = Reader(
                self.journal, from_lsn=self._random.choice((first_lsn, self.journal.commit_lsn + 1))
            )
        self._reader.extend()
        for record in self._reader.read(self._storage, max_bytes=self._random.choice((1, 4_000))):
            self._model.check_read(record)
        if self._random.random() < 0.1:
            self._reader.close()
            self._reader = None

    # -- the disk ----------------------------------------------------------------------------------------

    def _start(self, name: str, work: Work | None) -> None:
        """Run the work some time later, in one or two steps, and finish it later still."""
        if work is None:
            return
        assert not self._is_ending, "nothing begins any more"
        self._work.add(name)
        if isinstance(work, Flush):
            self._later(lambda: self._step(work, lambda: work.write(self._storage)))
            self._later(
                lambda: self._step(work, lambda: work.sync(self._storage)), after_us=DISK_DELAY_US_MAX
            )
        else:
            self._later(lambda: self._step(work, lambda: work.run(self._storage)))
        self._later(lambda: self._finish(name, work), after_us=2 * DISK_DELAY_US_MAX)

    def _later(self, action: Action, *, after_us: int = 0) -> None:
        self._scheduler.after(after_us + self._random.randint(1, DISK_DELAY_US_MAX), action)

    def _step(self, work: Work, action: Action) -> None:
        try:
            action()
        except StorageError as error:
            self.journal.abort(work, error)
            self._aborted.append(work)
            if self.journal.failure is not None:
                raise NodeStopped(str(error)) from error

    def _finish(self, name: str, work: Work) -> None:
        self._work.discard(name)
        if work in self._aborted:
            return
        self.journal.finish(work)
        if self.journal.failure is not None:
            raise NodeStopped(str(self.journal.failure))
        self._model.absorb(self.journal)
        self._model.confirm(self.journal.durable_lsn)
        if self._boot_clear_lsn is not None and self.journal.commit_lsn >= self._boot_clear_lsn:
            self._boot_clear_lsn = None
            self._boot.clear()

    # -- ending in good order ----------------------------------------------------------------------------

    def close(self) -> None:
        """Wait for work in progress, then close."""
        self._is_ending = True
        while self._work:
            self._scheduler.run(self._scheduler.now_us + DISK_DELAY_US_MAX)
        self._scheduler.clear()
        close_journal(self._storage, self.journal)
        self._model.absorb(self.journal)
        self._model.confirm(self.journal.durable_lsn)

    def drain(self) -> None:
        """Confirm everything, and see that all space comes back (E6)."""
        storage, journal = self._storage, self.journal
        if self._boot_clear_lsn is not None:
            self._settle()
            self._boot.clear()
        for _ in range(self._config.segments_max + 2):
            held = [lsn for _, lsn in journal.replay_order()]
            for start in range(0, len(held), 20):
                self.memory.confirm(held[start : start + 20])
                self._settle()
            checkpoint = journal.begin_checkpoint()
            assert checkpoint is not None
            checkpoint.run(storage)
            journal.finish(checkpoint)
            self.memory.watch(time_us=self._scheduler.now_us)
            self._settle()
            if not journal.held.count:
                break
        require(
            journal.held.count == 0, f"{journal.held.count} records are still held after all was confirmed"
        )
        require(len(journal.segments) == 1, f"{len(journal.segments)} segments are in use, and hold nothing")
        require(
            journal.pool.free_count + 1 + len(self.report.damaged_files) >= journal.pool.total_count,
            "a segment is neither in use nor free",
        )
        require(journal.space.is_reserve_whole, "the reserve did not fill again")
        journal.check_invariants()

    def _settle(self) -> None:
        self._model.absorb(self.journal)
        flush = self.journal.begin_flush()
        if flush is not None:
            flush.run(self._storage)
            self.journal.finish(flush)
            if not self._commits_when_durable:
                self.journal.commit_to(self.journal.durable_lsn)
            self._model.confirm(self.journal.durable_lsn)
