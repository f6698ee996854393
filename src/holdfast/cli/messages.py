"""`holdfast send`, `receive`, `browse`, `status`, `destinations`: what a person does with a running server.

Exit codes: 0 done; 1 there was nothing to receive in the time given; 2 it could not be done (no server, refused).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

import holdfast
from holdfast.cli.output import EXIT_CANNOT, EXIT_FOUND, console, plain, print_json, table
from holdfast.message import Message, PropertyValue, Severity

DEFAULT_URL = "holdfast://127.0.0.1:7250/"
# Sent at once: large enough that the disk sets the pace, small enough that progress shows.
SEND_BATCH_MESSAGES = 256
CONNECT_TIMEOUT_S = 5.0

Url = Annotated[str, typer.Option(envvar="HOLDFAST_URL", help="Where the server is.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]


class Input(StrEnum):
    TEXT = "text"
    LINES = "lines"
    JSON = "json"


class JsonMessage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One line of `--input json`: the fields of a message, with its body as text."""

    body: str = ""
    type: str = ""
    source: str = ""
    severity: Severity = Severity.INFO
    correlation_id: str = ""
    reply_to: str = ""
    group: str = ""
    content_type: str = ""
    priority: int = 4
    properties: dict[str, bool | int | float | str] = {}


def _connect(url: str) -> holdfast.Connection:
    return holdfast.connect(url, connect_timeout_s=CONNECT_TIMEOUT_S, client="holdfast command")


