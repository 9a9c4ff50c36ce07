"""Drains: nodes that are to be empty, because their VM will be taken away or is not wanted any more."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field

from policies.migration.settings import MigrationSettings
from primitives.graph import InstanceId
from seep.protocol.manager import Manager
from seep.runtime.courses import StepByStep
from seep.runtime.driver import ManagerProcess
from seep.runtime.goals import away_from, latest
from seep.runtime.migration import Migration
from seep.runtime.migrations import Migrations


@dataclass(slots=True)
class Drains:
    """Moves what lives on these nodes to new instances elsewhere, by as many migrations as others make necessary."""

    process: ManagerProcess
    migrations: Migrations
    steps: MigrationSettings  #: how slots move
    #: node -> operator -> its migration under way
    _nodes: dict[str, dict[str, Migration]] = field(default_factory=dict)
    #: operator -> instance -> that which replaces it
    _heirs: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    #: nodes that own nothing any more; the pool may end them before it is seen that they are empty
    _bare: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, node: str) -> None:
        """From now on nothing new is put on the node."""
        self.process.change(lambda manager: (None, manager.node_leaving(node)))
        with self._lock:
            self._nodes.setdefault(node, {})

    def round(self) -> None:
        with self._lock:
            nodes = list(self._nodes.items())
        for node, underway in nodes:
            owners, is_empty = self.process.ask(lambda manager, node=node: _look(manager, node))  # type: ignore[misc]
            if is_empty:
                self._end(node)
            elif not owners:
                self._bare.add(node)
            for operator in owners:
                if operator not in underway or underway[operator].over.is_set():
                    underway[operator] = self._relocation(operator, node)
                    self.migrations.open(underway[operator])

    def _relocation(self, operator: str, node: str) -> Migration:
        return Migration(
            operator,
            StepByStep(self.steps),
            self.process.events.now,
            goal=away_from(operator, node, self._heirs[operator]),
            settings=self.steps,
            why=f"{node} is drained",
            is_told=False,
            is_urgent=True,
        )

    def _end(self, node: str) -> None:
        with self._lock:
            self._nodes.pop(node)
            if not self._nodes:
                self._heirs.clear()
        if node in self._bare or self.process.ask(lambda manager: node in manager.nodes):
            self._bare.discard(node)
            self.process.events.add("drained", node=node)


def _look(manager: Manager, node: str) -> tuple[list[str], bool]:
    """The operators that will own slots there, and whether nothing is left. Backups go elsewhere by themselves."""
    hosted = [instance for instance, seat in manager.placement.items() if seat.node == node]
    owners = dict.fromkeys(each.operator for each in hosted if _owns(manager, each))
    return list(owners), node not in manager.used_nodes()


def _owns(manager: Manager, instance: InstanceId) -> bool:
    return instance.index in latest(manager, instance.operator).parts
