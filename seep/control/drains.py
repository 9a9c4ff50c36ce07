"""Drains: moves everything away from nodes whose VM will be taken away or is not wanted any more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from policies.migration.settings import MigrationSettings
from seep.control.commands import LeaveNode
from seep.control.migration import Migration
from seep.control.migrations import Migrations
from seep.control.orders import Orders
from seep.control.pacing import StepByStep
from seep.control.targets import away_from
from seep.record.events import Drained, DrainGivenUp
from seep.record.facts import Facts


@dataclass(slots=True)
class _Drain:
    """A node that is being emptied."""

    since: float
    got_on: float  #: time of the last progress: when fewer instances were left than before
    left: int | None = None  #: number of instances left then
    owns: bool = True  #: whether it owns slots; if not, its node may end unseen
    under_way: dict[str, Migration] = field(default_factory=dict)  #: migrations in progress, by operator


@dataclass(slots=True)
class Drains:
    """Moves the instances of these nodes elsewhere. If slots return meanwhile, it makes another migration."""

    orders: Orders
    migrations: Migrations
    steps: MigrationSettings  #: the settings of the migrations
    timeout: float  #: seconds without progress until a drain is given up
    _open: dict[str, _Drain] = field(default_factory=dict)  #: open drains by node
    #: operator -> instance -> the instance that replaces it
    _heirs: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))

    @property
    def under_way(self) -> Mapping[str, float]:
        """Returns the nodes being drained, with the start of each drain."""
        return {node: drain.since for node, drain in self._open.items()}

    def begin(self, facts: Facts, node: str) -> None:
        """Starts a drain: from now on nothing new is put on the node."""
        if node not in self._open:
            self._open[node] = _Drain(facts.at, facts.at)
            self.orders.give(LeaveNode(node))

    def step(self, facts: Facts) -> None:
        for node, drain in tuple(self._open.items()):
            owners = self._note(facts, node, drain)
            if node not in facts.query.used:
                self._end(facts, node, drain)
            elif facts.at > drain.got_on + self.timeout + (self.steps.gap or 0.0):
                self._give_up(facts, node, drain, f"for {self.timeout:g} s nothing has left it; it hosts {drain.left}")
            else:
                self._move(facts, node, drain, owners)

    def end(self, facts: Facts) -> None:
        """Gives up all drains at the end of the run."""
        for node, drain in tuple(self._open.items()):
            self._give_up(facts, node, drain, "the run is over")

    def _note(self, facts: Facts, node: str, drain: _Drain) -> dict[str, None]:
        """Notes progress; returns the operators that will own slots on the node.

        Backups move elsewhere independently.
        """
        hosted = facts.query.hosted_by(node)
        if drain.left is None or len(hosted) < drain.left:
            drain.left, drain.got_on = len(hosted), facts.at
        owners = dict.fromkeys(i.operator for i in hosted if i.index in facts.query.latest(i.operator).parts)
        if node in facts.query.nodes:
            drain.owns = bool(owners)
        return owners

    def _move(self, facts: Facts, node: str, drain: _Drain, owners: dict[str, None]) -> None:
        for operator in owners:
            if operator not in drain.under_way or drain.under_way[operator].is_over:
                drain.under_way[operator] = self._relocation(facts, operator, node)
                self.migrations.open(drain.under_way[operator])

    def _relocation(self, facts: Facts, operator: str, node: str) -> Migration:
        return Migration(
            operator,
            StepByStep(self.steps),
            facts.at,
            goal=away_from(operator, node, self._heirs[operator]),
            settings=self.steps,
            why=f"{node} is drained",
            is_told=False,
            is_urgent=True,
        )

    def _give_up(self, facts: Facts, node: str, drain: _Drain, why: str) -> None:
        for migration in drain.under_way.values():
            self.migrations.cancel(facts, migration, why)
        self._forget(node)
        self.orders.tell(DrainGivenUp(node=node, why=why))

    def _end(self, facts: Facts, node: str, drain: _Drain) -> None:
        self._forget(node)
        if node in facts.query.nodes or not drain.owns:
            self.orders.tell(Drained(node=node))
        else:
            self.orders.tell(DrainGivenUp(node=node, why="it was lost before"))

    def _forget(self, node: str) -> None:
        del self._open[node]
        if not self._open:
            self._heirs.clear()
