"""The shape of the source: who may import whom, what the core may touch, and how long things grow.

Every rule is a function over a path and its source that yields what breaks it, so that each can be shown to
fail on a few broken lines (`TestTheRulesCanFail`). What is allowed against a rule stands in `EXCEPTIONS`,
with the reason, and is refused once it is no longer needed.
"""

from __future__ import annotations

import ast
import fnmatch
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = "src/holdfast"

# ---- the rooms, lowest first; each may import itself and what is named with it -----------------------------
VALUES = frozenset({"errors", "message", "journal"})
CORE = frozenset({"destinations", "sessions", "delivery", "cluster"})
INSIDE = VALUES | CORE | {"node"}
PURE = INSIDE | {"wire"}  # the native protocol does no I/O either, but only its two ends speak it
SHELLS = frozenset({"disk", "bus", "gateways", "keeper", "client"})
FRONT_DOOR = frozenset({"holdfast", "aio"})  # `holdfast.connect` and `holdfast.aio.connect`

ROOMS: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "message": frozenset({"errors"}),
    "wire": frozenset({"errors", "message"}),  # shared by both ends, so it knows neither
    "journal": frozenset({"errors", "message"}),
    **dict.fromkeys(CORE, VALUES | CORE),  # one way among themselves too: see `room_cycles`
    "node": VALUES | CORE,
    **dict.fromkeys(SHELLS - {"client", "gateways"}, INSIDE),
    "gateways": INSIDE | {"wire"},
    "client": frozenset({"errors", "message", "wire"}),  # a client is installed where there is no node
    **dict.fromkeys(FRONT_DOOR, frozenset({"errors", "message", "client"})),
    # Has its own disk, network and clock in place of the shells; of the client it takes the part without I/O.
    "simulation": PURE | {"client"},
    "pipeline": INSIDE | SHELLS | FRONT_DOOR,
    "console": INSIDE | SHELLS | FRONT_DOOR | {"pipeline"},
    "server": PURE | SHELLS | FRONT_DOOR | {"pipeline", "console"},  # puts the parts of a node together
    "cli": INSIDE | SHELLS | FRONT_DOOR | {"simulation", "pipeline", "console", "server"},
    "__main__": frozenset({"cli"}),
}

# ---- what a room may not touch: it is handed in, so that the simulation runs the same code -----------------
WORLD_MODULES = (
    frozenset({"asyncio", "concurrent", "multiprocessing", "select", "selectors", "socket", "threading"})
    | frozenset({"io", "logging", "os", "pathlib", "shutil", "subprocess", "tempfile"})
    | frozenset({"random", "secrets", "time", "uuid"})
)
FORBIDDEN_MODULES: dict[str, frozenset[str]] = {
    **dict.fromkeys(PURE, WORLD_MODULES),
    "simulation": frozenset({"asyncio", "os", "secrets", "socket", "threading", "time", "uuid"}),
}
WORLD_CALLS = frozenset({"open", "print", "input"})  # below the shells
CLOCKS = frozenset(
    f"datetime.{name}" for name in ("datetime.now", "datetime.utcnow", "datetime.today", "date.today")
)

# ---- limits and names --------------------------------------------------------------------------------------
FILE_LINES_MAXIMUM = 600
FUNCTION_LINES_MAXIMUM = 70
EMPTY_NAMES = frozenset(
    {"util", "utils", "common", "helper", "helpers", "misc"}
)  # they say nothing of the domain
# In parts, so that this file does not hold them. Addresses of registries belong to the user's settings.
REGISTRY_HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("files", "pythonhosted", "org"),
        ("registry", "npmjs", "org"),
        ("repo1", "maven", "org"),
        ("repo", "maven", "apache", "org"),
        ("deb", "debian", "org"),
        ("crates", "io"),
        ("proxy", "golang", "org"),
    )
)

# (path, what the finding is about): the reason why it is right all the same.
EXCEPTIONS: dict[tuple[str, str], str] = {}


class Finding(NamedTuple):
    path: str
    line: int
    subject: str  # what EXCEPTIONS names
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


class Import(NamedTuple):
    line: int
    module: str  # dotted and absolute
    name: str | None  # for `from module import name`


