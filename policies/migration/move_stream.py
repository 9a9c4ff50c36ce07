"""Move streams: moves as rows of data, each with a slot, an instance and a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from policies.migration.steps import MigrationSteps, Move
from primitives.errors import UserError
from primitives.slots import check_slot_bits

#: Limit of the indices of instances.
_MOST_INSTANCES = 1 << 31


class Clock(StrEnum):
    """The name and meaning of the column with the time of a move."""

    TIME = "time"  #: seconds since the query began to run
    EPOCH = "epoch"


@dataclass(frozen=True, slots=True)
class MoveStream:
    """Steps with their times, in order."""

    clock: Clock
    moments: tuple[float, ...]  #: one for each step; whole numbers if they are epochs
    steps: MigrationSteps

    def __iter__(self) -> Iterator[tuple[float, Move]]:
        return zip(self.moments, self.steps, strict=True)

    def __len__(self) -> int:
        return len(self.moments)


#: Rows as mappings, or a table of them, or the path of a CSV or Parquet file.
Rows: TypeAlias = Sequence[Mapping[str, Any]] | pa.Table | Path


def move_stream(rows: Rows, slot_bits: int, name: str = "moves") -> MoveStream:
    """Returns the moves in rows with the columns `time` or `epoch`, `slot` and `instance`, grouped by their time.

    Rows may come in any order. Raises UserError that names `name`, or the file, and the row and field of an error.

    >>> rows = [{"epoch": 20, "slot": 3, "instance": 1}, {"epoch": 10, "slot": 0, "instance": 2}]
    >>> list(move_stream(rows, slot_bits=2))
    [(10, {2: SlotSet(0)}), (20, {1: SlotSet(3)})]
    """
    name = str(rows) if isinstance(rows, Path) else name
    columns = _columns(rows, name)
    clock = _clock(columns, name)
    moments = _moments(columns[clock], clock, name)
    slots = _integers(columns["slot"], f"{name}: slot", 1 << check_slot_bits(slot_bits), "slots")
    instances = _integers(columns["instance"], f"{name}: instance", _MOST_INSTANCES, "instances")
    _check_once(moments, slots, clock, name)
    return MoveStream(clock, tuple(np.unique(moments).tolist()), MigrationSteps.of(slots, instances, moments))


# -- columns -------------------------------------------------------------------------------------------------------


def _columns(rows: Rows, name: str) -> Mapping[str, Sequence[Any] | pa.ChunkedArray]:
    table = _read(rows) if isinstance(rows, Path) else rows
    if isinstance(table, pa.Table):
        _check_single(table.column_names, name)
        return {column: table[column] for column in table.column_names}
    names = dict.fromkeys(field for row in table for field in row)
    return {field: [row.get(field) for row in table] for field in names}


def _check_single(columns: Sequence[str], name: str) -> None:
    for column in columns:
        if columns.count(column) > 1:
            raise UserError(f"{name}: there are two columns {column!r}; keep one")


def _read(path: Path) -> pa.Table:
    readers = {".csv": pa.csv.read_csv, ".parquet": pa.parquet.read_table}
    if path.suffix not in readers:
        raise UserError(f"{path} is neither a .csv nor a .parquet file; write the moves as one of them")
    try:
        return readers[path.suffix](path)
    except (OSError, pa.ArrowException) as reason:
        raise UserError(f"{path} cannot be read: {reason}") from reason


def _clock(columns: Mapping[str, Any], name: str) -> Clock:
    clocks = [clock for clock in Clock if clock in columns]
    missing = [field for field in ("slot", "instance") if field not in columns]
    if len(clocks) != 1 or missing:
        there = ", ".join(columns) or "none"
        raise UserError(f"{name}: the columns are {there}; there must be slot, instance, and one of time and epoch")
    return clocks[0]


# -- values --------------------------------------------------------------------------------------------------------


def _moments(values: Any, clock: Clock, name: str) -> NDArray[Any]:
    if clock is Clock.EPOCH:
        return _integers(values, f"{name}: epoch", 1 << 62, "epochs")
    moments = _numbers(values, f"{name}: time", pa.float64(), "a number of seconds")
    _check(moments, np.isfinite(moments) & (moments >= 0), f"{name}: time", "times count seconds from 0 on")
    return moments


def _integers(values: Any, field: str, count: int, words: str) -> NDArray[np.int64]:
    numbers = _numbers(values, field, pa.int64(), "a whole number")
    _check(numbers, (numbers >= 0) & (numbers < count), field, f"there are {words} 0 to {count - 1}")
    return numbers


def _numbers(values: Any, field: str, type: pa.DataType, words: str) -> NDArray[Any]:
    """Returns a column as numbers; searches for wrong values only if there are any."""
    numbers = _cast(values, type)
    if numbers is None:
        row, value = next((at, each) for at, each in enumerate(values, 1) if _cast([each], type) is None)
        raise UserError(f"{field} is {_plain(value)!r} in row {row}; write {words}")
    return numbers


def _cast(values: Any, type: pa.DataType) -> NDArray[Any] | None:
    try:
        array = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([pa.array(values)])
        numbers = array if pa.types.is_null(array.type) else pc.cast(array, type)
    except (pa.ArrowException, OverflowError):
        return None
    return None if array.null_count or pa.types.is_boolean(array.type) else numbers.to_numpy()


def _plain(value: Any) -> Any:
    return value.as_py() if isinstance(value, pa.Scalar) else value


def _check(numbers: NDArray[Any], good: NDArray[np.bool_], field: str, words: str) -> None:
    if not good.all():
        row = int(np.argmin(good))
        raise UserError(f"{field} is {numbers[row]} in row {row + 1}; {words}")


def _check_once(moments: NDArray[Any], slots: NDArray[np.int64], clock: Clock, name: str) -> None:
    """Checks that no slot moves to two instances at the same time."""
    order = np.lexsort((slots, moments))
    again = np.flatnonzero((np.diff(moments[order]) == 0) & (np.diff(slots[order]) == 0))
    if len(again):
        earlier, later = sorted(order[again[0] : again[0] + 2].tolist())
        raise UserError(
            f"{name}: slot is {slots[later]} in row {later + 1}, and in row {earlier + 1} too, both at {clock} "
            f"{moments[later]}; a slot moves once at a time"
        )
