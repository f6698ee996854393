"""A journal small enough to fill, to roll and to crash at every step; and a shell that runs its work at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from random import Random

from holdfast.errors import JournalFull, StorageError
from holdfast.journal.config import JournalConfig
from holdfast.journal.format import FLAG_MOVED, ORIGIN_LSN_BYTES, Record, Section, SegmentHeader
from holdfast.journal.journal import Journal, State
from holdfast.journal.opening import Identity, RecoveryReport, close_journal, open_journal
from holdfast.journal.persistent_memory import Confirmations, PersistentMemory
from holdfast.journal.scan import Lineage
from holdfast.journal.storage import Storage
from holdfast.journal.work import SegmentRead, Work
from holdfast.simulation.storage import FaultyStorage, SimulatedCrash

SMALL = JournalConfig(
    segment_bytes=64 * 1024,
    segments_max=12,
    segments_ahead=2,
    record_bytes_max=4096,
    group_bytes_max=32 * 1024,
    group_reserve_bytes=4096,
    held_records_max=2000,
    reserve_acknowledgements=500,
    reserve_system_events=4,
    state_bytes_max=4096,
    checkpoint_interval_bytes=128 * 1024,
    boot_bytes=8192,
)
# Segments of a few records each: every workload rolls, reclaims and moves.
TINY = JournalConfig(
    segment_bytes=4096 * 2,
    segments_max=10,
    segments_ahead=1,
    record_bytes_max=1024,
    group_bytes_max=8 * 1024,
    group_reserve_bytes=1280,
    held_records_max=200,
    reserve_acknowledgements=20,
    reserve_system_events=2,
    state_bytes_max=256,
    checkpoint_interval_bytes=16 * 1024,
    boot_bytes=2048,
)
IDENTITY = Identity(salt=0x5EED, site=1, node=2)
TIME_US = 1_700_000_000_000_000
# More housekeeping than any single state of a small journal can ask for.
HOUSEKEEPING_MAX = 100


@dataclass
class Shell:
    """One open journal, its persistent memory, and the disk below: work is done as soon as it is asked for."""

    storage: Storage
    journal: Journal
    report: RecoveryReport
    memory: PersistentMemory

    def record(self, payload: bytes, *, section: Section = Section.MESSAGES) -> int:
        return self.memory.record((payload,), time_us=TIME_US, section=section)

    def confirm(self, *lsns: int) -> int:
        return self.memory.confirm(lsns)

    def run(self, work: Work | None) -> bool:
        """Do the work, as the node's shell would. Whether there was any."""
        if work is None:
            return False
        try:
            work.run(self.storage)
        except StorageError as error:
            self.journal.abort(work, error)
        else:
            self.journal.finish(work)
        return True

    def flush(self) -> int:
        """Make durable what was gathered. The durable lsn."""
        self.run(self.journal.begin_flush())
        return self.journal.durable_lsn

    def checkpoint(self) -> None:
        assert self.run(self.journal.begin_checkpoint())

    def keep_house(self) -> None:
        """Flush, take checkpoints, allocate and move, until nothing more is wanted."""
        for _ in range(HOUSEKEEPING_MAX):
            self.flush()
            if self.journal.wants_checkpoint() and self.run(self.journal.begin_checkpoint()):
                continue
            if self.run(self.journal.begin_allocation()) or self.run(self.journal.begin_move()):
                continue
            return
        raise AssertionError("housekeeping does not come to an end")

    def held(self) -> dict[int, bytes]:
        """Every held record by its first lsn, in the order of replay, as it is read from the disk."""
        return {lsn: payload for _, lsn, payload in self.replayed()}

    def replayed(self) -> list[tuple[Section, int, bytes]]:
        """Section, lsn and payload of what is held, in the order of replay, as it is read from the disk."""
        on_disk = self.records_by_place()
        found = []
        for section, lsn, place, _ in self.journal.held.entries():
            assert place in on_disk, f"the held record {lsn} cannot be read at its place"
            record = on_disk[place]
            assert origin(record) == lsn
            assert record.section == section
            found.append((section, lsn, payload_of(record)))
        return found

    def records_by_place(self) -> dict[int, Record]:
        """Every record in a segment that holds something live, as a walk over the disk finds it."""
        journal = self.journal
        lineage = Lineage(journal.run, journal.node_state.start_lsn)
        on_disk = {}
        for segment in journal.segments:
            if segment.live_records:
                header = SegmentHeader(
                    journal.config.segment_bytes, segment.generation, segment.base_lsn, 0, 0
                )
                read = SegmentRead(segment.name, header, lineage, salt=journal.node_state.salt)
                read.run(self.storage)
                on_disk.update({record.place: record for record in read.records})
        return on_disk

    def close(self) -> None:
        close_journal(self.storage, self.journal)


