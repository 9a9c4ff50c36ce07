"""Commands that act on a run: scale, migrate, balance, drain, checkpoint, savepoint, finish and stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from formats.durations import seconds
from primitives.errors import EnvironmentFault, UserError
from seep.cli.display.output import print_json, print_line
from seep.cli.display.progress import ProgressBar, WaitingLine
from seep.cli.failures import ENVIRONMENT, USER
from seep.cli.runs.top import ALIVE, UNKNOWN, answers, ended, moment_of
from seep.control.migration import OVER
from seep.record.causes.story import ENDS
from seep.reports import figures
from seep.running.remote_control import listed
from seep.running.run_client import RunClient

#: Seconds between two checks of a migration, and of what a savepoint waits for; and within which a run says news.
_LOOK, _NEWS = 0.2, 2.0
#: Events with which a scaling ends; with the first ones the operator has the wanted number of instances.
_SCALED = ("scaled out", "scaled in", "nothing to scale")
_NOT_SCALED = tuple(kind for kind in ENDS["scaling out"] if kind not in _SCALED)


def show_runs(console: Console, *, as_json: bool = False) -> None:
    """Prints all runs of this user on this machine."""
    rows = [
        {"run": run.id, "query": run.query, "pid": run.process.pid, "at": f"{run.address.host}:{run.address.port}"}
        for run in listed()
    ]
    if as_json:
        print_json({"runs": rows})
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("run", "query", "pid", "at"):
        table.add_column(heading)
    for row in rows:
        table.add_row(*map(str, row.values()))
    console.print(table if rows else "no run of yours is here")


def act(run: RunClient, do: str, words: str, *, as_json: bool, **fields: Any) -> None:
    """Sends a request that is carried out in the background, and says so."""
    _say(run.tell(do, **fields), words, as_json=as_json)


def _say(answer: Mapping[str, Any], words: str, console: Console | None = None, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        print_line(words, console)


def longest(wait: bool, timeout: str) -> float | None:
    """Returns the most seconds to wait; None if there is no waiting."""
    try:
        return seconds(timeout) if wait else None
    except ValueError as reason:
        raise typer.BadParameter(str(reason), param_hint="--timeout") from None


# -- checkpoints -------------------------------------------------------------------------------------------------------


def take_checkpoint(run: RunClient, operators: Sequence[str], *, as_json: bool) -> None:
    """Asks for checkpoints of the named operator, or of all."""
    if operators[1:]:
        raise UserError(f"one operator, or none for all, and not {' and '.join(operators)}")
    operator = next(iter(operators), None)
    words = f"checkpoints of {operator or 'all operators with state'} are asked for"
    act(run, "checkpoint", words, as_json=as_json, operator=operator)


def take_savepoint(run: RunClient, *, as_json: bool) -> None:
    answer = _told_meanwhile(run, "savepoint", "savepoint")
    number = answer["id"]
    _say(answer, f"savepoint {number} is complete; begin from it with --restore {number}", as_json=as_json)


def _told_meanwhile(run: RunClient, label: str, do: str, **fields: Any) -> Mapping[str, Any]:
    """Sends a request that takes time, and meanwhile shows the time and what the run is at."""
    answer: Future[Mapping[str, Any]] = Future()
    threading.Thread(target=_send, args=(run, do, fields, answer), name="seep request", daemon=True).start()
    with WaitingLine(label) as line:
        for words in _news_of(run):
            if _is_done(answer):
                break
            line.show(words)
    return answer.result()


def _send(run: RunClient, do: str, fields: Mapping[str, Any], answer: Future[Mapping[str, Any]]) -> None:
    try:
        answer.set_result(run.tell(do, **fields))
    except BaseException as failure:  # the thread that waits raises it
        answer.set_exception(failure)


def _is_done(answer: Future[Mapping[str, Any]]) -> bool:
    with suppress(TimeoutError):
        answer.exception(_LOOK)
    return answer.done()


def _news_of(run: RunClient) -> Iterator[str]:
    """Yields, again and again, what the run is at; asks it only from time to time."""
    words, asked = "", time.monotonic()
    while True:
        yield words
        if time.monotonic() - asked >= _NEWS:
            with suppress(EnvironmentFault, UserError):
                words = _at_work(run.tell("status"))
            asked = time.monotonic()


def _at_work(answer: Mapping[str, Any]) -> str:
    """Returns how many epochs are in flight, and what is wrong first."""
    status = answer["status"]
    in_flight = f"{figures.of(status['ticked'] - status['committed'], 'epoch')} in flight"
    return "; ".join([in_flight, *answer["wrong"][:1]])


# -- scaling and migrations --------------------------------------------------------------------------------------------


def scale(run: RunClient, operator: str, to: int, patience: float | None, *, as_json: bool) -> None:
    """Scales an operator, and waits for the end of it for so many seconds; None: not at all."""
    number = run.tell("status")["number"]
    answer = run.tell("scale", operator=operator, to=to)
    if patience is None:
        _say(answer, f"{operator} goes to {figures.of(to, 'instance')}", as_json=as_json)
        return
    event = _end_of_scaling(run, operator, to, number, patience)
    if event["kind"] not in _SCALED:
        raise UserError(f"{operator} was not scaled to {to}: {event['kind']}: {event.get('detail', '')}")
    took = f" in {figures.time(event['seconds'])}" if "seconds" in event else ""
    _say(event, f"{operator} has {figures.of(to, 'instance')}{took}", as_json=as_json)


def _end_of_scaling(run: RunClient, operator: str, to: int, number: int, patience: float) -> Mapping[str, Any]:
    """Returns the event with which the scaling has ended; raises an error if the run or the time is over before."""
    with WaitingLine(f"{operator} to {figures.of(to, 'instance')}") as line:
        for answer in _answers(run, patience, after=number):
            for event in answer["new"]:
                if event.get("operator") == operator and event["kind"] in (*_SCALED, *_NOT_SCALED):
                    return event  # type: ignore[no-any-return]
            if answer["phase"] not in ALIVE:
                raise UserError(f"the run is over ({answer['phase']}), and {operator} was not scaled before")
            line.show(_instances_now(answer, operator))
    raise EnvironmentFault(f"{operator} was not scaled within {patience:g} s; the run goes on with it")


def _instances_now(answer: Mapping[str, Any], operator: str) -> str:
    found = [each["instances"] for each in answer["status"]["operators"] if each["name"] == operator]
    decided = [each["why"] for each in answer["status"]["decisions"] if each["subject"] == operator]
    return "; ".join([*(f"{count:,} now" for count in found), *filter(None, decided)])


def _answers(run: RunClient, patience: float, after: int | None = None) -> Iterator[Mapping[str, Any]]:
    """Yields answers of `status`, each with the events since the one before, until the time is over."""
    deadline = time.monotonic() + patience
    for answer in answers(run, min(patience, _NEWS), after):
        yield answer
        if time.monotonic() > deadline:
            return


def migrate(
    run: RunClient, operator: str, to: int, console: Console, *, wait: bool = True, as_json: bool = False, **chosen: Any
) -> None:
    """Starts a migration in a run, and waits for it if `wait`; without that, it continues in the background."""
    number = run.tell("migrate", operator=operator, to=to, **_given(chosen))
    if not wait:
        _say(number, f"{operator} goes to {figures.of(to, 'instance')}", console, as_json=as_json)
        return
    with ProgressBar(f"{operator}: slots moved") as bar:
        while (progress := run.tell("migration", **number))["state"] not in OVER:
            bar.reach(progress["slots_moved"], progress["slots_moved"] + progress["slots_remaining"])
            time.sleep(_LOOK)
    if progress["state"] != "done":
        raise UserError(f"the migration of {operator} is {progress['state']}: {progress['why']}")
    if as_json:
        print_json(progress)
    else:
        print_line(_migrated(progress), console)


def _given(chosen: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in chosen.items() if value is not None}


def _migrated(progress: Mapping[str, Any]) -> str:
    """Returns the result of a migration in one line."""
    slots, steps = figures.of(progress["slots_moved"], "slot"), figures.of(progress["steps"], "step")
    return (
        f"migrated {progress['operator']} in {figures.time(progress['seconds'])}: {slots} in {steps}, "
        f"{figures.size(progress['bytes'])} handed over, {figures.of(progress['held_back'], 'row')} held back, "
        f"latency {figures.latency(progress['latency'])}"
    )


# -- ends --------------------------------------------------------------------------------------------------------------


def finish(run: RunClient, patience: float | None, *, as_json: bool) -> None:
    """Ends the input, and waits for the end of the run for so many seconds; None: not at all."""
    called = f"run {run.id} of {run.query}"
    answer = run.tell("finish")
    if patience is None:
        _say(answer, f"{called}: its input ends, and rows that were read are still processed", as_json=as_json)
        return
    last = _last_answer(run, patience)
    _say(last, ended(moment_of(run, last)), as_json=as_json)
    if last["phase"] != "finished":
        raise typer.Exit(ENVIRONMENT if last["phase"] == UNKNOWN else USER)


def _last_answer(run: RunClient, patience: float) -> Mapping[str, Any]:
    """Returns the last status of a run that ends; raises EnvironmentFault if the time is over before."""
    with WaitingLine("processing what was read") as line:
        for answer in _answers(run, patience):
            if answer["phase"] not in ALIVE:
                return answer
            line.show(_at_work(answer))
    raise EnvironmentFault(f"the run was not over within {patience:g} s; it goes on to its end")


def stop_run(run: RunClient, savepoint: bool, *, as_json: bool) -> None:
    """Stops a run at once: the input does not end, and a later run continues with what is not committed."""
    called = f"run {run.id} of {run.query}"
    answer = _told_meanwhile(run, "stop", "stop", savepoint=savepoint)
    if savepoint and not as_json:
        print_line(f"savepoint {answer['id']} is complete; begin from it with --restore {answer['id']}")
    _say(answer, f"{called} stops", as_json=as_json)
