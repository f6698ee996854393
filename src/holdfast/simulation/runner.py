"""Many runs, one after another; and what to do about one that failed.

A run is a function of its seed, so a failing one can be repeated at will. It is also made smaller, as far as that
is cheap: each kind of fault that it does not need is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum

import msgspec

from holdfast.simulation.journal_world import Fault, JournalWorld, MakeStorage, Outcome
from holdfast.simulation.node_world import NodeWorld
from holdfast.simulation.storage import FaultyStorage


class World(Enum):
    """What is simulated."""

    JOURNAL = "journal"
    NODE = "node"


class Totals(msgspec.Struct):
    """What all runs together went through."""

    runs: int = 0
    lives: int = 0
    records: int = 0
    torn_tails: int = 0
    refused: int = 0
    damage_reported: int = 0
    failed: int = 0

    def add(self, outcome: Outcome) -> None:
        self.runs += 1
        self.lives += outcome.lives
        self.records += outcome.records
        self.torn_tails += outcome.torn_tails
        self.refused += outcome.refused
        self.damage_reported += bool(outcome.reported)
        self.failed += bool(outcome.broken)


def run_seed(
    seed: int,
    *,
    world: World = World.JOURNAL,
    without: frozenset[Fault] = frozenset(),
    make_storage: MakeStorage = FaultyStorage,
) -> Outcome:
    """One run. With faults left out, the rest of the run is drawn from the same seed."""
    faults = frozenset(Fault) - without
    if world is World.NODE:
        return NodeWorld(seed, faults=faults, make_storage=make_storage).run()
    return JournalWorld(seed, faults=faults, make_storage=make_storage).run()


def run_seeds(
    seeds: Iterable[int], *, world: World = World.JOURNAL, without: frozenset[Fault] = frozenset()
) -> Iterator[Outcome]:
    for seed in seeds:
        yield run_seed(seed, world=world, without=without)


def shrink(
    failed: Outcome, *, world: World = World.JOURNAL, without: frozenset[Fault] = frozenset()
) -> tuple[Outcome, frozenset[Fault]]:
    """A run of the same seed that still fails with as few kinds of fault as possible."""
    smallest = failed
    for fault in Fault:
        fewer = without | {fault}
        outcome = run_seed(failed.seed, world=world, without=fewer)
        if outcome.broken:
            smallest, without = outcome, fewer
    return smallest, without


def repeat_command(outcome: Outcome, without: frozenset[Fault], *, world: World = World.JOURNAL) -> str:
    """What to type to see it again."""
    options = "".join(f" --without {fault.value}" for fault in Fault if fault in without)
    return f"holdfast simulate --world {world.value} --seed {outcome.seed} --runs 1{options}"
