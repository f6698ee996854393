"""Making, opening, cutting and closing a journal: the few moments when it does wait for its disk.

The order of writes in `open_journal` matters. The new start of the node is on the disk before anything that it
writes, so that no number is used twice (C15) and what the last start left behind its end can be told from what
follows. Segments that were cut off are marked unused before the log may grow into that range again.
"""

from __future__ import annotations

import msgspec

from holdfast.errors import JournalCorrupt, JournalMismatch, StorageFull, UsageError
from holdfast.journal.boot import BOOT_NAME, BootSection
from holdfast.journal.checkpoint import CHECKPOINT_NAMES, Checkpoint, slot_name
from holdfast.journal.config import JournalConfig
from holdfast.journal.format import SEGMENT_HEADER_BYTES, SegmentHeader
from holdfast.journal.held import HeldRecords
from holdfast.journal.journal import Journal, State
from holdfast.journal.node_state import (
    NODE_STATE_NAME,
    NodeState,
    Stop,
    create_node_state,
    read_node_state,
    write_node_state,
)
from holdfast.journal.recovery import LogEnd, Replay, newest_checkpoint
from holdfast.journal.segments import is_segment, segment_name
from holdfast.journal.storage import Storage
from holdfast.journal.work import Allocation, Work


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who makes a journal. `salt` must be drawn at random by the caller."""

    salt: int
    site: int = 0
    node: int = 0


class RecoveryReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was found when the journal was opened."""

    is_first_start: bool
    stop: Stop
    run: int
    checkpoint_lsn: int
    last_lsn: int
    held_records: int
    is_torn: bool
    cut_segments: tuple[str, ...]
    damaged_files: tuple[str, ...]

    @property
    def replayed_records(self) -> int:
        return self.last_lsn - self.checkpoint_lsn


def prepare_journal(storage: Storage, config: JournalConfig, identity: Identity | None) -> NodeState:
    """Make the files of the journal if they are not there, or not all of them yet.

    Raises `StorageFull` if the reserve cannot be allocated: a node does not start without it (E4).
    """
    if NODE_STATE_NAME in storage.names():
        storage.settle(NODE_STATE_NAME)
    state = read_node_state(storage)
    if state is None:
        left = [n for n in storage.names() if is_segment(n) or n in (BOOT_NAME, *CHECKPOINT_NAMES)]
        if left:
            raise JournalCorrupt(
                "the node's state is lost, its journal is there", name=NODE_STATE_NAME, offset=0, lsn=0
            )
        if identity is None:
            raise UsageError("there is no journal here, and no identity was given to make one with")
        state = NodeState(
            segment_bytes=config.segment_bytes, salt=identity.salt, site=identity.site, node=identity.node
        )
        try:
            create_node_state(storage, state)
        except StorageFull as error:
            raise _no_room_to_start(config, error) from error
    if state.segment_bytes != config.segment_bytes:
        raise JournalMismatch(
            f"the journal was made with segment_bytes = {state.segment_bytes}, the configuration says "
            f"{config.segment_bytes}: this cannot be changed. Set it back, or start with an empty directory."
        )
    if not state.is_made:
        _make_files(storage, config, state)
        state = msgspec.structs.replace(state, is_made=True, sequence=state.sequence + 1)
        write_node_state(storage, state)
    return state


def _make_files(storage: Storage, config: JournalConfig, state: NodeState) -> None:
    names = set(storage.names())
    try:
        if BOOT_NAME not in names:
            BootSection.create(storage, config.boot_bytes)
        for name in CHECKPOINT_NAMES:
            if name not in names:
                head = (
                    b"".join(_empty_checkpoint().blocks(state.salt)) if name == CHECKPOINT_NAMES[0] else b""
                )
                storage.allocate(name, config.checkpoint_bytes, head=head)
        for number in range(config.segments_at_start):
            if segment_name(number) not in names:
                Allocation(segment_name(number), segment_bytes=config.segment_bytes, salt=state.salt).run(
                    storage
                )
    except StorageFull as error:
        raise _no_room_to_start(config, error) from error


