"""Replica groups: chooses the holders of backups, again whenever nodes come and go or sizes change."""

from __future__ import annotations

from dataclasses import dataclass

from policies.backup import BackupSection, BackupSettings, BackupStrategy
from policies.names import check_names
from policies.replicas import Group, replica_groups
from primitives.errors import UserError
from primitives.graph import InstanceId, Kind, QueryGraph
from seep.control.commands import PlaceBackups
from seep.control.orders import Orders
from seep.protocol.view import STORAGE
from seep.record.events import ReplicasPlaced
from seep.record.facts import Facts

#: Seconds between two calls.
_EVERY = 0.5
#: Strategies with holders that must be chosen.
_PLACED = (BackupStrategy.REPLICAS, BackupStrategy.STORAGE)


def check_backup(settings: BackupSection, graph: QueryGraph, has_storage: bool) -> None:
    """Raises UserError if the settings name an operator or a storage that is not there."""
    stateful = graph.of_kind(Kind.STATEFUL)
    check_names("backup.operators", settings.operators, stateful, "operators with state")
    wanted = [o for o in stateful if settings.of(o).strategy is BackupStrategy.STORAGE]
    if wanted and not has_storage:
        raise UserError(
            f"backups of {', '.join(wanted)} are to be in storage, and there is none: name it with --storage, or set "
            "backup.default.strategy to upstream or replicas"
        )


@dataclass(slots=True)
class ReplicaGroups:
    """The placement of backups of those operators that are not backed up upstream."""

    orders: Orders
    settings: BackupSection
    _look: float = 0.0

    def step(self, facts: Facts) -> None:
        """Computes the groups every half second, and gives a command if they have changed."""
        if facts.at < self._look:
            return
        self._look = facts.at + _EVERY
        alike = self._alike(facts)
        groups = {owner: group for owner, group in self._groups(facts, alike).items() if group}
        if alike and groups != facts.query.groups:
            self.orders.give(PlaceBackups(groups))
            self.orders.tell(ReplicasPlaced(groups=groups))

    def _groups(self, facts: Facts, alike: dict[BackupSettings, list[InstanceId]]) -> dict[InstanceId, Group]:
        groups: dict[InstanceId, Group] = {}
        for settings, instances in alike.items():
            if settings.strategy is BackupStrategy.STORAGE:
                groups |= dict.fromkeys(instances, (STORAGE,))
            else:
                groups |= _packed(facts, settings, instances)
        return groups

    def _alike(self, facts: Facts) -> dict[BackupSettings, list[InstanceId]]:
        """Returns the instances whose backups have to be placed, by the settings of their operators."""
        found: dict[BackupSettings, list[InstanceId]] = {}
        for instance in facts.query.of_kind(Kind.STATEFUL):
            settings = self.settings.of(instance.operator)
            if settings.strategy in _PLACED:
                found.setdefault(settings, []).append(instance)
        return found


def _packed(facts: Facts, settings: BackupSettings, instances: list[InstanceId]) -> dict[InstanceId, Group]:
    query = facts.query
    return replica_groups(
        {instance: facts.state_bytes.get(instance, 0) for instance in instances},
        {instance: seat.node for instance, seat in query.placement.items()},
        [node for node in query.nodes if node not in query.leaving],
        settings.replicas,
        query.vms,
        query.groups,
        settings.tolerance,
    )
