"""The placer: chooses nodes for instances and origins for their state, and tells all nodes in views."""

from __future__ import annotations

from collections.abc import Collection

from primitives.graph import InstanceId, Kind
from seep.protocol.manager.backup_registry import BackupRegistry
from seep.protocol.manager.cutting import Cutting
from seep.protocol.manager.state import ManagerState
from seep.protocol.messages import (
    FromBackup,
    FromCommits,
    FromCut,
    FromLog,
    FromNothing,
    StartInstance,
    StopInstance,
    ViewChanged,
)
from seep.protocol.view import View

Origin = FromNothing | FromBackup | FromLog | FromCommits | FromCut


class Placer:
    """Starts and stops instances. A start reaches its node with the next view, so that no peer knows it earlier."""

    def __init__(self, state: ManagerState, registry: BackupRegistry, cuts: Cutting) -> None:
        self._state, self._registry, self._cuts = state, registry, cuts
        #: the instances of the initial topology
        self._first = frozenset(state.topology.all_instances())

    # -- instances ----------------------------------------------------------------------------------------------------

    def launch(self, instance: InstanceId, node: str | None) -> None:
        """Starts an instance of the initial topology, on the given node or on the least loaded one."""
        self.register_new(instance, self._state.beginning.epoch)
        self._record_start_positions(instance)
        self.start(instance, node or self.pick_node(), self.origin(instance))

    def register_new(self, instance: InstanceId, epoch: int) -> None:
        """Registers a new instance, which is empty after `epoch`."""
        self._state.safe.born(instance, epoch)
        self._registry.unsaved[instance] = epoch

    def _record_start_positions(self, source: InstanceId) -> None:
        """Records the positions from which a source begins."""
        state = self._state
        positions = state.beginning.positions.get(source.operator, {})
        if positions:
            owned = state.topology.slots(source, state.beginning.epoch + 1)
            mine = {slot: positions[slot] for slot in owned if slot in positions}
            state.log.record(source, state.beginning.epoch, mine, exhausted=False)

    def start(self, instance: InstanceId, node: str | None, origin: Origin | None) -> None:
        """Starts the next incarnation of an instance on a node, with the next view."""
        assert node is not None
        assert origin is not None
        state = self._state
        identity = state.roster.next_incarnation(instance)
        state.roster.seat(identity, node)
        self._registry.replication.begin(instance)
        state.starts.setdefault(node, []).append(StartInstance(identity, origin, state.safe.trimmed[instance]))
        state.view_is_old = True

    def stop(self, instance: InstanceId) -> None:
        """Stops the present incarnation, if its node is live."""
        roster = self._state.roster
        if roster.is_live(instance):
            self._state.post(roster.placement[instance].node, StopInstance(roster.incarnation(instance)))

    # -- nodes and origins --------------------------------------------------------------------------------------------

    def used_nodes(self) -> set[str]:
        """Returns the live nodes that host an instance, keep the only copy of a backup, or are about to."""
        state = self._state
        hosts = {seat.node for seat in state.roster.placement.values()}
        holders = {copy.holders[0] for copy in self._registry.recorded.values() if len(copy.holders) == 1}
        return (hosts | holders | {*state.plans.reserved_nodes()}) & state.roster.nodes.keys()

    def pick_node(self, avoid: Collection[str] = (), near: Collection[str] = (), first: bool = False) -> str | None:
        """Returns the least loaded node, preferably idle; nodes to avoid or about to leave only without others.

        Of equally loaded nodes, it prefers a near one; with `first`, it prefers a near one with any load.
        """
        return self._state.roster.least_loaded(self._state.plans.reserved_nodes(), avoid, near, first)

    def origin(self, instance: InstanceId, node: str | None = None) -> Origin | None:
        """Returns the origin of a new incarnation's state, for a given node; None if every copy is lost."""
        state, unsaved = self._state, self._registry.unsaved
        match state.graph.kind(instance.operator):
            case Kind.SOURCE:
                epoch = state.safe.trimmed[instance]
                return FromLog(epoch, *state.log.after(instance, epoch), state.ticked, state.ticked == state.final)
            case Kind.SINK:
                return FromCommits(state.safe.of(instance))
            case Kind.STATELESS:
                return self._from_beginning(instance, state.graph.operators[instance.operator].keeps_extra)
        is_unkept, began = instance.operator in state.settings.unkept, unsaved.get(instance, -1)
        if is_unkept and state.safe.trimmed[instance] > began:
            return None
        if instance in self._registry.recorded:
            return self._from_backup(instance, node)
        return self._from_beginning(instance) if instance in unsaved else None

    def _from_beginning(self, instance: InstanceId, has_part: bool = True) -> FromCut | FromNothing:
        epoch = self._state.safe.of(instance)
        is_first = instance in self._first and epoch == self._state.beginning.epoch > 0
        return FromCut(epoch) if is_first and has_part else FromNothing(epoch)

    def _from_backup(self, instance: InstanceId, node: str | None) -> FromBackup:
        copy = self._registry.recorded[instance]
        holder = copy.nearest(node, instance.index)
        others = tuple(other for other in copy.holders if other != holder)
        return FromBackup(holder, None, others, self._state.safe.of(instance)) if others else FromBackup(holder)

    # -- views --------------------------------------------------------------------------------------------------------

    def publish_view(self) -> None:
        """Publishes the decisions and starts of instances to every live node."""
        state, roster = self._state, self._state.roster
        state.version += 1
        state.view_is_old = False
        state.topology = state.topology.forgotten(self._oldest_needed())
        state.safe.forget(state.topology.all_instances())
        view = View(
            state.version,
            state.topology,
            dict(roster.placement),
            frozenset(roster.nodes),
            dict(roster.vms),
            self._cuts.announced,
            frozenset(roster.leaving),
            dict(self._registry.replication.groups),
        )
        starts, state.starts = state.starts, {}
        for node in roster.nodes:
            state.post(node, ViewChanged(view, tuple(starts.get(node, ()))))

    def _oldest_needed(self) -> int:
        """Returns the last epoch that no instance needs again, even if it has to recover."""
        oldest = min(map(self._state.safe.needed_after, self._state.roster.placement), default=0)
        underway = self._cuts.underway
        return oldest if underway is None else min(oldest, underway.cut.epoch - 1)
