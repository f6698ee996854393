"""Brings messages to consumers: all distributions of a node, and the bytes that they need.

What was sent a moment ago is delivered from memory (a bounded cache); an older batch is read from the journal, off
the loop, while others go on (decision 14). A slow consumer, or a cold read, holds up its own subscription only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

from holdfast.delivery.distribution import Consumer, Delivery, Distribution
from holdfast.destinations.destination import Destination, Subscription
from holdfast.destinations.records import parse_batch
from holdfast.errors import JournalCorrupt, NotHeld
from holdfast.journal.format import LSN, Kind, Record
from holdfast.journal.journal import Journal
from holdfast.journal.lookup import HeldRead
from holdfast.journal.storage import Buffer
from holdfast.message import Batch, slice_rows
from holdfast.node.state import Acknowledged, Change, Returned, Visible
from holdfast.sessions.records import parse_transaction

# Batches that are kept in memory for delivery; older ones are read from the journal.
CACHE_BYTES_MAX = 64 * 1024 * 1024
# Reads of older batches that are under way at once.
READS_MAX = 8

Parts = Sequence[Buffer]


class Recipient(Protocol):
    """The key of a `Consumer`: takes what is delivered to it."""

    def deliver(self, *, generation: int, redeliveries: int, first_position: int, batch: Parts) -> None: ...


class Distributor:
    """All distributions of a node."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._distributions: dict[int, Distribution] = {}
        self._due: dict[int, Distribution] = {}
        self._cache: OrderedDict[int, Parts] = OrderedDict()
        self._cache_bytes = 0
        self._wanted: OrderedDict[int, list[Callable[[Parts | None], None]]] = OrderedDict()
        self._reading = 0
        # Records that could not be read: whoever needs one waits for a repair, and is not asked for it again.
        self._damaged: set[int] = set()

    # -- consumers ---------------------------------------------------------------------------------------

    def of(self, destination: Destination, subscription: Subscription) -> Distribution:
        """The distribution of a subscription; made when it is first needed."""
        found = self._distributions.get(subscription.number)
        if found is None:
            found = Distribution(destination, subscription)
            self._distributions[subscription.number] = found
        return found

    def forget(self, subscription_number: int) -> None:
        self._distributions.pop(subscription_number, None)
        self._due.pop(subscription_number, None)

    def add(self, distribution: Distribution, consumer: Consumer) -> None:
        distribution.add(consumer)
        self.is_due(distribution)

    def is_due(self, distribution: Distribution) -> None:
        """Something changed: there may be something to deliver."""
        self._due[distribution.subscription.number] = distribution

    @property
    def has_due(self) -> bool:
        """Whether `distribute` has something to look at."""
        return bool(self._due)

    def consumer_count(self, subscription_number: int) -> int:
        found = self._distributions.get(subscription_number)
        return 0 if found is None else len(found.consumers)

    def take_in(self, changes: Sequence[Change]) -> None:
        """Learn what records have changed."""
        for change in changes:
            if isinstance(change, Visible):
                for number in change.destination.subscriptions:
                    if number in self._distributions:
                        self.is_due(self._distributions[number])
                continue
            distribution = self._distributions.get(change.subscription.number)
            if distribution is None:
                continue
            if isinstance(change, Acknowledged):
                distribution.acknowledged(change.ranges)
            elif isinstance(change, Returned):
                distribution.give_again(change.ranges)
            self.is_due(distribution)

    def delivered_marks(self) -> list[tuple[int, int]]:
        """How far each distribution has sent beyond what its subscription remembers (decision 12)."""
        return [
            (number, distribution.delivered_position)
            for number, distribution in self._distributions.items()
            if distribution.delivered_position
            > max(distribution.subscription.delivered, distribution.subscription.cursor)
        ]

    # -- delivering --------------------------------------------------------------------------------------

    def distribute(self) -> None:
        """Deliver whatever is due, as far as credit and memory allow."""
        due, self._due = self._due, {}
        for distribution in due.values():
            while (delivery := distribution.next_delivery()) is not None:
                parts = self._cache.get(delivery.batch.lsn)
                if parts is None:
                    self._read_for(distribution, delivery.batch.lsn)
                    break
                distribution.sent(delivery)
                self._deliver(delivery, parts)

    def _deliver(self, delivery: Delivery, parts: Parts) -> None:
        batch = delivery.batch
        if delivery.first != batch.first or delivery.last != batch.last:
            whole = Batch.parse(parts[0] if len(parts) == 1 else b"".join(parts))
            start = delivery.first - batch.first
            parts = (slice_rows(whole, start, delivery.last - batch.first + 1),)
        recipient: Recipient = delivery.consumer.key  # type: ignore[assignment]
        recipient.deliver(
            generation=delivery.consumer.generation,
            redeliveries=delivery.redeliveries,
            first_position=delivery.first,
            batch=parts,
        )

    # -- bytes -------------------------------------------------------------------------------------------

    def keep(self, lsn: int, parts: Parts) -> None:
        """A batch that was just recorded, or read: it is likely to be delivered soon."""
        if lsn in self._cache:
            return  # two have asked for it
        self._cache[lsn] = parts
        self._cache_bytes += sum(map(len, parts))
        while self._cache_bytes > CACHE_BYTES_MAX:
            _, evicted = self._cache.popitem(last=False)
            self._cache_bytes -= sum(map(len, evicted))

    def _read_for(self, distribution: Distribution, lsn: int) -> None:
        def arrived(parts: Parts | None) -> None:
            if lsn not in self._damaged:
                self.is_due(distribution)

        self.want(lsn, arrived)

    def want(self, lsn: int, arrived: Callable[[Parts | None], None]) -> None:
        """Ask for the batch in a held record. `arrived` gets it, or None if it is not held, or damaged."""
        parts = self._cache.get(lsn)
        if parts is not None or lsn in self._damaged:
            arrived(parts)
        else:
            self._wanted.setdefault(lsn, []).append(arrived)

    def begin_read(self) -> HeldRead | None:
        """The next batch to be read from the journal."""
        while self._wanted and self._reading < READS_MAX:
            lsn, waiting = self._wanted.popitem(last=False)
            try:
                read = HeldRead(self._journal, lsn)
            except NotHeld:
                for arrived in waiting:
                    arrived(None)
                continue
            read.waiting = waiting
            self._reading += 1
            return read
        return None

    def finish_read(self, read: HeldRead) -> None:
        """The batch was read. Raises `JournalCorrupt` if it is damaged: then those wait who need it, and no others."""
        self._reading -= 1
        try:
            record = read.finish()
        except JournalCorrupt:
            self._damaged.add(read.lsn)
            for arrived in read.waiting:
                arrived(None)
            raise
        parts = (batch_in(record),)
        self.keep(read.lsn, parts)
        for arrived in read.waiting:
            arrived(parts)


def batch_in(record: Record) -> memoryview:
    """The batch in a record of kind `BATCH`, `TRANSACTION_BATCH` or `BOOT_EVENT`."""
    payload: Buffer = record.payload
    if record.kind == Kind.BOOT_EVENT:
        return memoryview(payload)[LSN.size :]
    if record.kind == Kind.TRANSACTION_BATCH:
        _, payload = parse_transaction(payload)
    return parse_batch(payload).batch
