"""The aggregates that users ask for: counts, sums and the like of the rows of a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from primitives.errors import UserError

#: How to treat a sum that exceeds its type; see `sum`.
OnOverflow = Literal["error", "null", "wrap", "widen"]


@dataclass(frozen=True, slots=True)
class Agg:
    """An aggregate of the rows of a key; made by `count`, `sum` and the like. All of them ignore nulls."""

    function: str
    column: str | None = None
    overflow: OnOverflow = "error"

    def __str__(self) -> str:
        return f"{self.function}({self.column or ''})"

    @property
    def state(self) -> str:
        """The column of state that holds it."""
        return str(self) if self.overflow == "error" else f"{self}, {self.overflow}"


def count(column: str | None = None) -> Agg:
    """The number of rows; with a column, the number of rows that have a value there."""
    return Agg("count", column)


def sum(column: str, *, overflow: OnOverflow = "error") -> Agg:
    """The sum of numbers or durations, null if there are none.

    The type is int64 for integers (uint64 for uint64), float64 for floats, and for a decimal one with 10 digits more,
    at most 38. `overflow` says how to treat a sum that exceeds its type: "error" stops the run, and names the operator,
    the column and the key; "null" makes the sum null from then on; "wrap" wraps around at 64 bits; "widen" makes sums
    decimals of 38 digits. It is checked after each epoch, so the order of rows within an epoch does not matter.
    """
    if overflow not in get_args(OnOverflow):
        raise UserError(f"overflow={overflow!r} of sum({column}) is none of {', '.join(get_args(OnOverflow))}")
    return Agg("sum", column, overflow)


def min(column: str) -> Agg:
    """The least number, bool, date or time. NaN is greater than any other number."""
    return Agg("min", column)


def max(column: str) -> Agg:
    """The greatest number, bool, date or time. NaN is greater than any other number."""
    return Agg("max", column)


def mean(column: str) -> Agg:
    """The mean of numbers, as float64; for decimals, a decimal with 4 digits more, rounded half up."""
    return Agg("mean", column)


def first(column: str) -> Agg:
    """The value with the lowest event time; of several at that time, the least."""
    return Agg("first", column)


def last(column: str) -> Agg:
    """The value with the highest event time; of several at that time, the greatest."""
    return Agg("last", column)
