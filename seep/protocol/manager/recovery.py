"""Nodes come and go: what lived on a lost one is recovered by rebind (plan kind 2)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set

from primitives.graph import InstanceId, QueryGraph
from seep.protocol.cuts import Beginning
from seep.protocol.effects import Effect, StateLost
from seep.protocol.events import NodeLeaving, NodeLost, Rebound, StateRestored, StoodReady
from seep.protocol.manager.core import Handler, ManagerCore, ManagerSettings, QueryPhase
from seep.protocol.manager.replication import BackupCopy, is_there
from seep.protocol.messages import BackupFound, FindBackup, FromNothing, Restored, RestoreFailed
from seep.protocol.view import STORAGE


class RecoveringManager(ManagerCore):
    """What heals a query; reconfigures nothing by itself."""

    def __init__(
        self,
        graph: QueryGraph,
        parallelism: Mapping[str, int] | None = None,
        settings: ManagerSettings | None = None,
        beginning: Beginning | None = None,
    ) -> None:
        super().__init__(graph, parallelism, settings, beginning)
        #: instances that wait for a node
        self._homeless: list[InstanceId] = []
        #: instances without any recorded backup, and the nodes that were asked for an unrecorded one
        self._searches: dict[InstanceId, set[str]] = {}

    def _letters(self) -> dict[type, Handler]:
        return super()._letters() | {
            BackupFound: self._on_backup_found,
            Restored: self._on_restored,
            RestoreFailed: self._on_restore_failed,
        }

    # -- entry points for the shell -----------------------------------------------------------------------------------

    def node_joined(self, node: str, vm: str | None = None) -> list[Effect]:
        """A fresh node is there; nodes of the same VM may be lost together."""
        self.roster.join(node, vm, self.version + 1)
        self._view_is_old = True
        homeless, self._homeless = self._homeless, []
        for instance in homeless:
            self._rebind(instance)
        return self._drain()

    def node_lost(self, node: str) -> list[Effect]:
        """The shell has given a node up; for the protocol it is gone for good, dead or not."""
        has_hosted = node in self.roster.hosted
        if self.roster.lose(node):
            self._view_is_old = True
            if has_hosted:
                self._loss_told = self.version + 1
            self._effects.append(NodeLost(node=node))
            self._lose_backups(node)
            self._recover_from(node)
        return self._drain()

    def node_leaving(self, node: str) -> list[Effect]:
        """A live node will go: no instance and no backup is put there any more; those that are there are to be moved.

        Backups follow by themselves, for their owners see in the view that they are to be elsewhere.
        """
        if node in self.nodes and node not in self.roster.leaving:
            self.roster.leaving.add(node)
            self._view_is_old = True
            self._effects.append(NodeLeaving(node=node))
        return self._drain()

    @property
    def pending(self) -> Set[InstanceId]:
        """Instances that live nowhere now, and wait for a node or for a backup that is looked for."""
        return {*self._homeless, *self._searches}

    @property
    def homeless(self) -> Collection[InstanceId]:
        """Instances that wait for a node, as there is none."""
        return self._homeless

    def _lose_backups(self, node: str) -> None:
        """What it kept is gone; what others wait for it to keep counts without it."""
        for owner, copy in list(self.backups.items()):
            if node in copy.holders:
                del self.backups[owner]
                if (left := copy.without(node)) is not None:
                    self.backups[owner] = left
        for owner in self.replication.lose(node):
            self._count_backup(owner)

    # -- rebind -------------------------------------------------------------------------------------------------------

    def _recover_from(self, node: str) -> None:
        for instance in self.roster.living_on(node):
            self._rebind(instance)
        self._give_up_fruitless_searches()

    def _rebind(self, instance: InstanceId) -> None:
        """The same instance in its next incarnation on another node, under the unchanged topology."""
        if self.phase is not QueryPhase.RUNNING:
            return
        replicas = self._holders(instance) if instance in self.replication.groups else ()
        node = self._pick_node(near=replicas, first=True)
        origin = self._origin(instance, node)
        if origin is None:
            self._search(instance)
        elif node is None:
            self._homeless.append(instance)
        else:
            lost = self.placement[instance].node
            self._seat(instance, node, origin)
            self._effects.append(Rebound(subject=instance, to=node, lost=lost))
            if isinstance(origin, FromNothing):
                self._tell(self.cuts.restored(instance, origin.epoch, self.topology))

    def _retire(self, instance: InstanceId) -> None:
        super()._retire(instance)
        self._wait_no_more(instance)

    def _wait_no_more(self, instance: InstanceId) -> None:
        """It needs neither a node nor a backup any more, if it did."""
        if instance in self._homeless:
            self._homeless.remove(instance)
        self._searches.pop(instance, None)

    def _on_restored(self, _: str, message: Restored) -> None:
        owner = message.instance.instance
        if self.roster.is_current(message.instance):
            # if there are several holders, they have no more than what is recorded
            if len(self._holders(owner)) < 2 and is_there(message.holder, self.nodes):
                copy = BackupCopy((message.holder,), (message.instance.number, -1))
                self._record_backup(owner, message.epoch, copy)
            self._tell(self.cuts.restored(owner, message.epoch, self.topology))
            if message.stood:
                self._effects.append(StoodReady(subject=owner, epoch=message.epoch))
            self._effects.append(StateRestored(subject=owner, epoch=message.epoch))

    def _on_restore_failed(self, _: str, message: RestoreFailed) -> None:
        if self.roster.is_current(message.instance):
            self.backups.pop(message.instance.instance, None)
            self._rebind(message.instance.instance)

    # -- searches -----------------------------------------------------------------------------------------------------

    def _search(self, instance: InstanceId) -> None:
        """No recorded copy is left; a live node may still have one whose record did not get through, if any has one."""
        asked = set(self.nodes) if instance.operator not in self.settings.unkept else set[str]()
        if STORAGE in self.replication.groups.get(instance, ()):
            asked.add(STORAGE)
        self._searches[instance] = asked
        for holder in sorted(asked):
            self._post(holder, FindBackup(self.roster.incarnation(instance)))
        self._give_up_fruitless_searches()

    def _on_backup_found(self, holder: str, message: BackupFound) -> None:
        owner = message.owner.instance
        if owner not in self._searches or not self.roster.is_current(message.owner):
            return
        self._searches[owner].discard(holder)
        is_void = message.order < self.replication.void_before(owner)
        if message.epoch is not None and message.epoch >= self.safe.of(owner) and not is_void:
            del self._searches[owner]
            self.backups[owner] = BackupCopy((holder,), message.order)
            self._rebind(owner)
        self._give_up_fruitless_searches()

    def _give_up_fruitless_searches(self) -> None:
        for instance in [i for i, asked in self._searches.items() if not asked & {STORAGE, *self.nodes}]:
            del self._searches[instance]
            self._fail(instance)

    def _fail(self, instance: InstanceId) -> None:
        self.phase = QueryPhase.FAILED
        self._effects.append(StateLost(instance, self.safe.of(instance)))
