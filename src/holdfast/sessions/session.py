"""What of a session must outlive the server (decisions 15 to 17). Changed only by applied records.

A session remembers, for each destination, the last sequence that it is recorded to have sent, so that a resend is
recognised; its epoch, which every resume raises, so that what an older connection still sends is refused; and the
outcome of its last transactions, so that a commit whose answer was lost can be asked for again.
"""

from __future__ import annotations

from collections import deque

import msgspec

from holdfast.sessions.records import TransactionKey

# Outcomes that a session remembers. A client asks only for those whose answer it missed: the last few.
OUTCOMES_MAX = 256


class Session:
    def __init__(self, *, number: int, epoch: int, lifetime_s: int) -> None:
        self.number = number
        self.epoch = epoch
        self.lifetime_s = lifetime_s
        self.sequences: dict[int, int] = {}
        self.committed: deque[int] = deque(maxlen=OUTCOMES_MAX)

    @property
    def text(self) -> str:
        return session_text(self.number)

    def record(self, destination: int, sequence: int) -> None:
        """Everything up to this sequence is recorded."""
        if sequence > self.sequences.get(destination, 0):
            self.sequences[destination] = sequence

    def snapshot(self) -> list[object]:
        return [
            self.number,
            self.epoch,
            self.lifetime_s,
            list(self.sequences.items()),
            list(self.committed),
        ]

    @classmethod
    def restore(cls, snapshot: tuple[int, int, int, list[tuple[int, int]], list[int]]) -> Session:
        number, epoch, lifetime_s, sequences, committed = snapshot
        session = cls(number=number, epoch=epoch, lifetime_s=lifetime_s)
        session.sequences = dict(sequences)
        session.committed.extend(committed)
        return session


class TransactionBatch(msgspec.Struct, frozen=True, array_like=True):
    """A batch that is recorded and not visible yet."""

    lsn: int
    destination: int
    row_count: int


class TransactionAcknowledgement(msgspec.Struct, frozen=True, array_like=True):
    subscription: int
    ranges: list[tuple[int, int]]


class Transaction:
    """An open transaction: what becomes visible, or vanishes, at once."""

    def __init__(self, key: TransactionKey) -> None:
        self.key = key
        self.batches: list[TransactionBatch] = []
        self.acknowledgements: list[TransactionAcknowledgement] = []

    def snapshot(self) -> list[object]:
        return [self.key.session, self.key.number, self.batches, self.acknowledgements]

    @classmethod
    def restore(
        cls,
        snapshot: tuple[int, int, list[TransactionBatch], list[TransactionAcknowledgement]],
    ) -> Transaction:
        session, number, batches, acknowledgements = snapshot
        transaction = cls(TransactionKey(session, number))
        transaction.batches = batches
        transaction.acknowledgements = acknowledgements
        return transaction


def session_text(number: int) -> str:
    """The name of a session, as clients see it."""
    return f"{number:016x}"


def session_number(text: str) -> int | None:
    """The number behind a name; None if it is no name of a session."""
    if len(text) != 16:
        return None
    try:
        number = int(text, 16)
    except ValueError:
        return None
    return number if session_text(number) == text else None
