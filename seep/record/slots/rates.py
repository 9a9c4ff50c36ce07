"""Slot rates: the rows per second of each slot in the last window of time, for people who look at an operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.balance.loads import Heaviest
from primitives.topology import Assignment
from seep.record.report import owned
from seep.record.reports import SlotRows
from seep.record.slots.counts import hottest_slot

#: The most rates of one operator: of more slots, neighbours are added up.
_BUCKETS = 4096


@dataclass(slots=True)
class _Window:
    """The rows of all instances of an operator since a time."""

    begun: float
    rows: NDArray[np.int64]
    seconds: float = 0.0  #: its length, once it has ended
    heaviest: dict[int, Heaviest] = field(default_factory=dict)


@dataclass(slots=True)
class SlotRates:
    """Adds up the rows by slot of the operators that somebody looks at, apart from what balancers see. Not thread-safe.

    Its windows follow one another without a gap. A window ends with the first report, or question, after its length.
    """

    slot_bits: Mapping[str, int]
    _length: float = 0.0  #: seconds of a window
    _open: dict[str, _Window] = field(default_factory=dict)
    _ended: dict[str, _Window] = field(default_factory=dict)  #: the last one of each operator

    def show(self, operators: Iterable[str], seconds: float, now: float) -> None:
        """Keeps these operators, and forgets all others; the first windows of new ones begin now."""
        self._length, shown = seconds, set(operators)
        self._open = {name: window for name, window in self._open.items() if name in shown}
        self._ended = {name: window for name, window in self._ended.items() if name in shown}
        for name in shown - self._open.keys():
            self._open[name] = self._begin(name, now)

    def take(self, operator: str, told: SlotRows, now: float) -> None:
        """Adds the rows that an instance has counted since its last report."""
        window = self._open.get(operator)
        if window is None:
            return
        counts = told.counts
        window.rows[told.first : told.first + len(counts)] += counts
        if told.heaviest is not None:
            slot, key, share = told.heaviest
            window.heaviest[slot] = Heaviest(key, share)
        self._end_if_long(operator, now)

    def load(self, operator: str, assignment: Assignment, now: float) -> dict[str, Any]:
        """Returns the owners of slots, and the rates of the last window, which are missing before one has ended."""
        self._end_if_long(operator, now)
        window = self._ended.get(operator)
        size = assignment.owners.size
        bucket = max(1, size // _BUCKETS)
        found = {"operator": operator, **owned(assignment), "bucket": bucket}
        if window is None:
            return found | {"rows": [], "seconds": 0.0, "hottest": None}
        rates = window.rows.reshape(-1, bucket).sum(axis=1) / window.seconds
        hottest = hottest_slot(window.rows, assignment, window.heaviest)
        return found | {
            "rows": np.round(rates, 2).tolist(),
            "seconds": window.seconds,
            "hottest": None if hottest is None else hottest._asdict(),
        }

    def _begin(self, operator: str, now: float) -> _Window:
        return _Window(now, np.zeros(1 << self.slot_bits[operator], np.int64))

    def _end_if_long(self, operator: str, now: float) -> None:
        window = self._open.get(operator)
        if window is not None and now - window.begun >= self._length:
            window.seconds = now - window.begun
            self._ended[operator] = window
            self._open[operator] = self._begin(operator, now)
