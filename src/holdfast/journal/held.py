"""Which records are held: appended, committed, and not yet released (E6).

Each section is a FIFO: records join at the tail, may be released in any order, and the head moves on past what
is released. Three packed arrays, ordered by lsn, hold a section: 20 bytes for a record, no Python object for
one. A record keeps the lsn that it had at first when it is moved forward; only its place changes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from itertools import compress
from struct import Struct

from holdfast.journal.format import Section, generation_of, offset_of

_COUNT = Struct("<Q")
# Released records stay in the arrays until they outnumber this, and the held ones.
COMPACT_RECORDS_MIN = 1024


class _SectionRecords:
    """The held records of one section. A size of 0 marks a released one."""

    __slots__ = ("count", "head", "lsns", "places", "sizes")

    def __init__(self) -> None:
        self.lsns = array("Q")
        self.places = array("Q")
        self.sizes = array("I")
        self.head = 0
        self.count = 0

    def find(self, lsn: int) -> int:
        index = bisect_left(self.lsns, lsn, self.head)
        if index < len(self.lsns) and self.lsns[index] == lsn and self.sizes[index]:
            return index
        return -1

    def advance_head(self) -> None:
        sizes, head, end = self.sizes, self.head, len(self.sizes)
        while head < end and not sizes[head]:
            head += 1
        self.head = head
        if len(sizes) - self.count > max(COMPACT_RECORDS_MIN, self.count):
            self.compact()

    def compact(self) -> None:
        if len(self.sizes) == self.count:
            return
        del self.lsns[: self.head], self.places[: self.head], self.sizes[: self.head]
        self.head = 0
        if len(self.sizes) != self.count:
            self.lsns = array("Q", compress(self.lsns, self.sizes))
            self.places = array("Q", compress(self.places, self.sizes))
            self.sizes = array("I", filter(None, self.sizes))


class HeldRecords:
    """The held records of all sections."""

    def __init__(self) -> None:
        self._sections = {section: _SectionRecords() for section in Section}
        self.count = 0

    def add(self, section: Section, lsn: int, place: int, size: int) -> None:
        records = self._sections[section]
        assert size > 0, "a record has a size"
        assert not records.lsns or lsn > records.lsns[-1], "records are held in the order of their lsn"
        records.lsns.append(lsn)
        records.places.append(place)
        records.sizes.append(size)
        records.count += 1
        self.count += 1

    def find(self, lsn: int) -> tuple[Section, int, int] | None:
        """Section, place and size of a held record."""
        for section, records in self._sections.items():
            index = records.find(lsn)
            if index >= 0:
                return section, records.places[index], records.sizes[index]
        return None

    def move(self, lsn: int, *, place: int, size: int) -> tuple[int, int] | None:
        """The record is at a new place now. Its old place and size; None if it is no longer held."""
        for records in self._sections.values():
            index = records.find(lsn)
            if index >= 0:
                old = records.places[index], records.sizes[index]
                records.places[index] = place
                records.sizes[index] = size
                return old
        return None

    def release(self, lsn: int) -> tuple[int, int] | None:
        """Let go of a record. Its place and size; None if it is not held."""
        for records in self._sections.values():
            index = records.find(lsn)
            if index >= 0:
                released = records.places[index], records.sizes[index]
                records.sizes[index] = 0
                records.count -= 1
                self.count -= 1
                if index == records.head or len(records.sizes) > 2 * records.count + COMPACT_RECORDS_MIN:
                    records.advance_head()
                return released
        return None

    def section_count(self, section: Section) -> int:
        return self._sections[section].count

    def head_lsn(self, section: Section) -> int | None:
        """The oldest held record of a section."""
        records = self._sections[section]
        return records.lsns[records.head] if records.count else None

    def tail_lsn(self, section: Section) -> int | None:
        """The newest held record of a section."""
        records = self._sections[section]
        if not records.count:
            return None
        index = len(records.sizes) - 1
        while not records.sizes[index]:
            index -= 1
        return records.lsns[index]

    def lsns(self, section: Section) -> Iterator[int]:
        """The held lsns of a section, oldest first. Changes while it runs are not seen."""
        records = self._sections[section]
        return compress(records.lsns[records.head :], records.sizes[records.head :])

    def entries(self) -> Iterator[tuple[Section, int, int, int]]:
        """Section, lsn, place and size of every held record, in the order of replay (E10)."""
        for section, records in self._sections.items():
            head = records.head
            for lsn, place, size in zip(
                records.lsns[head:], records.places[head:], records.sizes[head:], strict=True
            ):
                if size:
                    yield section, lsn, place, size

    def offsets_in(self, generation: int) -> list[tuple[int, int]]:
        """Lsn and offset of the held records in one segment, in the order of their places."""
        found = [(place, lsn) for _, lsn, place, _ in self.entries() if generation_of(place) == generation]
        return [(lsn, offset_of(place)) for place, lsn in sorted(found)]

    def snapshot(self) -> list[bytes]:
        """The whole index as a few blocks of bytes, for a checkpoint."""
        blocks = []
        for records in self._sections.values():
            records.compact()
            blocks.append(_COUNT.pack(records.count))
            blocks.append(records.lsns.tobytes())
            blocks.append(records.places.tobytes())
            blocks.append(records.sizes.tobytes())
        return blocks

    def restore(self, data: memoryview) -> None:
        """Take over what `snapshot` gave. Raises ValueError if these bytes are not that."""
        at = 0
        self.count = 0
        for records in self._sections.values():
            if at + _COUNT.size > len(data):
                raise ValueError("the index of held records ends early")
            (count,) = _COUNT.unpack_from(data, at)
            at += _COUNT.size
            for name, code in (("lsns", "Q"), ("places", "Q"), ("sizes", "I")):
                column = array(code)
                column_bytes = count * column.itemsize
                if at + column_bytes > len(data):
                    raise ValueError("the index of held records ends early")
                column.frombytes(data[at : at + column_bytes])
                setattr(records, name, column)
                at += column_bytes
            records.head = 0
            records.count = count
            self.count += count
        if at != len(data):
            raise ValueError("bytes are left over after the index of held records")
