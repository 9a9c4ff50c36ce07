"""Waiting: plans that need new instances wait until the pool has warm nodes for them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Protocol

from seep.runtime.events import Events


class WarmNodes(Protocol):
    """What plans need of the pool."""

    def available(self) -> list[str]:
        """Warm nodes that new instances may take."""
        ...

    def want(self, count: int) -> None:
        """So many are needed now."""
        ...


@dataclass(slots=True)
class Room:
    """Asks the pool for all that plans need together, and tells each wait once. For any thread."""

    nodes: WarmNodes
    events: Events
    _needs: dict[str, int] = field(default_factory=dict)  #: operator -> new instances that have no node yet
    _told: set[str] = field(default_factory=set)  #: operators whose wait was told
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def is_there(self, operator: str, needed: int, why: str) -> bool:
        """Whether so many new instances of an operator can have a node of their own now."""
        if needed <= len(self.nodes.available()):
            self.forget(operator)
            return True
        self.expect(operator, needed)
        if operator not in self._told:
            self._told.add(operator)
            self.events.add("waiting for VMs", operator=operator, detail=f"{needed} needed: {why}")
        return False

    def expect(self, operator: str, needed: int) -> None:
        """So many will be needed soon, or are now."""
        with self._lock:
            if self._needs.get(operator, 0) != needed:
                self._needs[operator] = needed
                self.nodes.want(sum(self._needs.values()))

    def missing(self, operator: str) -> int:
        """New instances of an operator that have no node yet."""
        return self._needs.get(operator, 0)

    def forget(self, operator: str) -> None:
        """Nothing is needed any more."""
        with self._lock:
            self._told.discard(operator)
            if self._needs.pop(operator, 0):
                self.nodes.want(sum(self._needs.values()))
