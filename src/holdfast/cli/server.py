"""`holdfast up` and `holdfast serve`: run a server in the foreground, until Ctrl-C or SIGTERM.

Exit codes: 0 stopped in good order; 2 it could not start, and nothing was changed; 3 it stopped itself, because the
disk failed or by an error of its own: all that was confirmed is kept, and nothing was confirmed after the failure.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from holdfast.server import (
    DEFAULT_PORT,
    Configuration,
    ListenConfiguration,
    NodeConfiguration,
    Ready,
    read_configuration,
    run_server,
)

AsJson = Annotated[
    bool, typer.Option("--json", help="When it is ready, one line of JSON: host, port, node, data.")
]


def up(
    data: Annotated[Path, typer.Option(help="Where everything is kept; made if it is not there.")] = Path(
        "holdfast-data"
    ),
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port on 127.0.0.1; 0 takes any that is free.")
    ] = DEFAULT_PORT,
    as_json: AsJson = False,
) -> None:
    """Run Holdfast on this machine: one node, on loopback, nothing to configure.

    Stops in good order at Ctrl-C or SIGTERM; a kill -9 or a power cut loses
    nothing that was confirmed.

    Exit code: 0 stopped in good order; 2 it could not start, and nothing was
    changed; 3 it stopped itself because the disk failed: start it again.

    Example: holdfast up --data /var/lib/holdfast --port 7250
    """
    configuration = Configuration(
        node=NodeConfiguration(data=str(data)), listen=ListenConfiguration(port=port)
    )
    _run(configuration, as_json=as_json)


def serve(
    config: Annotated[Path, typer.Option(help="The configuration, in TOML.")],
    as_json: AsJson = False,
) -> None:
    """Run a server as its configuration file says.

    Sections: [node] data, name; [listen] host, port, connections_max;
    [journal] its limits. Whatever is left out has its default, and a key
    that does not exist is an error.

    Exit code: 0 stopped in good order; 2 it could not start, and nothing was
    changed; 3 it stopped itself because the disk failed: start it again.

    Example: holdfast serve --config /etc/holdfast.toml
    """
    _run(read_configuration(config), as_json=as_json)


def _run(configuration: Configuration, *, as_json: bool) -> None:
    ready: Callable[[Ready], None] = _print_ready_json if as_json else _print_ready
    raise typer.Exit(run_server(configuration, ready=ready))


def _print_ready_json(ready: Ready) -> None:
    typer.echo(msgspec.json.encode(ready).decode())


def _print_ready(ready: Ready) -> None:
    held = "nothing is held yet" if ready.is_first_start else f"{ready.held_records:,} records are held"
    typer.secho(f"Holdfast is up: holdfast://{ready.host}:{ready.port}/", fg="green")
    typer.echo(f"node {ready.node}, start {ready.run}, data in {ready.data}; {held}.")
    typer.echo("")
    url = "" if ready.port == DEFAULT_PORT else f" --url holdfast://{ready.host}:{ready.port}/"
    typer.echo("Next, in another terminal:")
    typer.echo(f'  holdfast send orders "one coffee"{url}')
    typer.echo(f"  holdfast receive orders{url}")
    typer.echo(f"  holdfast status{url}")
    typer.echo("")
    typer.echo("Ctrl-C stops it; what was confirmed is kept.")
