"""`holdfast`: one program, one subcommand for each thing that a person does."""

from __future__ import annotations

import typer

from holdfast.cli.simulate import simulate

app = typer.Typer(
    name="holdfast",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="A message system that never loses a confirmed message.",
)


@app.callback()
def _root() -> None:
    """A message system that never loses a confirmed message."""


app.command()(simulate)


def main() -> None:
    app()
