"""Runs the query on some expressways in real time, from the state of the hours before, and measures response times."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

import pyarrow as pa

import seep
from lrb.query.linear_road import linear_road
from lrb.responses import Figures, Responses
from lrb.sources.live import LiveFeeder, TrafficRate, recorded
from lrb.trials.fast_forward import Rest
from seep import sinks
from seep.cli.settings import CommandSettings
from seep.driver.options import RunOptions
from seep.running.run import Run

#: Seconds between two polls of a run.
_LOOK = 0.1
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The result of a trial."""

    xways: int
    tuples_per_s: float  #: tuples that were due and came in
    seconds: float  #: measured seconds
    responses: Figures  #: in the measured seconds
    latest: Figures  #: in their last third: shows whether the delay grows
    cores: float  #: used by all processes of the run
    memory_bytes: int  #: memory of all nodes
    state_bytes: int  #: growth since all nodes were there

    @property
    def is_sustained(self) -> bool:
        """Whether all answers came in time, and the delay did not grow."""
        is_steady = self.latest.p50 < max(2 * self.responses.p50, _STEADY)
        return self.responses.answers > 0 and self.responses.violations == 0 and is_steady


#: Seconds; a median below this counts as steady in any case.
_STEADY = 0.5


@dataclass(frozen=True, slots=True)
class Course:
    """The course of a trial, in seconds of the traffic: its begin, the begin of the measurement, and its end."""

    begin: int
    measured: int
    end: int

    @property
    def last_part(self) -> int:
        return self.end - (self.end - self.measured) // 3


def attempt(xways: int, rest: Rest, course: Course, settings: CommandSettings) -> Trial:
    """Makes one trial."""
    whole, latest = Responses(since=course.measured), Responses(since=course.last_part)
    feeder = LiveFeeder(rest.path, xways, vehicles=rest.vehicles, held=2 * settings.options.window)
    rate = TrafficRate.of(recorded(rest.path), xways, speed=1.0)
    query = linear_road(feeder, sinks.callback(_both(whole, latest)), None, rate, rest.beginning(xways))
    program = query.compile(parallelism=settings.parallelism, epoch_seconds=settings.options.epoch)
    options = {each.name: getattr(settings.options, each.name) for each in fields(RunOptions)}
    with seep.launch(program, master=settings.master, verbose=settings.verbose, **options) as run:
        begun = _memory(run)
        used, memory = _follow(run, whole, course)
    tuples = rate.rows_due(course.end - course.begin) - rate.rows_due(course.measured - course.begin)
    seconds = course.end - course.measured
    return Trial(
        xways=xways,
        tuples_per_s=tuples / seconds,
        seconds=seconds,
        responses=whole.figures(),
        latest=latest.figures(),
        cores=used / seconds,
        memory_bytes=memory,
        state_bytes=max(memory - begun, 1),
    )


def _both(whole: Responses, latest: Responses) -> Callable[[int, pa.Table], None]:
    def take(epoch: int, rows: pa.Table) -> None:
        whole(epoch, rows)
        latest(epoch, rows)

    return take


def _follow(run: Run, responses: Responses, course: Course) -> tuple[float, int]:
    """Waits for the end; returns the CPU seconds of the measured time, and the memory of the nodes near its end."""
    before, used, memory = None, 0.0, 0
    while not run.wait(_LOOK):
        if course.measured <= responses.second < course.end:
            now = _cpu_seconds(run)
            before = now if before is None else before
            used, memory = now - before, _memory(run)
        if responses.second >= course.end:
            run.finish()
    return used, memory


def _cpu_seconds(run: Run) -> float:
    """Returns the CPU seconds of all nodes and of this process so far."""
    pids = [os.getpid(), *(node.process.pid for node in run.nodes.values())]
    return sum(map(_ticks, pids)) / _TICKS


def _ticks(pid: int) -> int:
    values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(values[11]) + int(values[12])  # user mode and kernel mode


def _memory(run: Run) -> int:
    pids = [node.process.pid for node in run.nodes.values()]
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids) * _PAGE
