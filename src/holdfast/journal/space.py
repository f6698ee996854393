"""Free journal space, and the reserve in it (E4, decision 7).

The reserve is not a place but an account: each budget has a size, and may be drawn on only by its own kind of
record. The invariant that keeps every budget good for what it promises:

    free_bytes >= what is left of all budgets together

Messages may use free space only while it stays true. A record on a budget uses free space outside the reserve
while there is some; when there is none, it draws on its own budget, never on another's. Space that returns
fills the budgets first, and only then is there for messages again.
"""

from __future__ import annotations

from enum import IntEnum

from holdfast.journal.config import JournalConfig


class Budget(IntEnum):
    """Whose account a record is charged to."""

    MESSAGES = 0
    ACKNOWLEDGEMENTS = 1
    MOVES = 2
    SYSTEM_EVENTS = 3


class Space:
    """How many bytes can still be recorded, and by whom."""

    def __init__(self, config: JournalConfig) -> None:
        self._sizes = [0, 0, 0, 0]
        self._sizes[Budget.ACKNOWLEDGEMENTS] = config.acknowledgements_budget_bytes
        self._sizes[Budget.MOVES] = config.moves_budget_bytes
        self._sizes[Budget.SYSTEM_EVENTS] = config.system_events_budget_bytes
        self._left = [0, 0, 0, 0]
        self.reserved_bytes = 0
        self.free_bytes = 0

    @property
    def open_bytes(self) -> int:
        """What messages may still use."""
        return self.free_bytes - self.reserved_bytes

    @property
    def is_reserve_whole(self) -> bool:
        return self._left == self._sizes

    def left_bytes(self, budget: Budget) -> int:
        return self._left[budget]

    def admits(self, budget: Budget, cost_bytes: int) -> bool:
        missing = cost_bytes - self.free_bytes + self.reserved_bytes
        return missing <= 0 or missing <= self._left[budget]

    def take(self, budget: Budget, cost_bytes: int) -> None:
        """Use `cost_bytes`, which `admits` has allowed."""
        missing = cost_bytes - self.free_bytes + self.reserved_bytes
        if missing > 0:
            assert missing <= self._left[budget], "taken without being admitted"
            self._left[budget] -= missing
            self.reserved_bytes -= missing
        self.free_bytes -= cost_bytes

    def take_from_any(self, cost_bytes: int) -> None:
        """Use `cost_bytes` of what is free, whoever it was kept for: for the marker that every start must write."""
        missing = max(0, cost_bytes - self.open_bytes)
        self.free_bytes -= cost_bytes
        for budget in (Budget.ACKNOWLEDGEMENTS, Budget.MOVES, Budget.SYSTEM_EVENTS):
            drawn = min(missing, self._left[budget])
            self._left[budget] -= drawn
            self.reserved_bytes -= drawn
            missing -= drawn

    def give_back(self, returned_bytes: int) -> None:
        """Space has returned: the budgets are filled first, system events before all."""
        self.free_bytes += returned_bytes
        surplus = self.open_bytes
        for budget in (Budget.SYSTEM_EVENTS, Budget.MOVES, Budget.ACKNOWLEDGEMENTS):
            refill = min(surplus, self._sizes[budget] - self._left[budget])
            if refill > 0:
                self._left[budget] += refill
                self.reserved_bytes += refill
                surplus -= refill

    def check_invariants(self) -> None:
        assert self.free_bytes >= self.reserved_bytes >= 0, "the reserve is not covered by free space"
        assert self.reserved_bytes == sum(self._left), "the budgets do not add up"
        assert all(0 <= left <= size for left, size in zip(self._left, self._sizes, strict=True))
