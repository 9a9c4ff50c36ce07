"""Fallback: if the checkpoint that a run begins from is damaged, the run is started again from the one before."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from primitives.errors import EnvironmentFault
from primitives.graph import Kind
from seep.query.program import Program
from seep.running.resume import resume_before
from seep.running.run import Run
from seep.running.run import launch as launch_once

F = TypeVar("F", bound=Callable[..., Any])

#: Seconds between two checks whether all instances have their state.
_LOOK = 0.05


def falling_back(launch: F) -> F:
    """Wraps `launch`: with `fall_back`, it returns when all instances have their state, of whichever checkpoint.

    Content is checked while it is restored. Only if a run fails before it has its state, the whole checkpoint is read
    to find out whether it is damaged.
    """

    @wraps(launch)
    def launched(query: Any, *given: Any, **options: Any) -> Run:
        run: Run = launch(query, *given, **options)
        compiled = {name: value for name, value in options.items() if name not in ("parallelism", "rate")}
        while (earlier := _earlier(run)) is not None:
            run = launch(earlier, *given, **compiled)
        return run

    return cast(F, launched)


def _earlier(run: Run) -> Program | None:
    """Returns the program to run instead; None if this run has its state, or needs none."""
    if run.program.resume is None or not run.options.fall_back:
        return None
    try:
        while not _is_restored(run) and not run.wait(_LOOK):
            pass
    except BaseException as reason:
        run.stop()
        earlier = resume_before(run.program, run.options) if isinstance(reason, EnvironmentFault) else None
        if earlier is None:
            raise
        return earlier
    return None


def _is_restored(run: Run) -> bool:
    """Whether each instance with state has reported, and has its state."""
    graph, parallelism = run.program.graph, run.program.parallelism
    stateful = {o: parallelism.get(o, 1) for o in graph.order if graph.kind(o) is Kind.STATEFUL}
    phases = [each.phase for each in run.status().instances if each.operator in stateful]
    return len(phases) >= sum(stateful.values()) and "restoring" not in phases


launch = falling_back(launch_once)
