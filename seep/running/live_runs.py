"""Live runs: those that this program has launched and that still hold nodes or a Spark session."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

from primitives.errors import UserError

if TYPE_CHECKING:
    from seep.running.run import Run

#: Live runs by id, oldest first.
_live: dict[str, Run] = {}


def runs() -> list[Run]:
    """Returns the runs that this program has launched and that are not stopped, oldest first.

    A notebook can so get back a run whose variable is lost: `run = seep.runs()[-1]`.
    """
    return list(_live.values())


def enter(run: Run) -> None:
    """Registers a run that begins to hold nodes or a session."""
    _live[run.id] = run


def leave(run: Run) -> None:
    """Removes a run that holds nothing any more."""
    _live.pop(run.id, None)


def make_way(query: str, replace: bool, tell: Callable[[str], None]) -> None:
    """Stops the live runs of a query if a new one is to `replace` them; warns of those that still run otherwise."""
    for run in [run for run in runs() if run.program.name == query]:
        if replace:
            tell(f"stopping run {run.id}, which is to be replaced")
            run.stop()
        elif not run.is_over:
            warnings.warn(
                f"run {run.id} of query {query!r}, which this program has launched before, still runs: get it back "
                "with seep.runs(), and stop it; or launch with replace=True, which stops it first",
                stacklevel=3,
            )


def check_no_session() -> None:
    """Raises UserError if a live run has its own Spark session, as there can be only one; waits if it is ending."""
    for run in [run for run in runs() if run.owns_session]:
        if run.is_over and not run.is_lent:
            run.stop()
            continue
        raise UserError(
            f"run {run.id} of query {run.program.name!r}, which is {run.phase}, has its own Spark session in this "
            "program, and there can be only one: get that run back with seep.runs(), and end it and its session with "
            "stop(), or launch the same query with replace=True; to run several queries at once, pass all of them a "
            "session of yours with spark=…"
        )
