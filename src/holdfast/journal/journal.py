"""The journal: everything that a message manager knows is a function of it.

It owns the log's end, what is held, free space and the reserve, and says what is durable and what is committed.
It does no input or output: it hands out `Work` and is told how that ended (`finish`, `abort`).

Invariants:
- `commit_lsn <= durable_lsn < next_lsn`; only committed records are applied, held, released or checkpointed;
- an lsn is durable only after the sync of the group that holds it has returned;
- after any failed write or sync nothing more becomes durable: the journal has failed, and must be recovered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from holdfast.errors import (
    HoldfastError,
    JournalCorrupt,
    JournalFailed,
    JournalFull,
    LimitExceeded,
    NotHeld,
    StorageError,
    UsageError,
)
from holdfast.journal.checkpoint import Checkpoint, SegmentEntry
from holdfast.journal.config import JournalConfig
from holdfast.journal.format import (
    FLAG_HELD,
    FLAG_MOVED,
    GROUP_HEADER_BYTES,
    LSN,
    Kind,
    Record,
    Section,
    offset_of,
    record_bytes,
)
from holdfast.journal.held import HeldRecords
from holdfast.journal.moving import Moving
from holdfast.journal.node_state import NodeState
from holdfast.journal.recovery import LogEnd
from holdfast.journal.segments import Pool, Segment, Segments
from holdfast.journal.space import Budget, Space
from holdfast.journal.storage import Buffer
from holdfast.journal.tail import Tail
from holdfast.journal.work import Allocation, CheckpointWrite, Flush, SegmentRead, Work

_SECTIONS = tuple(Section)  # by number: quicker than the call `Section(number)`


class State(Protocol):
    """What is built from the records: the same calls, in the same order, at run time and in recovery."""

    def restore(self, snapshot: Buffer) -> None:
        """Start from a checkpoint; empty bytes mean the very beginning."""

    def apply(self, record: Record) -> Sequence[int]:
        """Take in one committed record. The lsns of held records that it releases."""

    def snapshot(self) -> bytes:
        """Everything that `apply` has built so far."""


class Boundary(msgspec.Struct, frozen=True):
    """A place between groups: recovery could start reading here."""

    lsn: int
    generation: int
    offset: int
    run: int


class Journal:
    """One open journal. Made by `opening.open_journal`."""

    def __init__(
        self,
        config: JournalConfig,
        node_state: NodeState,
        state: State,
        *,
        epoch: int = 0,
        commits_when_durable: bool = True,
    ) -> None:
        self.config = config
        self.node_state = node_state
        self.state = state
        self.held = HeldRecords()
        self.segments = Segments()
        self.pool = Pool(config)
        self.space = Space(config)
        self.next_lsn = 1
        self.durable_lsn = 0
        self.commit_lsn = 0
        self.attested_lsn = 0
        self.boot_sequence = 0
        self.checkpoint_number = 0
        self.failure: HoldfastError | None = None
        self.checkpoint_problem = ""
        self._tail = Tail(config, salt=node_state.salt, run=node_state.run, epoch=epoch)
        # System events are held too; room for them is kept.
        self._held_messages_max = config.held_records_max - config.reserve_system_events
        self._free_wanted = config.reserve_segments + config.segments_ahead
        self._commits_when_durable = commits_when_durable
        self._unapplied: deque[Record] = deque()
        self._boundaries: deque[Boundary] = deque()
        self._scan = Boundary(0, 0, 0, 0)
        self._recovered_lsn: int | None = None
        self._damaged_names = ""
        self._is_recovering = False
        self._held_pending = 0
        self._bytes_since_checkpoint = 0
        self._is_checkpointing = False
        self._moving = Moving(self)

    # -- appending ---------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return self._tail.epoch

    @property
    def run(self) -> int:
        return self._tail.run

    @property
    def unapplied(self) -> Iterable[Record]:
        """What was appended and is not committed yet, oldest first."""
        return self._unapplied

    @property
    def is_busy(self) -> bool:
        """Whether a group or a checkpoint is being written."""
        return self._tail.is_writing or self._is_checkpointing

    def begin_epoch(self, epoch: int) -> None:
        """Stamp what is appended from now on. An epoch never goes back."""
        if epoch < self._tail.epoch:
            raise UsageError(f"epoch {epoch} is older than the journal's {self._tail.epoch}")
        self._tail.epoch = epoch

    def append(
        self,
        section: Section,
        kind: int,
        parts: Sequence[Buffer],
        *,
        is_held: bool = False,
        budget: Budget = Budget.MESSAGES,
    ) -> int:
        """Add a record to the group that is gathering. Its lsn: durable when `durable_lsn` has reached it.

        `parts` are kept until the record is committed, and must not change until then.
        Raises `JournalFull` (nothing was recorded), `LimitExceeded`, `JournalFailed`.
        """
        return self._append(section, kind, parts, FLAG_HELD if is_held else 0, budget)

    def _append(self, section: int, kind: int, parts: Sequence[Buffer], flags: int, budget: Budget) -> int:
        if self.failure is not None:
            raise JournalFailed(f"the journal has stopped: {self.failure}")
        payload_bytes = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        size = record_bytes(payload_bytes)
        tail = self._tail
        lsn = self.next_lsn
        if budget is Budget.MESSAGES and self._is_easy(payload_bytes, size):
            cost = size
            self.space.free_bytes -= size
        else:
            cost = self._make_room(payload_bytes, size, flags, budget)
        try:
            place = tail.put(lsn, section, kind, flags, parts, payload_bytes, size)
        except BaseException as error:
            # The group has a header's room or a segment too many: what came after it would be unreadable.
            self.failure = JournalFailed(f"a record was broken off while it was encoded: {error!r}")
            raise
        self.next_lsn = lsn + 1
        self._bytes_since_checkpoint += cost
        if flags == FLAG_HELD:
            self._held_pending += 1
        self._unapplied.append(Record(lsn, section, kind, flags, tail.epoch, place, tuple(parts)))
        return lsn

    def _is_easy(self, payload_bytes: int, size: int) -> bool:
        """Whether a message simply joins the group that gathers: what nearly all do, found out in one step."""
        space = self.space
        return (
            payload_bytes <= self.config.record_bytes_max
            and self._tail.has_group_room(size)
            and size <= space.free_bytes - space.reserved_bytes
            and self.held.count + self._held_pending < self._held_messages_max
        )

    def _make_room(self, payload_bytes: int, size: int, flags: int, budget: Budget) -> int:
        """Check every limit, take the space, go on in a fresh segment if need be. What it costs."""
        self._check_size(payload_bytes, flags, budget)
        cost, room = self._tail.cost_bytes(size), self._tail.room_bytes
        rolls = cost > room
        if rolls:
            cost = room + size + GROUP_HEADER_BYTES
        self._admit(cost, size, flags, budget)
        self.space.take(budget, cost)
        if rolls:
            self._roll(self.next_lsn)
        return cost

    def _check_size(self, payload_bytes: int, flags: int, budget: Budget) -> None:
        maximum = self.config.record_bytes_max
        name = "record_bytes_max"
        if flags & FLAG_MOVED:
            return  # It was within the limit of its time.
        if budget is Budget.ACKNOWLEDGEMENTS:
            maximum, name = self.config.acknowledgement_record_bytes_max, "acknowledgement_record_bytes_max"
        elif budget is Budget.SYSTEM_EVENTS:
            maximum, name = self.config.system_event_bytes_max, "system_event_bytes_max"
        if payload_bytes > maximum:
            raise LimitExceeded(name, value=payload_bytes, maximum=maximum)

    def _admit(self, cost: int, size: int, flags: int, budget: Budget) -> None:
        """Raise `JournalFull` if one of the accounts has no room for this record (E4)."""
        keep_bytes = self._keep_bytes(budget)
        if not self._tail.has_buffer_for(size + GROUP_HEADER_BYTES, keep_bytes=keep_bytes):
            raise JournalFull("memory", f"{self._tail.gathered_bytes} bytes wait to be written")
        if not self.space.admits(budget, cost):
            raise JournalFull("disk", f"{self.space.open_bytes} bytes are free outside the reserve")
        if flags == FLAG_HELD:
            held = self.held.count + self._held_pending
            is_message = budget is Budget.MESSAGES
            if held >= (self._held_messages_max if is_message else self.config.held_records_index_max):
                raise JournalFull("held records", f"{held} records are held")

    def _keep_bytes(self, budget: Budget) -> int:
        """Of the group buffer, what is kept from such a record for those that matter more."""
        if budget is Budget.MESSAGES:
            return self.config.group_reserve_bytes
        return 0 if budget is Budget.SYSTEM_EVENTS else self.config.system_event_keep_bytes

    def admits(self, payload_bytes: int) -> bool:
        """Whether a message of this size would be recorded now."""
        size = record_bytes(payload_bytes)
        cost, room = self._tail.cost_bytes(size), self._tail.room_bytes
        if cost > room:
            cost = room + size + GROUP_HEADER_BYTES
        try:
            self._admit(cost, size, FLAG_HELD, Budget.MESSAGES)
        except JournalFull:
            return False
        return self.failure is None

    def _roll(self, first_lsn: int) -> None:
        """Go on in a fresh segment."""
        name = self.pool.take()
        assert name is not None, "space was admitted that no free segment covers"
        generation = self.segments.active.generation + 1 if len(self.segments) else 1
        self.segments.add(Segment(name, generation, first_lsn))
        self._tail.enter(name, generation, 0)

    # -- making durable ----------------------------------------------------------------------------------

    def begin_flush(self) -> Flush | None:
        """The group gathered so far, to be written; None if there is none, or one is being written."""
        if self.failure is not None or self._tail.is_writing or self._tail.is_empty:
            return None
        end = self._tail.position
        buffer = self._tail.seal(durable_lsn=self.durable_lsn)
        return Flush(buffer, last_lsn=self.next_lsn - 1, attests_lsn=self.durable_lsn, end=end)

    def begin_attestation(self) -> Flush | None:
        """For an idle log: a marker that attests the last group, so that damage to it is told from a torn tail."""
        if self.failure is not None or self._tail.is_writing or not self._tail.is_empty:
            return None
        if self.attested_lsn >= self.durable_lsn:
            return None
        # Its budget is that of acknowledgements, each of which pays for the marker that may follow it.
        cost = min(self._tail.room_bytes, GROUP_HEADER_BYTES)
        return self.begin_marker() if self.space.admits(Budget.ACKNOWLEDGEMENTS, cost) else None

    def begin_marker(self) -> Flush | None:
        """A group without records. None if the segment has no room for it.

        The first of a run is never refused for lack of space: it alone keeps what was cut behind it dead once the
        next run has forgotten this one's `start_lsn`. The room of the active segment is free space, so it is there.
        """
        cost = min(self._tail.room_bytes, GROUP_HEADER_BYTES)
        if self._tail.is_writing or not self._tail.put_marker(next_lsn=self.next_lsn):
            return None
        self.space.take_from_any(cost)
        return self.begin_flush()

    def finish(self, work: Work) -> None:
        """The work is done: draw the conclusions."""
        if isinstance(work, Flush):
            self._finish_flush(work)
        elif isinstance(work, CheckpointWrite):
            self._finish_checkpoint(work.checkpoint)
        elif isinstance(work, Allocation):
            self._finish_allocation(work)
        elif isinstance(work, SegmentRead):
            try:
                self._moving.finish(work)
            except JournalCorrupt as error:
                self.failure = error
        else:
            raise UsageError(f"{type(work).__name__} is not work of this journal")

    def abort(self, work: Work, error: StorageError) -> None:
        """The work failed. Only an allocation may fail without stopping the journal."""
        if isinstance(work, Allocation):
            self.pool.is_allocating = False
            self.pool.is_refused = True
        elif self.failure is None:
            self.failure = error

    def _finish_flush(self, flush: Flush) -> None:
        self._tail.recycle(flush.buffer)
        if self.failure is not None:
            return
        self.durable_lsn = flush.last_lsn
        self.attested_lsn = max(self.attested_lsn, flush.attests_lsn)
        self._boundaries.append(Boundary(flush.last_lsn, *flush.end, self.run))
        if self._commits_when_durable:
            self.commit_to(flush.last_lsn)

    def commit_to(self, lsn: int) -> None:
        """Everything up to here is durable on enough nodes: apply it."""
        if lsn > self.durable_lsn:
            raise UsageError(f"lsn {lsn} cannot be committed: only {self.durable_lsn} is durable here")
        if self.failure is not None:
            raise JournalFailed(f"the journal has stopped: {self.failure}")
        unapplied = self._unapplied
        try:
            while unapplied and unapplied[0].lsn <= lsn:
                self._apply(unapplied.popleft())
        except BaseException as error:
            # Half applied: to go on would skip it, and a checkpoint would make that last.
            self.failure = JournalFailed(f"record {lsn} or one before it could not be applied: {error!r}")
            raise
        self.commit_lsn = max(self.commit_lsn, lsn)
        while self._boundaries and self._boundaries[0].lsn <= lsn:
            self._scan = self._boundaries.popleft()
        if self._recovered_lsn is not None and lsn >= self._recovered_lsn:
            self._recovered_lsn = None
            self._require_present()
        self._moving.committed(lsn)
        self.reclaim()

    def _require_present(self) -> None:
        """All that was committed before the crash is applied: nothing may be held in a segment that is gone."""
        for segment in self.segments.take_missing():
            if segment.live_records:
                self.failure = JournalCorrupt(
                    f"{segment.live_records} held records lie in a segment that is missing or damaged",
                    name=self._damaged_names or f"unknown, of generation {segment.generation}",
                    offset=0,
                    lsn=segment.base_lsn,
                )
                raise self.failure

    def _apply(self, record: Record) -> None:
        if record.flags & FLAG_MOVED:
            self._apply_move(record)
            return
        if record.flags & FLAG_HELD:
            size, place = record_bytes(record.payload_bytes), record.place
            self.held.add(_SECTIONS[record.section], record.lsn, place, size)
            self.segments.hold(place, size)
            self._held_pending -= 1
        if record.kind == Kind.BOOT_EVENT:
            (self.boot_sequence,) = LSN.unpack_from(record.payload)
        for lsn in self.state.apply(record):
            released = self.held.release(lsn)
            # To let go of what is gone already changes nothing: were it an error, the log would be lost to it.
            if released is not None:
                self.segments.release(*released)

    def _apply_move(self, record: Record) -> None:
        (origin_lsn,) = LSN.unpack_from(record.payload)
        size = record_bytes(record.payload_bytes)
        old = self.held.move(origin_lsn, place=record.place, size=size)
        if old is not None:
            self.segments.hold(record.place, size)
            self.segments.release(*old)

    # -- checkpoints, reclaim, moving forward ------------------------------------------------------------

    @property
    def needs_segments(self) -> bool:
        """Whether less space is free than should be ahead of need."""
        return self.pool.free_count < self._free_wanted

    def wants_checkpoint(self) -> bool:
        if self._is_checkpointing or self.failure is not None:
            return False
        if self._bytes_since_checkpoint >= self.config.checkpoint_interval_bytes:
            return True
        if not self.needs_segments:
            return False
        return self.segments.waiting_for_checkpoint(before_generation=self._scan.generation) > 0

    def begin_checkpoint(self) -> CheckpointWrite | None:
        """The state as of `commit_lsn`, to be written.

        None while one is being written, and if the state is too large for its slot: `checkpoint_problem` says so.
        """
        if self._is_checkpointing or self.failure is not None:
            return None
        state = self.state.snapshot()
        self._bytes_since_checkpoint = 0
        if len(state) > self.config.state_bytes_max:
            # Nothing is lost: the log is kept and read again at the next start. But no segment is freed either.
            self.checkpoint_problem = (
                f"the state takes {len(state):,} bytes, state_bytes_max allows {self.config.state_bytes_max:,}: no "
                f"checkpoint can be taken, and no space is freed, until some of it is confirmed or the limit is raised"
            )
            return None
        self.checkpoint_problem = ""
        checkpoint = Checkpoint(
            number=self.checkpoint_number + 1,
            lsn=self.commit_lsn,
            scan_generation=self._scan.generation,
            scan_offset=self._scan.offset,
            scan_lsn=self._scan.lsn + 1,
            run=self._scan.run,
            epoch=self.epoch,
            boot_sequence=self.boot_sequence,
            segment_files=self.pool.total_count,
            segments=tuple(self._committed_segments()),
            held=tuple(self.held.snapshot()),
            state=state,
        )
        self._is_checkpointing = True
        return CheckpointWrite(checkpoint, salt=self.node_state.salt)

    def _committed_segments(self) -> Iterator[SegmentEntry]:
        """Later ones may be entered already, but whether they are ever part of the log is not certain yet."""
        for segment in self.segments:
            if segment.generation <= self._scan.generation or segment.base_lsn <= self.commit_lsn:
                yield SegmentEntry(
                    segment.generation, segment.base_lsn, segment.live_bytes, segment.live_records
                )

    def _finish_checkpoint(self, checkpoint: Checkpoint) -> None:
        self._is_checkpointing = False
        self.checkpoint_number = checkpoint.number
        self.segments.checkpoint_generation = checkpoint.scan_generation
        self.attested_lsn = max(self.attested_lsn, checkpoint.lsn)
        self.reclaim()

    def reclaim(self) -> None:
        """Put segments that hold nothing any more back into the pool."""
        if self._is_recovering:
            return
        for segment in self.segments.take_reclaimable():
            self.pool.put(segment.name)
            self.space.give_back(self.config.usable_bytes)

    def begin_allocation(self) -> Allocation | None:
        """One more segment, if the pool runs low and neither quota nor disk has refused."""
        if self.failure is not None or not self.pool.wants_segment():
            return None
        self.pool.is_allocating = True
        return Allocation(
            self.pool.next_name(), segment_bytes=self.config.segment_bytes, salt=self.node_state.salt
        )

    def _finish_allocation(self, allocation: Allocation) -> None:
        self.pool.is_allocating = False
        self.pool.put(allocation.name)
        self.space.give_back(self.config.usable_bytes)

    def retry_allocation(self) -> None:
        """The disk may have room again: try once more at the next occasion."""
        self.pool.is_refused = False

    def begin_move(self) -> SegmentRead | None:
        """A mostly dead segment, to be read, if space is short and the pool cannot grow (decision 8)."""
        if self.failure is not None or not self.needs_segments or self.pool.wants_segment():
            return None
        if self.segments.waiting_for_checkpoint(before_generation=self._scan.generation):
            return None
        return self._moving.begin(before_generation=self._scan.generation)

    def append_moved(self, record: Record) -> int:
        """Append a held record again, at the end of the log; it keeps its name. Raises `JournalFull`."""
        parts = list(record.parts)
        if not record.flags & FLAG_MOVED:
            parts.insert(0, LSN.pack(record.lsn))
        return self._append(record.section, record.kind, parts, FLAG_HELD | FLAG_MOVED, Budget.MOVES)

    # -- recovery, called by `opening` -------------------------------------------------------------------

    def begin_recovery(
        self, checkpoint: Checkpoint, present: Mapping[int, str], *, damaged: Sequence[str] = ()
    ) -> None:
        """Start from a checkpoint. `present` names the segments that are on the disk, by generation.

        A segment of the checkpoint that is no longer there was reused since: what it held has been released by
        records that follow. `end_recovery` finds out whether that is so.
        """
        self._is_recovering = True
        self._damaged_names = ", ".join(damaged)
        self.checkpoint_number = checkpoint.number
        self.boot_sequence = checkpoint.boot_sequence
        self.next_lsn = checkpoint.lsn + 1
        self.durable_lsn = self.commit_lsn = checkpoint.lsn
        self._tail.epoch = max(self._tail.epoch, checkpoint.epoch)
        scan = checkpoint
        self._scan = Boundary(scan.scan_lsn - 1, scan.scan_generation, scan.scan_offset, scan.run)
        self.segments.checkpoint_generation = checkpoint.scan_generation
        self.held.restore(memoryview(b"".join(checkpoint.held)))
        self.state.restore(checkpoint.state)
        for entry in checkpoint.segments:
            self.segments.add(
                Segment(
                    present.get(entry.generation, ""),
                    entry.generation,
                    entry.base_lsn,
                    entry.live_records,
                    entry.live_bytes,
                )
            )

    def recover_segment(self, segment: Segment) -> None:
        """Recovery reads on in this segment."""
        if self.segments.get(segment.generation) is None:
            self.segments.add(segment)

    def recover_record(self, record: Record) -> None:
        """A record that was appended after the checkpoint."""
        if record.flags == FLAG_HELD:
            self._held_pending += 1
        self._tail.epoch = max(self._tail.epoch, record.epoch)
        self._unapplied.append(record)
        self.next_lsn = record.lsn + 1
        self._bytes_since_checkpoint += record_bytes(record.payload_bytes)
        if self._commits_when_durable:
            # As `commit_to`, but what needs the whole log (reclaim, missing segments) waits for `end_recovery`.
            self._apply(self._unapplied.popleft())
            self.durable_lsn = self.commit_lsn = record.lsn

    def end_recovery(self, end: LogEnd) -> None:
        """The log goes on here."""
        self.next_lsn = end.next_lsn
        self.durable_lsn = end.next_lsn - 1
        self._recovered_lsn = self.durable_lsn
        if end.name:
            self._tail.enter(end.name, end.generation, end.offset)
            self._boundaries.append(Boundary(self.durable_lsn, end.generation, end.offset, end.newest_run))
        if self._commits_when_durable:
            self.commit_to(self.durable_lsn)

    def add_free_segments(self, names: Iterable[str]) -> None:
        """Put what recovery found unused into the pool, and open the accounts."""
        for name in names:
            self.pool.put(name)
        for segment in self.segments:
            if segment.name:
                self.pool.know(segment.name)
        free_bytes = self._tail.room_bytes + self.pool.free_count * self.config.usable_bytes
        self.space.give_back(free_bytes)
        self._is_recovering = False
        self.reclaim()

    def open_first_segment(self) -> None:
        """A journal in which nothing was ever written starts its first segment."""
        self._roll(self.next_lsn)

    # -- finding records ---------------------------------------------------------------------------------

    def locate(self, lsn: int) -> tuple[Segment, int, int]:
        """Segment, offset and size of a held record. Raises `NotHeld`."""
        found = self.held.find(lsn)
        if found is None:
            raise NotHeld(f"no record with lsn {lsn} is held")
        _, place, size = found
        segment = self.segments.get(place >> 32)
        assert segment is not None, "a held record lies in a segment in use"
        return segment, offset_of(place), size

    def replay_order(self) -> Iterator[tuple[Section, int]]:
        """Section and lsn of all that is held, as it must be presented again after a crash (E10)."""
        for section, lsn, _, _ in self.held.entries():
            yield section, lsn

    def check_invariants(self) -> None:
        assert self.commit_lsn <= self.durable_lsn < self.next_lsn
        self.space.check_invariants()
        free = self._tail.room_bytes + self.pool.free_count * self.config.usable_bytes
        assert self.space.free_bytes == free, f"{free} bytes are free, {self.space.free_bytes} are accounted"
        live: dict[int, list[int]] = {}
        for _, _, place, size in self.held.entries():
            live.setdefault(place >> 32, []).append(size)
        for segment in self.segments:
            sizes = live.pop(segment.generation, [])
            assert (segment.live_records, segment.live_bytes) == (len(sizes), sum(sizes))
        assert not live, "records are held in segments that are not in use"
