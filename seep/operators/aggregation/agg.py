"""What users ask for: counts, sums and the like of the rows of a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from primitives.errors import UserError

#: What becomes of a sum that is beyond its type; see `sum`.
OnOverflow = Literal["error", "null", "wrap", "widen"]


@dataclass(frozen=True, slots=True)
class Agg:
    """What to make of the rows of a key; made by `count`, `sum` and the like. Nulls are left out of all of them."""

    function: str
    column: str | None = None
    overflow: OnOverflow = "error"

    def __str__(self) -> str:
        return f"{self.function}({self.column or ''})"

    @property
    def state(self) -> str:
        """The column of state that it is kept in."""
        return str(self) if self.overflow == "error" else f"{self}, {self.overflow}"


def count(column: str | None = None) -> Agg:
    """How many rows there are; or with a column, how many of them have a value there."""
    return Agg("count", column)


def sum(column: str, *, overflow: OnOverflow = "error") -> Agg:
    """The sum of numbers or durations, null if there are none.

    It is int64 for integers (uint64 for uint64), float64 for floats, and for a decimal one of 10 digits more, of 38 at
    most. What becomes of a sum that is beyond this, `overflow` says: with "error" the run stops, with the operator, the
    column and the key; with "null" the sum is null from then on; with "wrap" it wraps around at 64 bits; with "widen"
    sums are decimals of 38 digits. What counts is what all rows of an epoch add up to, in whatever order they come.
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
    """The mean of numbers, as float64; that of decimals as a decimal of 4 digits more, rounded half up."""
    return Agg("mean", column)


def first(column: str) -> Agg:
    """The value with the lowest event time; if several have it, the least of them."""
    return Agg("first", column)


def last(column: str) -> Agg:
    """The value with the highest event time; if several have it, the greatest of them."""
    return Agg("last", column)
