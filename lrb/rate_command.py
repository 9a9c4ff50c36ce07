"""`seep lrb rate`: finds the L-rating, with all the options of a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from primitives.errors import UserError
from seep.cli.failures import told_in_one_line
from seep.cli.flags import Flags
from seep.cli.options import takes_options

if TYPE_CHECKING:
    from lrb.trials.rating import Rating
    from lrb.trials.trial import Trial

EPILOG = "Example: seep lrb rate --xways 350 --json"

#: Measured seconds and minutes of traffic with `--quick`.
_QUICK_SECONDS, _QUICK_MINUTES = 15, 60


@takes_options
def rate(
    xways: Annotated[
        int | None,
        typer.Option(metavar="L", min=1, help="Test only whether L expressways are sustained.", show_default=False),
    ] = None,
    measured: Annotated[int, typer.Option(metavar="SECONDS", min=1, help="Real time to measure.")] = 60,
    warm_up: Annotated[int, typer.Option(metavar="SECONDS", min=1, help="Real time before the measurement.")] = 10,
    minutes: Annotated[int, typer.Option(metavar="N", min=1, max=180, help="Minutes of traffic in all.")] = 180,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Equal seeds give equal traffic.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="Measure only 15 seconds, at the end of 60 minutes.")] = (
        False
    ),
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON at the end.")] = False,
    *,
    flags: Flags,
) -> None:
    """Find the L-rating of this machine: the most expressways with every answer in time.

    Builds the state of all three hours by fast-forward, then plays the last minute in real time, and measures the time
    from when each tuple is due to its answer. Without --checkpoint and --policy it takes no checkpoints for recovery.
    Exits with 1 if no tested number is sustained.
    """
    with told_in_one_line(verbose=flags.verbose):
        from lrb.driver import compile_kernels
        from lrb.trials.rating import RatingGoal, unprotected
        from lrb.trials.rating import rate as rate_machine
        from seep.cli.settings import settings_of

        _refuse_what_has_no_place(flags)
        settings = settings_of(flags, nodes=_NODES)
        if flags.checkpoint is None and flags.policy is None:
            settings = unprotected(settings)
        if quick:
            measured, minutes = _QUICK_SECONDS, _QUICK_MINUTES
        wanted = RatingGoal(xways=xways, seconds=measured, warm_up=warm_up, minutes=minutes, seed=seed)
        compile_kernels()
        rating = rate_machine(wanted, settings, _nothing if flags.quiet else typer.echo, _told, quiet=flags.quiet)
        _conclude(rating, as_json=as_json)


#: Options of a run that do not apply to a rating.
_NO_PLACE = ("seconds", "rate", "rate_profile", "chaos", "report", "restore")


def _refuse_what_has_no_place(flags: Flags) -> None:
    for name in _NO_PLACE:
        if getattr(flags, name) is not None:
            raise UserError(
                f"--{name.replace('_', '-')} has no place in a rating; its trials have a course of their own"
            )


#: Number of nodes that host all operators: few, so that rows need not be copied between them.
_NODES = 2


def _nothing(_: str) -> None: ...


def _told(trial: Trial) -> None:
    typer.echo(trial_line(trial))


def _conclude(rating: Rating, *, as_json: bool) -> None:
    best = rating.best
    typer.echo("L-rating: none of these" if best is None else f"L-rating: {best.xways}")
    if as_json:
        typer.echo(json.dumps(rating_json(rating)))
    if best is None:
        raise typer.Exit(1)


def trial_line(trial: Trial) -> str:
    """Returns a printed line for a trial."""
    from seep.reports import figures

    found = trial.responses
    times = (("p50", found.p50), ("p95", found.p95), ("p99", found.p99), ("max", found.max))
    used = f"{trial.cores:.2f} cores, {figures.size(trial.memory_bytes)}"
    return (
        f"L = {trial.xways}: {trial.tuples_per_s:,.0f} tuples/s, {figures.of(found.answers, 'answer')}, "
        + ", ".join(f"{name} {figures.time(seconds)}" for name, seconds in times)
        + f", {figures.of(found.violations, 'violation')}, {used}: "
        + ("sustained" if trial.is_sustained else "NOT sustained")
    )


def rating_json(rating: Rating) -> dict[str, Any]:
    """Returns the rating as JSON: the best trial, or zeros, and all trials."""
    trials = list(map(_trial_json, rating.trials))
    best = next((each for each in trials if rating.best is not None and each["L"] == rating.best.xways), None)
    nothing = dict.fromkeys(trials[0], 0) if trials else {}
    return (best or nothing) | {"trials": trials}


def _trial_json(trial: Trial) -> dict[str, Any]:
    found = trial.responses
    return {
        "L": trial.xways,
        "tuples_per_s": round(trial.tuples_per_s),
        "p50_ms": _ms(found.p50),
        "p95_ms": _ms(found.p95),
        "p99_ms": _ms(found.p99),
        "max_ms": _ms(found.max),
        "answers": found.answers,
        "violations": found.violations,
        "seconds": trial.seconds,
        "cpu_cores": round(trial.cores, 2),
        "memory_bytes": trial.memory_bytes,
        "sustained": trial.is_sustained,
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)
