"""`seep dashboard`: a link to the page of a run that has one, or a page of its own for a run or a report."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import typer

from seep.cli.display.output import print_json, print_line
from seep.cli.report_commands import is_report, read
from seep.dashboard.finished import FinishedRun
from seep.dashboard.requests import Answering
from seep.dashboard.server import DashboardServer, check_dashboard
from seep.dashboard.settings import DashboardSettings
from seep.dashboard.tokens import access_of
from seep.running.remote_control import find


def show_dashboard(of: str, settings: DashboardSettings, *, open_browser: bool, as_json: bool) -> None:
    """Prints a link that logs a browser in; serves the page itself if the run does not, until Ctrl-C."""
    if is_report(of):
        _serve(FinishedRun(read(Path(of)), Path(of).stem), of, settings, open_browser=open_browser, as_json=as_json)
        return
    run = find(of)
    if url := run.tell("dashboard")["url"]:
        _show(f"dashboard of run {run.id} of {run.query}", url, open_browser=open_browser, as_json=as_json)
    else:
        _serve(run, f"run {run.id} of {run.query}", settings, open_browser=open_browser, as_json=as_json)


def _serve(
    answering: Answering, called: str, settings: DashboardSettings, *, open_browser: bool, as_json: bool
) -> None:
    check_dashboard(settings)
    server = DashboardServer(settings, answering, access_of(settings))
    try:
        with suppress(KeyboardInterrupt):
            if server.warning is not None:
                typer.echo(f"warning: {server.warning}", err=True)
            _show(f"dashboard of {called}", server.login_url(), open_browser=open_browser, as_json=as_json)
            _wait(server.login_url)
    finally:
        server.close()


def _show(words: str, url: str, *, open_browser: bool, as_json: bool) -> None:
    if as_json:
        print_json({"url": url})
    else:
        print_line(f"{words}: {url}")
    if open_browser:
        typer.launch(url)


def _wait(link: Callable[[], str]) -> None:
    """Waits for Ctrl-C; on a terminal, prints another link with each Enter, as a link can be used only once."""
    if _is_in_foreground():
        typer.echo("Enter prints another link, which can be used once within five minutes; Ctrl-C ends", err=True)
        while sys.stdin.readline():
            print_line(link())
    signal.pause()


def _is_in_foreground() -> bool:
    """Whether lines can be read from a terminal: a program in the background of one would be stopped for it."""
    if not sys.stdin.isatty():
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:  # the terminal is not that of its session, which cannot stop it
        return True
