"""Recording: the stream of one expressway, kept in memory, which any number of expressways replay."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lrb.generator.settings import TrafficSettings
from lrb.generator.stream import traffic
from lrb.schema import INPUT
from primitives.kernels import kernel

Column = NDArray[np.integer]


class Recording:
    """All tuples of one expressway, by second.

    Expressway x replays them with its own number, and with its own ids of vehicles and queries: the ids of expressway 0
    plus x times the number of ids.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], vehicles: int | None = None) -> None:
        """`vehicles` is the upper limit of vehicle ids, if the batches are only a part of the traffic."""
        table = pa.Table.from_batches(batches, INPUT).combine_chunks()
        self._columns: dict[str, Column] = {name: table[name].to_numpy() for name in INPUT.names}
        times = self._columns["time"]
        self.seconds = int(times[-1]) + 1 if len(times) else 0
        self.first = int(times[0]) if len(times) else 0  #: the second of the first tuple
        self._starts = np.searchsorted(times, np.arange(self.seconds + 1))
        self.vehicles = vehicles or 1 + int(self._columns["vid"].max(initial=0))
        self.queries = 1 + int(self._columns["qid"].max(initial=0))

    @classmethod
    def of(cls, settings: TrafficSettings) -> Recording:
        """Records traffic of one expressway with these settings."""
        return cls(traffic(settings))

    def rows(self, first: int, end: int) -> int:
        """Returns the number of tuples from second `first` up to before `end`, of one expressway."""
        begin, end = self._span(first, end)
        return int(self._starts[end] - self._starts[begin])

    def play(self, first: int, end: int, xways: range) -> pa.RecordBatch:
        """Returns the tuples of these seconds on these expressways, ordered by time."""
        first, end = self._span(first, end)
        starts = self._starts[first : end + 1]
        shifts = {"vid": self.vehicles, "qid": self.queries, "xway": 1}
        numbers = np.asarray(xways, np.int64)
        columns = [_repeated(self._columns[name], starts, numbers * shifts.get(name, 0)) for name in INPUT.names]
        return pa.record_batch([pa.array(column) for column in columns], schema=INPUT)

    def _span(self, first: int, end: int) -> tuple[int, int]:
        return min(first, self.seconds), min(end, self.seconds)


def _repeated(column: Column, starts: NDArray[np.int64], shifts: NDArray[np.int64]) -> Column:
    """Repeats the part of each second once for each shift, which is added to the used values."""
    out = np.empty((starts[-1] - starts[0]) * len(shifts), column.dtype)
    _repeat(column, starts, shifts.astype(column.dtype), out)
    return out


@kernel
def _repeat(column: Column, starts: NDArray[np.int64], shifts: Column, out: Column) -> None:
    at = 0
    for second in range(len(starts) - 1):
        part = column[starts[second] : starts[second + 1]]
        for shift in shifts:
            _copy(part, shift, out[at : at + len(part)])
            at += len(part)


@kernel
def _copy(part: Column, shift: int, out: Column) -> None:
    for row in range(len(part)):
        out[row] = part[row] + (shift if part[row] >= 0 else 0)
