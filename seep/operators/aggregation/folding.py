"""Keeps aggregates in columns of a frame: folds rows into them, and computes results from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from formats.evolution import Evolution, Hint
from primitives.errors import UserError
from primitives.state.columnar.fixed import is_span, null_mask, storage_type
from primitives.state.columnar.folds import Overflow
from primitives.state.frame import Frame
from primitives.state.on_disk.disk import Disk
from seep.operators.aggregation.agg import Agg
from seep.operators.definition import Input
from seep.operators.expressions import no_column
from seep.operators.keyed import plain_type
from seep.operators.room import StateBudget
from seep.rows.times import event_times

Rows = NDArray[np.int64]
Kinds = Mapping[str, pa.DataType]

#: The number of digits of the longest decimal, and of the greatest count.
_DIGITS, _DIGITS_OF_COUNTS = 38, 19

# --- columns of state -------------------------------------------------------------------------------------------------


class FoldedColumns(ABC):
    """Columns of state into which input rows, or partial results, are folded."""

    kinds: Kinds  #: by column; a new row is null, except a count, which is 0
    hints: Mapping[str, Hint] = MappingProxyType({})  #: the columns in state stored by earlier versions

    @abstractmethod
    def of_rows(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """Returns the contribution of each input row, as columns of state."""

    @abstractmethod
    def fold(self, frame: Frame | Disk, rows: Rows, given: Mapping[str, pa.Array]) -> None:
        """Folds columns of state into rows of a frame; the result does not depend on their order."""


class Folded(FoldedColumns):
    """One column, folded by one of the operations of `Frame`."""

    def __init__(self, name: str, kind: pa.DataType, fold: str, column: str | None) -> None:
        self.kinds = {name: kind}
        self._name = name
        self._kind = kind
        self._fold = fold
        self._column = column

    def of_rows(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        return {self._name: self._values(batch)}

    def _values(self, batch: pa.RecordBatch) -> pa.Array:
        if self._column is None:
            return pa.array(np.ones(len(batch), np.int64))
        return batch.column(self._column).cast(self._kind)

    def fold(self, frame: Frame | Disk, rows: Rows, given: Mapping[str, pa.Array]) -> None:
        values = given[self._name]
        if self._fold == "add" and pa.types.is_floating(self._kind):
            rows, values = _by_value(rows, values)
        frame.column(self._name).fold(self._fold, rows, values)


class Extreme(Folded):
    """The least or greatest value. Zeros of floats lose their sign, so that the result does not depend on row order."""

    def _values(self, batch: pa.RecordBatch) -> pa.Array:
        values = super()._values(batch)
        return pc.add(values, pa.scalar(0, self._kind)) if pa.types.is_floating(self._kind) else values


class CheckedSum(Folded):
    """A sum with a second column that says whether it has ever exceeded its type."""

    def __init__(self, agg: Agg, kind: pa.DataType) -> None:
        super().__init__(agg.state, kind, "add", agg.column)
        self._beyond = f"beyond {agg.state}"
        self.kinds = {**self.kinds, self._beyond: pa.bool_()}
        self.hints = {self._name: Hint(aliases=(str(agg),)), self._beyond: Hint(default=None)}

    def of_rows(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        return {**super().of_rows(batch), self._beyond: pa.nulls(len(batch), pa.bool_())}

    def fold(self, frame: Frame | Disk, rows: Rows, given: Mapping[str, pa.Array]) -> None:
        earlier = given[self._beyond].fill_null(False)
        self._note(frame, rows[earlier.to_numpy(zero_copy_only=False)])
        try:
            super().fold(frame, rows, given)
        except Overflow as overflow:
            self._note(frame, rows[overflow.positions])

    def _note(self, frame: Frame | Disk, rows: Rows) -> None:
        if len(rows):
            frame.column(self._beyond)[rows] = True

    def result(self, state: pa.RecordBatch) -> pa.Array:
        """Returns the sums, null where they have exceeded the type."""
        beyond = state.column(self._beyond).fill_null(False)
        return pc.if_else(beyond, pa.scalar(None, self._kind), state.column(self._name))


class WidenedSum(Folded):
    """A sum with enough digits that no input exceeds it."""

    def __init__(self, agg: Agg, kind: pa.DataType) -> None:
        super().__init__(agg.state, kind, "add", agg.column)
        self.hints = {agg.state: Hint(aliases=(str(agg),))}


class WrappingSum(Folded):
    """A sum that wraps around at 64 bits."""

    def __init__(self, agg: Agg, kind: pa.DataType) -> None:
        super().__init__(agg.state, kind, "add_wrapping", agg.column)
        self.hints = {agg.state: Hint(aliases=(str(agg),))}


class ValidCount(Folded):
    """The number of values of a column that are not null."""

    def __init__(self, name: str, column: str) -> None:
        super().__init__(name, pa.int64(), "add", column)

    def _values(self, batch: pa.RecordBatch) -> pa.Array:
        return batch.column(self._column).is_valid().cast(pa.int64())


class AtTime(FoldedColumns):
    """The first or last value by event time, then by value, with its time in a second column."""

    def __init__(self, name: str, kind: pa.DataType, column: str, time: str, latest: bool) -> None:
        self._name, self._at = name, f"time of {name}"
        self.kinds = {name: kind, self._at: pa.int64()}
        self._kind = kind
        self._column = column
        self._time = time
        self._latest = latest

    def of_rows(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        values = batch.column(self._column).cast(self._kind)
        return {self._name: values, self._at: pa.array(event_times(batch.column(self._time)))}

    def fold(self, frame: Frame | Disk, rows: Rows, given: Mapping[str, pa.Array]) -> None:
        columns = [pa.array(rows), given[self._at], given[self._name]]
        offered = _one_of_each(pa.table(columns, ["row", "time", "value"]).drop_null(), self._latest)
        rows = offered["row"].to_numpy()
        values, times = frame.column(self._name), frame.column(self._at)
        better = self._is_better(offered["time"], times.to_arrow(rows), offered["value"], values.to_arrow(rows))
        rows = rows[better.to_numpy(zero_copy_only=False)]
        values[rows] = offered["value"].filter(better)
        times[rows] = offered["time"].filter(better)

    def _is_better(self, time: Any, old_time: pa.Array, value: Any, old_value: pa.Array) -> pa.Array:
        beyond = pc.greater if self._latest else pc.less
        tied = pc.and_(pc.equal(time, old_time), self._is_beyond(value, old_value))
        return pc.or_(beyond(time, old_time), tied).fill_null(True).combine_chunks()

    def _is_beyond(self, value: Any, old_value: pa.Array) -> pa.Array:
        """Whether a value replaces one of the same time; NaN is greater than any number, as in sorting."""
        greater, less = (value, old_value) if self._latest else (old_value, value)
        beyond = pc.greater(greater, less)
        if not pa.types.is_floating(self._kind):
            return beyond
        return pc.or_(beyond, pc.and_not(pc.is_nan(greater), pc.is_nan(less)))


def _by_value(rows: Rows, values: pa.Array) -> tuple[Rows, pa.Array]:
    """Sorts rows by the floats to add to them, because the last bits of a sum of floats depend on the order."""
    if values.null_count:
        valid = ~null_mask(values)
        rows, values = rows[valid], values.drop_null()
    order = np.argsort(values.to_numpy())
    return rows[order], pa.array(values.to_numpy()[order])


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal128(kind))


def _longer(kind: pa.DataType, digits: int, after_point: int = 0) -> pa.DataType:
    """Returns a decimal type with more digits, some of them after the point; at most 38, as in Spark."""
    return pa.decimal128(min(kind.precision + digits, _DIGITS), min(kind.scale + after_point, _DIGITS))


def _of_most_digits(kind: pa.DataType) -> pa.DataType:
    """Returns the widest decimal type for sums of integers or decimals."""
    return pa.decimal128(_DIGITS, kind.scale if pa.types.is_decimal(kind) else 0)


def _mean_of_decimals(total: pa.Array, rows: pa.Array, kind: pa.DataType) -> pa.Array:
    """Divides with many more digits than are kept, and rounds half up; null where there are no rows."""
    counts = pc.if_else(pc.equal(rows, 0), pa.scalar(None, pa.int64()), rows)
    sums = total.cast(pa.decimal256(_DIGITS, total.type.scale))
    exact = pc.divide(sums, counts.cast(pa.decimal256(_DIGITS_OF_COUNTS, 0)))
    return pc.round(exact, ndigits=kind.scale, round_mode="half_towards_infinity").cast(kind)


def _one_of_each(offered: pa.Table, latest: bool) -> pa.Table:
    """Returns, for each row number, its first or last line by time, then by value."""
    order = pc.sort_indices(offered, sort_keys=[(name, "ascending") for name in offered.schema.names]).to_numpy()
    rows = offered["row"].to_numpy()[order]
    other = rows[1:] != rows[:-1]
    ends = np.append(other, True) if latest else np.insert(other, 0, True)
    return offered.take(pa.array(order[ends[: len(order)]])).combine_chunks()


# --- all aggregates of an operator ------------------------------------------------------------------------------------


class Aggregates:
    """The named aggregates of an operator: columns of state, folds into them, and results from them.

    >>> from seep.operators.aggregation.agg import count, mean
    >>> input = Input(pa.schema([("user", pa.int64()), ("cents", pa.int64())]), keys=("user",))
    >>> aggregates = Aggregates("spent", {"n": count(), "mean": mean("cents")}, input)
    >>> frame = aggregates.frame("spent", {"user": pa.int64()})
    >>> batch = pa.record_batch({"user": [7, 7, 9], "cents": [2, 5, 4]})
    >>> aggregates.fold(frame, frame.locate(batch), aggregates.of_rows(batch))
    >>> [column.to_pylist() for column in aggregates.results(frame.to_arrow())]
    [[2, 1], [3.5, 4.0]]
    """

    def __init__(self, operator: str, asked: Mapping[str, Agg], stream: Input) -> None:
        if not asked:
            raise UserError(f"operator '{operator}' has no aggregates; give some, such as n=count()")
        self._operator = operator
        self._stream = stream
        self._asked = dict(asked)
        self._kept: dict[str, FoldedColumns] = {}  #: by aggregate, those without results of their own included
        for agg in asked.values():
            self._keep(agg)
        self.kinds: Kinds = {name: kind for kept in self._kept.values() for name, kind in kept.kinds.items()}

    @property
    def fields(self) -> list[pa.Field]:
        """The columns of the results."""
        return [pa.field(name, self._result_type(agg)) for name, agg in self._asked.items()]

    def disk(self, name: str, keys: Kinds, room: StateBudget, **more: Any) -> Disk:
        """Makes a container like `frame` for more rows than fit in memory."""
        place = room.place(self._operator, name)
        return Disk(name, keys, self.kinds, defaults=self._defaults, directory=place, memory=room.memory // 2, **more)

    def frame(self, name: str, keys: Kinds, values: Kinds | None = None, **more: Any) -> Frame:
        """Makes a frame with the columns of state, and other columns."""
        return Frame(name, keys, {**(values or {}), **self.kinds}, defaults=self._defaults, **more)

    @property
    def _defaults(self) -> dict[str, None]:
        return {column: None for column in self.kinds if not column.startswith("count(")}

    def of_rows(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """Returns the contribution of each input row, as columns of state."""
        return {name: column for kept in self._kept.values() for name, column in kept.of_rows(batch).items()}

    def fold(
        self,
        frame: Frame | Disk,
        rows: Rows,
        given: Mapping[str, pa.Array],
        key_at: Callable[[int], Mapping[str, Any]] | None = None,
    ) -> None:
        """Folds columns of state, from input rows or partial results, into rows of a frame.

        Raises UserError if a sum exceeds its type where that is an error; `key_at` gives its key if the frame does not.
        """
        for name, kept in self._kept.items():
            try:
                kept.fold(frame, rows, given)
            except Overflow as overflow:
                key = overflow.key if key_at is None else key_at(int(overflow.positions[0]))
                raise self._beyond(name, key) from overflow

    def evolution(self, container: str) -> Evolution:
        """Returns how to read state stored by versions that did not check sums for overflow."""
        return Evolution({container: {name: hint for kept in self._kept.values() for name, hint in kept.hints.items()}})

    def results(self, state: pa.RecordBatch) -> list[pa.Array]:
        """Returns the aggregates of each row of state."""
        return [self._result(agg, state) for agg in self._asked.values()]

    def _keep(self, agg: Agg) -> None:
        if agg.function == "mean":
            self._check_number(agg)
            self._keep(self._total_for(agg))
            self._keep(Agg("count", agg.column))
        elif agg.state not in self._kept:
            self._kept[agg.state] = self._kept_for(agg)

    def _total_for(self, mean: Agg) -> Agg:
        """Returns the sum that a mean is computed from, of a type that it does not exceed."""
        kind = self._type(mean)
        narrow = pa.types.is_floating(kind) or (pa.types.is_integer(kind) and kind.bit_width < 64)
        return Agg("sum", mean.column, "error" if narrow else "widen")

    def _kept_for(self, agg: Agg) -> FoldedColumns:
        name = str(agg)
        if agg.column is None:
            if agg.function == "count":
                return Folded(name, pa.int64(), "add", None)
            raise self._unknown(agg)
        kind = self._type(agg)
        match agg.function:
            case "count":
                return ValidCount(name, agg.column)
            case "sum":
                return self._sum(agg)
            case "min" | "max" if storage_type(kind) is not None:
                return Extreme(name, kind, agg.function, agg.column)
            case "first" | "last" if storage_type(kind) is not None or is_span(kind):
                return AtTime(name, kind, agg.column, self._time(agg), agg.function == "last")
            case "min" | "max" | "first" | "last":
                raise self._unfit(agg, "a number, decimal128, bool, date or time; or for first and last, text")
        raise self._unknown(agg)

    def _sum(self, agg: Agg) -> FoldedColumns:
        kind, total = self._type(agg), self._sum_type(agg)
        others = {
            "null": not pa.types.is_floating(kind),
            "wrap": pa.types.is_integer(total) or pa.types.is_duration(total),
            "widen": pa.types.is_integer(total) or pa.types.is_decimal(total),
        }
        if not others.get(agg.overflow, True):
            fit = [setting for setting, fits in others.items() if fits]
            raise UserError(
                f"operator '{self._operator}': {agg} has overflow={agg.overflow!r}, and column '{agg.column}' is "
                f"{kind}; " + (f"use error, {' or '.join(fit)}" if fit else "leave it out: floats become infinite")
            )
        match agg.overflow:
            case "null":
                return CheckedSum(agg, total)
            case "wrap":
                return WrappingSum(agg, total)
            case "widen":
                return WidenedSum(agg, _of_most_digits(total))
        return Folded(agg.state, total, "add", agg.column)

    def _sum_type(self, agg: Agg) -> pa.DataType:
        kind = self._type(agg)
        if pa.types.is_duration(kind):
            return kind
        self._check_number(agg)
        if pa.types.is_floating(kind):
            return pa.float64()
        if pa.types.is_decimal(kind):
            return _longer(kind, 10)
        return pa.uint64() if kind == pa.uint64() else pa.int64()

    def _check_number(self, agg: Agg) -> None:
        if not _is_number(self._type(agg)):
            raise self._unfit(agg, "integers, floats or decimal128")

    def _beyond(self, name: str, key: Mapping[str, Any]) -> UserError:
        """Returns the error for a sum, in the column of this name, that exceeds its type."""
        column = name.removeprefix("sum(").rpartition(")")[0]
        return UserError(
            f"operator '{self._operator}': the sum of column '{column}' for key {key} is beyond {self.kinds[name]}; "
            'ask for it with overflow="widen" (a decimal of 38 digits), "null" or "wrap", or leave such rows out before'
        )

    def _type(self, agg: Agg) -> pa.DataType:
        """Returns the type of the aggregated column, without dictionary encoding."""
        if agg.column is None or self._stream.schema.get_field_index(agg.column) < 0:
            raise no_column(self._operator, agg.column or "", self._stream.schema)
        return plain_type(self._stream.schema.field(agg.column).type)

    def _time(self, agg: Agg) -> str:
        if self._stream.time is None:
            raise UserError(
                f"operator '{self._operator}': {agg} goes by event time, and its input has none; "
                "name the time column at the source, and keep it up to here"
            )
        return self._stream.time

    def _unknown(self, agg: Agg) -> UserError:
        return UserError(
            f"operator '{self._operator}' knows no aggregate {agg}; use count, sum, min, max, mean, first or last"
        )

    def _unfit(self, agg: Agg, needed: str) -> UserError:
        return UserError(
            f"operator '{self._operator}': {agg} needs {needed}, and column '{agg.column}' is {self._type(agg)}; "
            "convert it before"
        )

    def _result_type(self, agg: Agg) -> pa.DataType:
        if agg.function != "mean":
            return self.kinds[agg.state]
        return _longer(self._type(agg), 4, 4) if pa.types.is_decimal(self._type(agg)) else pa.float64()

    def _result(self, agg: Agg, state: pa.RecordBatch) -> pa.Array:
        if agg.function == "mean":
            return self._mean(agg, state)
        kept = self._kept[agg.state]
        return kept.result(state) if isinstance(kept, CheckedSum) else state.column(agg.state)

    def _mean(self, agg: Agg, state: pa.RecordBatch) -> pa.Array:
        total, rows = state.column(self._total_for(agg).state), state.column(f"count({agg.column})")
        if pa.types.is_decimal(self._type(agg)):
            return _mean_of_decimals(total, rows, self._result_type(agg))
        return pc.divide(total.cast(pa.float64(), safe=False), rows.cast(pa.float64()))
