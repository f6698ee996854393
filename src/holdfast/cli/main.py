"""`holdfast`: one program, one subcommand for each thing that a person does."""

from __future__ import annotations

import typer

app = typer.Typer(
    name="holdfast",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="A message system that never loses a confirmed message.",
)


@app.callback()
def _root() -> None:
    """A message system that never loses a confirmed message."""


def main() -> None:
    app()
