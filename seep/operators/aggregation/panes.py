"""Aggregates over tumbling and sliding windows, kept by pane, and combined when a window closes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.state.columnar.bitmap import Bitmap
from primitives.state.frame import Frame
from seep.operators.aggregation.folding import Aggregates
from seep.operators.base import BatchLogic
from seep.operators.definition import OperatorSetting
from seep.operators.errors import naming
from seep.operators.keys import Keys, take
from seep.operators.progress import Progress
from seep.operators.windows import Grid, Times
from seep.protocol.logic import Piece
from seep.rows.times import event_times, times_column

Columns = Mapping[str, pa.Array]

_START = "window_start"
_LEAST = -(2**63)


class Panes(BatchLogic):
    """Keeps a row for each key and pane, and a timer for each row, due when a window next needs the pane.

    So the cost of an epoch depends on its rows and on the timers that are due, not on the size of the state.
    """

    def __init__(self, setting: OperatorSetting, keys: Keys, aggregates: Aggregates, grid: Grid) -> None:
        self._keys = keys
        self._aggregates = aggregates
        self._grid = grid
        self._time = setting.inputs[0].time or ""
        bits = setting.slot_bits
        self._panes = aggregates.frame("panes", keys.kinds, subkeys={_START: pa.int64()}, slot_bits=bits)
        self._timers = keys.timers("timers", bits, value=pa.int64())  #: the value is the start of the pane
        self.progress = Progress(bits)
        self.containers = (self._panes, self._timers, self.progress.state)
        super().__init__(setting, *self.containers)
        self.evolution = aggregates.evolution(self._panes.name)

    def compute(self, piece: Piece[pa.RecordBatch]) -> pa.RecordBatch | None:
        previous = self.progress.reached(piece.slots)
        touched = self._add(self.rows(piece), previous)
        windows = [self._reopened(touched, previous), self._closed(piece)]
        self.progress.advance(piece.slots, piece.watermark)
        states = [state for state in windows if state is not None]
        return self._results(pa.concat_batches(states)) if states else None

    # --- rows in ------------------------------------------------------------------------------------------------------

    def _add(self, batch: pa.RecordBatch, previous: int) -> NDArray[np.int64]:
        """Folds rows into their panes; returns the rows of these panes in the frame."""
        with naming(self.setting.operator):
            starts = self._grid.pane_of(event_times(batch.column(self._time)))
        late = self._grid.over(starts) <= previous
        if late.any():
            self.counters["late"] += int(late.sum())
            batch, starts = batch.filter(pa.array(~late)), starts[~late]
        if not len(batch):
            return np.empty(0, np.int64)
        keys = self._keys.of(batch)
        rows, new = self._panes.locate_new({**keys, _START: starts})
        self._aggregates.fold(self._panes, rows, self._aggregates.of_rows(batch))
        self._await(take(keys, new), starts[new], previous)
        return rows

    def _await(self, keys: Columns, starts: Times, previous: int) -> None:
        """Sets the timers of new panes, for the first window that is still open."""
        if len(starts):
            ends = self._grid.next_end(np.maximum(starts + self._grid.width, previous + 2))
            open_ones = ends <= self._grid.last_end(starts)
            times = np.where(open_ones, ends - 1, self._grid.over(starts))
            self._timers.schedule_batch(times, list(keys.values()), starts)

    # --- windows out --------------------------------------------------------------------------------------------------

    def _closed(self, piece: Piece[pa.RecordBatch]) -> pa.RecordBatch | None:
        """Returns the state of the windows that the watermark closes; deletes panes that no window will need again."""
        due = self._timers.pop(piece.watermark, piece.slots)
        if not len(due):
            return None
        keys, times, starts = self._keys.due(due), due.column(0).to_numpy(), due.column(-1).to_numpy()
        last = self._grid.last_end(starts)
        reach = np.minimum(last, self._grid.last_end_by(min(piece.watermark, int(last.max()))))
        over = self._grid.over(starts)
        kept = over > piece.watermark
        again = np.where(reach < last, reach + self._grid.slide - 1, over)[kept]
        self._timers.schedule_batch(again, list(take(keys, np.flatnonzero(kept)).values()), starts[kept])

        identity: Columns = {**keys, _START: pa.array(starts)}
        state = self._panes.take(self._panes.locate(identity, create=False))
        self._panes.delete(take(identity, np.flatnonzero(~kept)))
        which, ends = self._spread(times + 1, reach)
        return self._windows(state.take(pa.array(which)), ends - self._grid.size)

    def _reopened(self, touched: NDArray[np.int64], previous: int) -> pa.RecordBatch | None:
        """Returns the state of windows that had closed before, and received a row within the lateness."""
        if not self._grid.lateness or not len(touched):
            return None
        distinct = Bitmap()
        distinct.add(touched)
        panes = self._panes.take(distinct.rows())
        starts = panes.column(_START).to_numpy()
        first = starts + self._grid.width
        if previous + 1 < first.min():
            return None
        reach = np.minimum(self._grid.last_end(starts), self._grid.last_end_by(previous))
        kept_since = max(previous + 2 - self._grid.lateness, _LEAST)
        which, ends = self._spread(self._grid.next_end(np.maximum(first, kept_since)), reach)
        return self._gathered(panes.take(pa.array(which)), ends - self._grid.size)

    def _spread(self, ends: Times, reach: Times) -> tuple[NDArray[np.int64], Times]:
        """Lists the ends of windows in a range for each pane: pairs of a pane and an end."""
        counts = np.maximum((reach - ends) // self._grid.slide + 1, 0)
        which = np.repeat(np.arange(len(ends)), counts)
        nth = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
        return which, ends[which] + nth * self._grid.slide

    def _gathered(self, keys: pa.RecordBatch, starts: Times) -> pa.RecordBatch:
        """Returns the state of windows from all their panes; a window may be given several times."""
        windows = self._new_windows()
        windows.locate({**self._keys.of(keys), _START: starts})
        distinct = windows.to_arrow()
        panes = self._grid.size // self._grid.width
        which = np.repeat(np.arange(len(distinct)), panes)
        places = distinct.column(_START).to_numpy()[which] + np.tile(np.arange(panes) * self._grid.width, len(distinct))
        rows = self._panes.locate({**take(self._keys.of(distinct), which), _START: places}, create=False)
        there = rows >= 0
        return self._windows(self._panes.take(rows[there]), distinct.column(_START).to_numpy()[which[there]])

    def _windows(self, panes: pa.RecordBatch, starts: Times) -> pa.RecordBatch:
        """Returns the state of windows that begin at `starts`, from the panes given for each."""
        if self._grid.is_tumbling:
            return panes
        windows = self._new_windows()
        rows = windows.locate({**self._keys.of(panes), _START: starts})
        self._aggregates.fold(windows, rows, dict(zip(panes.schema.names, panes.columns, strict=True)))
        return windows.to_arrow()

    def _new_windows(self) -> Frame:
        return self._aggregates.frame("windows", self._keys.kinds, subkeys={_START: pa.int64()}, slot_bits=0)

    def _results(self, state: pa.RecordBatch) -> pa.RecordBatch:
        starts = state.column(_START).to_numpy()
        kind = self.setting.output.field(_START).type
        bounds = [times_column(times, kind) for times in (starts, starts + self._grid.size)]
        columns = [state.column(name) for name in self._keys.kinds]
        return pa.record_batch([*columns, *bounds, *self._aggregates.results(state)], schema=self.setting.output)
