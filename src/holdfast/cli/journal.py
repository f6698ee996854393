"""`holdfast journal`: look at a journal on the disk, and check it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from holdfast.cli.journal_tables import print_findings, print_groups, print_inspection, print_records
from holdfast.cli.output import EXIT_FOUND, print_json
from holdfast.disk import FileStorage
from holdfast.disk.directory import LOCK_NAME
from holdfast.errors import UsageError
from holdfast.journal.inspection import Finding, Severity, inspect, inspect_segment, verify

DEFAULT_DIRECTORY = Path("holdfast-data/journal")
_LOCKS = Path("/proc/locks")

app = typer.Typer(
    no_args_is_help=True,
    help="Look at a journal on the disk, and check it. Nothing is ever changed; a node may be running meanwhile.",
)

Directory = Annotated[Path, typer.Argument(help="The directory that holds the journal's files.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document, for programs.")]


@app.command("inspect")
def inspect_command(
    directory: Directory = DEFAULT_DIRECTORY,
    segment: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Show the groups of one segment, such as segment-000003."),
    ] = None,
    records: Annotated[
        bool, typer.Option("--records", help="With --segment: show every record, not only the groups.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a journal holds: its checkpoints, its segments, what is live.

    A segment is "in use" while a record in it is held, or recovery would
    read it; "reusable" when neither is so; "unused" if it was never written;
    "damaged" if its header cannot be read.

    Exit code: 0 if the next start would find all it needs; 1 if it would
    refuse (`verify` says why); 2 if there is no journal, or it cannot be read.

    Example: holdfast journal inspect --segment segment-000003 --records
    """
    if records and segment is None:
        raise UsageError("--records shows the records of one segment: say which with --segment NAME")
    with FileStorage(directory, lock=False) as storage:
        if segment is not None:
            groups = list(inspect_segment(storage, segment))
            if as_json:
                print_json(groups)
            elif records:
                print_records(segment, groups)
            else:
                print_groups(segment, groups)
            return
        inspection = inspect(storage)
    holder = lock_holder(directory)
    if as_json:
        print_json({"directory": str(directory), "in_use_by": holder, **msgspec.structs.asdict(inspection)})
    else:
        print_inspection(directory, inspection, holder)
    if inspection.problem is not None:
        raise typer.Exit(EXIT_FOUND)


@app.command("verify")
def verify_command(directory: Directory = DEFAULT_DIRECTORY, as_json: AsJson = False) -> None:
    """Read all of a journal, and name every place that is not as written.

    The node's state, both checkpoints, the boot section, and every group and
    record of the segments in use are checked. An "error" is damage to what had
    been confirmed, or keeps the node from starting. A "warning" is harmless,
    such as the torn end that a crash leaves behind.

    What the operating system holds in memory is read from there: to check the
    disk itself, run this after a reboot, or on a copy.

    Exit code: 0 if there are no errors; 1 if there are; 2 if there is no
    journal, or it cannot be read.

    Example: holdfast journal verify holdfast-data/journal && echo all is well
    """
    with FileStorage(directory, lock=False) as storage:
        findings = _verify_with_progress(storage)
    holder = lock_holder(directory)
    errors = sum(finding.severity is Severity.ERROR for finding in findings)
    if as_json:
        print_json(
            {
                "directory": str(directory),
                "in_use_by": holder,
                "errors": errors,
                "warnings": len(findings) - errors,
                "findings": findings,
            }
        )
    else:
        print_findings(directory, findings, holder)
    if errors:
        raise typer.Exit(EXIT_FOUND)


def _verify_with_progress(storage: FileStorage) -> list[Finding]:
    screen = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        task = progress.add_task("reading segments", total=None)
        return verify(
            storage,
            on_progress=lambda done_bytes, total_bytes: progress.update(
                task, completed=done_bytes, total=total_bytes
            ),
        )


def lock_holder(directory: Path) -> int | None:
    """The process that uses the journal, if the kernel tells. The lock itself is not touched: to try it, even for
    a moment, could keep a node from starting."""
    try:
        lock = directory / LOCK_NAME
        process_id = lock.read_text(encoding="ascii", errors="replace").strip()
        inode = lock.stat().st_ino
        lines = _LOCKS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    for fields in map(str.split, lines):
        is_lock = len(fields) >= 6 and fields[1] == "FLOCK" and fields[4] == process_id
        if is_lock and fields[5].rpartition(":")[2] == str(inode):
            return int(process_id)
    return None
