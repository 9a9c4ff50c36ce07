"""`seep top`: a run of another process, live, on a terminal; or as JSON, or as text once."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue

import typer
from rich.console import Console
from rich.live import Live

from primitives.errors import EnvironmentFault
from seep.cli.display.panels import RunMoment, panels, rows_for
from seep.cli.display.view import status_line
from seep.record.status import Status
from seep.running.remote_control import RunListing, find, listed

#: The phase of a run whose driver ended before it could tell how the run ended.
_UNKNOWN = "ended"
_ALIVE = ("starting", "running")
#: Columns of text that does not go to a terminal.
_WIDTH = 160


def show_top(name: str, *, once: bool, as_json: bool, interval: float) -> None:
    """Shows a run until it ends or the user leaves, which does not affect the run."""
    run, console = find(name), Console()
    if as_json:
        for moment in moments(run, interval):
            typer.echo(json.dumps(as_data(moment)))
            if once:
                return
    elif once or not console.is_terminal:
        _show_once(run, console, once=once)
    else:
        _follow(run, console, interval)


def moments(run: RunListing, interval: float) -> Iterator[RunMoment]:
    """Yields a run now, then after each interval, and at its end; the run itself waits, so that its end is seen."""
    moment = _ask(run, 0.0)
    yield moment
    while moment.phase in _ALIVE:
        try:
            moment = _ask(run, interval)
        except EnvironmentFault:
            if run.id in {each.id for each in listed()}:
                raise
            moment = moment._replace(phase=_UNKNOWN)
        yield moment


def _ask(run: RunListing, wait: float) -> RunMoment:
    told = run.tell("status", wait=wait)
    status, wrong, events = Status.from_json(told["status"]), tuple(told["wrong"]), tuple(told["events"])
    return RunMoment(run.id, run.query, told["phase"], told["failure"], status, wrong, events)


def as_data(moment: RunMoment) -> dict[str, object]:
    """Returns a moment as JSON values."""
    return moment._asdict() | {"healthy": not moment.wrong, "status": moment.status.to_json()}


def ended(moment: RunMoment) -> str:
    """Returns in a line how a run has ended."""
    how = {
        "finished": "is finished: all input is processed and committed",
        "halted": "was stopped before the end of its input",
        "failed": f"has failed: {moment.failure}",
        "stopped": "was stopped",
        _UNKNOWN: "has ended; how is not known, because its driver is gone",
    }
    return f"run {moment.id} of {moment.query} {how[moment.phase]}"


def _show_once(run: RunListing, console: Console, *, once: bool) -> None:
    """Prints the panels of one moment, with wide lines if they do not go to a terminal."""
    wide = console if console.is_terminal else Console(width=_WIDTH)
    wide.print(panels(_ask(run, 0.0)))
    if not once:
        why = "the output is not a terminal"
        typer.echo(f"this is one moment, because {why}; --json prints a line at intervals", err=True)


# -- live --------------------------------------------------------------------------------------------------------------

#: What the threads of a live view tell it: a moment, an error, or None if the user leaves.
_Told = RunMoment | Exception | None


def _follow(run: RunListing, console: Console, interval: float) -> None:
    """Draws each moment, until the run ends or the user leaves; then prints a line that stays."""
    told: Queue[_Told] = Queue(maxsize=2)
    last: RunMoment | None = None
    try:
        with _keys_are_read(told), Live(console=console, screen=True, auto_refresh=False) as live:
            threading.Thread(target=_fetch, args=(run, interval, told), name="seep top", daemon=True).start()
            while isinstance(news := told.get(), RunMoment):
                last = news
                live.update(panels(last, rows_for(console.height)), refresh=True)
                if last.phase not in _ALIVE:
                    break
    except KeyboardInterrupt:
        news = None
    if isinstance(news, Exception):
        raise news
    if last is not None:
        console.print(status_line(last.status), markup=False, highlight=False, soft_wrap=True)
        words = f"run {run.id} of {run.query} goes on" if last.phase in _ALIVE else ended(last)
        console.print(words, markup=False, highlight=False, soft_wrap=True)


def _fetch(run: RunListing, interval: float, told: Queue[_Told]) -> None:
    try:
        for moment in moments(run, interval):
            told.put(moment)
    except Exception as failure:  # the thread that waits for news raises it
        told.put(failure)


@contextmanager
def _keys_are_read(told: Queue[_Told]) -> Iterator[None]:
    """Reads keys while the block runs, and tells if the user presses q; reads none that come from no terminal."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)  # keys come without Enter; Ctrl-C still interrupts
    try:
        threading.Thread(target=_read_keys, args=(terminal, told), name="seep keys", daemon=True).start()
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _read_keys(terminal: int, told: Queue[_Told]) -> None:
    while os.read(terminal, 1) not in (b"q", b"Q", b""):
        pass
    told.put(None)
