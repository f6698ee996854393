"""Run all benches, or those that are named."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from bench import journal
from bench.report import Section, observe, show, write_json
from bench.scale import FULL, QUICK, Scale

RESULTS = Path(__file__).parent / "results"


BENCHES: dict[str, Callable[[Path, Scale], list[Section]]] = {"journal": journal.run}


def run_bench(name: str, *, scale: Scale, date: str, results: Path, console: Console) -> Path:
    """Measure, show, and keep the figures. The file that holds them."""
    results.mkdir(parents=True, exist_ok=True)
    # Beside the results, because /tmp may be memory and not a disk.
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=results) as directory:
        conditions = observe(date=date, directory=Path(directory), scale=scale)
        sections = BENCHES[name](Path(directory), scale)
    show(console, conditions, sections)
    return write_json(results, name, conditions, sections)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(BENCHES)}; default: all")
    parser.add_argument("--quick", action="store_true", help="a smoke test: about 20 s, figures of no worth")
    parser.add_argument("--date", default=datetime.now(UTC).date().isoformat(), help="noted with the figures")
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="directory for the figures, on the disk"
    )
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in BENCHES]
    if unknown:
        parser.error(f"there is no bench named {', '.join(unknown)}; there are: {', '.join(BENCHES)}")
    # The tables are wide; a file or a pipe has no width of its own.
    console = Console() if sys.stdout.isatty() else Console(width=170)
    for name in options.names or BENCHES:
        path = run_bench(
            name,
            scale=QUICK if options.quick else FULL,
            date=options.date,
            results=options.results,
            console=console,
        )
        console.print(f"figures kept in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