# ---- reading the source ------------------------------------------------------------------------------------
def room_of(path: str) -> str:
    """The room of a file of the package: its directory, or its own name; `holdfast` for `__init__.py`."""
    first = PurePosixPath(path).relative_to(SOURCE).parts[0]
    return "holdfast" if first == "__init__.py" else first.removesuffix(".py")


def imports(path: str, source: str) -> Iterator[Import]:
    """Every import of the file: inside functions and under TYPE_CHECKING too."""
    package = ("holdfast", *PurePosixPath(path).relative_to(SOURCE).parent.parts)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *filter(None, [node.module])])
            yield from (Import(node.lineno, module, alias.name) for alias in node.names)


def imported_rooms(path: str, source: str) -> Iterator[tuple[int, str]]:
    for line, module, name in imports(path, source):
        head, _, rest = module.partition(".")
        if head != "holdfast":
            continue
        if rest:
            yield line, rest.partition(".")[0]
        else:
            yield line, name if name in ROOMS else "holdfast"


def bindings(tree: ast.Module) -> dict[str, str]:
    """What the names that come from imports stand for: `{"dt": "datetime.datetime"}`."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                head = alias.name.partition(".")[0]
                names[alias.asname or head] = alias.name if alias.asname else head
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return names


def qualified(node: ast.AST, names: dict[str, str]) -> str:
    """The full name of what was imported, under whatever name; empty for anything else."""
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    if isinstance(node, ast.Attribute) and (base := qualified(node.value, names)):
        return f"{base}.{node.attr}"
    return ""


# ---- the rules ---------------------------------------------------------------------------------------------
def unlisted_rooms(path: str, source: str) -> Iterator[Finding]:
    if (room := room_of(path)) not in ROOMS:
        yield Finding(path, 1, room, f"the room {room} is not in ROOMS: say what it may import")


def wrong_imports(path: str, source: str) -> Iterator[Finding]:
    room = room_of(path)
    for line, other in imported_rooms(path, source):
        if other != room and other not in ROOMS.get(room, frozenset()):
            yield Finding(path, line, other, f"{room} may not import {other}")


def world_imports(path: str, source: str) -> Iterator[Finding]:
    room = room_of(path)
    for line, module, _ in imports(path, source):
        head = module.partition(".")[0]
        if head in FORBIDDEN_MODULES.get(room, frozenset()):
            yield Finding(path, line, head, f"{room} may not import {head}: hand it in")


def world_calls(path: str, source: str) -> Iterator[Finding]:
    if (room := room_of(path)) not in PURE:
        return
    tree = ast.parse(source)
    names = bindings(tree)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in WORLD_CALLS - names.keys()
        ):
            yield Finding(path, node.lineno, node.func.id, f"{room} may not call {node.func.id}: hand it in")


def clocks(path: str, source: str) -> Iterator[Finding]:
    if (room := room_of(path)) not in FORBIDDEN_MODULES:
        return
    tree = ast.parse(source)
    names = bindings(tree)
    for node in ast.walk(tree):
        if (name := qualified(node, names)) in CLOCKS and isinstance(node, ast.expr):
            yield Finding(path, node.lineno, name, f"{room} may not use {name}: time comes in with an event")


def unseeded_randomness(path: str, source: str) -> Iterator[Finding]:
    """In the simulation: only `random.Random`, and only with a seed, or a failure could not be repeated."""
    if room_of(path) != "simulation":
        return
    tree = ast.parse(source)
    names = bindings(tree)
    for node in ast.walk(tree):
        name = qualified(node, names)
        if isinstance(node, ast.expr) and re.fullmatch(r"random\.(?!Random$)\w+", name):
            yield Finding(path, node.lineno, name, f"{name} has no seed of ours: use random.Random")
        called = qualified(node.func, names) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and called == "random.Random" and not (node.args or node.keywords):
            yield Finding(path, node.lineno, "random.Random", "random.Random() has no seed")


def empty_names(path: str, source: str) -> Iterator[Finding]:
    for part in PurePosixPath(path).with_suffix("").parts:
        if part.lower().strip("_") in EMPTY_NAMES:
            yield Finding(path, 1, part, f"{part} does not say what is in it: name it after the domain")


def long_files(path: str, source: str) -> Iterator[Finding]:
    if (lines := len(source.splitlines())) > FILE_LINES_MAXIMUM:
        yield Finding(path, lines, "length", f"{lines} lines, above the maximum of {FILE_LINES_MAXIMUM}")


def long_functions(path: str, source: str) -> Iterator[Finding]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAXIMUM:
                message = f"{node.name} has {lines} lines, above the maximum of {FUNCTION_LINES_MAXIMUM}"
                yield Finding(path, node.lineno, node.name, message)


def registry_hosts(path: str, source: str) -> Iterator[Finding]:
    for number, line in enumerate(source.lower().splitlines(), start=1):
        for host in REGISTRY_HOSTS:
            if host in line:
                yield Finding(path, number, host, f"names the package registry {host}")


def room_cycles(files: Iterable[tuple[str, str]]) -> list[str]:
    """Rooms that can reach themselves through others: allowed pair by pair, and still no direction."""
    graph: dict[str, set[str]] = {}
    for path, source in files:
        room = room_of(path)
        graph.setdefault(room, set()).update(
            other for _, other in imported_rooms(path, source) if other != room
        )

    def reached(room: str) -> set[str]:
        found: set[str] = set()
        waiting = list(graph.get(room, ()))
        while waiting:
            if (other := waiting.pop()) not in found:
                found.add(other)
                waiting.extend(graph.get(other, ()))
        return found

    return sorted(room for room in graph if room in reached(room))


# ---- the project's files -----------------------------------------------------------------------------------
def tracked_paths() -> list[str]:
    """What git holds; in an unpacked archive, everything that .gitignore does not name."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z"]
    try:
        listing = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        listing = ""
    tracked = [path for path in listing.split("\0") if path and (ROOT / path).is_file()]
    return sorted(
        tracked or unignored_paths(ROOT)
    )  # none: the archive lies inside a repository of something else


