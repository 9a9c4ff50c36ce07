"""Event time: the columns that can hold it, and lengths of time in its unit.

Internally, event times, watermarks and lengths of time are int64 numbers: the value itself for a column of integers (in
a unit of the user's choice), microseconds for a column of timestamps.
"""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from formats.durations import micros
from primitives.errors import UserError

#: A length of time as users give it: text or timedelta for timestamps, a number for integers.
Duration = str | timedelta | int


def is_event_time(kind: pa.DataType) -> bool:
    """Whether a column of this type can hold the event time."""
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind))


def length(duration: Duration, time: pa.DataType) -> int:
    """Converts a length of time to the internal unit of event times of the given type.

    >>> length("10 ms", pa.timestamp("ns")), length(10, pa.int32())
    (10000, 10)
    """
    if pa.types.is_timestamp(time):
        if isinstance(duration, int):
            raise UserError(
                f"the length of time {duration} needs a unit, as the event time is a {time}; write text such as '30 s'"
            )
        return micros(duration)
    if not isinstance(duration, int):
        raise UserError(f"the length of time {duration!r} must be a plain number, as the event time is a {time}")
    return duration


def event_times(column: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    """Returns the event times of a column as int64, rounded down to whole microseconds.

    >>> event_times(pa.array([3, 5], pa.int16())).tolist()
    [3, 5]
    >>> event_times(pa.array([1_999, -1], pa.timestamp("ns"))).tolist()
    [1, -1]
    """
    if not is_event_time(column.type):
        raise UserError(f"a column of type {column.type} cannot be the event time; use integers or timestamps")
    if column.null_count:
        raise UserError(f"{column.null_count} of {len(column)} rows have no event time (null); filter them out before")
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_integer(column.type):
        return _numbers(pc.cast(column, pa.int64()))
    if column.type.unit == "ns":
        return _numbers(column.view(pa.int64())) // 1_000
    return _numbers(pc.cast(column, pa.timestamp("us", column.type.tz)).view(pa.int64()))


def times_column(times: NDArray[np.int64], kind: pa.DataType) -> pa.Array:
    """Returns a column of the given type with these event times; the inverse of `event_times`.

    >>> times_column(np.array([7]), pa.timestamp("ms")).to_pylist()
    Traceback (most recent call last):
    ...
    pyarrow.lib.ArrowInvalid: Casting from timestamp[us] to timestamp[ms] would lose data: 7
    >>> times_column(np.array([7_000]), pa.timestamp("ms")).cast(pa.int64()).to_pylist()
    [7]
    """
    if pa.types.is_integer(kind):
        return pc.cast(pa.array(times, pa.int64()), kind)
    return pc.cast(pa.array(times, pa.int64()).view(pa.timestamp("us", kind.tz)), kind)


def _numbers(column: pa.Array) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = column.to_numpy(zero_copy_only=False)
    return numbers
