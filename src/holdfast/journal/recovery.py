"""Recovery: from what is on the disk to the end of the log, one record after another.

Reading starts where the newest good checkpoint says, goes on from segment to segment, and ends at the first
place that is not the next record. There it is decided whether the tail is torn (it is cut, nothing that was
confirmed is lost) or damaged (`JournalCorrupt`, and nothing is changed): see `scan`.

Before anything is believed it is settled: a killed process leaves writes that can be read but were never synced,
and to confirm or deliver these would be a lie that the next power loss finds out.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.errors import JournalCorrupt, JournalMismatch
from holdfast.journal.checkpoint import CHECKPOINT_NAMES, Checkpoint, read_checkpoint
from holdfast.journal.format import SEGMENT_HEADER_BYTES, Record, SegmentHeader
from holdfast.journal.node_state import NodeState
from holdfast.journal.scan import (
    Catalogue,
    Lineage,
    SegmentImage,
    Walk,
    attested_after,
    load_segment,
    witnesses,
)
from holdfast.journal.segments import Segment, segment_name
from holdfast.journal.storage import Storage


class LogEnd(msgspec.Struct, frozen=True):
    """Where the log goes on. `name` is empty if not even its first segment was written."""

    name: str
    generation: int
    offset: int
    next_lsn: int
    newest_run: int
    is_torn: bool


def newest_checkpoint(storage: Storage, *, salt: int) -> Checkpoint:
    """The newest whole checkpoint. Raises `JournalCorrupt` if there is none."""
    present = [name for name in CHECKPOINT_NAMES if name in storage.names()]
    for name in present:
        storage.settle(name)
    found = [read_checkpoint(storage, name, salt=salt) for name in present]
    whole = [checkpoint for checkpoint in found if checkpoint is not None]
    if not whole:
        raise JournalCorrupt("no slot holds a whole checkpoint", name=CHECKPOINT_NAMES[0], offset=0, lsn=0)
    return max(whole, key=lambda checkpoint: checkpoint.number)


class Replay:
    """One recovery of the log. Call `run` once."""

    def __init__(self, storage: Storage, node_state: NodeState, checkpoint: Checkpoint) -> None:
        self._storage = storage
        self._salt = node_state.salt
        self._node_state = node_state
        self._lineage = Lineage(node_state.run, node_state.start_lsn)
        self._checkpoint = checkpoint
        self.catalogue = Catalogue.read(
            storage,
            salt=node_state.salt,
            segment_bytes=node_state.segment_bytes,
            settle_from=checkpoint.scan_generation,
        )
        self._require_all_files()

    def _require_all_files(self) -> None:
        """Segments are numbered without a gap and never removed: one that is not there was lost."""
        names = {name for name, _ in self.catalogue.by_generation.values()}
        names.update(self.catalogue.unused, self.catalogue.damaged)
        for number in range(max(len(names), self._checkpoint.segment_files)):
            if segment_name(number) not in names:
                raise JournalCorrupt("a segment is missing", name=segment_name(number), offset=0, lsn=0)

    def run(self, visit: Callable[[Segment], None], apply: Callable[[Record], None]) -> LogEnd:
        """Give every segment from the checkpoint on to `visit`, and every later record to `apply`."""
        checkpoint = self._checkpoint
        entry = self.catalogue.by_generation.get(checkpoint.scan_generation)
        if entry is None:
            if checkpoint.number == 0 and not self._was_used():
                return LogEnd("", 0, 0, checkpoint.scan_lsn, checkpoint.run, is_torn=False)
            raise JournalCorrupt(
                f"the segment of generation {checkpoint.scan_generation}, where recovery starts, is missing or "
                f"damaged; files with a damaged header: {self._damaged_names()}",
                name=self._damaged_names(),
                offset=0,
                lsn=checkpoint.scan_lsn,
            )
        offset, next_lsn, newest_run = checkpoint.scan_offset, checkpoint.scan_lsn, checkpoint.run
        while True:
            name, header = entry
            visit(Segment(name, header.generation, header.base_lsn))
            image = load_segment(self._storage, name, header, salt=self._salt)
            walk = Walk(image, self._lineage, offset=offset, next_lsn=next_lsn, newest_run=newest_run)
            for _, records in walk.groups():
                for record in records:
                    if record.lsn > checkpoint.lsn:
                        apply(record)
            following = self._following(walk)
            if following is None:
                return self._end(walk)
            entry = following
            offset, next_lsn, newest_run = SEGMENT_HEADER_BYTES, walk.next_lsn, walk.newest_run

    def _following(self, walk: Walk) -> tuple[str, SegmentHeader] | None:
        """The segment in which the log goes on."""
        entry = self.catalogue.by_generation.get(walk.image.header.generation + 1)
        if entry is None or entry[1].base_lsn != walk.next_lsn:
            return None
        if self._lineage.is_dead_segment(entry[1], newest_run=walk.newest_run):
            return None
        return entry

    def _end(self, walk: Walk) -> LogEnd:
        if walk.newest_run > self._node_state.run:
            raise JournalMismatch(
                f"the log was written by start {walk.newest_run} of this node, but its node-state knows only "
                f"{self._node_state.run}: one of them comes from an older copy. Restore both from one copy."
            )
        attested_lsn = max(self._checkpoint.lsn, walk.attested_lsn, self._attested_beyond(walk))
        name, header = walk.image.name, walk.image.header
        if attested_lsn >= walk.next_lsn:
            raise JournalCorrupt(
                f"the record is damaged or missing, though lsn {attested_lsn} is attested to have been durable",
                name=name,
                offset=walk.offset,
                lsn=walk.next_lsn,
            )
        is_torn = walk.is_torn or self._has_live_group_after(walk)
        return LogEnd(name, header.generation, walk.offset, walk.next_lsn, walk.newest_run, is_torn)

    def _attested_beyond(self, walk: Walk) -> int:
        """What is attested after the place where the log ends, in this segment and in later ones."""
        run = walk.newest_run
        attested = attested_after(walk.image, walk.offset, self._lineage, newest_run=run)
        for generation, (name, header) in self.catalogue.by_generation.items():
            if generation <= walk.image.header.generation:
                continue
            if self._lineage.is_dead_segment(header, newest_run=run):
                continue
            image = load_segment(self._storage, name, header, salt=self._salt)
            later = attested_after(image, SEGMENT_HEADER_BYTES, self._lineage, newest_run=run)
            attested = max(attested, header.durable_lsn, later)
        self._require_no_lost_successor(walk)
        return attested

    def _require_no_lost_successor(self, walk: Walk) -> None:
        """A segment header lies in one sector, so no crash tears it: groups behind a bad one were durable."""
        generation = walk.image.header.generation + 1
        for name in self.catalogue.damaged:
            for group in witnesses(self._damaged_image(name, generation), 0):
                if not self._lineage.is_dead_group(group, newest_run=walk.newest_run):
                    raise JournalCorrupt(
                        f"the header of a segment is damaged; it holds the records from lsn {group.first_lsn} on",
                        name=name,
                        offset=0,
                        lsn=walk.next_lsn,
                    )

    def _damaged_image(self, name: str, generation: int) -> SegmentImage:
        size = self._storage.size(name)
        header = SegmentHeader(size, generation, base_lsn=0, run=0, durable_lsn=0)
        return SegmentImage(name, header, memoryview(self._storage.read(name, 0, size)), self._salt)

    def _was_used(self) -> bool:
        """Whether anything was ever written to this log, though its first segment is not there."""
        images = (self._damaged_image(name, 1) for name in self.catalogue.damaged)
        return bool(self.catalogue.by_generation) or any(
            group.record_count for image in images for group in witnesses(image, 0)
        )

    def _has_live_group_after(self, walk: Walk) -> bool:
        return any(
            not self._lineage.is_dead_group(group, newest_run=walk.newest_run)
            for group in witnesses(walk.image, walk.offset)
        )

    def _damaged_names(self) -> str:
        return ", ".join(self.catalogue.damaged) or "none"