def _no_room_to_start(config: JournalConfig, error: StorageFull) -> StorageFull:
    needed = config.segments_at_start * config.segment_bytes + 2 * config.checkpoint_bytes + config.boot_bytes
    return StorageFull(
        f"the journal needs {needed:,} bytes to start, of which {config.reserve_segments} segments of "
        f"{config.segment_bytes:,} bytes are its reserve for a full disk ({error}). Free some space, or lower "
        f"reserve_acknowledgements or held_records_max."
    )


def _empty_checkpoint() -> Checkpoint:
    return Checkpoint(
        number=0,
        lsn=0,
        scan_generation=1,
        scan_offset=SEGMENT_HEADER_BYTES,
        scan_lsn=1,
        run=0,
        epoch=0,
        boot_sequence=0,
        segment_files=0,
        segments=(),
        held=tuple(HeldRecords().snapshot()),
        state=b"",
    )


def open_journal(
    storage: Storage,
    config: JournalConfig,
    state: State,
    *,
    identity: Identity | None = None,
    commits_when_durable: bool = True,
) -> tuple[Journal, RecoveryReport]:
    """Recover the journal, or make it, and start a new run of the node.

    Raises `JournalCorrupt` (nothing is changed), `JournalMismatch`, `StorageError`.
    """
    old = prepare_journal(storage, config, identity)
    checkpoint = newest_checkpoint(storage, salt=old.salt)
    new = msgspec.structs.replace(old, run=old.run + 1, sequence=old.sequence + 1, stop=Stop.CUT_OFF)
    replay = Replay(storage, old, checkpoint)
    journal = Journal(config, new, state, epoch=old.epoch, commits_when_durable=commits_when_durable)
    present = {generation: name for generation, (name, _) in replay.catalogue.by_generation.items()}
    journal.begin_recovery(checkpoint, present, damaged=replay.catalogue.damaged)
    end = replay.run(journal.recover_segment, journal.recover_record)
    journal.end_recovery(end)
    new = msgspec.structs.replace(new, start_lsn=end.next_lsn, epoch=journal.epoch)
    journal.node_state = new
    write_node_state(storage, new)
    cut = _mark_cut_segments(storage, replay, end, new)
    _fill_pool(storage, journal, replay)
    _write_first_marker(storage, journal)
    _enlarge_slots(storage, journal)
    report = RecoveryReport(
        is_first_start=old.run == 0,
        stop=old.stop,
        run=new.run,
        checkpoint_lsn=checkpoint.lsn,
        last_lsn=end.next_lsn - 1,
        held_records=journal.held.count,
        is_torn=end.is_torn,
        cut_segments=tuple(cut),
        damaged_files=tuple(replay.catalogue.damaged),
    )
    return journal, report


def _mark_cut_segments(storage: Storage, replay: Replay, end: LogEnd, state: NodeState) -> list[str]:
    """Segments behind the end of the log belong to a tail that was cut: make them unused again."""
    unused = SegmentHeader(state.segment_bytes, generation=0, base_lsn=0, run=0, durable_lsn=0)
    cut = [name for gen, (name, _) in replay.catalogue.by_generation.items() if gen > end.generation]
    for name in cut:
        storage.write(name, 0, unused.pack(state.salt))
        storage.sync(name)
    return cut


