"""A disk that acknowledges a sync and does nothing: proofs of durability must fail over it."""

from __future__ import annotations

from holdfast.simulation.storage import FaultyStorage


class LyingStorage(FaultyStorage):
    """As some disks do whose write cache has no battery."""

    def sync(self, name: str) -> None:
        self.size(name)  # it does notice a missing file
