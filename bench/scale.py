"""How much and how long to measure."""

from __future__ import annotations

import msgspec

from holdfast.journal.config import JournalConfig

# All segments exist before the clock starts, as in a journal that has run for a while.
STEADY_JOURNAL = JournalConfig(segments_ahead=20, segments_max=24, reserve_acknowledgements=1000)


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """Rounds of all sides take turns, so that a disturbance meets them all."""

    rounds: int
    round_s: float
    light_records: int
    recovery_messages: int
    bodies: tuple[int, ...] = (256, 1024)
    batches: tuple[int, ...] = (1, 16, 256)
    waiting: tuple[int, ...] = (1, 16, 100, 1000)
    config: JournalConfig = STEADY_JOURNAL
    # The defaults: a million messages fit, each in a record of its own.
    recovery_config: JournalConfig = JournalConfig()

    @property
    def round_bytes_max(self) -> int:
        """What one round may append: free segments must last, for nothing is released before its end."""
        return (self.config.segments_ahead - 4) * self.config.segment_bytes


FULL = Scale(rounds=7, round_s=0.2, light_records=200, recovery_messages=1_000_000)
QUICK = Scale(rounds=3, round_s=0.03, light_records=50, recovery_messages=50_000)
