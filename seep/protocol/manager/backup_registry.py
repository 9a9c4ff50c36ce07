"""The registry of backups: the valid backup of each instance, its holders, and the holders of the next one."""

from __future__ import annotations

from collections.abc import Mapping

from primitives.graph import InstanceId, Kind
from seep.protocol.events import ReplicaLate
from seep.protocol.manager.replication import BackupCopy, Replication, is_there
from seep.protocol.manager.state import ManagerState
from seep.protocol.messages import BackupCounted, BackupStored, DeleteBackup
from seep.protocol.view import STORAGE


class BackupRegistry:
    """The recorded backups. One is recorded when all live holders of its chain have it; only then its owner is safe."""

    def __init__(self, state: ManagerState) -> None:
        self._state = state
        #: the newest recorded backup of each instance that has one
        self.recorded: dict[InstanceId, BackupCopy] = {}
        self.replication = Replication()
        #: instances that began empty and were never backed up: they can begin empty again, after the same epoch
        self.unsaved: dict[InstanceId, int] = {}

    def holders(self, owner: InstanceId) -> tuple[str, ...]:
        """Returns the holders of an instance's recorded backup."""
        return self.recorded[owner].holders if owner in self.recorded else ()

    def is_kept_by_no_node(self, owner: InstanceId) -> bool:
        """Returns whether the settings of its operator keep the instance's backups away from all nodes."""
        holders = self.holders(owner) or self.replication.groups.get(owner, ())
        return owner.operator in self._state.settings.unkept or holders == (STORAGE,)

    def regroup(self, groups: Mapping[InstanceId, tuple[str, ...]]) -> None:
        """Makes the live nodes of an instance's group, as a chain, the holders of its backups from now on."""
        state = self._state
        known = {
            owner: tuple(node for node in dict.fromkeys(group) if is_there(node, state.roster.nodes))
            for owner, group in groups.items()
            if owner in state.roster.placement and state.graph.kind(owner.operator) is Kind.STATEFUL
        }
        state.view_is_old |= self.replication.regroup(known)

    # -- new backups --------------------------------------------------------------------------------------------------

    def on_backup_stored(self, sender: str, message: BackupStored) -> None:
        """Handles that a holder has a backup; an outdated one is deleted, unless a newer one will replace it there."""
        state, owner = self._state, message.owner.instance
        holder = STORAGE if STORAGE in message.chain else sender
        if not state.roster.is_current(message.owner) or message.epoch < state.safe.of(owner):
            if holder not in (*self.holders(owner), *self.replication.chain(owner)):
                state.post(holder, DeleteBackup(owner, message.order))
            return
        self.replication.stored(holder, message, state.roster.nodes, state.pulses)
        self._count(owner)

    def _count(self, owner: InstanceId) -> None:
        """Records the newest backup that all of the owner's holders have, if it is not recorded yet."""
        state = self._state
        found = self.replication.counts(owner, state.roster.nodes)
        if found is None or found[0] < state.safe.of(owner) or not state.roster.is_live(owner):
            return
        epoch, copy = found
        if copy != self.recorded.get(owner):
            self.record(owner, epoch, copy)
            state.post_to_instance(BackupCounted(state.roster.incarnation(owner), epoch, copy.holders))

    def record(self, owner: InstanceId, epoch: int, copy: BackupCopy) -> None:
        """Records a new copy, and only then deletes the old one where it is elsewhere."""
        for holder in self.holders(owner):
            if holder not in copy.holders:
                self._state.post(holder, DeleteBackup(owner, copy.order))
        self.recorded[owner] = copy
        self._state.safe.kept(owner, epoch)
        self.unsaved.pop(owner, None)

    # -- lost holders and owners --------------------------------------------------------------------------------------

    def lose(self, node: str) -> None:
        """Forgets the copies of a lost node; a backup for which others waited on that node now counts without it."""
        for owner, copy in list(self.recorded.items()):
            if node in copy.holders:
                del self.recorded[owner]
                if (left := copy.without(node)) is not None:
                    self.recorded[owner] = left
        for owner in self.replication.lose(node):
            self._count(owner)

    def exclude_late_replicas(self) -> None:
        """Excludes holders that are too far behind the others of their chain, because nothing would be trimmed."""
        state = self._state
        for owner, nodes in self.replication.late(state.pulses, state.settings.patience, state.roster.nodes).items():
            self.replication.exclude(owner, nodes)
            state.view_is_old = True
            state.effects.append(ReplicaLate(subject=owner, nodes=tuple(nodes)))

    def retire(self, owner: InstanceId) -> None:
        """Deletes the backup of an instance that has ended."""
        self.replication.retire(owner)
        self.unsaved.pop(owner, None)
        if (copy := self.recorded.pop(owner, None)) is not None:
            for holder in copy.holders:
                self._state.post(holder, DeleteBackup(owner, copy.order))
