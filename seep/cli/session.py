"""Session: one run from the command line, from its launch to its report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from primitives.errors import EnvironmentFault
from seep.cli.display.view import ConsoleView
from seep.cli.settings import CommandSettings
from seep.logs.handlers import lines_on_stderr
from seep.running.chaos import Chaos, check_chaos
from seep.running.interrupts import ENDING, Interrupts

if TYPE_CHECKING:
    from seep.query.program import Program
    from seep.query.query import Query
    from seep.running.run import Run

#: Seconds between two checks of a run.
_LOOK = 0.2


def compiled(query: Query, settings: CommandSettings) -> Program:
    """Compiles the query with the settings; finds all errors in them before anything starts."""
    from seep.running.resume import resume_of

    program = query.compile(
        parallelism=settings.parallelism,
        epoch_seconds=settings.options.epoch,
        rate=settings.rate,
        resume=resume_of(settings.options, query.name),
    )
    instances = {operator: program.parallelism.get(operator, 1) for operator in program.graph.order}
    check_chaos(settings.strikes, instances, settings.options.seconds)
    return program


@contextmanager
def session(query: Query, settings: CommandSettings, view: ConsoleView) -> Iterator[Run]:
    """Runs the query to its end and yields the run, with its nodes still there; then stops it and writes the report.

    The report is written even if the run fails.
    """
    import seep

    program = compiled(query, settings)
    with Interrupts() as interrupts, view, lines_on_stderr(settings.options.log):
        options = {each.name: getattr(settings.options, each.name) for each in fields(settings.options)}
        run = seep.launch(program, master=settings.master, verbose=settings.verbose, progress=view.step, **options)
        with run:
            try:
                interrupts.listen()
                if run.metrics_url is not None:
                    view.say(f"metrics at {run.metrics_url}")
                if settings.options.metrics.otlp.url is not None:
                    view.say(f"metrics and traces are pushed to {settings.options.metrics.otlp.url}")
                if run.dashboard_url is not None:
                    view.say(f"dashboard at {run.dashboard_url}")
                if run.dashboard_warning is not None:
                    view.say(f"warning: {run.dashboard_warning}")
                run.events.listen(view.happen)
                with Chaos(run, settings.strikes) as chaos:
                    follow(run, view, interrupts)
                for strike in chaos.pending:
                    view.say(f"never dealt, as the run was over before: {strike}")
                yield run
            finally:
                interrupts.ignore()
                write_report(run, settings.report)


def follow(run: Run, view: ConsoleView, interrupts: Interrupts) -> None:
    """Shows a run until its end; raises its failure."""
    finishing = False
    try:
        while not run.wait(_LOOK):
            if interrupts.asked_to_finish and not finishing:
                finishing = True
                view.say(ENDING)
                run.finish()
            view.show(run.status())
    finally:
        view.flush()


def write_report(run: Run, path: Path | None) -> None:
    """Writes the report; raises EnvironmentFault if that fails, because a requested report is part of the result."""
    if path is None:
        return
    try:
        path.write_text(json.dumps(run.report(), indent=1) + "\n", encoding="utf-8")
    except OSError as reason:
        raise EnvironmentFault(f"the report {path} cannot be written: {reason.strerror}") from reason
