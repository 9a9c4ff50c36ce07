"""`seep runs`, `seep savepoint` and `seep stop`: what is said to a run from another terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from seep.runtime.control import find, listed


def show_runs(console: Console) -> None:
    """All runs of this user on this machine."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("run", "query", "pid", "at"):
        table.add_column(heading)
    for run in listed():
        table.add_row(run.id, run.query, str(run.process.pid), f"{run.address.host}:{run.address.port}")
    console.print(table if table.row_count else "no run of yours is here")


def take_savepoint(name: str, console: Console) -> None:
    answer = find(name).tell("savepoint")
    console.print(f"savepoint {answer['id']} is complete; begin from it with --restore {answer['id']}", soft_wrap=True)


def stop_run(name: str, savepoint: bool, console: Console) -> None:
    """Stops a run as it stands: the input does not end, and what is not committed is left to a run that goes on."""
    if savepoint:
        take_savepoint(name, console)
    run = find(name)
    run.tell("stop")
    console.print(f"run {run.id} of {run.query} stops", soft_wrap=True)
