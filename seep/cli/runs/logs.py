"""`seep logs`: the newest log lines of a run, from another terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import typer

from primitives.errors import EnvironmentFault
from seep.logs.levels import LogFormat, LogLevel
from seep.logs.line import LogLine
from seep.running.run_client import RunClient

#: Seconds that a request waits in the run for new lines, and between two requests at least.
_WAIT, _PAUSE = 5.0, 0.2


def show_logs(run: RunClient, *, follow: bool, node: str | None, level: LogLevel, as_json: bool) -> None:
    """Prints the lines that the run has; with `follow`, goes on until the run ends."""
    cursor = 0
    form = LogFormat.JSON if as_json else LogFormat.TEXT
    asked = {"node": node, "level": level.value, "wait": _WAIT if follow else 0.0}
    while (page := _next_page(run, asked | {"after": cursor})) is not None:
        _show(page, form)
        cursor = page["next"]
        if page["over"] or (page["last"] and not follow):
            return
        if page["last"]:
            time.sleep(_PAUSE)  # lines that come one by one are asked for together


def _next_page(run: RunClient, asked: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Returns the next lines, or None if the run has ended while it was asked."""
    try:
        return run.tell("logs", **asked)
    except EnvironmentFault:
        if asked["after"] and run.has_ended():
            typer.echo(f"run {run.id} has ended, and its last lines may be missing", err=True)
            return None
        raise


def _show(page: Mapping[str, Any], form: LogFormat) -> None:
    if page["missed"]:
        typer.echo(f"{page['missed']:,} lines before these are not kept any more", err=True)
    for line in page["lines"]:
        typer.echo(LogLine.from_json(line).written(form))
