"""Simulated clients of a message manager. They outlive it: each goes on where it was when the node is back.

They follow the rules of a session (decisions 15 to 17) as any client must: what is not confirmed is sent again with
the same sequences; what was acknowledged is acknowledged again; a commit whose answer was lost is asked for again,
and its transaction run again if the answer is no.
"""

from __future__ import annotations

from collections import deque
from random import Random

import msgspec

from holdfast.errors import JournalFull
from holdfast.journal.storage import Buffer
from holdfast.message import Batch, Message, encode
from holdfast.node.distributor import Parts
from holdfast.node.links import SessionLink
from holdfast.node.manager import MessageManager
from holdfast.sessions.session import session_text
from holdfast.simulation.history import History

LIFETIME_S = 3600
CREDIT = 20


class Pending(msgspec.Struct, frozen=True):
    """A message that its sender does not know to be durable yet."""

    sequence: int
    token: str
    body: bytes


class SimulatedClient:
    """One session, over all lives of the node."""

    def __init__(self, name: str, random: Random, history: History) -> None:
        self.name = name
        self._random = random
        self._history = history
        self._text = ""
        self._count = 0
        self.link: SessionLink | None = None

    def connect(self, manager: MessageManager) -> None:
        """Open the session, or resume it. Until it is open, the client waits."""
        self._manager = manager
        manager.open_session(self, text=self._text, lifetime_s=LIFETIME_S, opened=self._opened)

    def lose_connection(self) -> None:
        self.link = None

    def _opened(self, link: SessionLink, is_resumed: bool) -> None:
        self.link = link
        self._text = session_text(link.number)
        self.resumed()

    def resumed(self) -> None:
        """Go on where it was."""

    def act(self) -> None:
        """Do something."""

    def new_message(self, destination: str) -> tuple[str, bytes]:
        self._count += 1
        token = f"{self.name}-{self._count}"
        body = f"{token} ".encode() + self._random.randbytes(self._random.randint(0, 60))
        self._history.send(token, session=self.name, destination=destination, body=body)
        return token, body

    # -- outlet ------------------------------------------------------------------------------------------

    def confirmed(self, destination: int, sequence: int) -> None: ...

    def acknowledged(self, number: int) -> None: ...

    def delivered(
        self, *, consumer: int, generation: int, redeliveries: int, first_position: int, batch: Parts
    ) -> None: ...

    def fenced(self) -> None:
        self.link = None


class Producer(SimulatedClient):
    """Sends to one destination, many at once, in batches of any size."""

    def __init__(self, name: str, random: Random, history: History, destination: tuple[str, int]) -> None:
        super().__init__(name, random, history)
        self._destination_name, self._destination = destination
        self._unconfirmed: deque[Pending] = deque()
        self._next_sequence = 1
        self._next_unsent = 1

    def resumed(self) -> None:
        self._next_unsent = self._unconfirmed[0].sequence if self._unconfirmed else self._next_sequence

    def act(self) -> None:
        if len(self._unconfirmed) < 30:
            for _ in range(self._random.randint(1, 5)):
                token, body = self.new_message(self._destination_name)
                self._unconfirmed.append(Pending(self._next_sequence, token, body))
                self._next_sequence += 1
        self.send_unsent()

    def send_unsent(self) -> None:
        link = self.link
        unsent = [pending for pending in self._unconfirmed if pending.sequence >= self._next_unsent]
        while unsent and link is not None:
            count = self._random.randint(1, len(unsent))
            part, unsent = unsent[:count], unsent[count:]
            batch = Batch.parse(encode([Message(body=pending.body) for pending in part]))
            try:
                self._manager.send(
                    link,
                    destination=self._destination,
                    transaction=0,
                    first_sequence=part[0].sequence,
                    batch=batch,
                )
            except JournalFull:
                return
            self._next_unsent = part[-1].sequence + 1

    def confirmed(self, destination: int, sequence: int) -> None:
        if self.link is None:
            return
        while self._unconfirmed and self._unconfirmed[0].sequence <= sequence:
            self._history.confirm(self._unconfirmed.popleft().token)

    @property
    def is_idle(self) -> bool:
        return not self._unconfirmed


