"""Slot counts: adds up the rows that instances report by slot, to the loads of all slots in a window of time."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from policies.balance.loads import Heaviest, SlotLoads
from primitives.slots import SlotSet
from primitives.topology import Assignment
from seep.protocol.view import Incarnation
from seep.record.reports import SlotRows

#: CPU time shows the distribution of work only if at least one instance uses this fraction of its share: below, the
#: fixed cost of epochs exceeds the cost of rows.
_BUSY = 0.3


class HottestSlot(NamedTuple):
    """The slot of an operator that had the most rows in a window."""

    slot: int
    instance: int  #: its owner
    share: float  #: fraction of the operator's rows
    key: str | None  #: its heaviest key, if known


@dataclass(slots=True)
class _Part:
    """The reports of one instance since the window began."""

    rows: NDArray[np.int64]
    cores: float
    is_new: bool  #: whether it has not reported before
    cpu: float = 0.0
    seconds: float = 0.0
    epochs: int = 0

    @property
    def busy(self) -> float:
        """The fraction of its CPU share that the instance has used."""
        return self.cpu / (self.seconds * self.cores)

    def scale(self, epochs: int) -> float:
        """Returns the factor from the reported epochs to the epochs of the window.

        Reports come at different times, and an instance without a core is late; epochs make all comparable. An instance
        that began in the second half of the window is not scaled.
        """
        return 1.0 if self.is_new and self.epochs < epochs / 2 else epochs / self.epochs

    @property
    def cpu_by_slot(self) -> NDArray[np.float64]:
        """Returns CPU time by slot, assuming that every row of the instance costs the same."""
        total = self.rows.sum()
        return self.rows * (self.cpu / total if total else 0.0)


@dataclass(slots=True)
class _Told:
    """The reports of all instances of one operator."""

    parts: dict[Incarnation, _Part] = field(default_factory=dict)
    heaviest: dict[int, Heaviest] = field(default_factory=dict)


@dataclass(slots=True)
class SlotCounts:
    """The counts of all operators since their windows began. Not thread-safe."""

    slot_bits: Mapping[str, int]
    operators: Container[str] | None = None  #: the operators that are counted; None: all
    _told: dict[str, _Told] = field(default_factory=dict)
    _known: set[Incarnation] = field(default_factory=set)  #: instances that have reported and may do so again
    _hottest: dict[str, HottestSlot] = field(default_factory=dict)  #: by operator, in its last window

    def take(self, who: Incarnation, told: SlotRows, cores: float) -> None:
        """Adds the rows that an instance has counted since its last report."""
        if self.operators is not None and who.instance.operator not in self.operators:
            return
        operator = self._told.setdefault(who.instance.operator, _Told())
        part = operator.parts.get(who)
        if part is None:
            rows = np.zeros(1 << self.slot_bits[who.instance.operator], np.int64)
            part = operator.parts[who] = _Part(rows, cores, who not in self._known)
            self._known.add(who)
        counts = told.counts
        part.rows[told.first : told.first + len(counts)] += counts
        part.cpu += told.cpu
        part.seconds += told.seconds
        part.epochs += told.epochs
        if told.heaviest is not None:
            slot, key, share = told.heaviest
            operator.heaviest[slot] = Heaviest(key, share)

    def forget(self, who: Incarnation) -> None:
        """Notes that an instance will not report again; its reports count until the window ends."""
        self._known.discard(who)

    def restart(self, operators: Container[str] | None) -> None:
        """Removes all counts; from now on these operators are counted."""
        self.operators = operators
        self._told.clear()
        self._known.clear()
        self._hottest.clear()

    def hottest(self, operator: str) -> HottestSlot | None:
        """Returns the slot with the most rows in the last window; None if no rows are known."""
        return self._hottest.get(operator)

    def is_whole(self, operator: str, assignment: Assignment) -> bool:
        """Whether all owners of slots have reported at least one epoch; if not, some loads are not known."""
        told = self._told.get(operator, _Told())
        return assignment.parts.keys() <= {who.instance.index for who in told.parts}

    def end_window(self, operator: str, seconds: float, assignment: Assignment, moving: SlotSet) -> SlotLoads:
        """Ends the window, and returns the loads that were reported since the last call."""
        told = self._told.pop(operator, _Told())
        rows, cpu = np.zeros(assignment.owners.size), np.zeros(assignment.owners.size)
        epochs = max((part.epochs for part in told.parts.values()), default=0)
        for part in told.parts.values():
            rows += part.rows * part.scale(epochs)
            cpu += part.cpu_by_slot * part.scale(epochs)
        is_busy = any(part.busy >= _BUSY for part in told.parts.values())
        hottest = hottest_slot(rows, assignment, told.heaviest)
        if hottest is not None:
            self._hottest[operator] = hottest
        return SlotLoads(
            seconds, assignment, np.rint(rows).astype(np.int64), cpu if is_busy else None, moving, told.heaviest
        )


def hottest_slot(rows: NDArray[Any], assignment: Assignment, heaviest: Mapping[int, Heaviest]) -> HottestSlot | None:
    """Returns the slot with the most rows; None if there are no rows."""
    if not rows.any():
        return None
    slot = int(rows.argmax())
    key = heaviest[slot].key if slot in heaviest else None
    return HottestSlot(slot, int(assignment.owners[slot]), float(rows[slot] / rows.sum()), key)
