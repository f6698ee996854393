"""`holdfast simulate`: the real core, on simulated disks, from a seed."""

from __future__ import annotations

import json
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from holdfast.simulation.journal_world import Fault, Outcome
from holdfast.simulation.runner import Totals, World, repeat_command, run_seeds, shrink

EXIT_BROKEN = 1


def simulate(
    seed: Annotated[int, typer.Option(help="The first seed. The same seed gives the same run, always.")] = 1,
    runs: Annotated[int, typer.Option(min=1, help="How many runs: seeds SEED, SEED+1, and so on.")] = 100,
    world: Annotated[
        World,
        typer.Option(help="journal: one node's disk; node: a message manager with clients that outlive it."),
    ] = World.JOURNAL,
    without: Annotated[
        list[Fault] | None, typer.Option(help="Leave out a kind of fault; may be given several times.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
) -> None:
    """Run the real core on simulated disks, through crashes, power loss, damage and full disks.

    After every simulated crash the node is recovered and judged: all that was confirmed is there, in order;
    nothing appears that was never sent; nothing is doubled; no space leaks; damage is reported, never skipped.

    Exit code: 0 if every promise held, 1 if one was broken (the seed that shows it is printed).

    Example: holdfast simulate --seed 1 --runs 1000
    """
    left_out = frozenset(without or ())
    totals = Totals()
    broken: list[tuple[Outcome, frozenset[Fault]]] = []
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("simulating", total=runs)
        for outcome in run_seeds(range(seed, seed + runs), world=world, without=left_out):
            totals.add(outcome)
            if outcome.broken:
                broken.append(shrink(outcome, world=world, without=left_out))
            progress.advance(task)
    if as_json:
        report = msgspec.to_builtins(totals)
        report["broken"] = [
            {
                "seed": outcome.seed,
                "promise": outcome.broken,
                "repeat": repeat_command(outcome, faults, world=world),
            }
            for outcome, faults in broken
        ]
        typer.echo(json.dumps(report))
    else:
        _print(totals, broken, world)
    if broken:
        raise typer.Exit(EXIT_BROKEN)


def _print(totals: Totals, broken: list[tuple[Outcome, frozenset[Fault]]], world: World) -> None:
    typer.echo(
        f"{totals.runs:,} runs, {totals.lives:,} lives, {totals.records:,} records; "
        f"{totals.torn_tails:,} torn tails cut, {totals.refused:,} records refused for lack of space, "
        f"{totals.damage_reported:,} times damage reported"
    )
    for outcome, faults in broken:
        typer.secho(f"seed {outcome.seed}: {outcome.broken}", fg="red")
        typer.echo(f"  repeat it: {repeat_command(outcome, faults, world=world)}")
    if not broken:
        typer.secho("every promise held", fg="green")
