"""The journal's limits, each with its name, its default and its reason; and what is reserved from them."""

from __future__ import annotations

import msgspec

from holdfast.errors import UsageError
from holdfast.journal.format import (
    GROUP_HEADER_BYTES,
    ORIGIN_LSN_BYTES,
    SEGMENT_HEADER_BYTES,
    record_bytes,
)

KIB = 1024
MIB = 1024 * KIB

# A segment is moved forward only when less than this share of it is live (decision 8): what is written
# to free it stays under a third of what is freed.
MOVE_LIVE_PERCENT_MAX = 25

# The worst case of one acknowledgement: alone in its group, with the marker that the idle log adds, one range.
ACKNOWLEDGEMENT_BYTES = record_bytes(16) + 2 * GROUP_HEADER_BYTES

# What one record on the budget of acknowledgements, or of system events, may take at the most.
_ACKNOWLEDGEMENT_RECORD_BYTES_MAX = 64 * KIB
_SYSTEM_EVENT_BYTES_MAX = 2 * KIB

# A boot event takes at the most this many times its room in the log: 16 bytes with its header there, 32 here.
BOOT_GROWTH = 2
BOOT_ENTRY_BYTES_MIN = 16

CHECKPOINT_HEADER_BYTES = 128
CHECKPOINT_SEGMENT_BYTES = 32
HELD_RECORD_BYTES = 20


class JournalConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of one journal. `segment_bytes` is fixed when the journal is made; the rest may change."""

    # Small enough to be freed soon, large enough that a roll is rare.
    segment_bytes: int = 16 * MIB
    # The quota: all segments together, free ones and the reserve included.
    segments_max: int = 256
    # Free segments outside the reserve that are kept ready ahead of need (E3).
    segments_ahead: int = 2
    # The largest record. Larger messages come in fragments.
    record_bytes_max: int = 4 * MIB
    # One group commit; two such buffers are allocated at start. Appends beyond it wait for the disk.
    group_bytes_max: int = 8 * MIB
    # Of the group buffer, what only acknowledgements, moves and system events may use.
    group_reserve_bytes: int = 256 * KIB
    # Records held at once: bounds the index in memory and the checkpoint on disk.
    held_records_max: int = 1_048_576
    # Acknowledgements that still fit when the disk is full.
    reserve_acknowledgements: int = 524_288
    # System events that still fit when the disk is full.
    reserve_system_events: int = 64
    # The snapshot of the state above the journal, in a checkpoint.
    state_bytes_max: int = 8 * MIB
    # A checkpoint is due after this much was recorded: bounds the time of recovery.
    checkpoint_interval_bytes: int = 64 * MIB
    # Events of the node itself while it boots (E5).
    boot_bytes: int = 64 * KIB

    def __post_init__(self) -> None:
        largest = record_bytes(self.record_bytes_max + ORIGIN_LSN_BYTES)
        _require(self.segment_bytes % 512 == 0, "segment_bytes must be a multiple of 512")
        _require(self.segment_bytes < 2**32, "segment_bytes must be below 4 GiB")
        _require(self.record_bytes_max >= KIB, "record_bytes_max must be at least 1 KiB")
        _require(
            largest + GROUP_HEADER_BYTES <= self.usable_bytes,
            "record_bytes_max does not fit into segment_bytes",
        )
        _require(
            largest + GROUP_HEADER_BYTES + SEGMENT_HEADER_BYTES + self.group_reserve_bytes
            <= self.group_bytes_max,
            "record_bytes_max does not fit into group_bytes_max less group_reserve_bytes",
        )
        _require(self.segments_ahead >= 1, "segments_ahead must be at least 1")
        _require(self.reserve_acknowledgements >= 0, "reserve_acknowledgements must not be negative")
        _require(self.reserve_system_events >= 1, "reserve_system_events must be at least 1")
        _require(self.state_bytes_max >= 0, "state_bytes_max must not be negative")
        _require(
            self.group_reserve_bytes >= self.system_event_keep_bytes,
            f"group_reserve_bytes must be at least {self.system_event_keep_bytes}, or no system event fits",
        )
        _require(
            self.held_records_max > self.reserve_system_events,
            "held_records_max must be above reserve_system_events, which count among them",
        )
        self._check_boot_section()
        least = self.segments_at_start
        _require(
            self.segments_max >= least,
            f"segments_max is {self.segments_max}, but the reserve and what is kept ahead need {least}",
        )

    def _check_boot_section(self) -> None:
        """What is recorded while the node boots must find its place in the log afterwards, in one group."""
        _require(self.boot_bytes >= 2 * KIB, "boot_bytes must be at least 2 KiB")
        _require(
            BOOT_GROWTH * self.boot_bytes + 2 * self.system_event_keep_bytes <= self.group_bytes_max,
            "boot_bytes does not fit into group_bytes_max",
        )

    @property
    def system_event_keep_bytes(self) -> int:
        """Of the group buffer, what only a system event may use."""
        return record_bytes(self.system_event_bytes_max) + GROUP_HEADER_BYTES + SEGMENT_HEADER_BYTES

    @property
    def usable_bytes(self) -> int:
        """Of a segment, what groups may fill: its header and one last marker are set apart."""
        return self.segment_bytes - SEGMENT_HEADER_BYTES - GROUP_HEADER_BYTES

    @property
    def acknowledgement_record_bytes_max(self) -> int:
        return min(_ACKNOWLEDGEMENT_RECORD_BYTES_MAX, self.record_bytes_max)

    @property
    def system_event_bytes_max(self) -> int:
        return min(_SYSTEM_EVENT_BYTES_MAX, self.record_bytes_max)

    @property
    def acknowledgements_budget_bytes(self) -> int:
        """Never less than two segments: the first may still hold messages, the second is then all confirmations,
        dead after a checkpoint. So space returns however many there are, and in whatever order they come.
        """
        return max(self.reserve_acknowledgements * ACKNOWLEDGEMENT_BYTES, 2 * self.usable_bytes)

    @property
    def moves_budget_bytes(self) -> int:
        """What one segment's live part takes when it is moved, whatever is wasted where a segment ends."""
        live_bytes = self.segment_bytes * MOVE_LIVE_PERCENT_MAX // 100
        return moved_bytes(live_bytes) + record_bytes(self.record_bytes_max + ORIGIN_LSN_BYTES)

    @property
    def system_events_budget_bytes(self) -> int:
        """The events that the reserve promises, and all that a full boot section can hold."""
        event_bytes = record_bytes(self.system_event_bytes_max) + GROUP_HEADER_BYTES
        return self.reserve_system_events * event_bytes + BOOT_GROWTH * self.boot_bytes

    @property
    def reserve_segments(self) -> int:
        """Segments that together hold all budgets, whatever is wasted where one segment ends (decision 7)."""
        budgets = (
            self.acknowledgements_budget_bytes + self.moves_budget_bytes + self.system_events_budget_bytes
        )
        waste = min(record_bytes(self.acknowledgement_record_bytes_max), self.usable_bytes // 4)
        return -(-budgets // (self.usable_bytes - waste))

    @property
    def segments_at_start(self) -> int:
        return 1 + self.segments_ahead + self.reserve_segments

    @property
    def held_records_index_max(self) -> int:
        """Held records with those of a full boot section: no index, and no checkpoint, has more."""
        return self.held_records_max + self.boot_bytes // BOOT_ENTRY_BYTES_MIN

    @property
    def checkpoint_bytes(self) -> int:
        """One slot, for the largest state that the limits allow."""
        return (
            CHECKPOINT_HEADER_BYTES
            + self.segments_max * CHECKPOINT_SEGMENT_BYTES
            + 64
            + self.held_records_index_max * HELD_RECORD_BYTES
            + self.state_bytes_max
        )


def moved_bytes(live_bytes: int) -> int:
    """The most that records of this size together take at their new place.

    Each grows by the lsn that it had at first: the smallest, which has no payload, by a third.
    """
    return live_bytes * record_bytes(ORIGIN_LSN_BYTES) // record_bytes(0) + 2 * GROUP_HEADER_BYTES


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise UsageError(f"journal configuration: {problem}")