def send(
    destination: Annotated[str, typer.Argument(help="The queue or topic. Made if it is not there.")],
    text: Annotated[
        str | None, typer.Argument(help="The body. Without it, the standard input is read.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="Send what is in this file.", exists=True, dir_okay=False)
    ] = None,
    form: Annotated[
        Input,
        typer.Option(
            "--input", help="text: all of it is one message; lines: one a line; json: one object a line."
        ),
    ] = Input.TEXT,
    type_: Annotated[str, typer.Option("--type", help="The type of each message.")] = "",
    properties: Annotated[
        list[str] | None, typer.Option("--property", help="NAME=VALUE; may be given several times.")
    ] = None,
    kind: Annotated[str, typer.Option(help="What to make, if it is not there: queue or topic.")] = "queue",
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Send messages, and return when they are confirmed: on the disk, whatever happens next.

    Examples:

      holdfast send orders "one coffee"

      seq 1000 | holdfast send numbers --input lines

      echo '{"body": "hello", "type": "greeting"}' | holdfast send orders --input json
    """
    given = _properties(properties or [])
    messages = _messages(_lines(text, file), form, type_, given)
    count = 0
    with _connect(url) as connection, connection.session() as session:
        session.declare(destination, kind)
        with _progress(disable=as_json) as progress:
            task = progress.add_task(f"sending to {destination}", total=None)
            while batch := list(islice(messages, SEND_BATCH_MESSAGES)):
                session.send_batch(destination, batch)
                count += len(batch)
                progress.update(task, completed=count)
    if as_json:
        print_json({"destination": destination, "confirmed": count})
    else:
        noun = "message" if count == 1 else "messages"
        typer.echo(f"confirmed: {count:,} {noun} in {destination}")


def _lines(text: str | None, file: Path | None) -> Iterable[bytes]:
    if text is not None and file is not None:
        raise typer.BadParameter("give either a text or a file")
    if text is not None:
        return [text.encode()]
    if file is not None:
        return file.open("rb")
    return sys.stdin.buffer


def _messages(
    lines: Iterable[bytes], form: Input, type_: str, properties: dict[str, PropertyValue]
) -> Iterator[Message]:
    now_us = time.time_ns() // 1000
    if form is Input.TEXT:
        yield Message(body=b"".join(lines), type=type_, properties=properties, time_us=now_us)
        return
    for number, line in enumerate(lines, start=1):
        body = line.rstrip(b"\r\n")
        if form is Input.LINES:
            yield Message(body=body, type=type_, properties=properties, time_us=now_us)
        elif body:
            yield _from_json(number, body, type_, properties, now_us)


def _from_json(
    number: int, line: bytes, type_: str, properties: dict[str, PropertyValue], now_us: int
) -> Message:
    try:
        given = msgspec.json.decode(line, type=JsonMessage)
    except msgspec.MsgspecError as error:
        typer.echo(
            f"holdfast: line {number} is not a message: {error}. What came before it was sent.", err=True
        )
        raise typer.Exit(EXIT_CANNOT) from error
    fields = msgspec.structs.asdict(given)
    fields.update(
        body=given.body.encode(),
        type=given.type or type_,
        properties={**properties, **given.properties},
        time_us=now_us,
    )
    return Message(**fields)


def _properties(given: list[str]) -> dict[str, PropertyValue]:
    pairs = [entry.partition("=") for entry in given]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise typer.BadParameter(f"--property takes NAME=VALUE, not {name!r}")
    return {name: value for name, _, value in pairs}


def receive(
    destination: Annotated[str, typer.Argument(help="The queue or topic.")],
    count: Annotated[int, typer.Option(min=1, help="How many messages.")] = 1,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C.")] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0, help="Seconds to wait for the next one.")
    ] = 5.0,
    subscription: Annotated[
        str, typer.Option(help="A durable subscription of a topic; made if it is not there.")
    ] = "",
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Receive messages, print them, and confirm each after it was printed.

    Exit code: 0 at least one was received; 1 none came in the time given.

    Example: holdfast receive orders --count 10
    """
    received = 0
    with _connect(url) as connection, connection.session() as session:
        # One at a time: what is not asked for is not fetched, and so never marked as delivered before.
        while follow or received < count:
            message = session.receive(
                destination, subscription=subscription, timeout_s=None if follow else timeout_s
            )
            if message is None:
                break
            _print(message, as_json=as_json)
            message.acknowledge()
            received += 1
    if not received:
        typer.echo(f"holdfast: nothing came from {destination} in {timeout_s:g} s", err=True)
        raise typer.Exit(EXIT_FOUND)


def browse(
    destination: Annotated[str, typer.Argument(help="The queue or topic.")],
    start: Annotated[int, typer.Option("--from", min=0, help="The first position to look at.")] = 0,
    count: Annotated[int, typer.Option(min=1, help="How many messages at the most.")] = 20,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Look at messages without receiving them: nothing changes.

    Example: holdfast browse orders --from 100 --count 5
    """
    with _connect(url) as connection, connection.session() as session:
        found = session.browse(destination, from_position=start, messages_max=count)
    if as_json:
        for message in found:
            _print(message, as_json=True)
        return
    shown = table(destination, "position", "type", "bytes", "body", right=frozenset(("position", "bytes")))
    for message in found:
        body = message.body.decode(errors="replace")
        shown.add_row(
            plain(message.position), plain(message.type), plain(len(message.body)), plain(body[:80])
        )
    console().print(shown if found else f"{destination} holds nothing from position {start} on")


def status(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """How the server is.

    Example: holdfast status --json
    """
    with _connect(url) as connection:
        found = connection.status()
    if as_json:
        print_json(found)
        return
    shown = table("status", "what", "value")
    for name, value in found.items():
        shown.add_row(plain(name), plain(value))
    console().print(shown)


def destinations(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """The queues and topics that there are.

    Example: holdfast destinations
    """
    with _connect(url) as connection:
        found = connection.destinations()
    if as_json:
        print_json(found)
        return
    shown = table(
        "destinations",
        "name",
        "kind",
        "next position",
        "held batches",
        "subscriptions",
        right=frozenset(("next position", "held batches")),
    )
    for row in found["destinations"]:
        names = [each["name"] or "(the queue's own)" for each in row["subscriptions"]]
        cells = (row["name"], row["kind"], row["next_position"], row["held_batches"], ", ".join(names))
        shown.add_row(*map(plain, cells))
    console().print(shown)


def _print(message: Any, *, as_json: bool) -> None:
    if not as_json:
        sys.stdout.buffer.write(message.body + b"\n")
        sys.stdout.buffer.flush()
        return
    line = {
        "position": message.position,
        "redeliveries": message.redeliveries,
        "id": str(message.id) if message.id is not None else None,
        "time_us": message.time_us,
        "type": message.type,
        "source": message.source,
        "severity": message.severity.name.lower(),
        "properties": message.properties,
        "body": message.body.decode(errors="replace"),
    }
    typer.echo(msgspec.json.encode(line).decode())


def _progress(*, disable: bool) -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    err = console()
    err.stderr = True
    return Progress(*columns, console=err, transient=True, disable=disable or not sys.stderr.isatty())
