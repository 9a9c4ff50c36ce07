"""Recovery: rebinds an instance whose node is lost (plan kind 2), or lets it wait for a node or a lost backup."""

from __future__ import annotations

from collections.abc import Callable

from primitives.graph import InstanceId
from seep.protocol.effects import StateLost
from seep.protocol.events import Rebound, StateRestored, StoodReady
from seep.protocol.manager.backup_registry import BackupRegistry
from seep.protocol.manager.cutting import Cutting
from seep.protocol.manager.placer import Placer
from seep.protocol.manager.replication import BackupCopy, is_there
from seep.protocol.manager.state import ManagerState, QueryPhase
from seep.protocol.messages import BackupFound, FindBackup, FromNothing, Restored, RestoreFailed
from seep.protocol.view import STORAGE


class Recovery:
    """Rebinds instances: the same instance, in its next incarnation, begins on another node from its backup.

    `in_parts` is asked first for each instance: it may have begun a parallel recovery, by a split.
    """

    def __init__(
        self,
        state: ManagerState,
        registry: BackupRegistry,
        placer: Placer,
        cuts: Cutting,
        in_parts: Callable[[InstanceId], bool],
    ) -> None:
        self._state, self._registry, self._placer, self._cuts = state, registry, placer, cuts
        self._in_parts = in_parts
        #: instances that wait because there is no node
        self.homeless: list[InstanceId] = []
        #: instances without any recorded backup, and the nodes that were asked for an unrecorded one
        self.searches: dict[InstanceId, set[str]] = {}

    def node_joined(self) -> None:
        """Places instances that wait for a node on the new one."""
        homeless = self.homeless.copy()
        self.homeless.clear()
        for instance in homeless:
            self._recover(instance)

    def node_lost(self, node: str) -> None:
        """Recovers the instances of the node, and gives up searches for backups that only this node may have had."""
        for instance in self._state.roster.living_on(node):
            self._recover(instance)
        self._give_up_fruitless_searches()

    def wait_no_more(self, instance: InstanceId) -> None:
        """Ends the instance's wait for a node or a backup, if there is one."""
        if instance in self.homeless:
            self.homeless.remove(instance)
        self.searches.pop(instance, None)

    # -- rebind -------------------------------------------------------------------------------------------------------

    def _recover(self, instance: InstanceId) -> None:
        if not self._in_parts(instance):
            self.rebind(instance)

    def rebind(self, instance: InstanceId) -> None:
        """Starts the same instance in its next incarnation on another node, under the unchanged topology."""
        state = self._state
        if state.phase is not QueryPhase.RUNNING:
            return
        replicas = self._registry.holders(instance) if instance in self._registry.replication.groups else ()
        node = self._placer.pick_node(near=replicas, first=True)
        origin = self._placer.origin(instance, node)
        if origin is None:
            self._search(instance)
        elif node is None:
            self.homeless.append(instance)
        else:
            lost = state.roster.placement[instance].node
            self._placer.start(instance, node, origin)
            state.effects.append(Rebound(subject=instance, to=node, lost=lost))
            if isinstance(origin, FromNothing):
                self._cuts.on_restored(instance, origin.epoch)

    def on_restored(self, message: Restored) -> None:
        """Handles that an instance has its state and continues from it."""
        state, owner = self._state, message.instance.instance
        if not state.roster.is_current(message.instance):
            return
        # other holders have nothing newer than the recorded backup
        if len(self._registry.holders(owner)) < 2 and is_there(message.holder, state.roster.nodes):
            copy = BackupCopy((message.holder,), (message.instance.number, -1))
            self._registry.record(owner, message.epoch, copy)
        self._cuts.on_restored(owner, message.epoch)
        if message.stood:
            state.effects.append(StoodReady(subject=owner, epoch=message.epoch))
        state.effects.append(StateRestored(subject=owner, epoch=message.epoch))

    def on_restore_failed(self, message: RestoreFailed) -> None:
        """Handles that a holder did not have the recorded backup."""
        if self._state.roster.is_current(message.instance):
            self._registry.recorded.pop(message.instance.instance, None)
            self._recover(message.instance.instance)

    # -- searches -----------------------------------------------------------------------------------------------------

    def _search(self, instance: InstanceId) -> None:
        """Searches live nodes for an unrecorded backup, because no recorded copy is left."""
        state = self._state
        asked = set(state.roster.nodes) if instance.operator not in state.settings.unkept else set[str]()
        if self._registry.replication.has_used_storage:
            asked.add(STORAGE)
        self.searches[instance] = asked
        for holder in sorted(asked):
            state.post(holder, FindBackup(state.roster.incarnation(instance)))
        self._give_up_fruitless_searches()

    def on_backup_found(self, holder: str, message: BackupFound) -> None:
        """Handles a holder's answer to a search, with or without a backup."""
        state, owner = self._state, message.owner.instance
        if owner not in self.searches or not state.roster.is_current(message.owner):
            return
        self.searches[owner].discard(holder)
        is_void = message.order < self._registry.replication.void_before(owner)
        if message.epoch is not None and message.epoch >= state.safe.of(owner) and not is_void:
            del self.searches[owner]
            self._registry.recorded[owner] = BackupCopy((holder,), message.order)
            self._recover(owner)
        self._give_up_fruitless_searches()

    def _give_up_fruitless_searches(self) -> None:
        for instance in [i for i, asked in self.searches.items() if not asked & {STORAGE, *self._state.roster.nodes}]:
            del self.searches[instance]
            self._fail(instance)

    def _fail(self, instance: InstanceId) -> None:
        self._state.phase = QueryPhase.FAILED
        self._state.effects.append(StateLost(instance, self._state.safe.of(instance)))