class Recipient(SimulatedClient):
    """Receives from one subscription, and acknowledges, returns or forgets about it for a while."""

    def __init__(
        self,
        name: str,
        random: Random,
        history: History,
        *,
        destination: str,
        subscription: str,
    ) -> None:
        super().__init__(name, random, history)
        self._destination_name = destination
        self._subscription_name = subscription
        self._in_hand: dict[int, str] = {}
        self._unconfirmed: deque[tuple[int, dict[int, str]]] = deque()
        self._number = 0
        self._is_consuming = False

    @property
    def history_name(self) -> str:
        """Consumers of one subscription are one recipient: what one of them confirmed must not come to another."""
        return f"{self._destination_name}/{self._subscription_name}"

    def lose_connection(self) -> None:
        super().lose_connection()
        self._is_consuming = False

    def resumed(self) -> None:
        assert self.link is not None
        self._in_hand.clear()
        self._manager.subscribe(
            self.link,
            consumer=1,
            destination_name=self._destination_name,
            subscription_name=self._subscription_name,
            is_durable=True,
            from_start=True,
            credit=CREDIT,
            then=self._consuming,
        )

    def _consuming(self) -> None:
        """Acknowledge again what may not have been heard."""
        if self.link is None:
            return
        self._is_consuming = True
        again, self._unconfirmed = self._unconfirmed, deque()
        for _, positions in again:
            self._acknowledge(positions)

    def delivered(
        self, *, consumer: int, generation: int, redeliveries: int, first_position: int, batch: Parts
    ) -> None:
        if self.link is None:
            # The connection is broken, and the node has not noticed yet: this is lost on its way.
            return
        acknowledged = {position for _, positions in self._unconfirmed for position in positions}
        for row, body in enumerate(bodies_of(batch)):
            position = first_position + row
            token = body.split(b" ")[0].decode()
            if position in acknowledged:
                # It came again before its acknowledgement was durable: say it again, and do nothing else.
                self._acknowledge({position: token})
                continue
            self._history.receive(
                token,
                recipient=self.history_name,
                destination=self._destination_name,
                position=position,
                body=body,
                is_redelivered=redeliveries > 0,
            )
            self._in_hand[position] = token

    def act(self) -> None:
        if not self._is_consuming or not self._in_hand:
            return
        chosen = {p: t for p, t in self._in_hand.items() if self._random.random() < 0.7}
        if chosen and self._random.random() < 0.1:
            self._give_back(chosen)
        elif chosen:
            self._acknowledge(chosen)

    def acknowledge_all(self) -> None:
        if self._is_consuming and self._in_hand:
            self._acknowledge(dict(self._in_hand))

    def _acknowledge(self, positions: dict[int, str]) -> None:
        assert self.link is not None
        ranges = [(position, position) for position in sorted(positions)]
        for token in positions.values():
            self._history.acknowledging(token, recipient=self.history_name)
        number = self._number + 1
        try:
            self._manager.acknowledge(self.link, consumer=1, transaction=0, number=number, ranges=ranges)
        except JournalFull:
            # Not heard: it stays in hand, and is acknowledged later.
            self._in_hand.update(positions)
            return
        self._number = number
        self._unconfirmed.append((number, positions))
        self._let_go(positions)

    def _give_back(self, positions: dict[int, str]) -> None:
        assert self.link is not None
        self._number += 1
        ranges = [(position, position) for position in sorted(positions)]
        self._manager.give_back(self.link, consumer=1, number=self._number, ranges=ranges)
        # All that it has comes again, in its order: what it holds is of an older generation now.
        self._let_go(dict(self._in_hand))

    def _let_go(self, positions: dict[int, str]) -> None:
        for position in positions:
            self._in_hand.pop(position, None)
        assert self.link is not None
        self._manager.add_credit(self.link, consumer=1, messages=len(positions))

    def acknowledged(self, number: int) -> None:
        if self.link is None:
            return
        while self._unconfirmed and self._unconfirmed[0][0] <= number:
            _, positions = self._unconfirmed.popleft()
            for token in positions.values():
                self._history.acknowledged(token, recipient=self.history_name)


class Transactor(SimulatedClient):
    """Sends to several destinations in one transaction, and commits or rolls back."""

    def __init__(
        self, name: str, random: Random, history: History, destinations: list[tuple[str, int]]
    ) -> None:
        super().__init__(name, random, history)
        self._destinations = destinations
        self._transaction = 0
        self._parts: list[tuple[int, str, bytes]] = []
        self._is_committing = False
        self._is_recorded = True

    def resumed(self) -> None:
        """The transaction that was open is gone; one whose commit was asked for may be committed."""
        if self._is_committing:
            self._ask()
        elif self._parts:
            self._forget()

    def act(self) -> None:
        if self.link is None or self._is_committing:
            return
        if not self._parts:
            self._begin()
        if not self._is_recorded:
            self._record()
        elif self._random.random() < 0.2:
            link, tokens = self.link, [token for _, token, _ in self._parts]
            self._manager.rollback(link, self._transaction, lambda: self._rolled_back(tokens))
            self._parts = []
        else:
            self._is_committing = True
            self._ask()

    def _begin(self) -> None:
        self._transaction += 1
        self._is_recorded = False
        for name, number in self._destinations:
            for _ in range(self._random.randint(1, 3)):
                token, body = self.new_message(name)
                self._parts.append((number, token, body))

    def _record(self) -> None:
        assert self.link is not None
        for number, _, body in self._parts:
            batch = Batch.parse(encode([Message(body=body)]))
            try:
                self._manager.send(
                    self.link,
                    destination=number,
                    transaction=self._transaction,
                    first_sequence=0,
                    batch=batch,
                )
            except JournalFull:
                # Not all of it fits: begin again under a new number, when there is room.
                self._manager.rollback(self.link, self._transaction, lambda: None)
                self._transaction += 1
                return
        self._is_recorded = True

    def _ask(self) -> None:
        assert self.link is not None
        self._manager.commit(self.link, self._transaction, self._answered)

    def _answered(self, is_committed: bool) -> None:
        self._is_committing = False
        if is_committed:
            for _, token, _ in self._parts:
                self._history.confirm(token)
            self._parts = []
        else:
            self._forget()

    def _forget(self) -> None:
        self._rolled_back([token for _, token, _ in self._parts])
        self._parts = []

    def _rolled_back(self, tokens: list[str]) -> None:
        for token in tokens:
            self._history.vanish(token)

    @property
    def is_idle(self) -> bool:
        return not self._parts


def bodies_of(batch: Parts) -> list[bytes]:
    whole: Buffer = batch[0] if len(batch) == 1 else b"".join(batch)
    return [message.body for message in Batch.parse(whole).messages()]
