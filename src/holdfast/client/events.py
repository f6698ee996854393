"""What the core tells its shell. A ticket is the number that a call was given when it was made."""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct

from holdfast.errors import HoldfastError


class Completed(Struct, frozen=True):
    """The call with this ticket is done."""

    ticket: int
    result: Any


class Failed(Struct, frozen=True):
    """The call with this ticket will not be done."""

    ticket: int
    error: HoldfastError


class Confirmed(Struct, frozen=True):
    """Sends are durable: (ticket, last sequence) of each."""

    receipts: list[tuple[int, int]]


class Available(Struct, frozen=True):
    """A consumer has something to hand out, or has ended: whoever waits should look."""

    session: int
    consumer: int


class Roomier(Struct, frozen=True):
    """A session may take what it had no room for: whoever waits should try again."""

    session: int


class SessionEnded(Struct, frozen=True):
    """A session is closed (no error) or failed; every call on it fails from now on."""

    session: int
    error: HoldfastError | None


class Ready(Struct, frozen=True):
    """The server has greeted us."""


class Unusable(Struct, frozen=True):
    """This connection must be dropped. A permanent reason holds for every attempt that follows."""

    error: HoldfastError
    is_permanent: bool


Event: TypeAlias = Completed | Failed | Confirmed | Available | Roomier | SessionEnded | Ready | Unusable
