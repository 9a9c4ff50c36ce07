"""`seep top` and `seep status`: a run of another process, live, on a terminal; or as JSON, or as text once."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from queue import Queue
from typing import Any

import typer
from rich.console import Console
from rich.live import Live

from primitives.errors import EnvironmentFault
from seep.cli import failures
from seep.cli.display.output import print_json, print_line
from seep.cli.display.panels import RunMoment, panels, rows_for, summary
from seep.cli.display.view import status_line
from seep.record.status import Status
from seep.running.run_client import RunClient

#: The phase of a run whose driver ended before it could tell how the run ended.
UNKNOWN = "ended"
#: The phases of a run that is not over.
ALIVE = ("starting", "running")
#: Columns of text that does not go to a terminal.
_WIDTH = 160


def show_status(run: RunClient, *, as_json: bool) -> None:
    """Prints a few lines on a run; exits with 1 if something is wrong with it."""
    answer = run.tell("status")
    if as_json:
        print_json(answer)
    else:
        Console(soft_wrap=True).print(summary(moment_of(run, answer)))
    if answer["wrong"] or answer["phase"] == "failed":
        raise typer.Exit(failures.USER)


def show_top(run: RunClient, *, once: bool, as_json: bool, interval: float) -> None:
    """Shows a run until it ends or the user leaves, which does not affect the run."""
    console = Console()
    if as_json:
        for moment in moments(run, interval):
            print_json(as_data(moment))
            if once:
                return
    elif once or not console.is_terminal:
        _show_once(run, console, once=once)
    else:
        _follow(run, console, interval)


def answers(run: RunClient, interval: float, after: int | None = None) -> Iterator[Mapping[str, Any]]:
    """Yields the answer of `status` now, then after each interval, and at the end of the run; the run itself waits.

    Each has the new events since the one before, the first those since `after`, if that is given.
    """
    answer = run.tell("status", after=after)
    yield answer
    while answer["phase"] in ALIVE:
        known = None if after is None else answer["number"]
        try:
            answer = run.tell("status", wait=interval, after=known)
        except EnvironmentFault:
            if not run.has_ended():
                raise
            answer = {**answer, "phase": UNKNOWN, "new": []}
        yield answer


def moments(run: RunClient, interval: float) -> Iterator[RunMoment]:
    """Yields the run now, then after each interval, and at its end."""
    return (moment_of(run, answer) for answer in answers(run, interval))


def moment_of(run: RunClient, answer: Mapping[str, Any]) -> RunMoment:
    """Returns an answer of `status` as a moment of the run."""
    status, wrong, events = Status.from_json(answer["status"]), tuple(answer["wrong"]), tuple(answer["events"])
    return RunMoment(run.id, run.query, answer["phase"], answer["failure"], status, wrong, events)


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
        UNKNOWN: "has ended; how is not known, because its driver is gone",
    }
    return f"run {moment.id} of {moment.query} {how[moment.phase]}"


def _show_once(run: RunClient, console: Console, *, once: bool) -> None:
    """Prints the panels of one moment, with wide lines if they do not go to a terminal."""
    wide = console if console.is_terminal else Console(width=_WIDTH)
    wide.print(panels(moment_of(run, run.tell("status"))))
    if not once:
        why = "the output is not a terminal"
        typer.echo(f"this is one moment, because {why}; --json prints a line at intervals", err=True)


# -- live --------------------------------------------------------------------------------------------------------------

#: What the threads of a live view tell it: a moment, an error, or None if the user leaves.
_Told = RunMoment | Exception | None


def _follow(run: RunClient, console: Console, interval: float) -> None:
    """Draws each moment, until the run ends or the user leaves; then prints a line that stays."""
    told: Queue[_Told] = Queue(maxsize=2)
    last: RunMoment | None = None
    try:
        with _keys_are_read(told), Live(console=console, screen=True, auto_refresh=False) as live:
            threading.Thread(target=_fetch, args=(run, interval, told), name="seep top", daemon=True).start()
            while isinstance(news := told.get(), RunMoment):
                last = news
                live.update(panels(last, rows_for(console.height)), refresh=True)
                if last.phase not in ALIVE:
                    break
    except KeyboardInterrupt:
        news = None
    if isinstance(news, Exception):
        raise news
    if last is not None:
        print_line(status_line(last.status), console)
        print_line(f"run {run.id} of {run.query} goes on" if last.phase in ALIVE else ended(last), console)


def _fetch(run: RunClient, interval: float, told: Queue[_Told]) -> None:
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
