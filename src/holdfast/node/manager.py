"""The message manager: what connected sessions may ask for, turned into records; and back.

Nothing here waits. A request appends a record and says what is to happen when that is committed; `advance`, which
the shell calls after each group commit, lets it happen: state changes, senders are told "confirmed", messages are
delivered. No confirmation leaves before the record behind it is committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from holdfast.destinations.destination import Destination, DestinationKind, Subscription
from holdfast.destinations.names import check_name
from holdfast.destinations.records import (
    DestinationRecord,
    Run,
    SubscriptionEndRecord,
    SubscriptionRecord,
    pack_batch_prefix,
    pack_marks,
    pack_ranges,
)
from holdfast.errors import JournalFull, refusal
from holdfast.journal.format import Kind, Section
from holdfast.journal.journal import Journal
from holdfast.journal.space import Budget
from holdfast.journal.storage import Buffer
from holdfast.message import Batch, IdSource, slice_rows, stamp
from holdfast.node.distributor import Distributor
from holdfast.node.links import ConsumerLink, Outlet, SessionLink
from holdfast.node.state import MessageState
from holdfast.sessions.records import SessionEndRecord, SessionRecord, TransactionKey, pack_transaction
from holdfast.sessions.session import session_number

Then = Callable[[], None]
Ranges = Sequence[tuple[int, int]]


class MessageManager:
    """One logical message manager on one node."""

    def __init__(self, journal: Journal, state: MessageState, ids: IdSource) -> None:
        self.journal = journal
        self.state = state
        self.distributor = Distributor(journal)
        self._ids = ids
        self._links: dict[int, SessionLink] = {}
        self._awaiting: deque[tuple[int, Then]] = deque()
        self._owed: deque[tuple[Section, Kind, bytes]] = deque()
        self._next_number = state.next_number
        self._next_session = 1
        self._making: dict[str, int] = {}

    # -- records -----------------------------------------------------------------------------------------

    def _append_control(self, kind: Kind, payload: bytes, section: Section = Section.NODE) -> int:
        return self.journal.append(section, kind, (payload,), budget=Budget.ACKNOWLEDGEMENTS)

    def _append_soon(self, section: Section, kind: Kind, payload: bytes) -> None:
        """Append what nobody waits for, now or as soon as there is room: it follows from what has happened."""
        self._owed.append((section, kind, payload))
        self._append_owed()

    def _append_owed(self) -> None:
        while self._owed:
            section, kind, payload = self._owed[0]
            try:
                self.journal.append(section, kind, (payload,), budget=Budget.ACKNOWLEDGEMENTS)
            except JournalFull:
                return
            self._owed.popleft()

    def _when_committed(self, lsn: int, then: Then) -> None:
        """In the order of the lsns, which is the order of the calls."""
        self._awaiting.append((lsn, then))

    def advance(self) -> None:
        """Something was committed, or changed: go on from there."""
        commit_lsn = self.journal.commit_lsn
        self.distributor.take_in(self.state.take_changes())
        while self._awaiting and self._awaiting[0][0] <= commit_lsn:
            self._awaiting.popleft()[1]()
        for link in self._links.values():
            if link.unconfirmed or link.unacknowledged:
                link.confirm_up_to(commit_lsn)
        self._append_owed()
        self.distributor.distribute()

    # -- sessions ----------------------------------------------------------------------------------------

    def open_session(
        self, outlet: Outlet, *, text: str, lifetime_s: int, opened: Callable[[SessionLink, bool], None]
    ) -> None:
        """Open a session, or resume the one of this name. Raises `Refused` if there is none such."""
        number = self._new_session_number()
        epoch = 1
        if text:
            resumed = session_number(text)
            session = None if resumed is None else self.state.sessions.get(resumed)
            if session is None:
                raise refusal(
                    "session.unknown", f"there is no session {text}: its lifetime is over, or it never was"
                )
            number, epoch = session.number, session.epoch + 1
            self._fence(number)
        record = SessionRecord(number, epoch, lifetime_s)
        lsn = self._append_control(Kind.SESSION, msgspec.msgpack.encode(record), Section.SESSIONS)

        def committed() -> None:
            link = SessionLink(number, epoch, outlet, self.state.sessions[number].sequences)
            self._links[number] = link
            opened(link, bool(text))

        self._when_committed(lsn, committed)

    def _new_session_number(self) -> int:
        self._next_session += 1
        return self.journal.run << 32 | self._next_session - 1

    def _fence(self, number: int) -> None:
        """Whoever was connected to this session is no longer."""
        link = self._links.get(number)
        if link is not None:
            link.outlet.fenced()
            self.disconnect(link)

    def disconnect(self, link: SessionLink) -> None:
        """The connection is gone: the session waits for its client, its consumers are gone."""
        if not link.is_open:
            return
        link.is_open = False
        for number in list(link.consumers):
            self.close_consumer(link, number)
        if self._links.get(link.number) is link:
            del self._links[link.number]

    def end_session(self, link: SessionLink, then: Then) -> None:
        """The client has no further use for the session."""
        self.disconnect(link)
        payload = msgspec.msgpack.encode(SessionEndRecord(link.number))
        self._when_committed(self._append_control(Kind.SESSION_END, payload, Section.SESSIONS), then)

    # -- destinations ------------------------------------------------------------------------------------

    def declare(self, name: str, kind: str, then: Callable[[Destination], None]) -> None:
        """Make the destination if it is not there. Raises `Refused`."""
        check_name(name)
        found = self.state.by_name.get(name)
        if found is not None:
            if kind and kind != found.kind:
                raise refusal("destination.kind", f"{name} is a {found.kind}, not a {kind}")
            then(found)
            return
        if not kind:
            raise refusal("destination.unknown", f"there is no destination {name}; declare it with its kind")
        if kind not in tuple(DestinationKind):
            raise refusal("destination.kind", f"{kind!r} is neither queue nor topic")
        lsn = self._making.get(name)
        if lsn is None:
            record = DestinationRecord(self._take_number(), name, kind)
            lsn = self._append_control(Kind.DESTINATION, msgspec.msgpack.encode(record))
            self._making[name] = lsn

        def made() -> None:
            self._making.pop(name, None)
            self.declare(name, kind, then)

        self._when_committed(max(lsn, self._last_awaited()), made)

    def _take_number(self) -> int:
        self._next_number += 1
        return self._next_number - 1

    def _last_awaited(self) -> int:
        return self._awaiting[-1][0] if self._awaiting else 0

    def destination(self, name: str) -> Destination:
        found = self.state.by_name.get(name)
        if found is None:
            raise refusal("destination.unknown", f"there is no destination {name}; declare it first")
        return found

    # -- sending -----------------------------------------------------------------------------------------

    def send(
        self, link: SessionLink, *, destination: int, transaction: int, first_sequence: int, batch: Batch
    ) -> None:
        """Record a batch. Raises `Refused`; raises `JournalFull`, having recorded nothing: send it again later."""
        if destination not in self.state.destinations:
            raise refusal("destination.unknown", f"there is no destination number {destination}")
        if transaction:
            self._send_in_transaction(link, destination, transaction, first_sequence, batch)
            return
        expected = self._check_gap(link, destination, first_sequence)
        known = expected - first_sequence
        last_sequence = first_sequence + len(batch) - 1
        if known >= len(batch):
            # A resend of what is recorded already: confirm it again, when it is durable (decision 15).
            link.unconfirmed.append((self.journal.next_lsn - 1, destination, expected - 1))
            link.confirm_up_to(self.journal.commit_lsn)
            return
        if known:
            batch = Batch.parse(slice_rows(batch, known, len(batch)))
        run = Run(link.number, first_sequence + known, len(batch))
        lsn = self._append_batch(Kind.BATCH, pack_batch_prefix(destination, (run,)), batch)
        link.appended[destination] = last_sequence
        link.unconfirmed.append((lsn, destination, last_sequence))

    def _check_gap(self, link: SessionLink, destination: int, first_sequence: int) -> int:
        """The sequence that is due. Raises `Refused` if what came is beyond it: something was lost on the way."""
        expected = link.appended.get(destination, 0) + 1
        if first_sequence > expected:
            raise refusal("session.gap", f"sequence {first_sequence} came too early: resend from {expected}")
        return expected

    def _send_in_transaction(
        self, link: SessionLink, destination: int, transaction: int, first_sequence: int, batch: Batch
    ) -> None:
        """The transaction is the unit here: it is run again as a whole or not at all, so nothing is recognised.

        Its sends need no sequence: 0. One that has a sequence uses it up.
        """
        self._check_gap(link, destination, first_sequence)
        prefix = pack_transaction(TransactionKey(link.number, transaction))
        run = Run(link.number, first_sequence, len(batch))
        self._append_batch(Kind.TRANSACTION_BATCH, prefix + pack_batch_prefix(destination, (run,)), batch)
        if first_sequence:
            last_sequence = first_sequence + len(batch) - 1
            link.appended[destination] = max(link.appended.get(destination, 0), last_sequence)

    def _append_batch(self, kind: Kind, prefix: bytes, batch: Batch) -> int:
        header, rest = stamp(batch, self._ids.origin, self._ids.take(len(batch)))
        lsn = self.journal.append(Section.MESSAGES, kind, (prefix, header, rest), is_held=True)
        self.distributor.keep(lsn, (header, rest))
        return lsn

    # -- receiving ---------------------------------------------------------------------------------------

    def subscribe(
        self,
        link: SessionLink,
        *,
        consumer: int,
        destination_name: str,
        subscription_name: str,
        is_durable: bool,
        from_start: bool,
        credit: int,
        then: Then,
    ) -> None:
        """Open a consumer, and the subscription that it needs. Raises `Refused`."""
        if consumer in link.consumers:
            raise refusal("consumer.known", f"consumer {consumer} is open already")
        destination = self.destination(destination_name)
        if destination.kind is DestinationKind.QUEUE:
            if subscription_name:
                raise refusal(
                    "destination.kind", f"{destination_name} is a queue: it has no named subscriptions"
                )
            self._open_consumer(
                link, consumer, destination, destination.subscriptions[destination.number], credit
            )
            then()
            return
        name = subscription_name or f"{link.number:016x}.{consumer}"
        found = [s for s in destination.subscriptions.values() if s.name == name]
        if found:
            self._open_consumer(link, consumer, destination, found[0], credit)
            then()
            return
        record = SubscriptionRecord(
            self._take_number(), destination.number, name, bool(subscription_name) and is_durable, from_start
        )
        lsn = self._append_control(Kind.SUBSCRIPTION, msgspec.msgpack.encode(record))

        def made() -> None:
            if link.is_open:
                made_one = destination.subscriptions[record.number]
                self._open_consumer(link, consumer, destination, made_one, credit)
            then()

        self._when_committed(lsn, made)

    def _open_consumer(
        self,
        link: SessionLink,
        number: int,
        destination: Destination,
        subscription: Subscription,
        credit: int,
    ) -> None:
        distribution = self.distributor.of(destination, subscription)
        opened = ConsumerLink(link.outlet, number, distribution, credit=credit)
        link.consumers[number] = opened
        self.distributor.add(distribution, opened.consumer)

    def add_credit(self, link: SessionLink, *, consumer: int, messages: int) -> None:
        opened = self._consumer(link, consumer)
        opened.consumer.credit += messages
        self.distributor.is_due(opened.distribution)

    def close_consumer(self, link: SessionLink, number: int) -> None:
        """What it had comes back; a subscription that is not durable goes with its last consumer."""
        closed = self._consumer(link, number)
        del link.consumers[number]
        distribution = closed.distribution
        self._return(distribution.subscription, distribution.remove(closed.consumer))
        subscription = distribution.subscription
        if not subscription.is_durable and not distribution.consumers:
            self.distributor.forget(subscription.number)
            self._append_soon(Section.NODE, Kind.SUBSCRIPTION_END, _end_of(subscription))

    def unsubscribe(self, destination_name: str, subscription_name: str, then: Then) -> None:
        destination = self.destination(destination_name)
        for subscription in destination.subscriptions.values():
            if subscription.name == subscription_name and subscription_name:
                lsn = self._append_control(Kind.SUBSCRIPTION_END, _end_of(subscription))
                self.distributor.forget(subscription.number)
                self._when_committed(lsn, then)
                return
        raise refusal("subscription.unknown", f"{destination_name} has no subscription {subscription_name!r}")

    def _consumer(self, link: SessionLink, number: int) -> ConsumerLink:
        found = link.consumers.get(number)
        if found is None:
            raise refusal("consumer.unknown", f"there is no consumer {number}")
        return found

    def acknowledge(
        self, link: SessionLink, *, consumer: int, transaction: int, number: int, ranges: Ranges
    ) -> None:
        """The recipient has these: it is told when that is durable."""
        subscription = self._consumer(link, consumer).distribution.subscription
        checked = self._check_ranges(subscription, ranges)
        payload = pack_ranges(subscription.number, checked)
        if transaction:
            prefix = pack_transaction(TransactionKey(link.number, transaction))
            lsn = self._append_acknowledgement(Kind.TRANSACTION_ACKNOWLEDGEMENT, prefix + payload)
        else:
            lsn = self._append_acknowledgement(Kind.ACKNOWLEDGEMENT, payload)
        link.unacknowledged.append((lsn, number))

    def _append_acknowledgement(self, kind: Kind, payload: Buffer) -> int:
        return self.journal.append(Section.MESSAGES, kind, (payload,), budget=Budget.ACKNOWLEDGEMENTS)

    def _check_ranges(self, subscription: Subscription, ranges: Ranges) -> list[tuple[int, int]]:
        destination = self.state.subscriptions[subscription.number][0]
        for first, last in ranges:
            if not 1 <= first <= last < destination.next_position:
                raise refusal(
                    "consumer.position", f"{first} to {last} are not positions of {destination.name}"
                )
        return list(ranges)

    def give_back(self, link: SessionLink, *, consumer: int, number: int, ranges: Ranges) -> None:
        """The recipient does not want these now: they are delivered again, before anything new."""
        opened = self._consumer(link, consumer)
        checked = self._check_ranges(opened.distribution.subscription, ranges)
        taken = opened.distribution.take_back(opened.consumer, checked)
        self._return(opened.distribution.subscription, taken)
        link.unacknowledged.append((self.journal.next_lsn - 1, number))

    def _return(self, subscription: Subscription, ranges: Ranges) -> None:
        if ranges:
            self._append_soon(Section.MESSAGES, Kind.RETURN, pack_ranges(subscription.number, ranges))

    def mark_delivered(self) -> None:
        """Now and then: let the journal know what was delivered, without waiting for it (decision 12)."""
        marks = self.distributor.delivered_marks()
        if marks and not self._owed:
            self._append_soon(Section.MESSAGES, Kind.DELIVERED, pack_marks(marks))

    # -- transactions ------------------------------------------------------------------------------------

    def commit(self, link: SessionLink, transaction: int, then: Callable[[bool], None]) -> None:
        """Make all parts visible at once. `then` learns whether it is committed, now or before (decision 17)."""
        session = self.state.sessions[link.number]
        if transaction in session.committed:
            then(True)
            return
        key = TransactionKey(link.number, transaction)
        if not self._is_open(key):
            then(False)
            return
        lsn = self.journal.append(
            Section.TRANSACTIONS, Kind.COMMIT, (pack_transaction(key),), budget=Budget.ACKNOWLEDGEMENTS
        )
        self._when_committed(lsn, lambda: then(True))

    def rollback(self, link: SessionLink, transaction: int, then: Then) -> None:
        """What was sent vanishes; what was received comes back."""
        key = TransactionKey(link.number, transaction)
        lsn = self.journal.append(
            Section.TRANSACTIONS, Kind.ROLLBACK, (pack_transaction(key),), budget=Budget.ACKNOWLEDGEMENTS
        )
        for consumer in link.consumers.values():
            taken = consumer.distribution.take_back(
                consumer.consumer, list(consumer.consumer.in_flight.ranges())
            )
            self._return(consumer.distribution.subscription, taken)
        self._when_committed(max(lsn, self._last_awaited()), then)

    def _is_open(self, key: TransactionKey) -> bool:
        """Whether any part of the transaction is recorded, applied or not."""
        if (key.session, key.number) in self.state.transactions:
            return True
        prefix = pack_transaction(key)
        kinds = (Kind.TRANSACTION_BATCH, Kind.TRANSACTION_ACKNOWLEDGEMENT)
        return any(
            record.kind in kinds and bytes(record.parts[0][: len(prefix)]) == prefix
            for record in self.journal.unapplied
        )


def _end_of(subscription: Subscription) -> bytes:
    return msgspec.msgpack.encode(SubscriptionEndRecord(subscription.number))
