"""A simulated node through many lives, on one disk: `holdfast simulate` runs thousands of these.

Each run draws from its seed the limits of the journal, how long it lives, how each life ends (killed, power lost,
in good order, stopped by a failing disk) and what happens to the disk meanwhile. After every recovery the model
judges; the last life has no faults, drains everything, and looks for leaked space.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from enum import Enum
from random import Random

import msgspec

from holdfast.errors import HoldfastError, JournalCorrupt, JournalMismatch, StorageError, StorageFull
from holdfast.journal.boot import BOOT_NAME
from holdfast.journal.config import KIB, JournalConfig
from holdfast.journal.opening import truncate_journal
from holdfast.simulation.journal_life import BootEvents, Life, NodeStopped
from holdfast.simulation.journal_model import Broken, JournalModel, require
from holdfast.simulation.storage import FaultyStorage, SimulatedCrash

LIVES_MAX = 6
LIFE_US_MAX = (5_000, 40_000, 150_000)


class Fault(Enum):
    """What may go wrong in a run, besides the process being killed, which always may."""

    POWER_LOSS = "power-loss"
    DAMAGE = "damage"
    FULL_DISK = "full-disk"
    FAILED_SYNC = "failed-sync"
    TRUNCATION = "truncation"


class Outcome(msgspec.Struct):
    """How a run ended."""

    seed: int
    lives: int = 0
    records: int = 0
    torn_tails: int = 0
    refused: int = 0
    reported: str = ""
    broken: str = ""
    digest: str = ""


MakeStorage = Callable[[Random], FaultyStorage]


class JournalWorld:
    """One run from one seed."""

    def __init__(
        self,
        seed: int,
        *,
        faults: frozenset[Fault] = frozenset(Fault),
        make_storage: MakeStorage = FaultyStorage,
    ) -> None:
        self._random = Random(seed)
        self._faults = frozenset(fault for fault in Fault if fault in faults and self._random.random() < 0.6)
        self._config = self._draw_config()
        self._storage = make_storage(self._random)
        self._model = JournalModel()
        self._boot_events = BootEvents()
        self._commits_when_durable = Fault.TRUNCATION not in self._faults
        self._salt = self._random.getrandbits(64)
        self._was_damaged = False
        self._trace = hashlib.blake2b(digest_size=8)
        self.outcome = Outcome(seed)

    def _draw_config(self) -> JournalConfig:
        held = self._random.choice((60, 300))
        config = JournalConfig(
            segment_bytes=self._random.choice((8, 16, 32)) * KIB,
            segments_max=1_000,
            segments_ahead=self._random.choice((1, 2)),
            record_bytes_max=1 * KIB,
            group_bytes_max=self._random.choice((12, 24)) * KIB,
            group_reserve_bytes=3 * KIB,
            held_records_max=held,
            # Every record that can be held can be confirmed alone, whatever the disk says.
            reserve_acknowledgements=held + 32,
            reserve_system_events=4,
            state_bytes_max=64,
            checkpoint_interval_bytes=self._random.choice((8, 32)) * KIB,
            boot_bytes=2 * KIB,
        )
        segments_max = config.segments_at_start + self._random.randint(0, 6)
        return msgspec.structs.replace(config, segments_max=segments_max)

    # -- the run -----------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Live, die, recover, be judged; again and again. Never raises: the outcome says what was broken."""
        try:
            for number in range(self._random.randint(2, LIVES_MAX)):
                self.outcome.lives = number + 1
                self._live(is_last=False)
                if self.outcome.reported:
                    break
            else:
                self._live(is_last=True)
        except Broken as broken:
            self.outcome.broken = str(broken)
        except (HoldfastError, AssertionError, LookupError, ValueError, TypeError) as error:
            self.outcome.broken = f"{type(error).__name__}: {error}"
        self.outcome.records = len(self._model.records)
        self.outcome.digest = self._trace.hexdigest()
        return self.outcome

    def _live(self, *, is_last: bool) -> None:
        self._arrange_faults(is_last=is_last)
        life = Life(
            random=self._random,
            storage=self._storage,
            config=self._config,
            model=self._model,
            boot_events=self._boot_events,
            commits_when_durable=self._commits_when_durable,
            salt=self._salt,
        )
        try:
            self._boot(life)
            if self.outcome.reported:
                return
            life.take_over_boot_events()
            if is_last:
                self._check_last(life)
            else:
                life.run(self._random.randint(1, self._random.choice(LIFE_US_MAX)))
                if self._random.random() < 0.3:
                    life.close()
        except JournalCorrupt as error:
            require(self._was_damaged, f"damage was reported where there is none: {error}")
            self.outcome.reported = str(error)
        except (SimulatedCrash, NodeStopped, StorageError) as error:
            # Whatever ended it, the process is gone now.
            require(not (is_last and not isinstance(error, NodeStopped)), f"the last life ended: {error!r}")
        self.outcome.refused += life.refused
        self._die(life)

    def _boot(self, life: Life) -> None:
        before = self._settled_digest() if self._was_damaged else ""
        is_made = self._model.runs != []
        try:
            life.boot()
        except (JournalCorrupt, JournalMismatch) as error:
            require(self._was_damaged, f"damage was reported where there is none: {error}")
            require(
                life.opened is not None or not is_made or before == self._settled_digest(),
                "a damaged journal was changed",
            )
            self.outcome.reported = str(error)
            return
        except StorageFull:
            require(Fault.FULL_DISK in self._faults, "the disk is full, though nothing filled it")
            raise
        self.outcome.torn_tails += life.report.is_torn
        self._model.check_recovered(life.journal, was_damaged=self._was_damaged)
        unreadable = self._model.check_payloads(life.journal, self._storage, was_damaged=self._was_damaged)
        if unreadable:
            self.outcome.reported = f"{unreadable} held records are damaged"

    def _check_last(self, life: Life) -> None:
        life.drain()
        for token in self._boot_events.recorded:
            count = self._model.count_boot_events(token)
            is_right = count <= 1 if self._was_damaged else count == 1
            require(is_right, f"boot event {token!r} is in the log {count} times")

    # -- what goes wrong ---------------------------------------------------------------------------------

    def _arrange_faults(self, *, is_last: bool) -> None:
        random, storage = self._random, self._storage
        storage.set_capacity(None)
        if is_last:
            return
        if random.random() < 0.7:
            storage.crash_after(random.choice((random.randint(1, 60), random.randint(1, 600))))
        if Fault.FULL_DISK in self._faults and storage.names():
            storage.set_capacity(storage.allocated_bytes + random.randint(0, 2) * self._config.segment_bytes)
        if Fault.FAILED_SYNC in self._faults and random.random() < 0.5:
            storage.fail_sync(after=random.randint(0, 30))

    def _die(self, life: Life) -> None:
        """The process is gone; perhaps the power too; perhaps the disk suffers meanwhile."""
        self._trace.update(self._storage.digest().encode())
        self._storage.disarm()
        if Fault.POWER_LOSS in self._faults and self._random.random() < 0.6:
            self._storage.power_loss()
        else:
            self._storage.kill()
        if Fault.TRUNCATION in self._faults and self._random.random() < 0.5:
            self._truncate(life)
        if Fault.DAMAGE in self._faults and self._random.random() < 0.3:
            self._damage(life)

    def _truncate(self, life: Life) -> None:
        """A returning primary cuts what was never committed."""
        if life.opened is None:
            return
        committed_lsn = life.opened.commit_lsn
        after_lsn = self._random.randint(committed_lsn, max(committed_lsn, self._model.confirmed_lsn))
        try:
            truncate_journal(self._storage, after_lsn=after_lsn)
        except (JournalCorrupt, JournalMismatch) as error:
            require(self._was_damaged, f"damage was reported where there is none: {error}")
            return
        self._model.cut_after(after_lsn)

    def _damage(self, life: Life) -> None:
        """One bit flips, where it is likely to matter."""
        self._was_damaged = True
        names = self._storage.names()
        used = [segment.name for segment in life.opened.segments] if life.opened is not None else []
        if used and self._random.random() < 0.7:
            name = self._random.choice(used)
        elif names:
            name = self._random.choice(names)
        else:
            return
        size = self._storage.size(name)
        offset = self._random.randrange(size if self._random.random() < 0.5 else min(size, 512))
        self._storage.flip_bit_at(name, offset, self._random.randrange(8))

    def _settled_digest(self) -> str:
        """Of all that is really on the disk, but for the one place that a node may write to before it recovers."""
        state = hashlib.blake2b(digest_size=8)
        for name in self._storage.names():
            if name == BOOT_NAME:
                continue
            self._storage.settle(name)
            state.update(self._storage.read(name, 0, self._storage.size(name)))
        return state.hexdigest()
