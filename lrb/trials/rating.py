"""Finds the L-rating of this machine: the largest number of expressways on which every answer comes in time."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from math import sqrt
from pathlib import Path

from lrb.generator import TrafficSettings as Traffic
from lrb.trials.fast_forward import Rest, fast_forward
from lrb.trials.trial import Course, Trial, attempt
from policies.backup import BackupSection, BackupSettings, BackupStrategy
from primitives.errors import UserError
from seep.cli.display.progress import ProgressBar
from seep.cli.settings import CommandSettings

Say = Callable[[str], None]
#: Called with a number of expressways and of seconds.
Attempt = Callable[[int, int], Trial]

#: Expressways of the first short trial, which the next ones double; and the seconds of each.
_FIRST, _SHORT = 125, 8
#: The fraction of free memory that may be used.
_MEMORY_PART = 0.7
#: Factor between two full trials; the most full trials; and the divisor of all numbers of expressways.
_STEP, _TRIALS, _ROUND = 1.15, 6, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingGoal:
    """The goal of a rating and the course of its trials."""

    xways: int | None = None  #: if given, tests only whether this number is sustained
    seconds: int = 60  #: measured seconds
    warm_up: int = 10  #: seconds of real time before the measurement
    minutes: int = 180  #: all minutes of traffic
    seed: int = 1

    def course(self, seconds: int) -> Course:
        """Returns the course of a trial; with all measured seconds, it ends at the end of the traffic."""
        measured = 60 * self.minutes - self.seconds
        return Course(measured - self.warm_up, measured, measured + seconds)


@dataclass(slots=True)
class Rating:
    """All full trials of a rating; the best is the largest sustained one."""

    trials: list[Trial] = field(default_factory=list)

    @property
    def best(self) -> Trial | None:
        return max((each for each in self.trials if each.is_sustained), key=lambda each: each.xways, default=None)


def rate(
    wanted: RatingGoal,
    settings: CommandSettings,
    say: Say,
    done: Callable[[Trial], None],
    *,
    quiet: bool = False,
) -> Rating:
    """Builds the state of one expressway, then searches the number of expressways; calls `done` after each trial."""
    if wanted.course(0).begin < 0:
        raise UserError(f"{wanted.minutes} minutes of traffic are fewer than {wanted.warm_up + wanted.seconds} seconds")
    rating = Rating()
    with tempfile.TemporaryDirectory(prefix="seep-lrb-") as folder:
        say(f"fast-forward: working through {wanted.minutes} minutes of one expressway")
        traffic = Traffic(seconds=60 * wanted.minutes, seed=wanted.seed)
        with ProgressBar("fast-forward: seconds of traffic", quiet=quiet) as bar:
            rest = fast_forward(traffic, wanted.course(0).begin, Path(folder), bar.reach)
        for trial in _trials(wanted, partial(_attempt, rest, wanted, settings, say)):
            rating.trials.append(trial)
            done(trial)
    return rating


def unprotected(settings: CommandSettings) -> CommandSettings:
    """Returns the settings without checkpoints and without buffers for recovery."""
    backup = BackupSection(default=BackupSettings(strategy=BackupStrategy.NONE))
    return replace(settings, options=replace(settings.options, checkpoint=None, backup=backup))


def _attempt(rest: Rest, wanted: RatingGoal, settings: CommandSettings, say: Say, xways: int, seconds: int) -> Trial:
    say(f"{xways} expressways for {seconds} s")
    return attempt(xways, rest, wanted.course(seconds), settings)


def _trials(wanted: RatingGoal, attempt: Attempt) -> Iterator[Trial]:
    """Makes trials: upwards while they are sustained, downwards while not; ends between the two."""
    if wanted.xways is not None:
        yield attempt(wanted.xways, wanted.seconds)
        return
    xways, most = _guess(lambda xways: attempt(xways, _SHORT))
    outcomes: dict[int, bool] = {}
    while len(outcomes) < _TRIALS and xways not in outcomes and len(set(outcomes.values())) < 2:
        trial = attempt(xways, wanted.seconds)
        yield trial
        outcomes[xways] = trial.is_sustained
        xways = min(_rounded(xways * _STEP), most) if trial.is_sustained else _rounded(xways / _STEP)


def _guess(attempt: Callable[[int], Trial]) -> tuple[int, int]:
    """Returns where to begin, between a sustained short trial and a failed one, and the most that memory allows."""
    xways = _FIRST
    while (trial := attempt(xways)).is_sustained:
        most = _rounded(_MEMORY_PART * _free_memory() / trial.state_bytes * xways)
        if 2 * xways > most:
            return most, most
        xways *= 2
    return _rounded(xways / sqrt(2)), xways


def _rounded(xways: float) -> int:
    return max(_ROUND * int(xways / _ROUND), _ROUND)


def _free_memory() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
