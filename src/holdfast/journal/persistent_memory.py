"""Persistent memory: a FIFO of records in named sections, kept until they are confirmed (E6).

The plainest state over a journal: a record is held from `record` until `confirm`, and what is held after a crash
is exactly what had been confirmed to its producer, and not yet by its recipient. The node's own events live here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct

from holdfast.errors import JournalFull, NotHeld
from holdfast.journal.boot import BootSection
from holdfast.journal.exhaustion import Exhaustion, Flow
from holdfast.journal.format import FLAG_MOVED, LSN, ORIGIN_LSN_BYTES, Kind, Record, Section
from holdfast.journal.journal import Journal
from holdfast.journal.space import Budget
from holdfast.journal.storage import Buffer
from holdfast.message import Message, encode

_RANGE = Struct("<QQ")


class Confirmations:
    """The state: none of its own. What is held is in the journal's index; a confirmation releases it."""

    def __init__(self) -> None:
        self.awaited: set[int] = set()

    def restore(self, snapshot: Buffer) -> None:
        self.awaited = set()

    def apply(self, record: Record) -> Sequence[int]:
        if record.kind != Kind.CONFIRM:
            return ()
        lsns = confirmed_lsns(record)
        self.awaited.difference_update(lsns)
        return lsns

    def snapshot(self) -> bytes:
        return b""


class PersistentMemory:
    """Records, confirms and replays. Durable is what `journal.durable_lsn` has reached, as ever."""

    def __init__(self, journal: Journal, confirmations: Confirmations) -> None:
        self.journal = journal
        self._confirmations = confirmations
        self.exhaustion = Exhaustion(journal)
        for record in journal.unapplied:
            if record.kind == Kind.CONFIRM:
                confirmations.awaited.update(confirmed_lsns(record))

    @property
    def is_paused(self) -> bool:
        """Producers should wait: messages find no room."""
        return self.exhaustion.flow is Flow.PAUSED

    def record(self, parts: Sequence[Buffer], *, time_us: int, section: Section = Section.MESSAGES) -> int:
        """Hold a message. Its lsn. Raises `JournalFull`, and records the event that says so (E4)."""
        try:
            return self.journal.append(section, Kind.MESSAGE, parts, is_held=True)
        except JournalFull as error:
            self.exhaustion.refused(error.reason)
            self._tell(time_us=time_us)
            raise

    def _tell(self, *, time_us: int) -> None:
        """Record the event that flow has changed, if that is still to be told and there is room for it."""
        event = self.exhaustion.untold_event(time_us=time_us)
        if event is None:
            return
        try:
            self.record_event(event)
        except JournalFull:
            # The buffer is full of what is being written just now: it is told at the next occasion.
            return
        self.exhaustion.told()

    def record_event(self, event: Message) -> int:
        """Hold an event of the system itself, out of the reserve if need be."""
        return self.journal.append(
            Section.MESSAGES,
            Kind.SYSTEM_EVENT,
            (encode([event]),),
            is_held=True,
            budget=Budget.SYSTEM_EVENTS,
        )

    def confirm(self, lsns: Sequence[int]) -> int:
        """The recipient has these: let them go. The lsn of the confirmation. Raises `NotHeld`."""
        awaited = self._confirmations.awaited
        distinct = sorted(set(lsns))
        for lsn in distinct:
            if lsn in awaited or self.journal.held.find(lsn) is None:
                raise NotHeld(f"no record with lsn {lsn} is held")
        payload = b"".join(_RANGE.pack(first, last) for first, last in ranges(distinct))
        lsn = self.journal.append(Section.MESSAGES, Kind.CONFIRM, (payload,), budget=Budget.ACKNOWLEDGEMENTS)
        awaited.update(distinct)
        return lsn

    def watch(self, *, time_us: int) -> None:
        """Call now and then: when space has returned, flow resumes by itself."""
        self.exhaustion.look()
        self._tell(time_us=time_us)

    def take_over_boot_events(self, boot: BootSection) -> int | None:
        """Append what was recorded while the node booted, before anything newer (E5).

        The lsn that must be committed before the boot section is cleared; None if there is nothing to clear.
        """
        copied_sequence, lsn = self.journal.boot_sequence, self.journal.commit_lsn
        for record in self.journal.unapplied:
            if record.kind == Kind.BOOT_EVENT and not record.flags & FLAG_MOVED:
                (copied_sequence,) = LSN.unpack_from(record.payload)
                lsn = record.lsn
        for sequence, payload in boot.entries:
            if sequence > copied_sequence:
                lsn = self.journal.append(
                    Section.BOOT,
                    Kind.BOOT_EVENT,
                    (LSN.pack(sequence), payload),
                    is_held=True,
                    budget=Budget.SYSTEM_EVENTS,
                )
        return lsn if boot.entries else None

    def replay(self) -> Iterator[int]:
        """Everything held, in the order in which a crash is made good (E10): boot events, then the rest."""
        for _, lsn in self.journal.replay_order():
            yield lsn


def boot_event(record: Record) -> Buffer:
    """The event in a record that came from the boot section, wherever that was moved to."""
    prefix_bytes = LSN.size + (ORIGIN_LSN_BYTES if record.flags & FLAG_MOVED else 0)
    return record.payload[prefix_bytes:]


def confirmed_lsns(record: Record) -> list[int]:
    """The lsns that a record of kind `CONFIRM` names."""
    return [lsn for first, last in _RANGE.iter_unpack(record.payload) for lsn in range(first, last + 1)]


def ranges(lsns: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Runs of consecutive numbers, as first and last."""
    first = last = None
    for lsn in lsns:
        if first is None or last is None:
            first = last = lsn
        elif lsn == last + 1:
            last = lsn
        else:
            yield first, last
            first = last = lsn
    if first is not None and last is not None:
        yield first, last
