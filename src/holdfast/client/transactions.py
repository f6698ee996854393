"""The transaction of a transacted session: one at a time, begun by its first part.

The parts themselves, sends and acknowledgements, are kept by their own machines until the outcome is known;
this one knows under which number they go, and what is to be done when the connection is lost in the middle.
The server aborts every open transaction when a session resumes, and remembers the outcome of the last ones.
So after a resume:

    open           the parts are run again, under a new number
    committing     Commit was not yet sent: as above, and then Commit
    asking         Commit was sent: it is asked again. "committed": done. "unknown": never committed, so run again
    rolling back   the resume has done it

While a commit or a rollback is under way the session takes no new parts: they belong to the next transaction.

| state        | part | commit     | commit_sent | rollback     | committed | unknown    | refused | rolled_back |
|--------------|------|------------|-------------|--------------|-----------|------------|---------|-------------|
| EMPTY        | OPEN |            |             |              |           |            |         |             |
| OPEN         | OPEN | COMMITTING |             | ROLLING_BACK |           |            |         |             |
| COMMITTING   |      |            | ASKING      |              |           |            | OPEN    |             |
| ASKING       |      |            |             |              | EMPTY     | COMMITTING | OPEN    |             |
| ROLLING_BACK |      |            |             |              |           |            |         | EMPTY       |
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from holdfast.errors import HoldfastError, UsageError


class TransactionState(Enum):
    EMPTY = auto()
    OPEN = auto()
    COMMITTING = auto()
    ASKING = auto()
    ROLLING_BACK = auto()


_S = TransactionState
TRANSITIONS: Final[dict[tuple[TransactionState, str], TransactionState]] = {
    (_S.EMPTY, "part"): _S.OPEN,
    (_S.OPEN, "part"): _S.OPEN,
    (_S.OPEN, "commit"): _S.COMMITTING,
    (_S.OPEN, "rollback"): _S.ROLLING_BACK,
    (_S.COMMITTING, "commit_sent"): _S.ASKING,
    (_S.COMMITTING, "refused"): _S.OPEN,
    (_S.ASKING, "committed"): _S.EMPTY,
    (_S.ASKING, "unknown"): _S.COMMITTING,
    (_S.ASKING, "refused"): _S.OPEN,
    (_S.ROLLING_BACK, "rolled_back"): _S.EMPTY,
}


class Transactions:
    """The machine. `ticket` is that of the commit or rollback under way; `fault` is why it cannot commit."""

    def __init__(self) -> None:
        self.state = TransactionState.EMPTY
        self.number = 1
        self.ticket = 0
        self.fault: HoldfastError | None = None
        self.is_ask_due = False
        self.is_rollback_due = False
        self.runs = 1

    @property
    def takes_parts(self) -> bool:
        return self.state in (TransactionState.EMPTY, TransactionState.OPEN)

    def part(self) -> None:
        """A send or an acknowledgement joins it."""
        self._change("part")

    def commit(self, ticket: int) -> None:
        if self.fault is not None:
            raise self.fault
        self._change("commit")
        self.ticket = ticket
        self.runs = 1

    def commit_sent(self) -> None:
        self._change("commit_sent")

    def committed(self) -> None:
        self._change("committed")
        self._next()

    def unknown(self) -> None:
        """Never committed: it is run again, under a new number."""
        self._change("unknown")
        self.is_ask_due = False
        self.number += 1
        self.runs += 1

    def refused(self) -> None:
        """The server would not, and said so on this connection.

        The transaction is as it was; the program may try again or roll back.
        """
        self._change("refused")
        self.ticket = 0

    def rollback(self, ticket: int) -> None:
        self._change("rollback")
        self.ticket = ticket
        self.is_rollback_due = True

    def rolled_back(self) -> None:
        self._change("rolled_back")
        self._next()

    def lost(self) -> None:
        """The connection is gone; the session is going to resume."""
        self.runs = 1
        if self.state is TransactionState.ASKING:
            self.is_ask_due = True

    def resumed(self) -> None:
        """The server has aborted what was open: whatever is run again goes under a new number."""
        if self.state in (TransactionState.OPEN, TransactionState.COMMITTING):
            self.number += 1

    def _next(self) -> None:
        self.number += 1
        self.ticket = 0
        self.fault = None
        self.is_ask_due = False

    def _change(self, event: str) -> None:
        to = TRANSITIONS.get((self.state, event))
        if to is None:
            raise UsageError(
                f"transaction: no {event} while it is {self.state.name.lower().replace('_', ' ')}"
            )
        self.state = to

    def check_invariants(self) -> None:
        assert not self.is_ask_due or self.state is TransactionState.ASKING
        assert bool(self.ticket) == (not self.takes_parts), "a ticket is there while somebody waits"
