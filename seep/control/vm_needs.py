"""VM needs: changes that need new instances wait until the pool has warm nodes for them."""

from __future__ import annotations

from dataclasses import dataclass, field

from seep.control.commands import WantNodes
from seep.control.orders import Orders
from seep.record.events import WaitingForVMs
from seep.record.facts import Facts


@dataclass(slots=True)
class VMNeeds:
    """Sums up the nodes that all open changes need, requests them from the pool, and reports each wait once."""

    orders: Orders
    _needs: dict[str, int] = field(default_factory=dict)  #: operator -> new instances that have no node yet
    _told: set[str] = field(default_factory=set)  #: operators whose wait was reported
    _wanted: int = 0  #: the number last requested from the pool
    _taken: int = 0  #: nodes that changes of this step take

    def begin_step(self) -> None:
        """Starts a new step: nodes that were taken in the last one are in use by now."""
        self._taken = 0

    def is_there(self, facts: Facts, operator: str, needed: int, why: str) -> bool:
        """Takes nodes for new instances of an operator; returns whether there are enough free ones."""
        if needed <= len(facts.free) - self._taken:
            self._taken += needed
            self.forget(operator)
            return True
        self.expect(operator, needed)
        if operator not in self._told:
            self._told.add(operator)
            self.orders.tell(WaitingForVMs(operator=operator, needed=needed, why=why))
        return False

    def expect(self, operator: str, needed: int) -> None:
        """Notes that an operator needs nodes, now or soon."""
        self._needs[operator] = needed
        self._want()

    def missing(self, operator: str) -> int:
        """Returns the number of new instances of an operator that have no node yet."""
        return self._needs.get(operator, 0)

    def forget(self, operator: str) -> None:
        """Notes that an operator needs no more nodes."""
        self._told.discard(operator)
        self._needs.pop(operator, None)
        self._want()

    @property
    def waiting(self) -> frozenset[str]:
        """Returns the operators that wait for nodes."""
        return frozenset(self._needs)

    def _want(self) -> None:
        if (wanted := sum(self._needs.values())) != self._wanted:
            self._wanted = wanted
            self.orders.give(WantNodes(wanted))
