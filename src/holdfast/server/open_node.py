"""A node is opened: storage, journal, manager, the log of its own events; and closed again.

While the journal is read the node has only its boot section to write to. What it says there becomes the first
messages of this start on `_LOG` (E5).
"""

from __future__ import annotations

import secrets
import time

from holdfast.disk import FileStorage
from holdfast.disk.writer import JournalWriter
from holdfast.errors import JournalFull
from holdfast.journal.boot import BootSection
from holdfast.journal.journal import Journal
from holdfast.journal.opening import (
    Identity,
    RecoveryReport,
    close_journal,
    open_journal,
    prepare_journal,
    run_work,
)
from holdfast.message import IdSource, Message, Origin, Severity, encode
from holdfast.node.events import EventLog
from holdfast.node.manager import MessageManager
from holdfast.node.state import MessageState
from holdfast.server.configuration import Configuration

SITE = NODE = 1
SALT_BITS = 64
EVENT_SOURCE = "holdfast.node"


def now_us() -> int:
    return time.time_ns() // 1000


def node_event(what: str, text: str, severity: Severity = Severity.INFO, **properties: int | str) -> Message:
    """An event of the node: `what` completes its type."""
    return Message(
        time_us=now_us(),
        source=EVENT_SOURCE,
        type=f"{EVENT_SOURCE}.{what}",
        severity=severity,
        properties=dict(properties),
        body=text.encode(),
    )


class OpenNode:
    """All that a server works on. Raises `HoldfastError` if it cannot be opened; then nothing is left open."""

    def __init__(self, configuration: Configuration) -> None:
        self.storage = FileStorage(configuration.journal_directory)
        try:
            self._open(configuration)
        except BaseException:
            self.storage.close()
            raise

    journal: Journal
    report: RecoveryReport
    manager: MessageManager
    log: EventLog

    def _open(self, configuration: Configuration) -> None:
        identity = Identity(salt=secrets.randbits(SALT_BITS), site=SITE, node=NODE)
        prepared = prepare_journal(self.storage, configuration.journal, identity)
        boot = BootSection(self.storage, salt=prepared.salt)
        starting = node_event("starting", "the node starts, and reads its journal", run=prepared.run + 1)
        boot.record(encode([starting]))
        state = MessageState()
        self.journal, self.report = open_journal(
            self.storage, configuration.journal, state, identity=identity
        )
        made_by = self.journal.node_state
        origin = Origin(site=made_by.site, node=made_by.node, start=self.journal.run)
        self.manager = MessageManager(self.journal, state, IdSource(origin))
        self.log = EventLog(self.manager)
        self.log.open()
        self._flush()
        self._take_over(boot)
        self.manager.end_leftover_subscriptions()
        self.log.record(self._started())
        self._flush()

    def _take_over(self, boot: BootSection) -> None:
        try:
            self.log.take_over(boot)
        except JournalFull:
            return  # even the reserve is used up: they stay in the boot section until the next start
        self._flush()
        boot.clear()

    def _started(self) -> Message:
        report = self.report
        return node_event(
            "started",
            f"the node is up: {report.held_records} records are held",
            Severity.WARNING if report.is_torn or report.damaged_files else Severity.INFO,
            run=report.run,
            stop=report.stop.name.lower(),
            held_records=report.held_records,
            replayed_records=report.replayed_records,
            is_torn=report.is_torn,
            damaged_files=", ".join(report.damaged_files)[:500],
        )

    def _flush(self) -> None:
        flush = self.journal.begin_flush()
        if flush is not None:
            run_work(self.storage, self.journal, flush)
        self.manager.advance()

    def close(self, writer: JournalWriter) -> None:
        """Stop in good order, unless the journal has failed."""
        try:
            writer.close()
            if self.journal.failure is None:
                close_journal(self.storage, self.journal)
        finally:
            self.storage.close()
