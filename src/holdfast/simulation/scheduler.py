"""Simulated time: things happen one after another, in an order that the seed decides.

No thread, no real clock. Two things due at the same moment happen in the order of a number drawn when they were
scheduled, so that no order is favoured.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

Action = Callable[[], None]


class Scheduler:
    """A queue of actions by time, and the clock that they run on."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._queue: list[tuple[int, float, int, Action]] = []
        self._count = 0
        self.now_us = 0

    def after(self, delay_us: int, action: Action) -> None:
        """Do it once, that much later."""
        assert delay_us >= 0, "nothing happens in the past"
        self._count += 1
        entry = (self.now_us + delay_us, self._random.random(), self._count, action)
        heapq.heappush(self._queue, entry)

    def every(self, at_most_us: int, action: Action) -> None:
        """Do it again and again, at random moments, at the most that far apart."""

        def again() -> None:
            action()
            self.after(self._random.randint(1, at_most_us), again)

        self.after(self._random.randint(1, at_most_us), again)

    def run(self, until_us: int) -> None:
        """Let time pass."""
        while self._queue and self._queue[0][0] <= until_us:
            self.now_us, _, _, action = heapq.heappop(self._queue)
            action()
        self.now_us = max(self.now_us, until_us)

    def clear(self) -> None:
        """Everything that was to happen belonged to a process that is dead."""
        self._queue.clear()
