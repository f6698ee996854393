"""What a journal must contain, by the simplest means: a list of everything that was ever appended to it.

The model keeps every record by its lsn and what the client was told. After a recovery that ended at some lsn it
says what must be held, computed from the list alone, and compares.
"""

from __future__ import annotations

from struct import Struct

import msgspec

from holdfast.errors import JournalCorrupt
from holdfast.journal.format import FLAG_HELD, FLAG_MOVED, Kind, Record, Section
from holdfast.journal.journal import Journal
from holdfast.journal.lookup import read_held
from holdfast.journal.storage import Storage

_RANGE = Struct("<QQ")


class ModelRecord(msgspec.Struct, frozen=True):
    section: int
    kind: int
    flags: int
    payload: bytes


class Broken(AssertionError):
    """A promise of the journal was broken."""


def require(condition: bool, promise: str) -> None:
    if not condition:
        raise Broken(promise)


class JournalModel:
    """The records of the log as it stands, and what was confirmed of it."""

    def __init__(self) -> None:
        self.records: dict[int, ModelRecord] = {}
        self.confirmed_lsn = 0
        self.attested_lsn = 0
        self.runs: list[int] = []

    def absorb(self, journal: Journal) -> None:
        """Learn what was appended since the last look, and what is durable now."""
        next_lsn = len(self.records) + 1
        for record in journal.unapplied:
            if record.lsn >= next_lsn:
                self._add(record)
        self.attested_lsn = max(self.attested_lsn, journal.attested_lsn)

    def _add(self, record: Record) -> None:
        require(record.lsn == len(self.records) + 1, f"lsn {record.lsn} follows {len(self.records)}")
        self.records[record.lsn] = ModelRecord(
            record.section, record.kind, record.flags, bytes(record.payload)
        )

    def confirm(self, lsn: int) -> None:
        self.confirmed_lsn = max(self.confirmed_lsn, lsn)

    def cut_after(self, lsn: int) -> None:
        """The log ends here now: forget what came after."""
        for later in range(lsn + 1, len(self.records) + 1):
            del self.records[later]
        self.confirmed_lsn = min(self.confirmed_lsn, lsn)
        self.attested_lsn = min(self.attested_lsn, lsn)

    def held(self) -> list[tuple[int, int]]:
        """Section and lsn of all that must be held, in the order of replay."""
        held: dict[int, int] = {}
        for lsn, record in self.records.items():
            if record.kind == Kind.CONFIRM:
                for first, last in _RANGE.iter_unpack(record.payload):
                    for confirmed in range(first, last + 1):
                        require(held.pop(confirmed, None) is not None, f"lsn {confirmed} was confirmed twice")
            elif record.flags & FLAG_HELD and not record.flags & FLAG_MOVED:
                held[lsn] = record.section
        return sorted((section, lsn) for lsn, section in held.items())

    # -- judging a recovery ------------------------------------------------------------------------------

    def check_recovered(self, journal: Journal, *, was_damaged: bool) -> None:
        """The journal was just opened, and everything in it is committed."""
        last_lsn = journal.next_lsn - 1
        required_lsn = self.attested_lsn if was_damaged else self.confirmed_lsn
        require(last_lsn >= required_lsn, f"lsn {required_lsn} was confirmed, the log ends at {last_lsn}")
        require(
            last_lsn <= len(self.records),
            f"the log ends at {last_lsn}, only {len(self.records)} were appended",
        )
        self.cut_after(last_lsn)
        require(not self.runs or journal.run > self.runs[-1], f"start {journal.run} was there before")
        self.runs.append(journal.run)
        # What was recovered counts from now on: it may be delivered, and a sender may be told of it.
        self.confirm(last_lsn)
        found = [(int(section), lsn) for section, lsn in journal.replay_order()]
        require(found == self.held(), f"held are {found}, not {self.held()}")
        journal.check_invariants()

    def check_payloads(self, journal: Journal, storage: Storage, *, was_damaged: bool) -> int:
        """Every held record reads back as it was appended. How many could not be read, and were reported."""
        unreadable = 0
        for _, lsn in self.held():
            try:
                record = read_held(journal, storage, lsn)
            except JournalCorrupt:
                require(was_damaged, f"lsn {lsn} cannot be read")
                unreadable += 1
                continue
            require(record.payload == self.records[lsn].payload, f"lsn {lsn} has another payload")
            require(record.section == self.records[lsn].section, f"lsn {lsn} has another section")
        return unreadable

    def check_read(self, record: Record) -> None:
        """A record that a reader gave is the one that was appended."""
        require(record.lsn in self.records, f"a reader gave lsn {record.lsn}, which was never appended")
        require(
            bytes(record.payload) == self.records[record.lsn].payload,
            f"a reader gave another payload for lsn {record.lsn}",
        )

    def count_boot_events(self, token: bytes) -> int:
        return sum(
            1
            for record in self.records.values()
            if record.section == Section.BOOT
            and not record.flags & FLAG_MOVED
            and record.payload.endswith(token)
        )
