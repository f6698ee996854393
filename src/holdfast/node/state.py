"""Everything that a message manager knows, built from its records: destinations, sessions, transactions.

It is the `State` of the journal: the same records in the same order give the same state, at run time, in recovery
and on a backup. What changes here also matters to those who are connected now; `take_changes` tells them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from holdfast.destinations.destination import Destination, DestinationKind, HeldBatch, Subscription
from holdfast.destinations.names import LOG
from holdfast.destinations.records import (
    BatchRecord,
    DestinationRecord,
    SubscriptionEndRecord,
    SubscriptionRecord,
    parse_batch,
    parse_marks,
    parse_ranges,
)
from holdfast.journal.format import Kind, Record
from holdfast.journal.storage import Buffer
from holdfast.sessions.records import SessionEndRecord, SessionRecord, parse_transaction
from holdfast.sessions.session import (
    Session,
    Transaction,
    TransactionAcknowledgement,
    TransactionBatch,
)


class Visible(msgspec.Struct, frozen=True):
    """A batch may be delivered now."""

    destination: Destination
    batch: HeldBatch


class Acknowledged(msgspec.Struct, frozen=True):
    """Positions are confirmed for a subscription."""

    subscription: Subscription
    ranges: list[tuple[int, int]]


class Returned(msgspec.Struct, frozen=True):
    """Positions came back, and that was counted."""

    subscription: Subscription
    ranges: list[tuple[int, int]]


Change = Visible | Acknowledged | Returned


class MessageState:
    """Implements `holdfast.journal.journal.State`."""

    def __init__(self) -> None:
        self.destinations: dict[int, Destination] = {}
        self.by_name: dict[str, Destination] = {}
        self.subscriptions: dict[int, tuple[Destination, Subscription]] = {}
        self.sessions: dict[int, Session] = {}
        self.transactions: dict[tuple[int, int], Transaction] = {}
        self.next_number = 1
        self._changes: list[Change] = []
        self._appliers: dict[int, Callable[[Record], Sequence[int]]] = {
            Kind.DESTINATION: self._apply_destination,
            Kind.SUBSCRIPTION: self._apply_subscription,
            Kind.SUBSCRIPTION_END: self._apply_subscription_end,
            Kind.BATCH: self._apply_batch,
            Kind.ACKNOWLEDGEMENT: self._apply_acknowledgement,
            Kind.RETURN: self._apply_return,
            Kind.DELIVERED: self._apply_delivered,
            Kind.SESSION: self._apply_session,
            Kind.SESSION_END: self._apply_session_end,
            Kind.TRANSACTION_BATCH: self._apply_transaction_batch,
            Kind.TRANSACTION_ACKNOWLEDGEMENT: self._apply_transaction_acknowledgement,
            Kind.COMMIT: self._apply_commit,
            Kind.ROLLBACK: self._apply_rollback,
            Kind.BOOT_EVENT: self._apply_boot_event,
        }

    def apply(self, record: Record) -> Sequence[int]:
        applier = self._appliers.get(record.kind)
        return () if applier is None else applier(record)

    def take_changes(self) -> list[Change]:
        """What changed since the last time, for those who deliver."""
        changes, self._changes = self._changes, []
        return changes

    # -- destinations and subscriptions ------------------------------------------------------------------

    def _apply_destination(self, record: Record) -> Sequence[int]:
        made = msgspec.msgpack.decode(record.payload, type=DestinationRecord)
        destination = Destination(number=made.number, name=made.name, kind=DestinationKind(made.kind))
        self._add_destination(destination)
        self.next_number = max(self.next_number, made.number + 1)
        if destination.kind is DestinationKind.QUEUE:
            # The one that all consumers of a queue share has the number of the queue itself.
            self._add_subscription(destination, Subscription(number=made.number, name="", cursor=1))
        return ()

    def _apply_subscription(self, record: Record) -> Sequence[int]:
        made = msgspec.msgpack.decode(record.payload, type=SubscriptionRecord)
        destination = self.destinations[made.destination]
        first_held = destination.next_held(1)
        cursor = first_held if made.from_start else destination.next_position
        self.next_number = max(self.next_number, made.number + 1)
        self._add_subscription(
            destination,
            Subscription(number=made.number, name=made.name, cursor=cursor, is_durable=made.is_durable),
        )
        return ()

    def _apply_subscription_end(self, record: Record) -> Sequence[int]:
        ended = msgspec.msgpack.decode(record.payload, type=SubscriptionEndRecord)
        found = self.subscriptions.pop(ended.number, None)
        if found is None:
            return ()
        destination, subscription = found
        del destination.subscriptions[subscription.number]
        return destination.release_done(1, destination.next_position)

    def _add_destination(self, destination: Destination) -> None:
        self.destinations[destination.number] = destination
        self.by_name[destination.name] = destination

    def _add_subscription(self, destination: Destination, subscription: Subscription) -> None:
        destination.subscriptions[subscription.number] = subscription
        self.subscriptions[subscription.number] = (destination, subscription)

    # -- messages ----------------------------------------------------------------------------------------

    def _apply_batch(self, record: Record) -> Sequence[int]:
        # The first part is all that matters here; the batch itself is not opened.
        sent = parse_batch(record.parts[0])
        self._record_sequences(sent)
        return self._make_visible(record.lsn, sent.destination, sent.row_count)

    def _record_sequences(self, sent: BatchRecord) -> None:
        for run in sent.runs:
            session = self.sessions.get(run.session)
            if session is not None and run.first_sequence:
                session.record(sent.destination, run.last_sequence)

    def _make_visible(self, lsn: int, destination_number: int, row_count: int) -> Sequence[int]:
        destination = self.destinations[destination_number]
        batch = destination.append(lsn, row_count)
        if batch is None:
            return (lsn,)
        self._changes.append(Visible(destination, batch))
        return ()

    def _apply_acknowledgement(self, record: Record) -> Sequence[int]:
        return self._acknowledge(*parse_ranges(record.payload))

    def _acknowledge(self, subscription_number: int, ranges: list[tuple[int, int]]) -> Sequence[int]:
        found = self.subscriptions.get(subscription_number)
        if found is None:
            return ()
        destination, subscription = found
        released: list[int] = []
        for first, last in ranges:
            subscription.acknowledge(first, last)
            released += destination.release_done(first, last)
        self._changes.append(Acknowledged(subscription, ranges))
        return released

    def _apply_return(self, record: Record) -> Sequence[int]:
        number, ranges = parse_ranges(record.payload)
        found = self.subscriptions.get(number)
        if found is not None:
            for first, last in ranges:
                found[1].count_return(first, last)
            self._changes.append(Returned(found[1], ranges))
        return ()

    def _apply_delivered(self, record: Record) -> Sequence[int]:
        for number, position in parse_marks(record.payload):
            found = self.subscriptions.get(number)
            if found is not None:
                found[1].delivered = max(found[1].delivered, position)
        return ()

    def _apply_boot_event(self, record: Record) -> Sequence[int]:
        """What the node had to say while it booted is a message of its log (E5)."""
        log = self.by_name.get(LOG)
        return (record.lsn,) if log is None else self._make_visible(record.lsn, log.number, 1)

    # -- sessions and transactions -----------------------------------------------------------------------

    def _apply_session(self, record: Record) -> Sequence[int]:
        opened = msgspec.msgpack.decode(record.payload, type=SessionRecord)
        session = self.sessions.get(opened.number)
        if session is None:
            self.sessions[opened.number] = Session(
                number=opened.number, epoch=opened.epoch, lifetime_s=opened.lifetime_s
            )
            return ()
        session.epoch = opened.epoch
        session.lifetime_s = opened.lifetime_s
        return self._abort_all(opened.number)

    def _apply_session_end(self, record: Record) -> Sequence[int]:
        ended = msgspec.msgpack.decode(record.payload, type=SessionEndRecord)
        self.sessions.pop(ended.number, None)
        return self._abort_all(ended.number)

    def _abort_all(self, session: int) -> list[int]:
        """Open transactions do not outlive a resume: the client runs them again (presumed abort)."""
        keys = [key for key in self.transactions if key[0] == session]
        return [batch.lsn for key in keys for batch in self.transactions.pop(key).batches]

    def _transaction(self, payload: Buffer) -> tuple[Transaction, memoryview]:
        key, rest = parse_transaction(payload)
        index = (key.session, key.number)
        return self.transactions.setdefault(index, Transaction(key)), rest

    def _apply_transaction_batch(self, record: Record) -> Sequence[int]:
        transaction, rest = self._transaction(record.parts[0])
        sent = parse_batch(rest)
        self._record_sequences(sent)
        transaction.batches.append(TransactionBatch(record.lsn, sent.destination, sent.row_count))
        return ()

    def _apply_transaction_acknowledgement(self, record: Record) -> Sequence[int]:
        transaction, rest = self._transaction(record.payload)
        transaction.acknowledgements.append(TransactionAcknowledgement(*parse_ranges(rest)))
        return ()

    def _apply_commit(self, record: Record) -> Sequence[int]:
        key, _ = parse_transaction(record.payload)
        session = self.sessions.get(key.session)
        if session is not None:
            session.committed.append(key.number)
        transaction = self.transactions.pop((key.session, key.number), None)
        if transaction is None:
            return ()
        released: list[int] = []
        for batch in transaction.batches:
            released += self._make_visible(batch.lsn, batch.destination, batch.row_count)
        for acknowledgement in transaction.acknowledgements:
            released += self._acknowledge(acknowledgement.subscription, acknowledgement.ranges)
        return released

    def _apply_rollback(self, record: Record) -> Sequence[int]:
        key, _ = parse_transaction(record.payload)
        transaction = self.transactions.pop((key.session, key.number), None)
        return () if transaction is None else [batch.lsn for batch in transaction.batches]

    # -- checkpoints -------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(
            {
                "next_number": self.next_number,
                "destinations": [destination.snapshot() for destination in self.destinations.values()],
                "sessions": [session.snapshot() for session in self.sessions.values()],
                "transactions": [transaction.snapshot() for transaction in self.transactions.values()],
            }
        )

    def restore(self, snapshot: Buffer) -> None:
        if not len(snapshot):
            return
        saved = msgspec.msgpack.decode(snapshot, type=_Snapshot)
        self.next_number = saved.next_number
        for each in saved.destinations:
            destination = Destination.restore(each)
            self._add_destination(destination)
            for subscription in destination.subscriptions.values():
                self.subscriptions[subscription.number] = (destination, subscription)
        for session in map(Session.restore, saved.sessions):
            self.sessions[session.number] = session
        for transaction in map(Transaction.restore, saved.transactions):
            self.transactions[(transaction.key.session, transaction.key.number)] = transaction


class _Snapshot(msgspec.Struct, frozen=True):
    next_number: int
    destinations: list[tuple[int, str, str, int, bytes, bytes, bytes, list[object]]]
    sessions: list[tuple[int, int, int, list[tuple[int, int]], list[int]]]
    transactions: list[tuple[int, int, list[TransactionBatch], list[TransactionAcknowledgement]]]
