"""What users ask for: counts, sums and the like of the rows of a key."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Agg:
    """What to make of the rows of a key; made by `count`, `sum` and the like. Nulls are left out of all of them."""

    function: str
    column: str | None = None

    def __str__(self) -> str:
        return f"{self.function}({self.column or ''})"


def count(column: str | None = None) -> Agg:
    """How many rows there are; or with a column, how many of them have a value there."""
    return Agg("count", column)


def sum(column: str) -> Agg:
    """The sum of numbers or durations, null if there are none; int64 for integers, where it wraps around."""
    return Agg("sum", column)


def min(column: str) -> Agg:
    """The least number, bool, date or time."""
    return Agg("min", column)


def max(column: str) -> Agg:
    """The greatest number, bool, date or time."""
    return Agg("max", column)


def mean(column: str) -> Agg:
    """The mean of numbers, as float64."""
    return Agg("mean", column)


def first(column: str) -> Agg:
    """The value with the lowest event time; if several have it, the least of them."""
    return Agg("first", column)


def last(column: str) -> Agg:
    """The value with the highest event time; if several have it, the greatest of them."""
    return Agg("last", column)
