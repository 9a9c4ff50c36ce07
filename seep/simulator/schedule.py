"""One schedule from a seed: builds, runs and judges it, and reduces a failing one to the fewest faults."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import StrEnum

from seep.kernel.kernel import Trace
from seep.simulator.faults import Fault, What, random_faults
from seep.simulator.oracle import ReferenceRun, differences
from seep.simulator.queries import SHAPES, Medium, SimulatedQuery
from seep.simulator.world import Limits, World


class Verdict(StrEnum):
    EXACT = "exact"  #: finished, and every sink has each row of the failure-free run exactly once
    STATE_LOST = "state lost"  #: ended with the expected error, and committed nothing wrong before
    VIOLATION = "violation"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a schedule."""

    seed: int
    verdict: Verdict
    faults: tuple[Fault, ...]
    steps: int
    epochs: int
    events: dict[str, int]
    note: str = ""
    #: fault, and a decision that was open when it struck -> number of times
    pairs: dict[tuple[str, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """The number of faults and of steps in a schedule."""

    most_faults: int = 8
    over_steps: int = 700
    limits: Limits = field(default_factory=Limits)
    only: tuple[What, ...] = ()  #: kinds of fault; all if empty
    medium: Medium | None = None  #: plain tuples if None


def run_schedule(
    seed: int, plan: Plan | None = None, faults: list[Fault] | None = None, trace: Trace | None = None
) -> Outcome:
    """Runs the schedule of a seed, with its own faults or with the given ones."""
    plan = plan or Plan()
    if faults is None:
        faults = random_faults(random.Random(f"{seed} faults"), plan.most_faults, plan.over_steps, plan.only)
    world = None
    try:
        world = World(seed, _query(seed, plan), faults, plan.limits, trace)
        world.run()
        notes = _judge(world)
    except Exception as error:  # any failure of a machine is a finding
        notes = [f"{type(error).__name__}: {error}"]
        if trace:
            raise
    verdict = Verdict.VIOLATION if notes else Verdict.STATE_LOST if world and world.lost else Verdict.EXACT
    if world is None:
        return Outcome(seed, verdict, tuple(faults), 0, 0, {}, "; ".join(notes[:3]))
    tally = world.tally
    told = "; ".join(notes[:3])
    return Outcome(seed, verdict, tuple(faults), world.now, world.manager.ticked, tally.events, told, tally.pairs)


def minimise(outcome: Outcome, plan: Plan | None = None) -> Outcome:
    """Returns the same seed with the fewest faults that still fail: drops each one without which it still fails."""
    best, shrinking = outcome, True
    while shrinking:
        shrinking = False
        for i in range(len(best.faults)):
            fewer = [*best.faults[:i], *best.faults[i + 1 :]]
            tried = run_schedule(best.seed, plan, fewer)
            if tried.verdict is Verdict.VIOLATION:
                best, shrinking = tried, True
                break
    return best


def _query(seed: int, plan: Plan) -> SimulatedQuery:
    rng = random.Random(f"{seed} query")
    return SimulatedQuery(rng.choice(SHAPES), rng, plan.limits.rows, plan.medium)


def _judge(world: World) -> list[str]:
    final = world.finished
    if final is None:
        return _judge_loss(world)
    expected = ReferenceRun(world.query, world.offsets, final, final).run()
    notes = differences(expected, world.store.rows, final)
    late = sorted({e for epochs in world.store.rows.values() for e in epochs if e > final})
    return notes + [f"epoch {e} was committed after the final one" for e in late]


def _judge_loss(world: World) -> list[str]:
    """Checks that state was given up only without any copy left, and that everything committed before is right."""
    assert world.lost is not None
    notes = []
    if world.has_backup(world.lost.instance):
        notes.append(f"{world.lost.instance} was given up though a live node has its backup")
    last = max((epoch for epochs in world.store.rows.values() for epoch in epochs), default=0)
    expected = ReferenceRun(world.query, world.offsets, last, world.manager.final).run()
    for sink, epochs in world.store.rows.items():
        for epoch, rows in epochs.items():
            if extra := rows - expected[sink][epoch]:
                notes.append(f"sink {sink!r}, epoch {epoch}: too many {sorted(extra.elements())}")
    return notes