def _fill_pool(storage: Storage, journal: Journal, replay: Replay) -> None:
    """All segments that are not in use are free; those of the reserve that are missing are made, if they can be."""
    in_use = {segment.name for segment in journal.segments}
    catalogue = replay.catalogue
    free = [name for name, _ in catalogue.by_generation.values()] + catalogue.unused
    if "" not in in_use:
        # Nothing is missed: a whole file whose header is damaged holds nothing, and may be used again.
        free += [n for n in catalogue.damaged if storage.size(n) == journal.config.segment_bytes]
    for name in catalogue.damaged:
        journal.pool.know(name)
    journal.add_free_segments(name for name in sorted(free) if name not in in_use)
    if not len(journal.segments):
        journal.open_first_segment()
    while journal.pool.free_count < journal.config.reserve_segments:
        allocation = journal.begin_allocation()
        if allocation is None:
            break
        try:
            allocation.run(storage)
        except StorageFull as error:
            if journal.pool.total_count < journal.config.segments_at_start:
                raise _no_room_to_start(journal.config, error) from error
            # The reserve is drawn on: this is what it is for. Producers wait until it is whole again.
            journal.abort(allocation, error)
        else:
            journal.finish(allocation)


def _write_first_marker(storage: Storage, journal: Journal) -> None:
    """Attest what was recovered: it has been settled, so it is durable."""
    marker = journal.begin_marker()
    if marker is not None:
        run_work(storage, journal, marker)


def _enlarge_slots(storage: Storage, journal: Journal) -> None:
    """Slots that are lost, or too small for limits that were raised, are made anew; never the newest first."""
    needed_bytes = journal.config.checkpoint_bytes
    for _ in CHECKPOINT_NAMES:
        name = slot_name(journal.checkpoint_number + 1)
        is_there = name in storage.names()
        if is_there and storage.size(name) >= needed_bytes:
            name = slot_name(journal.checkpoint_number)
            if storage.size(name) >= needed_bytes:
                return
        else:
            if is_there:
                storage.delete(name)
            try:
                storage.allocate(name, needed_bytes)
            except StorageFull as error:
                raise _no_room_to_start(journal.config, error) from error
        checkpoint = journal.begin_checkpoint()
        assert checkpoint is not None, "nothing else takes a checkpoint yet"
        run_work(storage, journal, checkpoint)


def run_work(storage: Storage, journal: Journal, work: Work) -> None:
    """Do the work here and now."""
    work.run(storage)
    journal.finish(work)


def close_journal(storage: Storage, journal: Journal) -> None:
    """Stop in good order: everything gathered becomes durable, a checkpoint is taken, the stop is noted (S6)."""
    if journal.is_busy and journal.failure is None:
        raise UsageError("work of the journal is still under way: wait for it, then close")
    flush = journal.begin_flush()
    if flush is not None:
        run_work(storage, journal, flush)
    checkpoint = journal.begin_checkpoint()
    if checkpoint is not None:
        run_work(storage, journal, checkpoint)
    if journal.failure is None:
        journal.node_state = msgspec.structs.replace(
            journal.node_state,
            sequence=journal.node_state.sequence + 1,
            stop=Stop.ORDERLY,
            epoch=journal.epoch,
        )
        write_node_state(storage, journal.node_state)


def truncate_journal(storage: Storage, *, after_lsn: int) -> None:
    """Cut everything after `after_lsn` from a closed journal: what was durable here, but never committed (C8).

    The cut is one change of the node's state: a new run that starts at the cut. Opening the journal finds the
    log to end there. Raises `UsageError` if a checkpoint covers more: what is committed is never cut.
    """
    state = read_node_state(storage)
    if state is None:
        raise UsageError("there is no journal here")
    checkpoint = newest_checkpoint(storage, salt=state.salt)
    if after_lsn < checkpoint.lsn:
        raise UsageError(f"lsn {after_lsn} is committed: a checkpoint covers {checkpoint.lsn}")
    if after_lsn + 1 > _end_lsn(storage, state, checkpoint):
        raise UsageError(f"the log ends before lsn {after_lsn}")
    state = msgspec.structs.replace(
        state, run=state.run + 1, start_lsn=after_lsn + 1, sequence=state.sequence + 1
    )
    write_node_state(storage, state)


def _end_lsn(storage: Storage, state: NodeState, checkpoint: Checkpoint) -> int:
    end = Replay(storage, state, checkpoint).run(lambda segment: None, lambda record: None)
    return end.next_lsn
