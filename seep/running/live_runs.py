"""Live runs: those that this program has launched and that still hold nodes or a Spark session."""

from __future__ import annotations

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


def check_no_session() -> None:
    """Raises UserError if a live run has its own Spark session, as there can be only one; waits if it is ending."""
    for run in [run for run in runs() if run.owns_session]:
        if run.is_over and not run.is_lent:
            run.stop()
            continue
        raise UserError(
            f"run {run.id} of query {run.program.name!r}, which is {run.phase}, has its own Spark session in this "
            "program, and there can be only one: get that run back with seep.runs(), and end it and its session with "
            "stop(); to run several queries at once, pass all of them a session of yours with spark=…"
        )