def unignored_paths(root: Path) -> Iterator[str]:
    lines = (root / ".gitignore").read_text(encoding="utf-8").splitlines()
    ignored = [".git", *(line.strip("/") for line in lines if line and not line.startswith("#"))]
    for directory, inner, names in os.walk(root):
        here = Path(directory).relative_to(root)

        def kept(name: str, here: Path = here) -> bool:
            shapes = (name, (here / name).as_posix())
            return not any(fnmatch.fnmatch(shape, pattern) for shape in shapes for pattern in ignored)

        inner[:] = filter(kept, inner)
        yield from ((here / name).as_posix() for name in names if kept(name))


@cache
def python_files() -> list[tuple[str, str]]:
    """Read from the disk, not from git: a file is judged before it is added."""
    paths = sorted(path for room in ("src", "tests", "bench") for path in (ROOT / room).rglob("*.py"))
    return [(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in paths]


def package_files() -> list[tuple[str, str]]:
    return [(path, source) for path, source in python_files() if path.startswith(f"{SOURCE}/")]


@cache
def text_files() -> list[tuple[str, str]]:
    files = []
    for path in tracked_paths():
        try:
            files.append((path, (ROOT / path).read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue  # not a text
    return files


Rule = Callable[[str, str], Iterator[Finding]]
RULES: dict[Rule, Callable[[], list[tuple[str, str]]]] = {
    unlisted_rooms: package_files,
    wrong_imports: package_files,
    world_imports: package_files,
    world_calls: package_files,
    clocks: package_files,
    unseeded_randomness: package_files,
    long_functions: package_files,
    long_files: python_files,
    empty_names: python_files,
    registry_hosts: text_files,
}


def findings(rule: Rule) -> list[Finding]:
    return [finding for path, source in RULES[rule]() for finding in rule(path, source)]


# ---- the tests ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_project_keeps(rule: Rule) -> None:
    broken = [str(found) for found in findings(rule) if (found.path, found.subject) not in EXCEPTIONS]

    assert not broken, "\n".join(broken)


def test_no_room_reaches_itself_through_others() -> None:
    assert room_cycles(package_files()) == []


def test_every_exception_is_still_needed_and_says_why() -> None:
    needed = {(found.path, found.subject) for rule in RULES for found in findings(rule)}

    assert EXCEPTIONS.keys() - needed == set()
    assert all(reason.strip() for reason in EXCEPTIONS.values())


def test_the_table_of_rooms_points_one_way() -> None:
    """Apart from the core's own rooms, which are held to one direction as they are built."""
    order = list(ROOMS)
    backwards = {
        (room, other)
        for room, others in ROOMS.items()
        for other in others
        if other not in order or (order.index(other) >= order.index(room) and not {room, other} <= CORE)
    }

    assert backwards == set()


def test_the_rules_see_the_files() -> None:
    assert f"{SOURCE}/errors.py" in dict(package_files())
    assert f"{SOURCE}/journal/storage.py" in dict(package_files())
    assert "tests/test_architecture.py" in dict(python_files())
    assert {"pyproject.toml", "requirements.lock", ".ci/run"} <= dict(text_files()).keys()


def test_an_archive_without_git_shows_the_same_files(tmp_path: Path) -> None:
    for name in (
        "README.md",
        ".venv/secret.py",
        "bench/results/one.json",
        "src/a.pyc",
        ".ci/run",
        ".git/HEAD",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text(".venv/\n# a remark\n\nbench/results/\n*.pyc\n", encoding="utf-8")

    assert sorted(unignored_paths(tmp_path)) == [".ci/run", ".gitignore", "README.md"]


BROKEN: list[tuple[Rule, str, str, str]] = [
    (unlisted_rooms, "attic/old.py", "", "attic"),
    (unlisted_rooms, "attic.py", "", "attic"),
    (wrong_imports, "journal/a.py", "import holdfast.node.node", "node"),
    (wrong_imports, "journal/a.py", "from holdfast.destinations import queue", "destinations"),
    (wrong_imports, "journal/a.py", "from holdfast import destinations", "destinations"),
    (wrong_imports, "journal/a.py", "from holdfast import __version__", "holdfast"),
    (wrong_imports, "journal/a.py", "from .. import node", "node"),
    (wrong_imports, "journal/a.py", "from ..node import node", "node"),
    (wrong_imports, "journal/__init__.py", "from ..node import node", "node"),
    (wrong_imports, "errors.py", "from .message import batch", "message"),
    (wrong_imports, "journal/a.py", "def late():\n    import holdfast.node", "node"),
    (wrong_imports, "journal/a.py", "if TYPE_CHECKING:\n    from holdfast.node import Node", "node"),
    (wrong_imports, "node/a.py", "import holdfast.disk", "disk"),
    (wrong_imports, "client/a.py", "import holdfast.journal", "journal"),
    (wrong_imports, "client/a.py", "import holdfast.node", "node"),
    (wrong_imports, "gateways/a.py", "import holdfast.bus", "bus"),
    (wrong_imports, "wire/a.py", "import holdfast.journal", "journal"),
    (wrong_imports, "sessions/a.py", "from holdfast.wire import frames", "wire"),
    (wrong_imports, "disk/a.py", "from holdfast.wire import frames", "wire"),
    (wrong_imports, "simulation/a.py", "import holdfast.disk", "disk"),
    (wrong_imports, "pipeline/a.py", "import holdfast.console", "console"),
    (wrong_imports, "console/a.py", "import holdfast.cli", "cli"),
    *((world_imports, "journal/a.py", f"import {module}", module) for module in sorted(WORLD_MODULES)),
    (world_imports, "node/a.py", "from os import path", "os"),
    (world_imports, "message/a.py", "def late():\n    import concurrent.futures", "concurrent"),
    (world_imports, "simulation/a.py", "import time", "time"),
    (world_imports, "wire/a.py", "import socket", "socket"),
    (world_calls, "errors.py", "print(1)", "print"),
    (world_calls, "journal/a.py", "def read():\n    with open('x') as file: pass", "open"),
    (world_calls, "node/a.py", "input()", "input"),
    (world_calls, "wire/a.py", "print(1)", "print"),
    (clocks, "journal/a.py", "import datetime\ndatetime.datetime.now()", "datetime.datetime.now"),
    (clocks, "journal/a.py", "from datetime import datetime as d\nclock = d.now", "datetime.datetime.now"),
    (clocks, "simulation/a.py", "from datetime import date\ndate.today()", "datetime.date.today"),
    (unseeded_randomness, "simulation/a.py", "import random\nrandom.random()", "random.random"),
    (unseeded_randomness, "simulation/a.py", "import random as r\nr.seed(1)", "random.seed"),
    (unseeded_randomness, "simulation/a.py", "from random import choice\nchoice('ab')", "random.choice"),
    (unseeded_randomness, "simulation/a.py", "import random\nrandom.Random()", "random.Random"),
    (unseeded_randomness, "simulation/a.py", "import random\nrandom.SystemRandom()", "random.SystemRandom"),
    (long_functions, "cli/a.py", "def long():\n" + "    pass\n" * FUNCTION_LINES_MAXIMUM, "long"),
    (long_functions, "cli/a.py", "class A:\n async def long():\n" + "  pass\n" * 70, "long"),
    (long_files, "cli/a.py", "\n" * (FILE_LINES_MAXIMUM + 1), "length"),
    (empty_names, "journal/utils.py", "", "utils"),
    (empty_names, "common/a.py", "", "common"),
    (empty_names, "journal/_helpers.py", "", "_helpers"),
    *((registry_hosts, "a.txt", f"see\nHTTPS://{host.upper()}/x", host) for host in REGISTRY_HOSTS),
]

SOUND: list[tuple[Rule, str, str]] = [
    (wrong_imports, "journal/a.py", "from holdfast.errors import JournalError\nfrom . import b\nimport os"),
    (
        wrong_imports,
        "cli/a.py",
        "import holdfast.simulation, holdfast.disk\nfrom holdfast import __version__",
    ),
    (wrong_imports, "delivery/a.py", "from holdfast.destinations import queue"),
    (wrong_imports, "client/a.py", "from holdfast.wire import frames"),
    (wrong_imports, "gateways/a.py", "from holdfast.wire import frames"),
    (wrong_imports, "simulation/a.py", "from holdfast.client import engine"),
    (world_imports, "disk/a.py", "import os, time"),
    (world_imports, "journal/a.py", "from holdfast.journal import time\nfrom .os import x\nimport datetime"),
    (world_calls, "disk/a.py", "open('x')"),
    (world_calls, "journal/a.py", "storage.open('x')\nfrom .b import c"),
    (clocks, "journal/a.py", "from datetime import datetime\ndatetime.fromtimestamp(1)"),
    (unseeded_randomness, "simulation/a.py", "import random\nchance = random.Random(7)\nchance.random()"),
    (unseeded_randomness, "simulation/a.py", "def flip(random): return random.choice('ab')"),
    (long_functions, "cli/a.py", "def long():\n" + "    pass\n" * (FUNCTION_LINES_MAXIMUM - 1)),
    (long_files, "cli/a.py", "\n" * FILE_LINES_MAXIMUM),
    (empty_names, "journal/commonplace.py", ""),
]


class TestTheRulesCanFail:
    @pytest.mark.parametrize(
        ("rule", "path", "source", "subject"), BROKEN, ids=[f"{row[0].__name__}-{row[3]}" for row in BROKEN]
    )
    def test_broken_source_is_found(self, rule: Rule, path: str, source: str, subject: str) -> None:
        assert [found.subject for found in rule(f"{SOURCE}/{path}", source)] == [subject]

    @pytest.mark.parametrize(
        ("rule", "path", "source"), SOUND, ids=[f"{row[0].__name__}-{row[1]}" for row in SOUND]
    )
    def test_sound_source_is_left_alone(self, rule: Rule, path: str, source: str) -> None:
        assert list(rule(f"{SOURCE}/{path}", source)) == []

    def test_every_rule_has_broken_source(self) -> None:
        assert {rule for rule, *_ in BROKEN} == RULES.keys()

    def test_a_circle_of_rooms_is_found(self) -> None:
        circle = {"sessions": "delivery", "delivery": "cluster", "cluster": "sessions", "node": "cluster"}
        files = [(f"{SOURCE}/{room}/a.py", f"import holdfast.{other}") for room, other in circle.items()]

        assert room_cycles(files) == ["cluster", "delivery", "sessions"]
