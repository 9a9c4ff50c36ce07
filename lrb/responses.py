"""Measures response times, from when a tuple was due until its answer left the system, and counts late answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lrb.query.columns import ALERT, BALANCE, DUE, EXPENDITURE, TOLL
from primitives.state.columnar.fixed import to_numbers
from seep.record.histogram import Histogram

Ints = NDArray[np.int64]

#: Response time limits in seconds by type of answer (section 3 of the spec).
LIMITS = {TOLL: 5.0, ALERT: 5.0, BALANCE: 5.0, EXPENDITURE: 10.0}

_MICROS = 1e6


class Figures(NamedTuple):
    """Response times of all answers, in seconds."""

    answers: int
    violations: int
    p50: float
    p95: float
    p99: float
    max: float


class Responses:
    """Measures the rows of a sink as they come out; keeps the rows only if told to.

    >>> responses = Responses(clock=lambda: 7.5)
    >>> due = pa.array([7_000_000, 1_000_000], pa.int64())
    >>> responses(1, pa.table({"type": [0, 0], "time": [3, 3], "due": due}))
    >>> responses.figures()[:2], responses.figures().max
    ((2, 1), 6.5)
    """

    def __init__(self, clock: Callable[[], float] = time.time, *, keep: bool = False, since: int = 0) -> None:
        """Answers to tuples before the second `since` are ignored."""
        self._clock = clock
        self._kept: list[pa.Table] | None = [] if keep else None
        self._times = Histogram()
        self._violations = 0
        self._since = since
        self.second = -1  #: the latest second with an answer

    def __call__(self, epoch: int, rows: pa.Table) -> None:  # noqa: ARG002
        """Measures rows that leave the system now."""
        self.second = max(self.second, pc.max(rows["time"]).as_py())
        if self._since:
            rows = rows.filter(pc.greater_equal(rows["time"], self._since))
        waited = np.maximum(int(self._clock() * _MICROS) - _column(rows, DUE), 0)
        self._times.add(waited / _MICROS)
        self._violations += int((waited > self._limits(_column(rows, "type"))).sum())
        if self._kept is not None:
            emit = pc.add(rows["time"].cast(pa.int64()), pa.array(waited // int(_MICROS)))
            self._kept.append(rows.append_column("emit", emit))

    def figures(self) -> Figures:
        """Returns the figures so far; percentiles have an error of up to 2 %."""
        p50, p95, p99 = map(self._times.percentile, (0.5, 0.95, 0.99))
        return Figures(self._times.count, self._violations, p50, p95, p99, self._times.longest)

    def rows(self) -> pa.Table | None:
        """Returns all rows, with the second at which each left by the tuples' clock, or None if there are none."""
        return pa.concat_tables(self._kept) if self._kept else None

    def _limits(self, kinds: Ints) -> NDArray[np.float64]:
        limits = np.array([LIMITS[kind] for kind in sorted(LIMITS)]) * _MICROS
        return limits[kinds]


def _column(rows: pa.Table, name: str) -> Ints:
    return to_numbers(rows[name].combine_chunks()).astype(np.int64, copy=False)
