"""Slot counting: for which operators nodes count rows by slot, because they are balanced, or somebody looks at them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from seep.channels.letters import CountSlots
from seep.node.node import REPORT_EVERY
from seep.record.record import Record

#: Seconds for which the rows of an operator are counted after somebody has looked at them.
LOOKED = 30.0
#: The least seconds of a window of rates, and the least number of reports of each node in it.
_WINDOW, _REPORTS = 2.0, 4


@dataclass(slots=True)
class SlotCounting:
    """The operators whose rows are counted. It tells all nodes of each change. Runs on the event loop."""

    record: Record
    tell: Callable[[CountSlots], None]
    heartbeat: float
    balanced: frozenset[str] = frozenset()
    _until: dict[str, float] = field(default_factory=dict)  #: operators that somebody looks at, and until when

    def __post_init__(self) -> None:
        self.record.restart_slots(self.balanced)

    @property
    def letter(self) -> CountSlots:
        """What a node is to count now."""
        return CountSlots(tuple(sorted(self.balanced | self._until.keys())))

    def balance(self, operators: Iterable[str]) -> None:
        """Counts rows for balancing of these operators, and of no others; their counts begin anew."""
        self.balanced = frozenset(operators)
        self.record.restart_slots(self.balanced)
        self.tell(self.letter)

    def look(self, operator: str, now: float) -> None:
        """Counts rows of an operator for a while, for somebody who looks at it."""
        is_new = operator not in self._until
        self._until[operator] = now + LOOKED
        if is_new:
            self._changed()

    def expire(self, now: float) -> None:
        """Ends the counting of operators that nobody has looked at for a while."""
        expired = [operator for operator, until in self._until.items() if until <= now]
        for operator in expired:
            del self._until[operator]
        if expired:
            self._changed()

    def _changed(self) -> None:
        self.record.show_slots(self._until, max(_WINDOW, _REPORTS * REPORT_EVERY * self.heartbeat))
        self.tell(self.letter)
