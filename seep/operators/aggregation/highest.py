"""The rows with the highest value, or the keys with the highest total, in each window of event time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.errors import UserError
from primitives.graph import Kind
from primitives.hashing import hash_keys
from primitives.kernels import kernel
from primitives.slots import SlotSet, slots_of
from primitives.state.columnar.fixed import read_only, storage_type, to_numbers
from primitives.state.frame import Frame
from primitives.state.timers import Timers
from seep.operators.aggregation.agg import Agg
from seep.operators.aggregation.folding import Aggregates
from seep.operators.aggregation.panes import Panes
from seep.operators.aggregation.sliding import NO_STEPS, SlidingChanges, slide
from seep.operators.base import BatchLogic
from seep.operators.definition import Definition, Input, OperatorSetting
from seep.operators.errors import naming
from seep.operators.expressions import no_column
from seep.operators.keyed import check_keyed, key_columns, key_types, plain_schema
from seep.operators.keys import Keys
from seep.operators.progress import Progress
from seep.operators.windows import Grid, Sliding, Tumbling, grid_of
from seep.protocol.logic import Logic, Piece
from seep.protocol.messages import MAX_WATERMARK
from seep.rows.times import event_times, times_column

Ints = NDArray[np.int64]
Bounds = tuple[pa.Field, pa.Field]

_START, _END = "window_start", "window_end"
_TOTAL, _PARTS = "highest.total", "highest.parts"
#: With more possible windows than this for each row, the windows are numbered by sorting.
_SPARSE = 4
_LEAST = -(2**63)


# --- rows -------------------------------------------------------------------------------------------------------------


class HighestRows(Definition):
    """Puts out, for each window, the rows of an instance with the highest value of a column; all of them in a tie.

    Without `window`, the rows are results of windows, with columns `window_start` and `window_end`. A null is never
    the highest. The state is the highest rows of each epoch, until the window closes.
    """

    kind: ClassVar[Kind] = Kind.STATEFUL

    def __init__(self, column: str, window: Tumbling | None = None) -> None:
        self.column = column
        self.window = window

    def output(self, operator: str, inputs: Sequence[Input]) -> pa.Schema:
        """See `Definition.output`."""
        check_keyed(operator, inputs)
        schema = inputs[0].schema
        _check_comparable(operator, schema, self.column)
        if self.window is None:
            return schema
        with naming(operator):
            grid_of(self.window, _time_type(operator, inputs[0]))
        return pa.schema([*_bounds(operator, inputs[0]), *plain_schema(schema)])

    def logic(self, setting: OperatorSetting) -> Logic[pa.RecordBatch]:
        """See `Definition.logic`."""
        return _HighestRows(setting, self)


class _HighestRows(BatchLogic):
    """Keeps candidates for the highest as records of timers, which are due when the window closes."""

    def __init__(self, setting: OperatorSetting, definition: HighestRows) -> None:
        (self._given,) = setting.inputs
        self._column = definition.column
        self._grid: Grid | None = None
        if definition.window is not None:
            self._grid = grid_of(definition.window, _time_type(setting.operator, self._given))
        self._schema = plain_schema(self._given.schema)
        kinds = {f"key_{at}": kind for at, kind in enumerate(key_types(self._given).values())}
        self._waiting = Timers("waiting", kinds, slot_bits=setting.slot_bits, value=pa.struct(list(self._schema)))
        self._progress = Progress(setting.slot_bits)
        super().__init__(setting, self._waiting, self._progress.state)

    def compute(self, piece: Piece[pa.RecordBatch]) -> pa.RecordBatch | None:
        """See `BatchLogic.compute`."""
        rows = self.rows(piece)
        if len(rows):
            self._keep_candidates(rows, self._progress.reached(piece.slots))
        self._progress.advance(piece.slots, piece.watermark)
        due = self._waiting.pop(piece.watermark, piece.slots)
        if not len(due):
            return None
        ends = to_numbers(due["time"]) + 1
        found = pa.record_batch(due["value"].flatten(), schema=self._schema)
        highest = _highest(ends, found[self._column])
        return self._put_out(found.take(pa.array(highest)), ends[highest])

    def _keep_candidates(self, rows: pa.RecordBatch, previous: int) -> None:
        """Keeps the rows that may be the highest."""
        with naming(self.setting.operator):
            ends = self._ends(rows)
        late = ends - 1 <= previous
        if late.any():
            self.counters["late"] += int(late.sum())
            rows, ends = rows.filter(pa.array(~late)), ends[~late]
        kept = _highest(ends, rows[self._column])
        chosen = rows.take(pa.array(kept)).cast(self._schema)
        whole = pa.StructArray.from_arrays(chosen.columns, fields=list(self._schema))
        self._waiting.schedule_batch(ends[kept] - 1, key_columns(self._given, chosen), whole)

    def _ends(self, rows: pa.RecordBatch) -> Ints:
        if self._grid is None:
            return event_times(rows[_END])
        assert self._given.time is not None
        return self._grid.pane_of(event_times(rows[self._given.time])) + self._grid.size

    def _put_out(self, rows: pa.RecordBatch, ends: Ints) -> pa.RecordBatch:
        if self._grid is None:
            return pa.record_batch(rows.columns, schema=self.setting.output)
        kind = self.setting.output.field(_START).type
        bounds = [times_column(times, kind) for times in (ends - self._grid.size, ends)]
        return pa.record_batch([*bounds, *rows.columns], schema=self.setting.output)


def _highest(ends: Ints, values: pa.Array) -> Ints:
    """Returns the rows with the highest value among those with the same window end."""
    if values.null_count:
        valid = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        chosen: Ints = valid[_highest(ends[valid], values.drop_null())]
        return chosen
    if not len(ends):
        return np.empty(0, np.int64)
    numbers, windows = to_numbers(values), ends - ends.min()
    if windows.max() > _SPARSE * len(ends):
        windows = np.unique(ends, return_inverse=True)[1]
    found: Ints = _of_highest(read_only(windows), int(windows.max()) + 1, read_only(numbers))
    return found


@kernel
def _of_highest(windows: Ints, count: int, values: NDArray[Any]) -> Ints:
    highest, seen = np.zeros(count, values.dtype), np.zeros(count, np.bool_)
    for at in range(len(values)):
        window = windows[at]
        if not seen[window] or values[at] > highest[window] or values[at] != values[at]:
            highest[window], seen[window] = values[at], True
    found, number = np.empty(len(values), np.int64), 0
    for at in range(len(values)):
        best = highest[windows[at]]
        if values[at] == best or (values[at] != values[at] and best != best):
            found[number] = at
            number += 1
    return found[:number].copy()


# --- keys -------------------------------------------------------------------------------------------------------------


class HighestKeys(Definition):
    """Puts out, for each window, the keys of an instance with the highest count, or sum of integers; all in a tie.

    Totals are carried from one window to the next: rows that enter it are added, rows that leave it are subtracted. So
    a window costs what has changed, and one comparison for every key in it.
    """

    kind: ClassVar[Kind] = Kind.STATEFUL

    def __init__(self, name: str, aggregate: Agg, window: Tumbling | Sliding) -> None:
        self.name = name
        self.aggregate = aggregate
        self.window = window

    def output(self, operator: str, inputs: Sequence[Input]) -> pa.Schema:
        """See `Definition.output`."""
        check_keyed(operator, inputs)
        keys, aggregates = Keys(operator, inputs[0]), Aggregates(operator, {self.name: self.aggregate}, inputs[0])
        with naming(operator):
            grid_of(self.window, _time_type(operator, inputs[0]))
        (field,) = aggregates.fields
        if self.aggregate.function not in ("count", "sum") or not pa.types.is_int64(field.type):
            raise UserError(
                f"operator '{operator}' looks for the highest {self.aggregate}, and can do so for counts and sums of "
                "integers; for the rows with the highest value of a column, name the column"
            )
        if self.aggregate.overflow != "error":
            raise UserError(
                f"operator '{operator}' looks for the highest {self.aggregate}, which cannot be beyond int64; "
                f"leave out overflow={self.aggregate.overflow!r}"
            )
        return pa.schema([*keys.fields, *_bounds(operator, inputs[0]), field])

    def logic(self, setting: OperatorSetting) -> Logic[pa.RecordBatch]:
        """See `Definition.logic`."""
        return _HighestKeys(setting, self)


class HighestFound(NamedTuple):
    """The highest totals: the end of the window, the row of the frame, and the total."""

    ends: Ints
    rows: Ints
    totals: Ints


class _HighestKeys(BatchLogic):
    """Sums each pane separately, and adds it to the totals when it closes."""

    def __init__(self, setting: OperatorSetting, definition: HighestKeys) -> None:
        (self._given,) = setting.inputs
        self._aggregate = definition.aggregate
        self._keys = Keys(setting.operator, self._given)
        aggregates = Aggregates(setting.operator, {definition.name: definition.aggregate}, self._given)
        self._amounts: Callable[[pa.RecordBatch], pa.Array] = lambda rows: next(iter(aggregates.of_rows(rows).values()))
        self._grid = grid_of(definition.window, _time_type(setting.operator, self._given))
        width = self._grid.width
        self._panes = Panes(setting, self._keys, aggregates, Grid(width, width, self._grid.offset, 0))
        bits = setting.slot_bits
        self._totals = Frame("totals", self._keys.kinds, {_TOTAL: pa.int64(), _PARTS: pa.int64()}, slot_bits=bits)
        self._leaving = self._keys.timers("leaving", bits, value=pa.int64())
        super().__init__(setting, *self._panes.containers, self._totals, self._leaving)
        self.counters = self._panes.counters

    def compute(self, piece: Piece[pa.RecordBatch]) -> pa.RecordBatch | None:
        """See `BatchLogic.compute`."""
        previous = self._panes.progress.reached(piece.slots)
        parts = [*self._late_rows(piece, previous), *self._closed_panes(piece), *self._leaving_rows(piece)]
        if not parts and (not len(self._totals) or piece.watermark == MAX_WATERMARK):
            return None
        steps = SlidingChanges(*map(np.concatenate, zip(*parts, strict=True))) if parts else NO_STEPS
        order = np.argsort(steps.times, kind="stable")
        steps = SlidingChanges(*(each[order] for each in steps))
        found = self._slide(steps, previous, piece)
        results = self._results(found) if len(found.rows) else None
        self._forget(steps)
        return results

    # --- changes of totals --------------------------------------------------------------------------------------------

    def _closed_panes(self, piece: Piece[pa.RecordBatch]) -> list[SlidingChanges]:
        """Adds the panes that the watermark closes."""
        closed = self._panes.compute(piece)
        if closed is None or not len(closed):
            return []
        starts = event_times(closed[_START])
        return [self._enter(self._keys.of(closed), starts, starts + self._grid.width, to_numbers(closed.column(-1)))]

    def _late_rows(self, piece: Piece[pa.RecordBatch], previous: int) -> list[SlidingChanges]:
        """Adds late rows whose pane has closed, but not all windows that contain it."""
        rows = self.rows(piece)
        if not len(rows) or previous == _LEAST:
            return []
        starts = self._grid.pane_of(event_times(rows[self._given.time]))
        is_late = (starts + self._grid.width - 1 <= previous) & (self._grid.last_end(starts) - 1 > previous)
        if not is_late.any():
            return []
        self.counters["late"] -= int(is_late.sum())  # the panes count them as late
        rows, starts = rows.filter(pa.array(is_late)), starts[is_late]
        now = np.full(len(rows), previous + 1)
        return [self._enter(self._keys.of(rows), starts, now, to_numbers(self._amounts(rows)))]

    def _enter(self, keys: Mapping[str, pa.Array], starts: Ints, times: Ints, amounts: Ints) -> SlidingChanges:
        """Adds amounts, and schedules their subtraction after the last window that contains them."""
        self._leaving.schedule_batch(self._grid.last_end(starts), list(keys.values()), pa.array(amounts))
        return SlidingChanges(times, self._totals.locate(keys), amounts, np.ones(len(times), np.int64))

    def _leaving_rows(self, piece: Piece[pa.RecordBatch]) -> list[SlidingChanges]:
        due = self._leaving.pop(piece.watermark, piece.slots)
        if not len(due):
            return []
        rows = self._totals.locate(self._keys.due(due), create=False)
        times = to_numbers(due["time"]) + 1
        return [SlidingChanges(times, rows, -to_numbers(due.column(-1)), np.full(len(due), -1))]

    # --- windows ------------------------------------------------------------------------------------------------------

    def _slide(self, steps: SlidingChanges, previous: int, piece: Piece[pa.RecordBatch]) -> HighestFound:
        """Computes the windows that the watermark closes."""
        place = self._totals.in_place(steps.rows)
        begin = int(steps.times[0]) if previous == _LEAST else previous + 2
        last = int(steps.times[-1]) if piece.watermark == MAX_WATERMARK else piece.watermark + 1
        first = int(self._grid.next_end(np.array([begin]))[0])
        windows = first, last, self._grid.slide
        mine = self._rows_in_slots(piece.slots, place.end)
        *found, beyond = slide(steps, place.words, place.width, place.first, mine, windows)
        if beyond >= 0:
            raise self._beyond(beyond)
        return HighestFound(*found)

    def _beyond(self, row: np.int64) -> UserError:
        key = self._totals.take(np.array([row])).select(list(self._keys.kinds)).to_pylist()[0]
        return UserError(
            f"operator '{self.setting.operator}': the {self._aggregate} in a window for key {key} is beyond int64; "
            "leave rows out before, or make their numbers smaller"
        )

    def _rows_in_slots(self, slots: SlotSet, end: int) -> NDArray[np.bool_]:
        """Says which rows of the frame belong to some slots: usually all."""
        mask = slots.mask(self.setting.slot_bits)
        mine = np.ones(end, np.bool_)
        if self._totals.rows_per_slot()[~mask].any():
            keys = list(self._keys.of(self._totals.to_arrow()).values())
            rows = self._totals.locate(dict(zip(self._keys.kinds, keys, strict=True)), create=False)
            mine[rows] = mask[slots_of(hash_keys(keys), self.setting.slot_bits)]
        return mine

    def _results(self, found: HighestFound) -> pa.RecordBatch:
        keys = self._keys.of(self._totals.take(found.rows))
        kind = self.setting.output.field(_START).type
        bounds = [times_column(times, kind) for times in (found.ends - self._grid.size, found.ends)]
        return pa.record_batch([*keys.values(), *bounds, pa.array(found.totals)], schema=self.setting.output)

    def _forget(self, steps: SlidingChanges) -> None:
        """Deletes keys that have no rows left in any window."""
        rows = steps.rows[steps.parts < 0]
        if len(rows):
            self._totals.delete_rows(rows[self._totals.column(_PARTS)[rows] == 0])


# --- checks -----------------------------------------------------------------------------------------------------------


def _time_type(operator: str, given: Input) -> pa.DataType:
    if given.time is None:
        raise UserError(
            f"operator '{operator}' has windows, and its input has no event time; "
            "name the time column at the source, and keep it up to here"
        )
    return given.schema.field(given.time).type


def _bounds(operator: str, given: Input) -> Bounds:
    kind = _time_type(operator, given)
    kind = kind if pa.types.is_timestamp(kind) else pa.int64()
    return pa.field(_START, kind), pa.field(_END, kind)


def _check_comparable(operator: str, schema: pa.Schema, column: str) -> None:
    if schema.get_field_index(column) < 0:
        raise no_column(operator, column, schema)
    kind = schema.field(column).type
    if storage_type(kind) is None or pa.types.is_dictionary(kind) or pa.types.is_decimal(kind):
        raise UserError(
            f"operator '{operator}' looks for the highest '{column}', which is {kind}; "
            "it must be an integer, a float, a date or a time"
        )
