"""Splits: divide the slots of one instance among itself and new instances, from its backup (plan kind 3)."""

from __future__ import annotations

from collections.abc import Mapping

from primitives.graph import InstanceId, Kind
from primitives.partition import partition_routing_state
from primitives.slots import SlotSet, split_evenly
from primitives.topology import Arrival
from seep.protocol.events import SplitAborted, SplitBegun, SplitEffective
from seep.protocol.manager.backup_registry import BackupRegistry
from seep.protocol.manager.cutting import Cutting
from seep.protocol.manager.placer import Placer
from seep.protocol.manager.plans import Accepted, Refusal, Refused, Split, overlap, union_of
from seep.protocol.manager.recovery import Recovery
from seep.protocol.manager.replication import BackupCopy
from seep.protocol.manager.state import ManagerState, QueryPhase
from seep.protocol.messages import (
    AdoptParts,
    DropParts,
    FromBackup,
    PartitionBackup,
    Partitioned,
    Restored,
    RestoreFailed,
    StartInstance,
    StopInstance,
)


class Splits:
    """The open splits. The backup is divided, stand-bys restore the parts, then the topology is amended from its epoch.

    A live origin works until then. If the origin is lost, its split is a parallel recovery.
    """

    def __init__(
        self, state: ManagerState, registry: BackupRegistry, placer: Placer, cuts: Cutting, recovery: Recovery
    ) -> None:
        self._state, self._registry, self._placer = state, registry, placer
        self._cuts, self._recovery = cuts, recovery
        self._splits = state.plans.splits

    # -- beginning ----------------------------------------------------------------------------------------------------

    def split(self, origin: InstanceId, parts: Mapping[int, SlotSet]) -> Accepted | Refused:
        """Begins a split, or returns why it is refused (SEEP's Algorithm 3)."""
        why = self._objection(origin, parts)
        return Refused(why) if why else Accepted(self._prepare(origin, parts))

    def recover(self, instance: InstanceId) -> bool:
        """Returns whether a split recovers the instance, which is lost: one under way, or one that begins now."""
        state = self._state
        if any(split.origin == instance for split in self._splits.values()):
            return True
        if state.settings.recovery_parallelism == 1 or not state.roster.nodes:
            return False
        shares = split_evenly(state.latest_slots(instance), state.settings.recovery_parallelism)[1:]
        fresh = state.roster.fresh_index(instance.operator)
        return isinstance(self.split(instance, {fresh + i: slots for i, slots in enumerate(shares) if slots}), Accepted)

    def _objection(self, origin: InstanceId, parts: Mapping[int, SlotSet]) -> Refusal | None:
        if self._state.phase is not QueryPhase.RUNNING:
            return Refusal.NOT_RUNNING
        if origin not in self._state.roster.placement:
            return Refusal.UNKNOWN
        if self._state.graph.kind(origin.operator) is not Kind.STATEFUL:
            return Refusal.NO_STATE
        return self._objection_to_parts(origin, parts) or self._objection_to_timing(origin)

    def _objection_to_parts(self, origin: InstanceId, parts: Mapping[int, SlotSet]) -> Refusal | None:
        owned = self._state.latest_slots(origin)
        if not all(index >= 0 and slots <= owned for index, slots in parts.items()):
            return Refusal.UNKNOWN
        if overlap(parts):
            return Refusal.OVERLAP
        if any(self._state.roster.was_born(InstanceId(origin.operator, index)) for index in parts):
            return Refusal.NOT_NEW
        if not any(parts.values()):
            return Refusal.NOTHING
        return Refusal.EVERYTHING if union_of(parts.values()) == owned else None

    def _objection_to_timing(self, origin: InstanceId) -> Refusal | None:
        """Returns why a split is refused now: another plan of the operator is open, or effective after the backup."""
        state, operator = self._state, origin.operator
        if state.plans.moves_of(operator) or state.plans.splits_operator(operator):
            return Refusal.BUSY
        if self._registry.is_kept_by_no_node(origin):
            return Refusal.NOT_ON_A_NODE
        if not self._registry.holders(origin):
            return Refusal.NO_BACKUP
        is_too_old = state.topology.history[operator][-1].first > state.safe.of(origin)
        return Refusal.OLD_BACKUP if is_too_old else None

    def _prepare(self, origin: InstanceId, parts: Mapping[int, SlotSet]) -> int:
        """Asks a holder to divide the origin's backup."""
        state = self._state
        shares = {
            origin: state.latest_slots(origin) - union_of(parts.values()),
            **{InstanceId(origin.operator, i): slots for i, slots in parts.items() if slots},
        }
        plan, holder = state.plans.next_number(), self._registry.holders(origin)[0]
        self._splits[plan] = Split(plan, origin, shares, holder, not state.roster.is_live(origin))
        self._recovery.wait_no_more(origin)
        state.safe.pin(origin)
        state.post(holder, PartitionBackup(plan, origin, shares))
        state.effects.append(SplitBegun(subject=origin, plan=plan, shares=len(shares)))
        return plan

    # -- restoring ----------------------------------------------------------------------------------------------------

    def on_partitioned(self, message: Partitioned) -> None:
        """Handles that the backup is divided: starts a stand-by for each part."""
        split = self._splits.get(message.plan)
        if split is None:
            return
        if message.epoch is None or self._state.topology.history[split.origin.operator][-1].first > message.epoch:
            self._abort(split)
            return
        split.epoch = message.epoch
        for instance in split.parts:
            self._start_stand_by(split, instance, message.epoch)

    def _start_stand_by(self, split: Split, instance: InstanceId, epoch: int) -> None:
        """Starts a new owner beside the present one: it restores its part and waits for the view that names it."""
        state = self._state
        node = self._placer.pick_node(avoid=frozenset({split.holder}))
        assert node is not None
        identity = state.roster.next_incarnation(instance)
        split.standby[instance] = (identity, node)
        state.roster.hosted.add(node)
        trimmed = state.safe.trimmed[instance] if instance == split.origin else epoch
        state.post(node, StartInstance(identity, FromBackup(split.holder, split.plan), trimmed))

    def on_restored(self, plan: int, message: Restored) -> None:
        """Handles that a stand-by has its part; the last of them makes the split effective."""
        split = self._splits.get(plan)
        if split is not None:
            split.restored.add(message.instance.instance)
            if split.restored == set(split.parts):
                self._commit(split)

    def on_restore_failed(self, message: RestoreFailed) -> bool:
        """Aborts the split whose stand-by has failed; returns whether there was one."""
        for split in self._splits.values():
            if any(identity == message.instance for identity, _ in split.standby.values()):
                self._abort(split)
                return True
        return False

    # -- end ----------------------------------------------------------------------------------------------------------

    def _commit(self, split: Split) -> None:
        """Makes the split effective: its parts are the owners for all epochs after the backup."""
        assert split.epoch is not None
        state, operator = self._state, split.origin.operator
        self._cuts.on_split(split.origin, split.epoch)
        given = {i.index: slots for i, slots in split.parts.items() if i != split.origin}
        state.topology = partition_routing_state(state.topology, operator, given, split.epoch + 1, Arrival.BACKUP)
        self._placer.stop(split.origin)
        state.post(split.holder, AdoptParts(split.plan, tuple(identity for identity, _ in split.standby.values())))
        for instance, (identity, node) in split.standby.items():
            if instance != split.origin:
                state.safe.born(instance, split.epoch)
            state.roster.seat(identity, node)
            copy = BackupCopy((split.holder,), (identity.number, -1))
            self._registry.replication.void(instance, copy.order)
            self._registry.record(instance, split.epoch, copy)
        state.safe.set_back(split.origin, split.epoch)
        self._close(split, SplitEffective(subject=split.origin, plan=split.plan, first=split.epoch + 1))

    def node_lost(self, node: str) -> None:
        """Aborts splits that need the node, and records which origins are lost."""
        for split in list(self._splits.values()):
            split.origin_is_dead |= self._state.roster.placement[split.origin].node == node
            if split.stands_on(node):
                self._abort(split)

    def _abort(self, split: Split) -> None:
        """Aborts a split: stops its stand-bys, and rebinds a lost origin."""
        state = self._state
        for identity, node in split.standby.values():
            if node in state.roster.nodes:
                state.post(node, StopInstance(identity))
            if identity.instance != split.origin:
                state.roster.forget(identity.instance)
        if split.holder in state.roster.nodes:
            state.post(split.holder, DropParts(split.plan))
        self._close(split, SplitAborted(subject=split.origin, plan=split.plan))
        if split.origin_is_dead:
            self._recovery.rebind(split.origin)

    def _close(self, split: Split, told: SplitEffective | SplitAborted) -> None:
        del self._splits[split.plan]
        self._state.safe.unpin(split.origin)
        self._state.view_is_old = True
        self._state.effects.append(told)
