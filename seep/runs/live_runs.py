"""Live runs: those that this program has launched and that still hold something: nodes, or a Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from primitives.errors import UserError

if TYPE_CHECKING:
    from seep.runs.run import Run

#: By id, oldest first.
_live: dict[str, Run] = {}


def runs() -> list[Run]:
    """The runs that this program has launched and that are not stopped, oldest first.

    So a notebook gets a run back whose variable is lost: `run = seep.runs()[-1]`.
    """
    return list(_live.values())


def enter(run: Run) -> None:
    """The run begins to hold something."""
    _live[run.id] = run


def leave(run: Run) -> None:
    """The run holds nothing any more."""
    _live.pop(run.id, None)


def check_no_session() -> None:
    """UserError if a live run has a Spark session of its own, as a program has one at most; waits for one that ends."""
    for run in [run for run in runs() if run.owns_session]:
        if run.is_over and not run.is_lent:
            run.stop()
            continue
        raise UserError(
            f"run {run.id} of query {run.program.name!r}, which is {run.phase}, has its own Spark session in this "
            "program, and there can be only one: get that run back with seep.runs(), and end it and its session with "
            "stop(); to run several queries at once, pass all of them a session of yours with spark=…"
        )
