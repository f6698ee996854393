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
from holdfast.journal.format import LSN, Kind, Section
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

# What clients can make without end has a maximum: all of it has its place in every checkpoint.
SESSIONS_MAX = 10_000
DESTINATIONS_MAX = 10_000
SUBSCRIPTIONS_MAX = 10_000
RANGE_BYTES = 16
# What a record of ranges has before them, at the most.
RANGES_PREFIX_BYTES = 24


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
        # Destinations and subscriptions whose records are not committed yet, each with its lsn.
        self._making: dict[str, tuple[int, str]] = {}
        self._subscribing: dict[tuple[int, str], int] = {}
        # Sessions whose opening, or end, is not committed yet; subscriptions that have ended, but are still there.
        self._opening: dict[int, int] = {}
        self._ending: set[int] = set()
        self._ended_subscriptions: set[int] = set()
        self._idle_since_s: dict[int, float] = {}
        self._ranges_max = (
            journal.config.acknowledgement_record_bytes_max - RANGES_PREFIX_BYTES
        ) // RANGE_BYTES

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
        number, epoch = self._resumed(text) if text else (self._new_session_number(), 1)
        record = SessionRecord(number, epoch, lifetime_s)
        lsn = self._append_control(Kind.SESSION, msgspec.msgpack.encode(record), Section.SESSIONS)
        self._opening[number] = epoch
        self._fence(number)

        def committed() -> None:
            if self._opening[number] != epoch:
                outlet.fenced()  # another has resumed it in the same moment, and was later
                return
            del self._opening[number]
            link = SessionLink(number, epoch, outlet, self.state.sessions[number].sequences)
            self._links[number] = link
            opened(link, bool(text))

        self._when_committed(lsn, committed)

    def _resumed(self, text: str) -> tuple[int, int]:
        """Number and next epoch of the session of this name."""
        number = session_number(text)
        session = None if number is None or number in self._ending else self.state.sessions.get(number)
        if session is None:
            raise refusal(
                "session.unknown", f"there is no session {text}: its lifetime is over, or it never was"
            )
        return session.number, max(session.epoch, self._opening.get(session.number, 0)) + 1

    def _new_session_number(self) -> int:
        if len(self.state.sessions) + len(self._opening) >= SESSIONS_MAX:
            raise refusal("limit.sessions", f"there are {SESSIONS_MAX} sessions, which is the maximum")
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
        self._end_session(link.number, then)

    def _end_session(self, number: int, then: Then) -> None:
        payload = msgspec.msgpack.encode(SessionEndRecord(number))
        lsn = self._append_control(Kind.SESSION_END, payload, Section.SESSIONS)
        self._ending.add(number)

        def ended() -> None:
            self._ending.discard(number)
            then()

        self._when_committed(lsn, ended)

    def expire_sessions(self, now_s: float) -> int:
        """Now and then: end the sessions that nobody was connected to for longer than their lifetime.

        How many. `now_s` is of any clock that never goes back; a restart of the node begins the time anew.
        Raises `JournalFull`: the rest is ended the next time.
        """
        expired = 0
        idle_since_s, self._idle_since_s = self._idle_since_s, {}
        for number, session in self.state.sessions.items():
            if number in self._links or number in self._opening or number in self._ending:
                continue
            since_s = self._idle_since_s[number] = idle_since_s.get(number, now_s)
            if now_s - since_s >= session.lifetime_s:
                self._end_session(number, lambda: None)
                expired += 1
        return expired

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
        if name not in self._making:
            if len(self.state.destinations) + len(self._making) >= DESTINATIONS_MAX:
                raise refusal("limit.destinations", f"there are {DESTINATIONS_MAX} destinations, the maximum")
            record = DestinationRecord(self._take_number(), name, kind)
            lsn = self._append_control(Kind.DESTINATION, msgspec.msgpack.encode(record))
            self._making[name] = lsn, kind
        lsn, kind_made = self._making[name]
        if kind != kind_made:
            raise refusal("destination.kind", f"{name} is a {kind_made}, not a {kind}")

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

    def send_event(self, event: Batch, *, destination: int = 0, boot_sequence: int = 0) -> int:
        """Record what the node itself says, out of the reserve if need be (E4). Its lsn. Raises `JournalFull`.

        It goes to a destination, or is the copy of an event in the boot section, which is a message of the log.
        """
        if boot_sequence:
            prefix, kind, section = LSN.pack(boot_sequence), Kind.BOOT_EVENT, Section.BOOT
        else:
            prefix = pack_batch_prefix(destination, (Run(0, 0, len(event)),))
            kind, section = Kind.BATCH, Section.MESSAGES
        return self._append_batch(kind, prefix, event, section=section, budget=Budget.SYSTEM_EVENTS)

    def _append_batch(
        self,
        kind: Kind,
        prefix: bytes,
        batch: Batch,
        *,
        section: Section = Section.MESSAGES,
        budget: Budget = Budget.MESSAGES,
    ) -> int:
        header, rest = stamp(batch, self._ids.origin, self._ids.take(len(batch)))
        lsn = self.journal.append(section, kind, (prefix, header, rest), is_held=True, budget=budget)
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
        if consumer in link.consumers or consumer in link.opening:
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
        found = self._subscription(destination, name)
        if found is not None:
            self._open_consumer(link, consumer, destination, found, credit)
            then()
            return
        lsn = self._make_subscription(
            destination, name, is_durable=bool(subscription_name) and is_durable, from_start=from_start
        )
        link.opening.add(consumer)

        def made() -> None:
            self._subscribing.pop((destination.number, name), None)
            link.opening.discard(consumer)
            made_one = self._subscription(destination, name)
            assert made_one is not None, "it cannot end before somebody knows of it"
            if link.is_open:
                self._open_consumer(link, consumer, destination, made_one, credit)
            else:
                self._end_unused(made_one)
            then()

        self._when_committed(max(lsn, self._last_awaited()), made)

    def _make_subscription(
        self, destination: Destination, name: str, *, is_durable: bool, from_start: bool
    ) -> int:
        """The lsn of its record, whoever asked for it first."""
        lsn = self._subscribing.get((destination.number, name))
        if lsn is None:
            if len(self.state.subscriptions) + len(self._subscribing) >= SUBSCRIPTIONS_MAX:
                raise refusal("limit.subscriptions", f"there are {SUBSCRIPTIONS_MAX} of them, the maximum")
            record = SubscriptionRecord(self._take_number(), destination.number, name, is_durable, from_start)
            lsn = self._append_control(Kind.SUBSCRIPTION, msgspec.msgpack.encode(record))
            self._subscribing[destination.number, name] = lsn
        return lsn

    def _subscription(self, destination: Destination, name: str) -> Subscription | None:
        """The subscription of this name, unless its end is recorded and only not committed yet."""
        for subscription in destination.subscriptions.values():
            if subscription.name == name and subscription.number not in self._ended_subscriptions:
                return subscription
        return None

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
        opened.consumer.is_held = link.is_held
        link.consumers[number] = opened
        self.distributor.add(distribution, opened.consumer)

    def add_credit(self, link: SessionLink, *, consumer: int, messages: int) -> None:
        opened = self._consumer(link, consumer)
        opened.consumer.credit += messages
        self.distributor.is_due(opened.distribution)

    def hold_deliveries(self, link: SessionLink, *, is_held: bool) -> None:
        """The client does not read, or reads again: meanwhile its consumers get nothing, and others their share."""
        link.is_held = is_held
        for opened in link.consumers.values():
            opened.consumer.is_held = is_held
            self.distributor.is_due(opened.distribution)

    def close_consumer(self, link: SessionLink, number: int) -> None:
        """What it had comes back; a subscription that is not durable goes with its last consumer."""
        closed = self._consumer(link, number)
        del link.consumers[number]
        distribution = closed.distribution
        self._return(distribution.subscription, distribution.remove(closed.consumer))
        self._end_unused(distribution.subscription)

    def _end_unused(self, subscription: Subscription) -> None:
        """A subscription that is not durable goes with its last consumer."""
        number = subscription.number
        is_wanted = subscription.is_durable or self.distributor.consumer_count(number)
        if not is_wanted and number not in self._ended_subscriptions:
            self._forget(subscription)
            self._append_soon(Section.NODE, Kind.SUBSCRIPTION_END, _end_of(subscription))

    def end_leftover_subscriptions(self) -> None:
        """After a start: those that were to go with consumers who have gone with the last start."""
        for _, subscription in list(self.state.subscriptions.values()):
            self._end_unused(subscription)

    def _forget(self, subscription: Subscription) -> None:
        self.distributor.forget(subscription.number)
        self._ended_subscriptions.intersection_update(self.state.subscriptions)
        self._ended_subscriptions.add(subscription.number)

    def unsubscribe(self, destination_name: str, subscription_name: str, then: Then) -> None:
        destination = self.destination(destination_name)
        subscription = self._subscription(destination, subscription_name) if subscription_name else None
        if subscription is None:
            raise refusal(
                "subscription.unknown", f"{destination_name} has no subscription {subscription_name!r}"
            )
        if self.distributor.consumer_count(subscription.number):
            raise refusal(
                "subscription.in_use", f"{subscription_name} has consumers: close them before it is removed"
            )
        lsn = self._append_control(Kind.SUBSCRIPTION_END, _end_of(subscription))
        self._forget(subscription)
        self._when_committed(lsn, then)

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
        kind, prefix = Kind.ACKNOWLEDGEMENT, b""
        if transaction:
            kind = Kind.TRANSACTION_ACKNOWLEDGEMENT
            prefix = pack_transaction(TransactionKey(link.number, transaction))
        lsn = 0
        for payload in self._pack_ranges(subscription, checked):
            # Should only the first of several find room: to record them again changes nothing.
            lsn = self._append_acknowledgement(kind, prefix + payload)
        link.unacknowledged.append((lsn, number))

    def _pack_ranges(self, subscription: Subscription, ranges: Ranges) -> list[bytes]:
        """In as many parts as the largest record asks for: mostly one."""
        return [
            pack_ranges(subscription.number, ranges[start : start + self._ranges_max])
            for start in range(0, len(ranges), self._ranges_max)
        ]

    def _append_acknowledgement(self, kind: Kind, payload: Buffer) -> int:
        return self.journal.append(Section.MESSAGES, kind, (payload,), budget=Budget.ACKNOWLEDGEMENTS)

    def _check_ranges(self, subscription: Subscription, ranges: Ranges) -> list[tuple[int, int]]:
        if subscription.number not in self.state.subscriptions:
            raise refusal("subscription.unknown", "the subscription of this consumer was removed")
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
        for payload in self._pack_ranges(subscription, ranges):
            self._append_soon(Section.MESSAGES, Kind.RETURN, payload)

    def mark_delivered(self) -> None:
        """Now and then: let the journal know what was delivered, without waiting for it (decision 12)."""
        marks = self.distributor.delivered_marks()
        if not self._owed:
            for start in range(0, len(marks), self._ranges_max):
                part = marks[start : start + self._ranges_max]
                self._append_soon(Section.MESSAGES, Kind.DELIVERED, pack_marks(part))

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
        """Whether any part of the transaction is recorded, applied or not, and it was not rolled back since."""
        is_open = (key.session, key.number) in self.state.transactions
        prefix = pack_transaction(key)
        parts = (Kind.TRANSACTION_BATCH, Kind.TRANSACTION_ACKNOWLEDGEMENT)
        for record in self.journal.unapplied:
            if record.kind in parts and bytes(record.parts[0][: len(prefix)]) == prefix:
                is_open = True
            elif record.kind == Kind.ROLLBACK and bytes(record.parts[0]) == prefix:
                is_open = False
        return is_open


def _end_of(subscription: Subscription) -> bytes:
    return msgspec.msgpack.encode(SubscriptionEndRecord(subscription.number))
