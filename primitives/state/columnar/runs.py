"""Runs: rows sorted by time, of which a prefix becomes due; a log-structured heap with vectorised steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

#: Runs of similar size that are merged into one: 2^3.
_FAN_IN_BITS = 3

_ODD = np.uint64(0x9E3779B97F4A7C15)


class SortedRun:
    """Rows sorted by their first column, the time; they are removed one by one, or a prefix at once."""

    __slots__ = ("_index", "alive", "born", "hashes", "head", "live", "rows", "times")

    def __init__(self, rows: pa.RecordBatch, hashes: NDArray[np.uint64], born: NDArray[np.int64]) -> None:
        """Sorts `rows`, given the hash of each row's key and the epoch after which it was written."""
        order = np.argsort(rows.column(0).to_numpy(), kind="stable")  # linear time for sorted runs
        self.rows = rows.take(pa.array(order))
        self.times: NDArray[np.int64] = self.rows.column(0).to_numpy()
        self.hashes = hashes[order]
        self.born = born[order]
        self.alive = np.ones(len(order), np.bool_)
        self.live = len(order)
        self.head = 0  #: all rows before it are removed
        self._index: tuple[NDArray[np.uint64], NDArray[np.intp]] | None = None

    def due(self, watermark: int) -> NDArray[np.intp]:
        """Returns positions of the rows up to a time."""
        end = self.head + int(np.searchsorted(self.times[self.head :], watermark, side="right"))
        return self.head + np.flatnonzero(self.alive[self.head : end])

    def where(self, mask: NDArray[np.bool_]) -> NDArray[np.intp]:
        """Returns positions in a mask of the rows that are alive."""
        return np.flatnonzero(self.alive & mask)

    def find(self, wanted: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Returns positions of rows that have one of the given signatures, and the signature of each.

        Costs a binary search for each, which is fast if they are in order; the first call sorts an index.
        """
        known, order = self._indexed()
        first, last = np.searchsorted(known, wanted), np.searchsorted(known, wanted, side="right")
        which = np.repeat(np.arange(len(wanted)), last - first)
        offsets = np.arange(len(which)) - np.repeat(np.cumsum(last - first) - (last - first), last - first)
        positions = order[first[which] + offsets]
        alive = self.alive[positions]
        return positions[alive], which[alive]

    def _indexed(self) -> tuple[NDArray[np.uint64], NDArray[np.intp]]:
        if self._index is None:
            found = signatures(self.times, self.hashes)
            order = np.argsort(found)
            self._index = found[order], order
        return self._index

    def remove(self, positions: NDArray[np.intp]) -> None:
        """Removes rows that are alive, at distinct positions."""
        self.alive[positions] = False
        self.live -= len(positions)
        if self.live:
            self.head += int(self.alive[self.head :].argmax())

    def take(self, positions: NDArray[np.intp]) -> pa.RecordBatch:
        """The rows at ascending positions."""
        if len(positions) and positions[-1] - positions[0] == len(positions) - 1:
            return self.rows.slice(positions[0], len(positions))
        return self.rows.take(pa.array(positions))


class Runs:
    """Many rows in few runs; a row is copied log(rows) times, to the base of the fan-in."""

    def __init__(self) -> None:
        self._runs: list[SortedRun] = []

    def __iter__(self) -> Iterator[SortedRun]:
        return iter(self._runs)

    def __len__(self) -> int:
        return sum(run.live for run in self._runs)

    def add(self, rows: pa.RecordBatch, hashes: NDArray[np.uint64], born: NDArray[np.int64]) -> None:
        """Adds rows, given the hash of each row's key and the epoch after which it was written."""
        if len(rows):
            self._runs.append(SortedRun(rows, hashes, born))
            self.tidy()

    def tidy(self) -> None:
        """Drops empty runs, rewrites mostly empty ones, and merges runs if too many have a similar size."""
        runs = [run if 2 * run.live >= len(run.alive) else _merged([run]) for run in self._runs if run.live]
        while crowd := _crowd(runs):
            runs = [run for run in runs if run not in crowd]
            runs.append(_merged(crowd))
        self._runs = runs


def _crowd(runs: Sequence[SortedRun]) -> list[SortedRun]:
    """Returns the runs of one level, if there are enough of them to be merged."""
    levels: defaultdict[int, list[SortedRun]] = defaultdict(list)
    for run in runs:
        levels[run.live.bit_length() // _FAN_IN_BITS].append(run)
    return next((level for level in levels.values() if len(level) >= 1 << _FAN_IN_BITS), [])


def _merged(runs: Sequence[SortedRun]) -> SortedRun:
    alive = [np.flatnonzero(run.alive) for run in runs]
    return SortedRun(
        pa.concat_batches([run.take(positions) for run, positions in zip(runs, alive, strict=True)]),
        np.concatenate([run.hashes[positions] for run, positions in zip(runs, alive, strict=True)]),
        np.concatenate([run.born[positions] for run, positions in zip(runs, alive, strict=True)]),
    )


def signatures(times: NDArray[np.int64], hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns a number for each time and key hash, by which rows can be found; different rows may share one."""
    return hashes + times.view(np.uint64) * _ODD
