"""Running out of space, as something that is itself recorded (E4).

    NORMAL --(a message was refused)--> PAUSED --(space has returned)--> NORMAL

Each change of state gives one event, to be recorded on the budget of system events; refusals while paused give
none, so the budget lasts. Flow resumes only when a margin is free again, lest it stutter at the edge.
"""

from __future__ import annotations

from enum import Enum

from holdfast.journal.journal import Journal
from holdfast.message import Message, Severity

EVENT_SOURCE = "holdfast.journal"
EXHAUSTED_TYPE = "holdfast.journal.exhausted"
RESUMED_TYPE = "holdfast.journal.resumed"


class Flow(Enum):
    NORMAL = "normal"
    PAUSED = "paused"


class Exhaustion:
    """Whether producers are paused, and the events that say so."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.flow = Flow.NORMAL
        self.reason = ""
        self._is_told = True

    def refused(self, reason: str) -> None:
        """A message found no room."""
        if self.flow is Flow.NORMAL:
            self._change(Flow.PAUSED)
            self.reason = reason

    def look(self) -> None:
        """Look whether space has returned."""
        if self.flow is Flow.PAUSED and self._is_told and self._has_margin():
            self._change(Flow.NORMAL)

    def _change(self, flow: Flow) -> None:
        self.flow = flow
        self._is_told = False

    def untold_event(self, *, time_us: int) -> Message | None:
        """The event of the last change, as long as it has not been recorded."""
        if self._is_told:
            return None
        return self._exhausted(time_us) if self.flow is Flow.PAUSED else self._resumed(time_us)

    def told(self) -> None:
        """The event was recorded."""
        self._is_told = True

    def _exhausted(self, time_us: int) -> Message:
        journal = self._journal
        return Message(
            time_us=time_us,
            source=EVENT_SOURCE,
            type=EXHAUSTED_TYPE,
            severity=Severity.CRITICAL,
            properties={
                "reason": self.reason,
                "open_bytes": journal.space.open_bytes,
                "reserved_bytes": journal.space.reserved_bytes,
                "held_records": journal.held.count,
                "segments": journal.pool.total_count,
            },
            body=f"no room for messages ({self.reason}); producers are paused, nothing is lost".encode(),
        )

    def _resumed(self, time_us: int) -> Message:
        return Message(
            time_us=time_us,
            source=EVENT_SOURCE,
            type=RESUMED_TYPE,
            severity=Severity.NOTICE,
            properties={"reason": self.reason, "open_bytes": self._journal.space.open_bytes},
            body=b"there is room for messages again; producers go on",
        )

    def _has_margin(self) -> bool:
        """Room for the largest record after the next roll, and a tenth of the held records free."""
        journal, config = self._journal, self._journal.config
        has_index = journal.held.count <= config.held_records_max * 9 // 10
        return has_index and journal.admits(config.record_bytes_max)
