"""What the node itself has to say: messages on the well-known topic `_LOG` (C17, C20).

They are recorded on the budget of system events, so that a full disk does not silence them (E4). What happened
while the node booted waits in the boot section, and is recorded here before anything newer (E5).
"""

from __future__ import annotations

from collections import deque

from holdfast.destinations.destination import Destination, DestinationKind
from holdfast.destinations.names import LOG
from holdfast.errors import JournalFull
from holdfast.journal.boot import BootSection
from holdfast.message import Batch, Message, encode
from holdfast.node.manager import MessageManager

# Events that wait for room. Beyond it the oldest is given up: what is told last is what is so now.
WAITING_MAX = 64


class EventLog:
    """The topic of a node's own events. `open` comes first, and is committed before anything else is called."""

    def __init__(self, manager: MessageManager) -> None:
        self._manager = manager
        self._topic = 0
        self._waiting: deque[Message] = deque(maxlen=WAITING_MAX)

    def open(self) -> None:
        """Make the topic if this is the first start. Raises `JournalFull`."""

        def opened(destination: Destination) -> None:
            self._topic = destination.number

        self._manager.declare(LOG, DestinationKind.TOPIC, opened)

    def take_over(self, boot: BootSection) -> int:
        """Record what the boot section holds and the log has not. The lsn to be committed before it is cleared.

        Raises `JournalFull`: then the events stay where they are, until the next start.
        """
        lsn = self._manager.journal.commit_lsn
        for sequence, payload in boot.entries:
            if sequence > self._manager.journal.boot_sequence:
                lsn = self._manager.send_event(Batch.parse(payload), boot_sequence=sequence)
        return lsn

    def record(self, event: Message) -> None:
        """Record an event, now or as soon as there is room."""
        self._waiting.append(event)
        self.retry()

    def retry(self) -> None:
        """Now and then: record what found no room."""
        while self._waiting:
            event = Batch.parse(encode([self._waiting[0]]))
            try:
                self._manager.send_event(event, destination=self._topic)
            except JournalFull:
                return
            self._waiting.popleft()
