"""One file as the kernel and the disk see it.

A file has two images: `cached`, which reads see (the page cache), and `durable`, which is on the disk.
A write goes to `cached` and is remembered as pending: the whole sectors that it touched, as they stood after
it. A sync copies what is pending to `durable`. The kernel may write a dirty sector back whenever it likes,
and a sector is written whole; so after a power loss a sector holds its content of the last sync, or its
content after any one of the writes since, each sector for itself.

After a sync that failed, Linux takes the pages for clean: they can be read, are not durable, and no later
sync writes them. Those are the `lost` ranges.

Invariant: outside the pending and the lost ranges the two images are equal. So nothing here copies a whole
file but `copy`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random


@dataclass(slots=True)
class CachedFile:
    """One file of the simulated disk; its size never changes but by `truncate`."""

    sector_bytes: int
    allocated_bytes: int
    durable: bytearray
    cached: bytearray
    pending: list[tuple[int, bytes]] = field(default_factory=list)  # (offset, whole sectors), oldest first
    lost: list[tuple[int, int]] = field(default_factory=list)  # (offset, length)

    def copy(self) -> CachedFile:
        return CachedFile(
            self.sector_bytes,
            self.allocated_bytes,
            bytearray(self.durable),
            bytearray(self.cached),
            list(self.pending),
            list(self.lost),
        )

    def write(self, offset: int, view: memoryview) -> None:
        if len(view) == 0:
            return
        end = offset + len(view)
        self.cached[offset:end] = view
        first = offset - offset % self.sector_bytes
        last = end + -end % self.sector_bytes  # beyond the end of the file the slice is cut
        self.pending.append((first, bytes(memoryview(self.cached)[first:last])))

    def sync(self) -> None:
        for offset, content in self.pending:
            self.durable[offset : offset + len(content)] = content
        self.pending.clear()

    def sync_in_part(self, random: Random) -> None:
        """Some of what is pending reaches the disk, and the rest never will; `cached` keeps all of it."""
        if not self.pending:
            return
        # The last one can give all that the others give, but alone it would hardly ever do so.
        reach = random.choice(
            (
                self._reach_nothing,
                self._reach_all,
                self._reach_a_prefix,
                self._reach_some_writes,
                self._reach_some_sectors,
            )
        )
        reach(random)
        self.lost += [(offset, len(content)) for offset, content in self.pending]
        self.pending.clear()

    def drop_cache(self) -> None:
        self.lost += [(offset, len(content)) for offset, content in self.pending]
        self.pending.clear()
        for offset, length in self.lost:
            self.cached[offset : offset + length] = self.durable[offset : offset + length]
        self.lost.clear()

    def flip_bit(self, offset: int, bit: int) -> None:
        mask = 1 << bit
        self.cached[offset] ^= mask
        self.durable[offset] ^= mask
        for index, (start, content) in enumerate(self.pending):
            if start <= offset < start + len(content):
                flipped = bytearray(content)
                flipped[offset - start] ^= mask
                self.pending[index] = (start, bytes(flipped))

    def truncate(self, size_bytes: int) -> None:
        del self.cached[size_bytes:]
        del self.durable[size_bytes:]
        self.pending = [
            (offset, content[: size_bytes - offset])
            for offset, content in self.pending
            if offset < size_bytes
        ]
        self.lost = [
            (offset, min(length, size_bytes - offset)) for offset, length in self.lost if offset < size_bytes
        ]

    def _reach_nothing(self, random: Random) -> None:
        pass

    def _reach_all(self, random: Random) -> None:
        for offset, content in self.pending:
            self.durable[offset : offset + len(content)] = content

    def _reach_a_prefix(self, random: Random) -> None:
        """The disk worked in order and was stopped in the middle of one write."""
        stopped_at = random.randrange(len(self.pending))
        for offset, content in self.pending[:stopped_at]:
            self.durable[offset : offset + len(content)] = content
        offset, content = self.pending[stopped_at]
        sector_count = -(-len(content) // self.sector_bytes)
        torn = content[: random.randint(0, sector_count) * self.sector_bytes]
        self.durable[offset : offset + len(torn)] = torn

    def _reach_some_writes(self, random: Random) -> None:
        """The disk took whole writes, a later one perhaps without the earlier."""
        chance = random.random()
        for offset, content in self.pending:
            if random.random() < chance:
                self.durable[offset : offset + len(content)] = content

    def _reach_some_sectors(self, random: Random) -> None:
        """The disk worked in any order: each sector for itself, from none of its writes to all."""
        versions: dict[int, list[bytes]] = {}
        for offset, content in self.pending:
            for start in range(0, len(content), self.sector_bytes):
                versions.setdefault(offset + start, []).append(content[start : start + self.sector_bytes])
        chance = random.random()
        for offset, contents in versions.items():
            if random.random() < chance:
                content = random.choice(contents)
                self.durable[offset : offset + len(content)] = content
