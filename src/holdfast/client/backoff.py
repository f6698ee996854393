"""How long to wait before the next round over all hosts. Pure: chance is handed in.

The wait doubles with each round up to a maximum, and half of it is left to chance, so that a thousand clients
of a server that came back do not all knock at once.
"""

from __future__ import annotations

BACKOFF_S_MIN = 0.05
"""A server that restarts quickly is found quickly."""
BACKOFF_S_MAX = 5.0
"""A server that was away for long is found within this."""
DOUBLINGS_MAX = 16
"""Keeps the power small, however long it takes."""


def backoff_s(attempt: int, chance: float) -> float:
    """The wait before round `attempt` (0, 1, ...), with `chance` from 0 to 1."""
    full_s = min(BACKOFF_S_MAX, BACKOFF_S_MIN * 2.0 ** min(attempt, DOUBLINGS_MAX))
    return full_s * (0.5 + chance / 2)
