"""Names of destinations: words, joined by dots. A leading underscore is reserved for the system (C17)."""

from __future__ import annotations

import re

from holdfast.errors import refusal

NAME_CHARACTERS_MAX = 255
ADMIN, LOG, DEAD = "_ADMIN", "_LOG", "_DMQ"
WELL_KNOWN = frozenset((ADMIN, LOG, DEAD))

_NAME = re.compile(r"[A-Za-z0-9_$][A-Za-z0-9_$-]*(\.[A-Za-z0-9_$][A-Za-z0-9_$-]*)*")


def check_name(name: str) -> None:
    """Raise `Refused` if clients may not use this name."""
    if len(name) > NAME_CHARACTERS_MAX:
        raise refusal("destination.name", f"a name has at most {NAME_CHARACTERS_MAX} characters")
    if not _NAME.fullmatch(name):
        raise refusal(
            "destination.name",
            f"{name!r} is not a name: letters, digits, _, $ and -, in words joined by dots",
        )
    if name.startswith("_") and name not in WELL_KNOWN:
        raise refusal(
            "destination.name", f"{name!r} is reserved: names with a leading underscore are the system's"
        )
