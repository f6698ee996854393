"""Where to connect, as a URL: `holdfast://user:password@host:7250,host2:7250/`.

User and password are optional and may be percent-encoded. Any number of hosts, each with its own port
(default 7250); an IPv6 address stands in brackets. All hosts are taken for one system: the client uses
whichever answers.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from msgspec import Struct

from holdfast.errors import LimitExceeded, UsageError
from holdfast.wire.layout import PORT

HOSTS_MAX = 100
"""All of them are tried in turn before the first back-off."""
PORT_MAX = 65535

_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\[\]:@/?#\s]+)(?::(?P<port>[0-9]{1,5}))?")


class Address(Struct, frozen=True):
    """One host of a URL."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Url(Struct, frozen=True, kw_only=True):
    """A parsed URL. Its text shows no password."""

    addresses: tuple[Address, ...]
    user: str = ""
    password: str = ""

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        return f"holdfast://{user}{','.join(map(str, self.addresses))}/"

    __repr__ = __str__


def parse_url(text: str) -> Url:
    """The parts of a URL. Raises UsageError that says which part is wrong."""
    if not isinstance(text, str):
        raise UsageError(f"url: {type(text).__name__} is not text")
    scheme, separator, rest = text.partition("://")
    if not separator:
        raise UsageError("url: no scheme; expected holdfast://host:7250/")
    if scheme == "holdfasts":
        raise UsageError(
            "url: holdfasts:// (TLS) comes with a later release; use holdfast:// within a trusted network"
        )
    if scheme != "holdfast":
        raise UsageError(f"url: the scheme {scheme}:// is not known; expected holdfast://")
    authority, _, path = rest.partition("/")
    if path or "?" in rest or "#" in rest:
        raise UsageError("url: nothing may follow the hosts but a /; expected holdfast://host:7250/")
    credentials, at, hosts = authority.rpartition("@")
    user, _, password = credentials.partition(":")
    if at and not user:
        raise UsageError("url: a password, or an @, but no user; expected holdfast://user:password@host/")
    return Url(addresses=_addresses(hosts), user=unquote(user), password=unquote(password))


def _addresses(hosts: str) -> tuple[Address, ...]:
    parts = hosts.split(",")
    if len(parts) > HOSTS_MAX:
        raise LimitExceeded("HOSTS_MAX", value=len(parts), maximum=HOSTS_MAX)
    return tuple(map(_address, parts))


def _address(part: str) -> Address:
    match = _HOST.fullmatch(part)
    if match is None:
        raise UsageError(f"url: {part!r} is no host; expected host, host:port or [ipv6]:port")
    port = int(match["port"] or PORT)
    if not 1 <= port <= PORT_MAX:
        raise UsageError(f"url: {port} is no port; expected 1 to {PORT_MAX}")
    return Address(match["host"].strip("[]"), port)
