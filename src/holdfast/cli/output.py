"""How every command speaks: tables for people, JSON for programs, and errors that are sentences.

Exit codes, the same for all commands: 0 all is well; 1 the command did its work, and what it found is not well;
2 it could not do its work.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from holdfast.errors import HoldfastError

EXIT_FOUND = 1
EXIT_CANNOT = 2

# A pipe has no width; tables in a file are easier to read when they are not folded at 80.
PIPE_WIDTH = 140


class Commands(TyperGroup):
    """A group of commands in which no error of Holdfast ends in a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except HoldfastError as error:
            typer.echo(f"holdfast: {error}", err=True)
            raise typer.Exit(EXIT_CANNOT) from error


def console() -> Console:
    """Where tables go: the standard output, as it is now."""
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)


def table(title: str, *columns: str, right: frozenset[str] = frozenset()) -> Table:
    """A plain table; the columns in `right` hold numbers."""
    made = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def plain(value: object) -> Text:
    """A value as it is: whatever brackets are in it are not markup."""
    return Text(f"{value:,}" if isinstance(value, int) else str(value))


def print_json(value: object) -> None:
    """One JSON document on the standard output."""
    typer.echo(msgspec.json.format(msgspec.json.encode(value)).decode())
