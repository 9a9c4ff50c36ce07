"""Event time: what columns can hold it, and durations as users write them.

Inside, event times, watermarks and lengths of time are int64 numbers: the value itself for a column of integers (of
whatever unit the user likes), microseconds for a column of timestamps.
"""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from primitives.errors import UserError

#: A length of time as users give it: text or timedelta for timestamps, a number for integers.
Duration = str | timedelta | int

_MICROSECOND = timedelta(microseconds=1)
_UNITS = {
    "us": 1,
    "ms": 10**3,
    "s": 10**6,
    "sec": 10**6,
    "min": 60 * 10**6,
    "m": 60 * 10**6,
    "h": 3_600 * 10**6,
    "d": 86_400 * 10**6,
}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


def micros(duration: str | timedelta) -> int:
    """The microseconds of a length of time: a timedelta, or text in us, ms, s, min, h and d.

    >>> micros("30 s"), micros("1h 30min"), micros("-0.5 ms"), micros(timedelta(milliseconds=5))
    (30000000, 5400000000, -500, 5000)
    """
    if isinstance(duration, timedelta):
        return duration // _MICROSECOND
    text = duration.strip().lower()
    exact = _sum_of_parts(text.removeprefix("-"))
    if exact is None or exact.denominator != 1:
        raise UserError(
            f"{duration!r} is no length of time in whole microseconds; "
            "write a number and a unit (us, ms, s, min, h, d), such as '30 s' or '1h 30min'"
        )
    return -int(exact) if text.startswith("-") else int(exact)


def _sum_of_parts(text: str) -> Fraction | None:
    """`1h 30min` in microseconds; None if it does not read like that."""
    exact, at = Fraction(0), 0
    while (part := _PART.match(text, at)) and part[2] in _UNITS:
        exact, at = exact + Fraction(part[1]) * _UNITS[part[2]], part.end()
    return exact if text and at == len(text) else None


def is_event_time(kind: pa.DataType) -> bool:
    """Whether a column of this type can hold the event time."""
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind))


def length(duration: Duration, time: pa.DataType) -> int:
    """A length of time in the unit that event times of the given type have inside.

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
    """The event times of a column as int64; parts of a microsecond are cut off, towards the past.

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
    """The column of the given type that holds these event times; the reverse of `event_times`.

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
