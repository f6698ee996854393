"""What a bench has measured: rows of figures, the goals, the conditions; as a table and as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from bench.scale import Scale

_MOUNTS = Path("/proc/mounts")
_CPUS = Path("/proc/cpuinfo")


class Goal(msgspec.Struct, frozen=True):
    """What a figure should reach."""

    figure: str
    at_least: float | None = None
    at_most: float | None = None

    def is_met(self, figures: Mapping[str, float]) -> bool:
        value = figures[self.figure]
        return (self.at_least is None or value >= self.at_least) and (
            self.at_most is None or value <= self.at_most
        )

    def __str__(self) -> str:
        bound = f">= {self.at_least}" if self.at_least is not None else f"<= {self.at_most}"
        return f"{self.figure} {bound}"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    case: str
    parameters: dict[str, int]
    figures: dict[str, float]
    goal: Goal | None = None

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return ""
        return "met" if self.goal.is_met(self.figures) else "missed"


class Section(msgspec.Struct, frozen=True):
    """Rows with the same columns: one table."""

    title: str
    rows: list[Row]


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """Under what a figure was measured: without them it says nothing. The configuration is in the scale."""

    date: str
    machine: str
    cpu_count: int
    load_before: float
    kernel: str
    python: str
    file_system: str
    scale: Scale


def observe(*, date: str, directory: Path, scale: Scale) -> Conditions:
    return Conditions(
        date=date,
        machine=f"{platform.machine()}, {_cpu_model()}",
        cpu_count=os.cpu_count() or 1,
        load_before=os.getloadavg()[0],
        kernel=f"{platform.system()} {platform.release()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        file_system=_file_system(directory.resolve()),
        scale=scale,
    )


def _cpu_model() -> str:
    if _CPUS.exists():
        for line in _CPUS.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown processor"


def _file_system(directory: Path) -> str:
    """Type and options of the mount that holds the directory."""
    if not _MOUNTS.exists():
        return "unknown"
    mounts = [line.split() for line in _MOUNTS.read_text(encoding="utf-8").splitlines()]
    holding = [mount for mount in mounts if directory.is_relative_to(mount[1])]
    deepest = max(holding, key=lambda mount: len(mount[1]))
    return f"{deepest[2]} ({deepest[3]})"


def show(console: Console, conditions: Conditions, sections: list[Section]) -> None:
    for section in sections:
        parameters, figures = section.rows[0].parameters, section.rows[0].figures
        table = Table(title=section.title, title_justify="left")
        table.add_column("case")
        for name in (*parameters, *figures):
            table.add_column(name, justify="right")
        table.add_column("goal")
        for row in section.rows:
            numbers = [f"{value:,}" for value in row.parameters.values()]
            numbers += [_figure(value) for value in row.figures.values()]
            goal = f"{row.goal}: {row.verdict}" if row.goal else ""
            table.add_row(row.case, *numbers, goal)
        console.print(table)
    console.print(
        f"{conditions.date}, {conditions.machine}, {conditions.cpu_count} CPUs, "
        f"load {conditions.load_before:.2f} before, "
        f"{conditions.kernel}, {conditions.python}, {conditions.file_system}"
    )


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"


def write_json(directory: Path, name: str, conditions: Conditions, sections: list[Section]) -> Path:
    """Into `<name>-<n>.json`, with the next free number."""
    directory.mkdir(parents=True, exist_ok=True)
    number = 1
    while (path := directory / f"{name}-{number}.json").exists():
        number += 1
    content = {
        "bench": name,
        "conditions": msgspec.to_builtins(conditions),
        "sections": [
            {
                "title": section.title,
                "rows": [msgspec.to_builtins(row) | {"verdict": row.verdict} for row in section.rows],
            }
            for section in sections
        ],
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
    return path
