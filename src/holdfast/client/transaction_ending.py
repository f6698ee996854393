"""How a transaction ends: Commit or Rollback goes out, and the answer, or a resume, decides what becomes of
the parts.

`Transactions` says which state it is in; this carries out what the state asks of the machines that keep the
parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.client.acknowledging import Acknowledgements, Settled
from holdfast.client.consumers import Consumers
from holdfast.client.events import Completed, Event, Failed, Roomier, Unusable
from holdfast.client.requests import Call, Calls
from holdfast.client.sending import Sending
from holdfast.client.transactions import Transactions, TransactionState
from holdfast.errors import HoldfastError, OutcomeUnknown, Refused
from holdfast.wire.frames import Commit, Rollback


class TransactionEnding:
    """Of one session. `fail` ends the session, `roomier` tells that it takes parts again."""

    def __init__(
        self,
        transactions: Transactions,
        sending: Sending,
        consumers: Consumers,
        acknowledgements: Acknowledgements,
        calls: Calls,
        *,
        runs_max: int,
        emit: Callable[[Event], None],
        roomier: Roomier,
        fail: Callable[[HoldfastError], None],
    ) -> None:
        self._transactions = transactions
        self._sending = sending
        self._consumers = consumers
        self._acknowledgements = acknowledgements
        self._calls = calls
        self._runs_max = runs_max
        self._emit = emit
        self._roomier = roomier
        self._fail = fail

    def pump(self) -> None:
        """Send Commit or Rollback, once all that belongs before it is on the wire."""
        transactions = self._transactions
        if not self._acknowledgements.is_sent:
            return
        if transactions.state is TransactionState.COMMITTING and self._sending.is_sent:
            transactions.commit_sent()
            self.ask_outcome()
        elif transactions.state is TransactionState.ROLLING_BACK and transactions.is_rollback_due:
            transactions.is_rollback_due = False
            number = transactions.number
            self._calls.ask_now(
                Call(
                    lambda request: Rollback(request=request, transaction=number),
                    done=self._rolled_back,
                    failed=self._rollback_refused,
                )
            )

    def resumed(self, recorded: dict[str, int]) -> None:
        """The server has aborted what was open: prepare to run all of it again, should it still be wanted."""
        self._sending.run_again(recorded)
        self._acknowledgements.run_again()
        self._transactions.resumed()
        if self._transactions.state is TransactionState.ROLLING_BACK:
            self._rolled_back({})

    # ---- committing ------------------------------------------------------------------------------------

    def ask_outcome(self) -> None:
        """Send Commit; after a resume, to learn what became of the last one."""
        number = self._transactions.number
        self._calls.ask_now(
            Call(
                lambda request: Commit(request=request, transaction=number),
                done=self._outcome,
                failed=self._commit_refused,
            )
        )

    def _outcome(self, result: dict[str, Any]) -> None:
        if result.get("outcome") == "committed":
            ticket = self._transactions.ticket
            self._transactions.committed()
            self._sending.drop_all()
            self._consumers.settled(self._acknowledgements.drop_all())
            self._emit(Completed(ticket, None))
        elif self._transactions.runs >= self._runs_max:
            self._refused(
                Refused("the server aborts this transaction each time", server_code="transaction.unknown")
            )
        else:
            self._run_again()
        self._calls.attach()
        self._emit(self._roomier)

    def _run_again(self) -> None:
        was_resumed = self._transactions.is_ask_due
        self._transactions.unknown()
        if not was_resumed:  # this connection has run it once: sequences and numbers are used up
            self._sending.run_again(None)
            self._acknowledgements.run_again()

    def _commit_refused(self, error: HoldfastError) -> None:
        if isinstance(error, Refused) and error.server_code == "transaction.unknown":
            self._outcome({"outcome": "unknown"})
        elif self._transactions.is_ask_due:  # it may have been committed on the connection that was lost
            self._fail(OutcomeUnknown(f"whether the transaction was committed could not be learned: {error}"))
        else:
            self._refused(error)

    def _refused(self, error: HoldfastError) -> None:
        ticket = self._transactions.ticket
        self._transactions.refused()
        self._emit(Failed(ticket, error))
        self._emit(self._roomier)

    def impossible(self, error: HoldfastError) -> None:
        """Part of the transaction cannot be sent: it must not be committed without it."""
        if self._transactions.state is TransactionState.EMPTY:
            return  # there are none, or nothing of this one is missing
        self._transactions.fault = error
        if self._transactions.state is TransactionState.COMMITTING:
            self._refused(error)

    # ---- rolling back ----------------------------------------------------------------------------------

    def roll_back(self, ticket: int) -> list[Settled]:
        """Forget the parts. What was acknowledged among them comes again."""
        self._transactions.rollback(ticket)
        self._sending.drop_all()
        return self._acknowledgements.drop_all()

    def _rollback_refused(self, error: HoldfastError) -> None:
        if isinstance(error, Refused) and error.server_code == "transaction.unknown":
            self._rolled_back({})  # none of it had reached the server
        else:
            self._emit(Unusable(error, is_permanent=False))  # a resume rolls back, too

    def _rolled_back(self, _: dict[str, Any]) -> None:
        ticket = self._transactions.ticket
        self._transactions.rolled_back()
        self._emit(Completed(ticket, None))
        self._emit(self._roomier)
