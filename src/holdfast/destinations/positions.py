"""Sets of positions: bitmaps in chunks, so that neither many holes nor long runs cost much.

A chunk of 4,096 positions is one integer, there only while something in it is set. A subscription that confirms in
order needs none; one that confirms every other message of a million needs 245 chunks of 512 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

CHUNK_POSITIONS = 4096
_FULL = (1 << CHUNK_POSITIONS) - 1


class PositionSet:
    """Positions, added in ranges of any order."""

    __slots__ = ("_chunks",)

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._chunks: dict[int, int] = {}
        for first, last in ranges:
            self.add(first, last)

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def __contains__(self, position: int) -> bool:
        chunk, bit = divmod(position, CHUNK_POSITIONS)
        return bool(self._chunks.get(chunk, 0) >> bit & 1)

    def add(self, first: int, last: int) -> None:
        for chunk, mask in _masks(first, last):
            self._chunks[chunk] = self._chunks.get(chunk, 0) | mask

    def remove(self, first: int, last: int) -> None:
        for chunk, mask in _masks(first, last):
            left = self._chunks.get(chunk, 0) & ~mask
            if left:
                self._chunks[chunk] = left
            else:
                self._chunks.pop(chunk, None)

    def covers(self, first: int, last: int) -> bool:
        """Whether every position of the range is in the set."""
        return all(self._chunks.get(chunk, 0) & mask == mask for chunk, mask in _masks(first, last))

    def first_missing(self, position: int) -> int:
        """The first position at or after this one that is not in the set."""
        chunk, bit = divmod(position, CHUNK_POSITIONS)
        while True:
            bits = self._chunks.get(chunk, 0) >> bit
            # The lowest zero bit: where adding one stops carrying.
            zero = (bits ^ (bits + 1)).bit_length() - 1
            if bit + zero < CHUNK_POSITIONS:
                return chunk * CHUNK_POSITIONS + bit + zero
            chunk, bit = chunk + 1, 0

    def first_present(self, position: int, last: int) -> int | None:
        """The first position from here to `last` that is in the set."""
        for chunk, mask in _masks(position, last):
            bits = self._chunks.get(chunk, 0) & mask
            if bits:
                return chunk * CHUNK_POSITIONS + (bits & -bits).bit_length() - 1
        return None

    def discard_below(self, position: int) -> None:
        """Forget everything before this position."""
        end, bit = divmod(position, CHUNK_POSITIONS)
        for chunk in [chunk for chunk in self._chunks if chunk < end]:
            del self._chunks[chunk]
        if end in self._chunks:
            self._chunks[end] = self._chunks[end] >> bit << bit
            if not self._chunks[end]:
                del self._chunks[end]

    def ranges(self) -> Iterator[tuple[int, int]]:
        """The set as runs of consecutive positions, in order."""
        if not self._chunks:
            return
        end = (max(self._chunks) + 1) * CHUNK_POSITIONS
        position = self.first_present(min(self._chunks) * CHUNK_POSITIONS, end)
        while position is not None:
            stop = self.first_missing(position)
            yield position, stop - 1
            position = self.first_present(stop, end)


def _masks(first: int, last: int) -> Iterator[tuple[int, int]]:
    """The chunks that a range touches, with the bits that it covers in each."""
    if last < first:
        return
    chunk, bit = divmod(first, CHUNK_POSITIONS)
    last_chunk, last_bit = divmod(last, CHUNK_POSITIONS)
    while chunk < last_chunk:
        yield chunk, _FULL >> bit << bit
        chunk, bit = chunk + 1, 0
    yield chunk, ((1 << (last_bit - bit + 1)) - 1) << bit