def open_small(
    storage: Storage,
    config: JournalConfig = SMALL,
    *,
    commits_when_durable: bool = True,
    state: State | None = None,
) -> Shell:
    """Open the journal that is on the storage, or make one."""
    confirmations = Confirmations()
    journal, report = open_journal(
        storage,
        config,
        confirmations if state is None else state,
        identity=IDENTITY,
        commits_when_durable=commits_when_durable,
    )
    return Shell(storage, journal, report, PersistentMemory(journal, confirmations))


def origin(record: Record) -> int:
    """The lsn that the record had at first."""
    if record.flags & FLAG_MOVED:
        return int.from_bytes(record.payload[:ORIGIN_LSN_BYTES], "little")
    return record.lsn


def payload_of(record: Record) -> bytes:
    """What was recorded, wherever the record has been moved to."""
    start = ORIGIN_LSN_BYTES if record.flags & FLAG_MOVED else 0
    return bytes(record.payload[start:])


def faulty(seed: int = 1) -> FaultyStorage:
    return FaultyStorage(Random(seed))


def payload_for(number: int, size: int = 200) -> bytes:
    """Different for every number, and of just this size."""
    return f"message {number} ".encode().ljust(size, bytes([65 + number % 26]))[:size]


def fill_disk(shell: Shell, *, size: int = 1000) -> list[int]:
    """Record, and keep house, until there is no room. What was recorded."""
    lsns: list[int] = []
    while True:
        try:
            lsns.append(shell.record(payload_for(len(lsns), size)))
        except JournalFull as error:
            if error.reason == "memory":
                shell.flush()
                continue
            shell.keep_house()
            return lsns
        if len(lsns) % 8 == 0:
            shell.keep_house()


def fill_memory(shell: Shell, *, size: int = 1000) -> None:
    """Record without ever flushing. Raises `JournalFull`."""
    while True:
        shell.record(payload_for(1, size))


@dataclass
class Ledger:
    """What a producer and a recipient know of a workload: what they asked for, and what they were told."""

    recorded: dict[int, bytes] = field(default_factory=dict)
    confirmed: dict[int, int] = field(default_factory=dict)  # lsn: the lsn of its confirmation
    journal: Journal | None = None

    @property
    def durable_lsn(self) -> int:
        """What was last reported to be durable."""
        return 0 if self.journal is None else self.journal.durable_lsn

    def record(self, shell: Shell, payload: bytes) -> int:
        lsn = shell.record(payload)
        self.recorded[lsn] = payload
        return lsn

    def confirm(self, shell: Shell, lsns: Iterable[int]) -> None:
        chosen = sorted(lsns)
        if chosen:
            self.confirmed.update(dict.fromkeys(chosen, shell.confirm(*chosen)))

    def awaited(self) -> list[int]:
        """What is durable and not confirmed yet."""
        return [lsn for lsn in self.recorded if lsn <= self.durable_lsn and lsn not in self.confirmed]

    def check(self, held: dict[int, bytes]) -> None:
        """Nothing durable is lost, nothing is invented, nothing durably confirmed comes back, order is kept."""
        assert list(held) == sorted(held), "the order of one section changed"
        for lsn, payload in held.items():
            assert self.recorded.get(lsn) == payload, f"lsn {lsn} holds what was never recorded there"
            assert self.confirmed.get(lsn, self.durable_lsn + 1) > self.durable_lsn, f"{lsn} came back"
        for lsn in self.recorded:
            if lsn <= self.durable_lsn and lsn not in self.confirmed:
                assert lsn in held, f"lsn {lsn} was durable and is lost"


Workload = Callable[[FaultyStorage, Ledger], None]


def crashes(
    workload: Workload, *, start: FaultyStorage | None = None, step: int = 1
) -> Iterator[tuple[str, FaultyStorage, Ledger]]:
    """Run a workload to its end, then again and again, dying in each of its storage operations in turn.

    Each death comes twice, as that of the process and as that of the machine. What is left is ready to be opened.
    """
    base = (start or faulty()).snapshot()
    whole = faulty()
    whole.restore(base)
    workload(whole, Ledger())
    kinds = ("allocate", "delete", "write", "sync")
    total = sum(whole.operations[kind] - base.operations[kind] for kind in kinds)
    for number in range(1, total + 1, step):
        for death in ("kill", "power loss"):
            storage, ledger = faulty(number), Ledger()
            storage.restore(base)
            storage.crash_after(number)
            try:
                workload(storage, ledger)
            except SimulatedCrash:
                pass
            else:
                raise AssertionError(f"the workload ended before operation {number}")
            if death == "kill":
                storage.kill()
            else:
                storage.power_loss()
            yield f"{death} in operation {number}", storage, ledger
