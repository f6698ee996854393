"""A rehearsal of recovery: what the next start would find, without a single write.

It runs the same `Replay` into the same `Journal` as `opening.open_journal`, in memory, over a `ReadOnlyView`. Where
recovery would refuse, the rehearsal keeps what it had built by then, and the reason.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.errors import HoldfastError, UsageError
from holdfast.journal.checkpoint import Checkpoint
from holdfast.journal.config import JournalConfig
from holdfast.journal.format import generation_of, offset_of
from holdfast.journal.inspection.read_only import ReadOnlyView
from holdfast.journal.inspection.survey import Bound
from holdfast.journal.journal import Journal, State
from holdfast.journal.node_state import NodeState, read_node_state
from holdfast.journal.recovery import LogEnd, Replay, newest_checkpoint
from holdfast.journal.scan import Catalogue, Lineage
from holdfast.journal.segments import SEGMENT_NUMBER_MAX
from holdfast.journal.storage import Storage

NO_JOURNAL = "there is no journal here: no file node-state"

# A node that writes meanwhile can make a rehearsal fail; what is really damaged fails every time.
_ATTEMPTS_MAX = 3
# Nothing is appended in a rehearsal: the least that the configuration allows.
_RECORD_BYTES = 1024
_GROUP_BYTES = 8192


class Rehearsal(msgspec.Struct, kw_only=True):
    """What recovery found. `problem` is why the next start would refuse; what is None was not reached."""

    node_state: NodeState
    catalogue: Catalogue
    checkpoint: Checkpoint | None = None
    journal: Journal | None = None
    end: LogEnd | None = None
    problem: HoldfastError | None = None
    # Generation to offset to lsn of every record that the index holds.
    held: dict[int, dict[int, int]] = {}
    live_bytes: dict[int, int] = {}

    @property
    def lineage(self) -> Lineage:
        return Lineage(self.node_state.run, self.node_state.start_lsn)

    @property
    def scan_generation(self) -> int:
        return self.checkpoint.scan_generation if self.checkpoint is not None else 0

    @property
    def last_generation(self) -> int:
        """The segment in which the log ends, as far as that can be told."""
        if self.end is not None:
            return self.end.generation
        live = [
            generation
            for generation, (_, header) in self.catalogue.by_generation.items()
            if not self.lineage.is_dead_segment(header, newest_run=0)
        ]
        return max(live, default=0)

    @property
    def is_log_lost(self) -> bool:
        """Whether the log would seem to be empty although segments of it are there."""
        return self.end is not None and not self.end.name and bool(self.catalogue.by_generation)

    def is_in_use(self, generation: int) -> bool:
        """Whether the index points into this segment, or recovery reads it."""
        if self.is_log_lost:
            return True
        return generation in self.held or self.scan_generation <= generation <= self.last_generation

    def bases(self) -> dict[int, int]:
        """The first lsn of every generation of which it is known, also of some that are reused by now."""
        last_generation = (
            max(self.catalogue.by_generation, default=0) if self.is_log_lost else self.last_generation
        )
        bases = {
            generation: header.base_lsn
            for generation, (_, header) in self.catalogue.by_generation.items()
            if generation <= last_generation
        }
        if self.checkpoint is not None:
            bases.update((entry.generation, entry.base_lsn) for entry in self.checkpoint.segments)
        return bases


def bound_of(generation: int, bases: dict[int, int]) -> Bound | None:
    """Where a segment must end, from the first lsns of those after it; None for the last one."""
    if generation + 1 in bases:
        return Bound(bases[generation + 1], is_exact=True)
    later = [base for other, base in bases.items() if other > generation]
    return Bound(min(later), is_exact=False) if later else None


def look(storage: Storage, make_state: Callable[[], State]) -> tuple[ReadOnlyView, Rehearsal]:
    """A rehearsal over what is on the storage now. Raises `UsageError` if there is no journal."""
    for _ in range(_ATTEMPTS_MAX):
        view = ReadOnlyView(storage)
        node_state = read_node_state(view)
        if node_state is None:
            raise UsageError(NO_JOURNAL)
        rehearsal = rehearse(view, node_state, make_state())
        if rehearsal.problem is None:
            break
    return view, rehearsal


def rehearse(view: ReadOnlyView, node_state: NodeState, state: State) -> Rehearsal:
    """Recover in memory, as far as that goes. Raises `StorageError` only if not even headers can be read."""
    salt, segment_bytes = node_state.salt, node_state.segment_bytes
    catalogue = Catalogue.read(view, salt=salt, segment_bytes=segment_bytes, settle_from=0)
    rehearsal = Rehearsal(node_state=node_state, catalogue=catalogue)
    try:
        _recover(view, rehearsal, state)
    except HoldfastError as error:
        rehearsal.problem = error
    if rehearsal.journal is not None:
        for _, lsn, place, size in rehearsal.journal.held.entries():
            generation = generation_of(place)
            rehearsal.held.setdefault(generation, {})[offset_of(place)] = lsn
            rehearsal.live_bytes[generation] = rehearsal.live_bytes.get(generation, 0) + size
    return rehearsal


def _recover(view: ReadOnlyView, rehearsal: Rehearsal, state: State) -> None:
    node_state = rehearsal.node_state
    rehearsal.checkpoint = checkpoint = newest_checkpoint(view, salt=node_state.salt)
    replay = Replay(view, node_state, checkpoint)
    rehearsal.catalogue = replay.catalogue
    journal = Journal(_config(node_state), node_state, state, epoch=node_state.epoch)
    present = {generation: name for generation, (name, _) in replay.catalogue.by_generation.items()}
    journal.begin_recovery(checkpoint, present)
    rehearsal.journal = journal
    rehearsal.end = replay.run(journal.recover_segment, journal.recover_record)
    journal.end_recovery(rehearsal.end)


def _config(node_state: NodeState) -> JournalConfig:
    """The journal does not store its limits, and none of them counts in a rehearsal."""
    return JournalConfig(
        segment_bytes=node_state.segment_bytes,
        segments_max=SEGMENT_NUMBER_MAX,
        segments_ahead=1,
        record_bytes_max=_RECORD_BYTES,
        group_bytes_max=_GROUP_BYTES,
        group_reserve_bytes=_GROUP_BYTES // 4,
        reserve_acknowledgements=0,
        reserve_system_events=2,
        boot_bytes=_RECORD_BYTES * 2,
    )
