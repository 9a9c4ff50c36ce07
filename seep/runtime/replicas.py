"""Replicas at run time: says who keeps which backups, anew whenever nodes come and go or sizes drift."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from policies.backup import BackupSection, BackupSettings, BackupStrategy
from policies.names import check_names
from policies.replicas import Group, replica_groups
from primitives.errors import UserError
from primitives.graph import InstanceId, Kind, QueryGraph
from seep.protocol.effects import Effect
from seep.protocol.manager import Manager
from seep.protocol.view import STORAGE
from seep.runtime.driver import ManagerProcess

#: Seconds between two looks.
_EVERY = 0.5
#: Of these somebody has to be chosen.
_PLACED = (BackupStrategy.REPLICAS, BackupStrategy.STORAGE)


def check_backup(settings: BackupSection, graph: QueryGraph, has_storage: bool) -> None:
    """UserError if the settings name what is not there."""
    stateful = graph.of_kind(Kind.STATEFUL)
    check_names("backup.operators", settings.operators, stateful, "operators with state")
    wanted = [o for o in stateful if settings.of(o).strategy is BackupStrategy.STORAGE]
    if wanted and not has_storage:
        raise UserError(
            f"backups of {', '.join(wanted)} are to be in storage, and there is none: name it with --storage, or set "
            "backup.default.strategy to upstream or replicas"
        )


@dataclass(slots=True)
class Replicas:
    """The placement of backups of those operators that are not backed up upstream; `round` is for one thread."""

    process: ManagerProcess
    settings: BackupSection
    _look: float = field(default=0.0)

    def place(self) -> None:
        """Puts groups together; nothing happens if they are as before."""
        stateful = self.process.program.graph.of_kind(Kind.STATEFUL)
        if any(self.settings.of(operator).strategy in _PLACED for operator in stateful):
            self._tell(self.process.change(self._regroup))

    def round(self) -> None:
        """Now and then."""
        if time.monotonic() >= self._look:
            self._look = time.monotonic() + _EVERY
            self.place()

    def _regroup(self, manager: Manager) -> tuple[Mapping[InstanceId, Group] | None, list[Effect]]:
        """The new groups; None if they are the old ones."""
        groups: dict[InstanceId, Group] = {}
        for settings, instances in self._alike(manager).items():
            if settings.strategy is BackupStrategy.STORAGE:
                groups |= dict.fromkeys(instances, (STORAGE,))
            else:
                groups |= self._packed(manager, settings, instances)
        before = dict(manager.replication.groups)
        effects = manager.replicate(groups)
        return (None if manager.replication.groups == before else manager.replication.groups), effects

    def _alike(self, manager: Manager) -> dict[BackupSettings, list[InstanceId]]:
        """The instances whose backups have to be placed, by what their operators' settings say."""
        found: dict[BackupSettings, list[InstanceId]] = {}
        for instance in manager.placement:
            settings, kind = self.settings.of(instance.operator), manager.graph.kind(instance.operator)
            if kind is Kind.STATEFUL and settings.strategy in _PLACED:
                found.setdefault(settings, []).append(instance)
        return found

    def _packed(
        self, manager: Manager, settings: BackupSettings, instances: list[InstanceId]
    ) -> dict[InstanceId, Group]:
        sizes = {status.name.partition("#")[0]: status.state_bytes for status in self.process.metrics.instances()}
        return replica_groups(
            {instance: sizes.get(str(instance), 0) for instance in instances},
            {instance: seat.node for instance, seat in manager.placement.items()},
            [node for node in manager.nodes if node not in manager.roster.leaving],
            settings.replicas,
            manager.roster.vms,
            manager.replication.groups,
            settings.tolerance,
        )

    def _tell(self, groups: Mapping[InstanceId, Group] | None) -> None:
        if groups is not None:
            detail = "; ".join(f"{owner} on {', '.join(group)}" for owner, group in sorted(groups.items()))
            self.process.events.add("replicas placed", detail=detail)
