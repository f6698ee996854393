"""The configuration file: TOML, every key checked, every error with its key, file and line.

[node]
data = "holdfast-data"      # where everything is kept; relative to the configuration file
name = "main"               # how the node calls itself; the host's name if it is not given

[listen]
host = "127.0.0.1"          # loopback only, as long as there is no authentication
port = 7250                 # 0: any that is free

[journal]                   # limits, as in holdfast.journal.config.JournalConfig
segments_max = 256
"""

from __future__ import annotations

import ipaddress
import re
import socket
import tomllib
from pathlib import Path
from typing import Annotated, Any

import msgspec

from holdfast.errors import UsageError
from holdfast.journal.config import MIB, JournalConfig
from holdfast.wire import PORT

NAME_CHARACTERS_MAX = 255
LOOPBACK = "127.0.0.1"
DEFAULT_PORT = PORT
# A message manager has more to keep in a checkpoint than the plainest state: an index of every held batch (20 bytes
# each), sessions with the outcomes of their transactions, subscriptions with their exceptions.
STATE_BYTES_MAX = 48 * MIB
JOURNAL_DEFAULTS = JournalConfig(state_bytes_max=STATE_BYTES_MAX)

_LINE_OF_ERROR = re.compile(r"\(at line (\d+)")
_PLACE = re.compile(r" - at `\$\.?([\w.]*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")


class NodeConfiguration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who this node is, and where it keeps everything."""

    data: Annotated[str, msgspec.Meta(min_length=1)] = "holdfast-data"
    name: Annotated[str, msgspec.Meta(max_length=NAME_CHARACTERS_MAX)] = ""


class ListenConfiguration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where clients connect."""

    host: str = LOOPBACK
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = DEFAULT_PORT
    connections_max: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1000

    def check(self) -> None:
        """Raises `UsageError` for an address that others could reach."""
        try:
            is_loopback = ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            is_loopback = self.host == "localhost"
        if not is_loopback:
            raise UsageError(
                f"listen.host = {self.host!r}: there is no authentication yet, so that whoever reaches this address "
                f"could read and send everything. Nothing was started. Use {LOOPBACK}, and a tunnel (ssh -L) for "
                f"clients on other machines."
            )


class Configuration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of it. `check` before use."""

    node: NodeConfiguration = NodeConfiguration()
    listen: ListenConfiguration = ListenConfiguration()
    journal: JournalConfig = JOURNAL_DEFAULTS

    @property
    def data_directory(self) -> Path:
        return Path(self.node.data)

    @property
    def journal_directory(self) -> Path:
        return self.data_directory / "journal"

    @property
    def node_name(self) -> str:
        return self.node.name or socket.gethostname()[:NAME_CHARACTERS_MAX]

    def check(self) -> None:
        """Raises `UsageError`."""
        self.listen.check()


def read_configuration(path: Path) -> Configuration:
    """Raises `UsageError`, which names the key, the file and the line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the configuration {path} cannot be read: {error}. Nothing was started.") from error
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _LINE_OF_ERROR.search(str(error))
        raise _wrong(path, int(found[1]) if found else None, f"this is not TOML: {error}") from error
    return _convert(path, text, values)


def _convert(path: Path, text: str, values: dict[str, Any]) -> Configuration:
    journal = values.get("journal")
    if isinstance(journal, dict):
        values["journal"] = msgspec.structs.asdict(JOURNAL_DEFAULTS) | journal
    try:
        configuration = msgspec.convert(values, Configuration)
    except msgspec.ValidationError as error:
        section, key, what = _explained(str(error))
        raise _wrong(path, _line_of(text, section, key), what) from error
    except UsageError as error:  # the limits of the journal do not fit each other
        raise _wrong(path, _line_of(text, "journal", ""), str(error)) from error
    try:
        configuration.check()
    except UsageError as error:
        raise _wrong(path, _line_of(text, "listen", "host"), str(error)) from error
    data = path.parent / configuration.node.data
    node = msgspec.structs.replace(configuration.node, data=str(data))
    return msgspec.structs.replace(configuration, node=node)


def _explained(problem: str) -> tuple[str, str, str]:
    """Section, key, and what is wrong with it, out of what msgspec says."""
    found = _PLACE.search(problem)
    section, _, key = (found[1] if found else "").partition(".")
    unknown = _UNKNOWN.search(problem)
    if unknown is not None:
        key = unknown[1]
        name = f"{section}.{key}" if section else key
        return section or key, key if section else "", f"{name}: there is no such key"
    return section, key, f"{'.'.join(filter(None, (section, key)))}: {_PLACE.sub('', problem)}"


def _line_of(text: str, section: str, key: str) -> int | None:
    """Where a key stands, or its section; None if it cannot be told, as with dotted keys."""
    in_section, section_line = not section, None
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped.startswith("["):
            in_section = re.fullmatch(rf"\[\s*{re.escape(section)}\s*\].*", stripped) is not None
            if in_section:
                section_line = number
        elif in_section and key and re.match(rf"[\"']?{re.escape(key)}[\"']?\s*=", stripped):
            return number
    return section_line


def _wrong(path: Path, line: int | None, what: str) -> UsageError:
    place = f"{path}, line {line}" if line else str(path)
    return UsageError(f"{place}: {what.rstrip('.')}. Nothing was started; correct the file and start again.")
