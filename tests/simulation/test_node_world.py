"""Clients that outlive the node see every promise kept; and with something broken on purpose, they do not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from holdfast.destinations.destination import Subscription
from holdfast.journal.format import Kind, Record
from holdfast.journal.journal import Journal
from holdfast.node.distributor import Distributor
from holdfast.node.links import SessionLink
from holdfast.node.state import MessageState, Returned
from holdfast.sessions.session import Session
from holdfast.simulation.journal_world import MakeStorage
from holdfast.simulation.node_world import NodeWorld
from holdfast.simulation.storage import FaultyStorage
from tests.contracts.lying_storage import LyingStorage

SEEDS_IN_GATE = 200
SEEDS_A_TEST = 50
CONTROL_SEEDS = range(1_000)


def check_promises(seeds: Iterable[int], make_storage: MakeStorage = FaultyStorage) -> None:
    for seed in seeds:
        outcome = NodeWorld(seed, make_storage=make_storage).run()
        assert not outcome.broken, f"seed {seed}: {outcome.broken}"


@pytest.mark.spec("E2", "E8", "E10", "C10")
@pytest.mark.parametrize("first", range(0, SEEDS_IN_GATE, SEEDS_A_TEST))
def test_clients_see_every_promise_kept_through_the_deaths_of_the_node(first: int) -> None:
    check_promises(range(first, first + SEEDS_A_TEST))


def test_a_seed_gives_the_same_run_every_time() -> None:
    assert NodeWorld(3).run() == NodeWorld(3).run()
    assert NodeWorld(3).run().digest != NodeWorld(4).run().digest


# -- controls --------------------------------------------------------------------------------------------


@pytest.mark.control("E2")
def test_a_disk_that_lies_about_sync_is_found_out() -> None:
    with pytest.raises(AssertionError):
        check_promises(CONTROL_SEEDS, make_storage=LyingStorage)


@pytest.mark.control("E2")
def test_confirming_what_is_only_gathered_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    confirm_up_to = SessionLink.confirm_up_to

    def confirm_everything(self: SessionLink, lsn: int) -> None:
        confirm_up_to(self, 1 << 60)

    monkeypatch.setattr(SessionLink, "confirm_up_to", confirm_everything)
    with pytest.raises(AssertionError):
        check_promises(CONTROL_SEEDS)


@pytest.mark.control("E2")
def test_a_session_table_that_forgets_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(self: Session, destination: int, sequence: int) -> None:
        return

    monkeypatch.setattr(Session, "record", forget)
    with pytest.raises(AssertionError):
        check_promises(CONTROL_SEEDS)


@pytest.mark.control("E8")
def test_removing_a_message_before_its_last_recipient_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def done_too_soon(self: Subscription, first: int, last: int) -> bool:
        return first < self.cursor or first in self.done

    monkeypatch.setattr(Subscription, "is_done", done_too_soon)
    with pytest.raises(AssertionError):
        check_promises(CONTROL_SEEDS)


@pytest.mark.control("E8")
def test_forgetting_what_came_back_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    take_in = Distributor.take_in

    def without_returns(self: Distributor, changes: Sequence[object]) -> None:
        take_in(self, [change for change in changes if not isinstance(change, Returned)])  # type: ignore[misc]

    monkeypatch.setattr(Distributor, "take_in", without_returns)
    with pytest.raises(AssertionError):
        check_promises(CONTROL_SEEDS)


@pytest.mark.control("E10")
def test_a_replay_that_begins_too_late_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    restore = MessageState.restore

    def skip(self: MessageState, snapshot: bytes) -> None:
        restore(self, snapshot)
        for _, subscription in self.subscriptions.values():
            subscription.cursor = max(subscription.cursor, subscription.delivered)

    monkeypatch.setattr(MessageState, "restore", skip)
    with pytest.raises(AssertionError):
        check_promises(CONTROL_SEEDS)


@pytest.mark.control("C10")
def test_parts_that_become_visible_before_the_commit_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(self: MessageState, record: Record) -> Sequence[int]:
        transaction, _ = self._transaction(record.parts[0])
        apply_part(self, record)
        part = transaction.batches.pop()
        return self._make_visible(part.lsn, part.destination, part.row_count)

    apply_part = MessageState._apply_transaction_batch
    monkeypatch.setattr(MessageState, "_apply_transaction_batch", at_once)
    with pytest.raises(AssertionError):
        check_promises(CONTROL_SEEDS)


@pytest.mark.control("C10")
def test_a_rollback_that_leaves_its_parts_behind_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep(self: MessageState, record: Record) -> Sequence[int]:
        return ()

    monkeypatch.setattr(MessageState, "_apply_rollback", keep)
    with pytest.raises(AssertionError):
        check_promises(CONTROL_SEEDS)


def test_releasing_without_the_record_behind_it_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that forgets confirmations at a crash would deliver what was acknowledged."""
    append = Journal.append

    def lose_acknowledgements(
        self: Journal, section: int, kind: int, parts: object, **options: object
    ) -> int:
        if kind == Kind.ACKNOWLEDGEMENT and self.next_lsn % 5 == 0:
            return self.next_lsn - 1
        return append(self, section, kind, parts, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Journal, "append", lose_acknowledgements)
    with pytest.raises(AssertionError):
        check_promises(CONTROL_SEEDS)


@pytest.mark.soak
def test_many_thousand_runs_keep_every_promise() -> None:
    check_promises(range(10_000, 30_000))
