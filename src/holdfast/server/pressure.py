"""Whether messages find room, and the events that say when that changes (E4).

A full group buffer is the ordinary back-pressure of a disk: senders wait for one group, and nobody need hear of it.
A full disk, a full index, or a buffer that stays full, is exhaustion: it is recorded on `_LOG`, and flow resumes only
when a margin is free again.
"""

from __future__ import annotations

from holdfast.journal.exhaustion import Exhaustion, Flow
from holdfast.journal.journal import Journal
from holdfast.node.events import EventLog
from holdfast.server.open_node import now_us

MEMORY = "memory"
# A disk that needs longer than this for one group is no longer just slow.
MEMORY_FULL_S_MAX = 1.0


class Pressure:
    """Told of every refusal; looked at by whoever waits."""

    def __init__(self, journal: Journal, log: EventLog) -> None:
        self._log = log
        self._exhaustion = Exhaustion(journal)
        self._memory_full_since_s: float | None = None

    @property
    def is_exhausted(self) -> bool:
        return self._exhaustion.flow is Flow.PAUSED

    @property
    def reason(self) -> str:
        return self._exhaustion.reason if self.is_exhausted else ""

    def refused(self, reason: str, *, now_s: float) -> None:
        """A frame waits because this account has run out."""
        if reason == MEMORY:
            if self._memory_full_since_s is None:
                self._memory_full_since_s = now_s
            if now_s - self._memory_full_since_s < MEMORY_FULL_S_MAX:
                return
        self._exhaustion.refused(reason)
        self._tell()

    def nobody_waits(self) -> None:
        self._memory_full_since_s = None

    def look(self) -> None:
        """Now and then, and after every commit: has space returned?"""
        self._exhaustion.look()
        self._tell()

    def _tell(self) -> None:
        event = self._exhaustion.untold_event(time_us=now_us())
        if event is not None:
            self._log.record(event)
            self._exhaustion.told()
