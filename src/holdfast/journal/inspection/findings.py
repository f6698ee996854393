"""What verification finds, in words for the person who must act on it."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """`ERROR`: confirmed data is damaged, or the node cannot start. `WARNING`: harmless as things stand."""

    ERROR = "error"
    WARNING = "warning"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it was written. The lsns are None where no record is concerned."""

    severity: Severity
    file: str
    offset: int
    first_lsn: int | None = None
    last_lsn: int | None = None
    meaning: str
    advice: str

    @property
    def key(self) -> tuple[str, int, int | None]:
        """The same finding in another pass has the same key."""
        return self.file, self.offset, self.first_lsn


RESTORE = (
    "Stop the node if it runs, keep a copy of the directory, and restore this file from a backup or a replica "
    "of the same time."
)
NOTHING_TO_DO = "Nothing needs to be done."


def error(
    file: str,
    offset: int,
    meaning: str,
    *,
    lsns: tuple[int, int] | None = None,
    advice: str = RESTORE,
) -> Finding:
    return _finding(Severity.ERROR, file, offset, meaning, lsns, advice)


def warning(
    file: str,
    offset: int,
    meaning: str,
    *,
    lsns: tuple[int, int] | None = None,
    advice: str = NOTHING_TO_DO,
) -> Finding:
    return _finding(Severity.WARNING, file, offset, meaning, lsns, advice)


def _finding(
    severity: Severity, file: str, offset: int, meaning: str, lsns: tuple[int, int] | None, advice: str
) -> Finding:
    has_lsns = lsns is not None and lsns[0] <= lsns[1]
    first_lsn, last_lsn = lsns if lsns is not None and has_lsns else (None, None)
    return Finding(
        severity=severity,
        file=file,
        offset=offset,
        first_lsn=first_lsn,
        last_lsn=last_lsn,
        meaning=meaning,
        advice=advice,
    )
