"""The history checker: what clients saw, judged by the promises that were made to them (decision 31).

Clients log what they did and what they were told: sent, confirmed, received, acknowledged. The checker knows
nothing of how the system works. One checker judges simulated runs, killed processes and pipelines alike.

The promises:
- *nothing is lost*: what was confirmed, and not acknowledged by a recipient, reaches that recipient;
- *nothing is invented*: what is received was sent, and as it was sent;
- *nothing is doubled*: what a recipient's acknowledgement was confirmed for does not come again to it, and a
  message has one position;
- *all or nothing*: of a transaction that was rolled back, nothing is ever received;
- *order*: what is not marked as redelivered comes to a recipient in the order of its position, from one start of
  the node to the next; and positions follow the order in which one session sent.

A message whose outcome its sender never learned may be there or not, but only once.
"""

from __future__ import annotations

import msgspec


class Sent(msgspec.Struct, frozen=True):
    token: str
    session: str
    destination: str
    body: bytes


class Violation(msgspec.Struct, frozen=True):
    """A promise that was broken, and by which message."""

    promise: str
    token: str
    detail: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.token}: {self.detail}"


class _Recipient:
    """What one recipient of one destination has seen."""

    def __init__(self) -> None:
        self.last_new_position = 0
        self.received: set[str] = set()
        self.acknowledging: set[str] = set()
        self.acknowledged: set[str] = set()


class History:
    """The log of all clients, in the order in which things happened to each."""

    def __init__(self) -> None:
        self.sent: dict[str, Sent] = {}
        self.confirmed: set[str] = set()
        self.vanished: set[str] = set()
        self.violations: list[Violation] = []
        self._positions: dict[str, tuple[str, int]] = {}
        self._tokens: dict[tuple[str, int], str] = {}
        self._recipients: dict[tuple[str, str], _Recipient] = {}

    # -- what clients log --------------------------------------------------------------------------------

    def send(self, token: str, *, session: str, destination: str, body: bytes) -> None:
        assert token not in self.sent, "every message has its own token"
        self.sent[token] = Sent(token, session, destination, body)

    def confirm(self, token: str) -> None:
        self.confirmed.add(token)

    def vanish(self, token: str) -> None:
        """The sender was told that this message was rolled back."""
        self.vanished.add(token)

    def receive(
        self,
        token: str,
        *,
        recipient: str,
        destination: str,
        position: int,
        body: bytes,
        is_redelivered: bool = False,
    ) -> None:
        sent = self.sent.get(token)
        if sent is None or sent.destination != destination:
            self._violated("nothing is invented", token, f"received by {recipient} from {destination}")
            return
        if token in self.vanished:
            self._violated("all or nothing", token, f"was rolled back, and {recipient} received it")
        if sent.body != body:
            self._violated("nothing is invented", token, f"{recipient} received another body than was sent")
        self._check_position(token, destination, position)
        self._check_reception(token, recipient, destination, position, is_redelivered=is_redelivered)

    def acknowledging(self, token: str, *, recipient: str) -> None:
        """The recipient asked for it; it does not know yet whether that was heard."""
        self._of(recipient, self.sent[token].destination).acknowledging.add(token)

    def acknowledged(self, token: str, *, recipient: str) -> None:
        """The recipient was told that its acknowledgement is durable."""
        self._of(recipient, self.sent[token].destination).acknowledged.add(token)

    def restart(self) -> None:
        """The node started anew: it presents again what is not acknowledged, from the oldest on."""
        for seen in self._recipients.values():
            seen.last_new_position = 0

    def forget_unconfirmed(self, token: str) -> None:
        """The system may have dropped this message; if it comes later, it may have another position."""
        place = self._positions.pop(token, None)
        if place is not None:
            self._tokens.pop(place, None)

    # -- judging -----------------------------------------------------------------------------------------

    def check_delivered(self, *, recipient: str, destination: str) -> None:
        """At the end, with everything drained: was all that was confirmed received?"""
        for token in sorted(self.undelivered(recipient=recipient, destination=destination)):
            self._violated("nothing is lost", token, f"confirmed, but {recipient} never received it")

    def undelivered(self, *, recipient: str, destination: str) -> list[str]:
        """What was confirmed, and has not come to this recipient yet."""
        received = self._of(recipient, destination).received
        return [
            token
            for token in self.confirmed
            if token not in received and self.sent[token].destination == destination
        ]

    def check_session_order(self) -> None:
        """Positions follow the order of sending, session by session and destination by destination."""
        last: dict[tuple[str, str], tuple[int, str]] = {}
        for token, sent in self.sent.items():
            place = self._positions.get(token)
            if place is None:
                continue
            key = (sent.session, sent.destination)
            before = last.get(key)
            if before is not None and before[0] > place[1]:
                self._violated("order", token, f"position {place[1]}; sent after {before[1]} at {before[0]}")
            last[key] = (place[1], token)

    def _check_position(self, token: str, destination: str, position: int) -> None:
        place = (destination, position)
        if self._positions.setdefault(token, place) != place:
            self._violated("nothing is doubled", token, f"at {self._positions[token]} and at {place}")
        if self._tokens.setdefault(place, token) != token:
            self._violated("nothing is doubled", token, f"shares {place} with {self._tokens[place]}")

    def _check_reception(
        self, token: str, recipient: str, destination: str, position: int, *, is_redelivered: bool
    ) -> None:
        seen = self._of(recipient, destination)
        if token in seen.acknowledged:
            self._violated(
                "nothing is doubled", token, f"came again to {recipient} after its acknowledgement"
            )
        if token not in seen.received and not is_redelivered:
            if position < seen.last_new_position:
                self._violated("order", token, f"{recipient} saw {seen.last_new_position} before {position}")
            seen.last_new_position = max(seen.last_new_position, position)
        seen.received.add(token)

    def _of(self, recipient: str, destination: str) -> _Recipient:
        return self._recipients.setdefault((recipient, destination), _Recipient())

    def _violated(self, promise: str, token: str, detail: str) -> None:
        self.violations.append(Violation(promise, token, detail))
