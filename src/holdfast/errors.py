"""Every error that Holdfast raises on purpose, as one tree.

    HoldfastError
    ├── UsageError                 the caller broke a rule of this API; fix the call
    ├── LimitExceeded              a named limit was reached; raise it, or send less
    ├── BatchError                 bytes that should be a batch are not one
    ├── ProtocolError              the peer broke a rule of the native protocol; the connection ends
    ├── ConnectionLost             no server can be reached; what is unconfirmed is kept and sent again
    ├── OutcomeUnknown             the session is gone: what was unconfirmed may or may not be recorded
    ├── Refused                    the server answered a request with an error
    ├── StorageError               the disk, or what stands for it
    │   ├── StorageFull            no room for a new file
    │   ├── StorageFailed          an input/output error: nothing may be assumed about what it covered
    │   ├── StorageMissing         a file that must be there is not, or is too short
    │   └── StorageLocked          another process uses the directory
    └── JournalError
        ├── JournalFull            no room outside the reserve: producers pause, nothing is lost
        ├── JournalFailed          the journal stopped itself; restart to recover what is really there
        ├── JournalCorrupt         damage to what had been durable
        ├── JournalMismatch        the files were made with other settings, or by a newer version
        └── NotHeld                the record is no longer held, or not yet committed

`code` names the error for programs; it never changes once released. `CODES` is the registry.
A message to a person says what happened, what was kept, and what to do.
"""

from __future__ import annotations

from typing import ClassVar


class HoldfastError(Exception):
    """The root: `except HoldfastError` catches whatever Holdfast raises on purpose."""

    code: ClassVar[str] = "holdfast"


class UsageError(HoldfastError):
    """The caller broke a rule of this API."""

    code = "usage"


class LimitExceeded(HoldfastError):
    """A named limit was reached."""

    code = "limit"

    def __init__(self, limit: str, *, value: int, maximum: int) -> None:
        super().__init__(f"{limit}: {value} is above the maximum of {maximum}")
        self.limit = limit
        self.value = value
        self.maximum = maximum


class BatchError(HoldfastError):
    """Bytes that should be a batch are not one. The only error that decoding a batch raises."""

    code = "batch.malformed"


class ProtocolError(HoldfastError):
    """A peer's fault: bytes or frames that break a rule of the native protocol. The connection ends with it.

    `reason_code` is what the Error frame to the peer says: "protocol.malformed", "protocol.unexpected" or
    "limit.frame".
    """

    code = "protocol"

    def __init__(self, message: str, *, reason_code: str) -> None:
        super().__init__(message)
        self.reason_code = reason_code


class ConnectionLost(HoldfastError):
    """The connection to the server is gone and has not come back in the time allowed."""

    code = "connection.lost"


class OutcomeUnknown(HoldfastError):
    """Nobody can tell any more whether work was recorded: the server no longer knows the session.

    What had been confirmed before is safe. To send the rest again could make doubles, so the program decides.
    """

    code = "outcome.unknown"


class Refused(HoldfastError):
    """The server answered a request with an error. `server_code` is the code that it gave."""

    code = "refused"

    def __init__(self, message: str, *, server_code: str) -> None:
        super().__init__(message)
        self.server_code = server_code


def refusal(code: str, message: str) -> Refused:
    """The node's side of it: what it raises to answer a request with this code."""
    return Refused(message, server_code=code)


class StorageError(HoldfastError):
    """The disk, or what stands for it, did not do as asked."""

    code = "storage"


class StorageFull(StorageError):
    """There is no room to allocate a file. What was allocated before can still be written."""

    code = "storage.full"


class StorageFailed(StorageError):
    """An input/output error. What the failed call covered may or may not be on the disk."""

    code = "storage.failed"


class StorageMissing(StorageError):
    """A file that must be there is not, or is shorter than it was allocated."""

    code = "storage.missing"


class StorageLocked(StorageError):
    """Another process uses this directory."""

    code = "storage.locked"


class JournalError(HoldfastError):
    """The journal cannot do as asked."""

    code = "journal"


class JournalFull(JournalError):
    """No room outside the reserve. Nothing was recorded; try again when space has returned.

    `reason` is the account that has run out: "disk", "memory" or "held records".
    """

    code = "journal.full"

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(
            f"the journal has no room ({reason}): {detail}. Nothing was recorded; try again later."
        )
        self.reason = reason


class JournalFailed(JournalError):
    """The journal stopped itself after a storage error; nothing more will be confirmed."""

    code = "journal.failed"


class JournalCorrupt(JournalError):
    """What had been durable is damaged. Nothing was changed on the disk.

    `name` and `offset` say where, `lsn` which record was expected there.
    """

    code = "journal.corrupt"

    def __init__(self, what: str, *, name: str, offset: int, lsn: int) -> None:
        super().__init__(
            f"{what} (file {name}, byte {offset}, lsn {lsn}). Nothing was changed. "
            f"Restore this file from a backup or a replica; `holdfast journal verify` lists all damage."
        )
        self.what = what
        self.name = name
        self.offset = offset
        self.lsn = lsn


class JournalMismatch(JournalError):
    """The journal's files and its configuration, or this version, do not fit together."""

    code = "journal.mismatch"


class NotHeld(JournalError):
    """The record asked for is no longer held, or not yet committed."""

    code = "journal.not_held"


def _tree(root: type[HoldfastError]) -> dict[str, type[HoldfastError]]:
    codes = {root.code: root}
    for child in root.__subclasses__():
        codes.update(_tree(child))
    return codes


CODES: dict[str, type[HoldfastError]] = _tree(HoldfastError)
