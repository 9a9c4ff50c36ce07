"""Many schedules on all cores: progress while it runs, a table at the end, a minimal schedule for each violation."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from policies.migration.settings import Strategy
from seep.simulator.faults import What
from seep.simulator.laws import ENDS
from seep.simulator.schedule import Outcome, Plan, Verdict, minimise, run_schedule

#: Decisions that may be open when a fault strikes; a requested migration is named by its strategy.
DECISIONS = ("scaling", "rebalance", "balance", "drain", *(f"migration {each}" for each in (*Strategy, "stream")))
#: The kinds of event that end decisions.
ENDINGS = tuple(dict.fromkeys(event.kind for events in ENDS.values() for event in events))
#: The most violations that are minimised and printed; more would only repeat them.
MOST_SHOWN = 3


@dataclass(slots=True)
class Summary:
    """The results of many schedules together."""

    verdicts: Counter[Verdict] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    steps: int = 0
    epochs: int = 0
    seconds: float = 0.0
    violations: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.verdicts[outcome.verdict] += 1
        self.events.update(outcome.events)
        self.pairs.update(outcome.pairs)
        self.steps += outcome.steps
        self.epochs += outcome.epochs
        if outcome.verdict is Verdict.VIOLATION:
            self.violations.append(outcome)

    @property
    def schedules(self) -> int:
        return sum(self.verdicts.values())


def soak(seeds: Iterable[int], plan: Plan | None = None, jobs: int | None = None, progress: bool = False) -> Summary:
    """Runs the schedules of all seeds; the same seeds give the same summary, whatever the number of jobs."""
    summary, began, shown = Summary(), time.monotonic(), 0.0
    for outcome in _outcomes(list(seeds), plan or Plan(), jobs or os.cpu_count() or 1):
        summary.add(outcome)
        if progress and outcome.verdict is Verdict.VIOLATION:
            _say(f"VIOLATION with seed {outcome.seed}: {outcome.note:.300}")
        summary.seconds = time.monotonic() - began
        if progress and summary.seconds - shown > 5:
            shown = summary.seconds
            _tell(summary)
    return summary


def _outcomes(seeds: list[int], plan: Plan, jobs: int) -> Iterator[Outcome]:
    run = partial(run_schedule, plan=plan)
    if jobs == 1:
        yield from map(run, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, _collect_rarely) as pool:
        yield from pool.imap_unordered(run, seeds, chunksize=50)


def _collect_rarely() -> None:
    """Runs the garbage collector less often: schedules make few cycles, and this saves an eighth of the time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _tell(summary: Summary) -> None:
    rate = summary.schedules / summary.seconds
    line = (
        f"{summary.schedules} schedules in {summary.seconds:.0f} s ({rate:.0f}/s), {len(summary.violations)} violations"
    )
    _say(line)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def report(summary: Summary, plan: Plan | None = None) -> str:
    """Returns the summary as a table, and the first violations as stories."""
    lines = [f"{summary.schedules} schedules, {summary.seconds:.1f} s"]
    lines += [f"  {verdict.value:<24}{summary.verdicts[verdict]:>10}" for verdict in Verdict]
    lines += [f"  {'epochs':<24}{summary.epochs:>10}", f"  {'steps':<24}{summary.steps:>10}", "what happened in them"]
    lines += [f"  {kind:<24}{count:>10}" for kind, count in summary.events.most_common()]
    lines += pair_table(summary, plan)
    if never := missing(summary, plan):
        lines.append(f"never: {', '.join(never)}")
    return "\n".join(lines + [_story(violation, plan) for violation in summary.violations[:MOST_SHOWN]])


def pair_table(summary: Summary, plan: Plan | None = None) -> list[str]:
    """Returns a table of how often each fault struck while a decision was open, by kind of decision."""
    wide = max(map(len, What))
    heads = [f"{'':<{wide}}" + "".join(f"{_short(decision):>11}" for decision in DECISIONS)]
    rows = [
        f"{fault:<{wide}}" + "".join(f"{summary.pairs[fault, decision]:>11}" for decision in DECISIONS)
        for fault in _faults(plan)
    ]
    return ["which fault struck while which decision was open", *(f"  {line}" for line in [*heads, *rows])]


def missing(summary: Summary, plan: Plan | None = None) -> list[str]:
    """Returns the faults, strategies, events of control, and faults during decisions that never occurred."""
    single = [*_faults(plan), *(f"strategy {each}" for each in (*Strategy, "stream")), *ENDINGS]
    never = [each for each in single if not summary.events[each]]
    pairs = ((fault, decision) for fault in _faults(plan) for decision in DECISIONS)
    return never + [f"{fault} during {decision}" for fault, decision in pairs if not summary.pairs[fault, decision]]


def _faults(plan: Plan | None) -> tuple[What, ...]:
    return plan.only if plan and plan.only else tuple(What)


def _short(decision: str) -> str:
    return decision.removeprefix("migration ")


def _story(violation: Outcome, plan: Plan | None) -> str:
    """Returns a violation with the fewest faults that still cause it, and the command that replays it."""
    least = minimise(violation, plan)
    faults = "\n".join(f"    {fault}" for fault in least.faults)
    only = f" --only {','.join(kind.name.lower() for kind in plan.only)}" if plan and plan.only else ""
    again = f"python -m seep.simulator replay {least.seed}{only}"
    return f"VIOLATION with seed {least.seed}: {least.note}\n  fewest faults:\n{faults}\n  again: {again}"
