"""The sends of one session to one destination.

A batch is *kept* from the moment that the program gave it until it is confirmed, so that it can be sent
again. It gets its sequences when it is first put on the wire, and keeps them for ever: by them the server
recognises a resend.

    gathering  single messages that wait to become one batch
    kept       batches in order; the first `_sent_count` of them are on the wire of this connection

Gathering adds no latency at light load: while nothing is on its way, what comes is sent at once. While
something is on its way, single messages wait for its confirmation and then go together, or earlier, once they
fill a batch.

In a transacted session nothing is confirmed before the commit: batches are kept until then, single messages
are gathered until they fill a batch or the commit wants them, and after a resume the transaction is run
again. What the server recorded of an aborted run has used up its sequences, so that a new run takes new ones,
from what the server has recorded.

Invariants: sequences of kept batches are contiguous and end before `next_sequence`; the batches that have
none stand last and are not sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from holdfast.client.limits import ClientLimits
from holdfast.errors import LimitExceeded, OutcomeUnknown, ProtocolError
from holdfast.message import BATCH_ROWS_MAX, Batch, gather
from holdfast.wire.frames import Send

GATHER_OVERHEAD_BYTES = 16
"""What a row may take more in a gathered batch than in one of its own: offsets in place of its header."""


class Allowance:
    """How much a session may keep unconfirmed, over all of its destinations."""

    def __init__(self, limits: ClientLimits) -> None:
        self.messages_max = limits.unconfirmed_messages_max
        self.bytes_max = limits.unconfirmed_bytes_max
        self.messages = 0
        self.bytes = 0

    def check_fits(self, *, messages: int, size_bytes: int) -> None:
        """Raise LimitExceeded for what has no room even where nothing else is kept."""
        if messages > self.messages_max:
            raise LimitExceeded("unconfirmed_messages_max", value=messages, maximum=self.messages_max)
        if size_bytes > self.bytes_max:
            raise LimitExceeded("unconfirmed_bytes_max", value=size_bytes, maximum=self.bytes_max)

    def has_room(self, *, messages: int, size_bytes: int) -> bool:
        return self.messages + messages <= self.messages_max and self.bytes + size_bytes <= self.bytes_max

    def take(self, *, messages: int, size_bytes: int) -> None:
        self.messages += messages
        self.bytes += size_bytes

    def give_back(self, kept: Kept) -> None:
        self.messages -= kept.row_count
        self.bytes -= kept.charged_bytes


class Kept:
    """One batch until it is confirmed. `tickets` are (ticket, row) of the calls that end with it."""

    __slots__ = ("batch", "charged_bytes", "first_sequence", "row_count", "tickets")

    def __init__(
        self, batch: bytes, *, row_count: int, charged_bytes: int, tickets: list[tuple[int, int]]
    ) -> None:
        self.batch = batch
        self.row_count = row_count
        self.charged_bytes = charged_bytes
        self.tickets = tickets
        self.first_sequence = 0  # 0: not given yet

    @property
    def last_sequence(self) -> int:
        return self.first_sequence + self.row_count - 1

    def receipts(self) -> list[tuple[int, int]]:
        return [(ticket, self.first_sequence + row) for ticket, row in self.tickets]


class Outgoing:
    """The machine of one destination. `number` is what the server calls it on this connection; 0 is not declared."""

    def __init__(self, name: str, *, limits: ClientLimits, allowance: Allowance, is_transacted: bool) -> None:
        self.name = name
        self.number = 0
        self.is_declaring = False
        self.is_blocked = False
        self.next_sequence = 1
        self._limits = limits
        self._allowance = allowance
        self._is_transacted = is_transacted
        self._gathering: list[tuple[bytes, int]] = []
        self._gathering_bytes = 0
        self._kept: deque[Kept] = deque()
        self._sent_count = 0

    # ---- what the program gives ------------------------------------------------------------------------

    def add_single(self, batch: bytes, ticket: int, *, batch_bytes_max: int) -> None:
        """One message, as a batch of one row: to be gathered with its neighbours."""
        size_bytes = len(batch) + GATHER_OVERHEAD_BYTES
        bytes_max = min(self._limits.gathered_bytes_max, batch_bytes_max)
        if self._gathering_bytes + size_bytes > bytes_max or len(self._gathering) == BATCH_ROWS_MAX:
            self._close_gathering()
        self._allowance.take(messages=1, size_bytes=len(batch))
        self._gathering.append((batch, ticket))
        self._gathering_bytes += size_bytes
        if len(self._gathering) >= self._limits.gathered_messages_max:
            self._close_gathering()

    def add_batch(self, batch: bytes, row_count: int, ticket: int | None) -> None:
        """A batch of the program's own making; it stays one."""
        self._close_gathering()
        self._allowance.take(messages=row_count, size_bytes=len(batch))
        tickets = [] if ticket is None else [(ticket, row_count - 1)]
        self._kept.append(Kept(batch, row_count=row_count, charged_bytes=len(batch), tickets=tickets))

    def _close_gathering(self) -> None:
        """What was gathered becomes one batch, which goes as soon as it can."""
        singles, self._gathering, self._gathering_bytes = self._gathering, [], 0
        if not singles:
            return
        tickets = [(ticket, row) for row, (_, ticket) in enumerate(singles)]
        charged_bytes = sum(len(batch) for batch, _ in singles)
        joined = singles[0][0] if len(singles) == 1 else gather([Batch.parse(batch) for batch, _ in singles])
        self._kept.append(Kept(joined, row_count=len(singles), charged_bytes=charged_bytes, tickets=tickets))

    # ---- what goes on the wire -------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Nothing is kept and nothing waits."""
        return not self._kept and not self._gathering

    @property
    def is_sent(self) -> bool:
        """All that the program gave is on the wire."""
        return not self._gathering and self._sent_count == len(self._kept)

    @property
    def has_unknown(self) -> bool:
        """Something may have reached the server that it has not confirmed."""
        return bool(self._kept) and self._kept[0].first_sequence > 0

    @property
    def needs_number(self) -> bool:
        return not self.number and not self.is_declaring and not self.is_sent

    def due(self, *, transaction: int, is_forced: bool) -> Iterator[Send]:
        """What is to be sent now. `is_forced` sends also what would be gathered."""
        if not self.number or self.is_blocked:
            return
        nothing_in_flight = self._sent_count == 0 and not self._is_transacted
        if is_forced or (nothing_in_flight and not self._kept):
            self._close_gathering()
        while self._sent_count < len(self._kept):
            kept = self._kept[self._sent_count]
            if not kept.first_sequence:
                kept.first_sequence = self.next_sequence
                self.next_sequence += kept.row_count
            self._sent_count += 1
            yield Send(self.number, transaction, kept.first_sequence, kept.batch)

    # ---- what the server says --------------------------------------------------------------------------

    def confirm(self, sequence: int) -> list[tuple[int, int]]:
        """All up to this sequence is durable: the receipts of the calls that this ends."""
        if sequence >= self.next_sequence:
            raise ProtocolError(
                f"{self.name}: sequence {sequence} was confirmed, but never sent",
                reason_code="protocol.unexpected",
            )
        receipts: list[tuple[int, int]] = []
        while self._kept and self._kept[0].first_sequence and self._kept[0].last_sequence <= sequence:
            kept = self._kept.popleft()
            self._sent_count = max(0, self._sent_count - 1)
            self._allowance.give_back(kept)
            receipts += kept.receipts()
        return receipts

    def lost(self) -> None:
        """The connection is gone: nothing is on the wire, and the number means nothing any more."""
        self.number = 0
        self.is_declaring = False
        self.is_blocked = False
        self._sent_count = 0

    def resumed(self, recorded: int) -> list[tuple[int, int]]:
        """The server has recorded all up to here. What is beyond will be sent again, with the same sequences."""
        kept_from = next((kept.first_sequence for kept in self._kept), 0) or self.next_sequence
        if recorded < kept_from - 1:
            raise OutcomeUnknown(
                f"{self.name}: the server has a record of {recorded} messages of this session, though it "
                f"confirmed {kept_from - 1}. What is not confirmed was kept; nothing was sent again."
            )
        return self.confirm(recorded)

    # ---- transactions ----------------------------------------------------------------------------------

    def run_again(self, recorded: int | None = None) -> None:
        """Send all of the transaction anew, with new sequences: from what the server has recorded, where it said so."""
        if recorded is not None:
            self.next_sequence = recorded + 1
        for kept in self._kept:
            kept.first_sequence = 0
        self._sent_count = 0

    def drop_all(self) -> list[int]:
        """Forget all that is kept: it was committed, rolled back, or cannot be sent. The tickets of what is dropped."""
        self._close_gathering()
        tickets = [ticket for kept in self._kept for ticket, _ in kept.tickets]
        for kept in self._kept:
            self._allowance.give_back(kept)
        self._kept.clear()
        self._sent_count = 0
        return tickets

    def new_session(self) -> None:
        """The server knows nothing of us: count from the beginning. Only where nothing is kept, or all is run again."""
        assert self._is_transacted or not any(kept.first_sequence for kept in self._kept)
        self.run_again(0)

    def check_invariants(self) -> None:
        assert 0 <= self._sent_count <= len(self._kept)
        sequences = [(kept.first_sequence, kept.last_sequence) for kept in self._kept if kept.first_sequence]
        expected = self.next_sequence
        for first, last in reversed(sequences):
            assert last == expected - 1, "sequences are contiguous"
            expected = first
        assert all(kept.first_sequence for kept in list(self._kept)[: len(sequences)]), (
            "unnumbered ones are last"
        )
        assert self._sent_count <= len(sequences), "what is sent has sequences"
