"""`seep runs`, `savepoint`, `migrate` and `stop`: commands to a run from another terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from primitives.errors import UserError
from seep.cli.display.progress import ProgressBar
from seep.control.migration import OVER
from seep.reports import figures
from seep.running.remote_control import find, listed

#: Seconds between two checks of a migration.
_LOOK = 0.2


def show_runs(console: Console) -> None:
    """Prints all runs of this user on this machine."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("run", "query", "pid", "at"):
        table.add_column(heading)
    for run in listed():
        table.add_row(run.id, run.query, str(run.process.pid), f"{run.address.host}:{run.address.port}")
    console.print(table if table.row_count else "no run of yours is here")


def take_savepoint(name: str, console: Console) -> None:
    answer = find(name).tell("savepoint")
    console.print(f"savepoint {answer['id']} is complete; begin from it with --restore {answer['id']}", soft_wrap=True)


def migrate(name: str, operator: str, to: int, console: Console, *, wait: bool = True, **chosen: Any) -> None:
    """Starts a migration in a run, and waits for it if `wait`; without that, it continues in the background."""
    run = find(name)
    given = {key: value for key, value in chosen.items() if value is not None}
    number = run.tell("migrate", operator=operator, to=to, **given)
    if not wait:
        console.print(f"{operator} goes to {figures.of(to, 'instance')}", soft_wrap=True)
        return
    with ProgressBar(f"{operator}: slots moved") as bar:
        while (progress := run.tell("migration", **number))["state"] not in OVER:
            bar.reach(progress["slots_moved"], progress["slots_moved"] + progress["slots_remaining"])
            time.sleep(_LOOK)
    if progress["state"] != "done":
        raise UserError(f"the migration of {operator} is {progress['state']}: {progress['why']}")
    console.print(_migrated(progress), soft_wrap=True)


def _migrated(progress: Mapping[str, Any]) -> str:
    """Returns the result of a migration in one line."""
    slots, steps = figures.of(progress["slots_moved"], "slot"), figures.of(progress["steps"], "step")
    return (
        f"migrated {progress['operator']} in {figures.time(progress['seconds'])}: {slots} in {steps}, "
        f"{figures.size(progress['bytes'])} handed over, {figures.of(progress['held_back'], 'row')} held back, "
        f"latency {figures.latency(progress['latency'])}"
    )


def stop_run(name: str, savepoint: bool, console: Console) -> None:
    """Stops a run at once: the input does not end, and a later run continues with what is not committed."""
    if savepoint:
        take_savepoint(name, console)
    run = find(name)
    run.tell("stop")
    console.print(f"run {run.id} of {run.query} stops", soft_wrap=True)
