"""Drains: nodes that are to be empty, because their VM will be taken away or is not wanted any more."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from policies.assignment import relocated
from primitives.slots import SlotSet
from seep.protocol.effects import Effect
from seep.protocol.manager import Manager
from seep.runtime.driver import ManagerProcess


@dataclass(slots=True)
class Drains:
    """Moves what lives on these nodes to new instances elsewhere, in as many rounds as other plans make necessary."""

    process: ManagerProcess
    _nodes: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, node: str) -> None:
        """From now on nothing new is put on the node."""
        self.process.change(lambda manager: (None, manager.node_leaving(node)))
        with self._lock:
            self._nodes.add(node)

    def round(self) -> None:
        with self._lock:
            nodes = tuple(self._nodes)
        for node in nodes:
            if self.process.change(lambda manager, node=node: _relocate_all(manager, node)):  # type: ignore[misc]
                self._end(node)

    def _end(self, node: str) -> None:
        with self._lock:
            self._nodes.discard(node)
        if self.process.ask(lambda manager: node in manager.nodes):
            self.process.events.add("drained", node=node)


def _relocate_all(manager: Manager, node: str) -> tuple[bool, list[Effect]]:
    """Moves what it can now; whether nothing is left. Backups go elsewhere by themselves."""
    hosted = [instance for instance, seat in manager.placement.items() if seat.node == node]
    effects: list[Effect] = []
    for operator in dict.fromkeys(instance.operator for instance in hosted):
        if parts := _moves_of(manager, operator, [i.index for i in hosted if i.operator == operator]):
            effects += manager.move(operator, parts)[1]
    return node not in manager.used_nodes(), effects


def _moves_of(manager: Manager, operator: str, indexes: list[int]) -> dict[int, SlotSet]:
    """Each instance that owns anything is replaced by a new one."""
    assignment, fresh = manager.topology.history[operator][-1].assignment, manager.fresh_index(operator)
    parts: dict[int, SlotSet] = {}
    for index in indexes:
        if index in assignment.parts:
            parts |= relocated(assignment, index, fresh + len(parts))
    return parts
