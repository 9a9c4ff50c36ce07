"""Finds tuples that Linear Road does not allow (sections 1 and 2 of the spec), column by column."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from lrb.data import lines
from lrb.schema import INPUT, TupleKind

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Problem(IntEnum):
    """The reason why a line is left out."""

    NONE = lines.WELL
    FIELDS = lines.WRONG_COUNT
    NUMBER = lines.NO_NUMBER
    TYPE = 3
    RANGE = 4
    LATE = 5

    @property
    def words(self) -> str:
        return _WORDS[self]


_WORDS = {
    Problem.NONE: "well",
    Problem.FIELDS: f"wrong number of fields, which should be {len(INPUT)}",
    Problem.NUMBER: "a field is no whole number",
    Problem.TYPE: "unknown type",
    Problem.RANGE: "a field is out of range",
    Problem.LATE: "later than the allowed lateness",
}

LAST_SECOND = 10_799
SPEEDS, XWAYS, LANES, DIRECTIONS, SEGMENTS = 101, 1 << 16, 5, 2, 100
FEET_PER_SEGMENT = 5280
_VIDS = 1 << 40
_INT32 = 1 << 31

_COLUMN = {name: number for number, name in enumerate(INPUT.names)}
#: The fields that each type uses, with their upper limits (exclusive); no field may be negative.
_LIMITS = {
    TupleKind.REPORT: {"speed": SPEEDS, "xway": XWAYS, "lane": LANES, "direction": DIRECTIONS, "segment": SEGMENTS},
    TupleKind.BALANCE: {"qid": 1 << 62},
    TupleKind.EXPENDITURE: {"xway": XWAYS, "qid": 1 << 62},
    TupleKind.TRAVEL_TIME: {"qid": 1 << 62},
}


class Checker:
    """Finds problems, block after block; whether a tuple is late depends on the blocks before."""

    def __init__(self, lateness: int = 0) -> None:
        self._lateness = lateness
        self._latest = 0

    def check(self, numbers: Ints, found: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Returns the problem of each line; `found` has the problems of the text itself."""
        problems = found.copy()
        _mark(problems, ~np.isin(numbers[_COLUMN["type"]], list(TupleKind)), Problem.TYPE)
        _mark(problems, _out_of_range(numbers), Problem.RANGE)
        _mark(problems, self._late(numbers[_COLUMN["time"]], problems == Problem.NONE), Problem.LATE)
        return problems

    def _late(self, time: Ints, well: Flags) -> Flags:
        latest = np.maximum.accumulate(np.where(well, time, self._latest))
        np.maximum(latest, self._latest, out=latest)
        self._latest = int(latest[-1]) if len(latest) else self._latest
        return time < latest - self._lateness


def _mark(problems: NDArray[np.uint8], where: Flags, problem: Problem) -> None:
    """Sets the problem of some lines that have none yet."""
    problems[where & (problems == Problem.NONE)] = problem


def _out_of_range(numbers: Ints) -> Flags:
    kind, vid, time = (numbers[_COLUMN[name]] for name in ("type", "vid", "time"))
    outside: Flags = (time < 0) | (time > LAST_SECOND) | (vid < 0) | (vid >= _VIDS)
    for each, limits in _LIMITS.items():
        outside |= (kind == each) & _beyond(numbers, limits)
    outside |= (kind == TupleKind.REPORT) & _elsewhere(numbers)
    for name in set(INPUT.names) - {"vid", "qid"}:
        outside |= (numbers[_COLUMN[name]] < -_INT32) | (numbers[_COLUMN[name]] >= _INT32)
    return outside


def _beyond(numbers: Ints, limits: dict[str, int]) -> Flags:
    outside = np.zeros(numbers.shape[1], np.bool_)
    for name, limit in limits.items():
        column = numbers[_COLUMN[name]]
        outside |= (column < 0) | (column >= limit)
    return outside


def _elsewhere(numbers: Ints) -> Flags:
    """Whether each position lies outside of the reported segment."""
    elsewhere: Flags = numbers[_COLUMN["position"]] // FEET_PER_SEGMENT != numbers[_COLUMN["segment"]]
    return elsewhere
