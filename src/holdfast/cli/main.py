"""`holdfast`: one program, one subcommand for each thing that a person does."""

from __future__ import annotations

import typer

from holdfast.cli import journal
from holdfast.cli.messages import browse, destinations, receive, send, status
from holdfast.cli.output import Commands
from holdfast.cli.server import serve, up
from holdfast.cli.simulate import simulate

app = typer.Typer(
    name="holdfast",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="A message system that never loses a confirmed message.",
)


@app.callback()
def _root() -> None:
    """A message system that never loses a confirmed message."""


app.command()(up)
app.command()(serve)
app.command()(send)
app.command()(receive)
app.command()(browse)
app.command()(status)
app.command()(destinations)
app.command()(simulate)
app.add_typer(journal.app, name="journal")


def main() -> None:
    app()
