"""The manager: keeps the query together, makes plans and sees them through. One per query, in the driver.

It is made of machines that share one `ManagerState`, and hands each call and each letter to the one that it is for. The
only rule that makes anyone wait: no epoch is opened before every live node knows the plans and cuts for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from typing import Any

from primitives.errors import InternalError, UserError
from primitives.graph import InstanceId, Kind, QueryGraph
from primitives.slots import SlotSet
from primitives.topology import Topology
from seep.protocol.cuts import Beginning, Cut
from seep.protocol.effects import Effect, Post
from seep.protocol.events import NodeLeaving, NodeLost
from seep.protocol.manager.backup_registry import BackupRegistry
from seep.protocol.manager.cutting import Cutting
from seep.protocol.manager.epochs import Epochs
from seep.protocol.manager.invariants import broken_rules, broken_rules_of_view
from seep.protocol.manager.moves import Moves
from seep.protocol.manager.placer import Placer
from seep.protocol.manager.plans import Accepted, Refused
from seep.protocol.manager.recovery import Recovery
from seep.protocol.manager.replication import is_there
from seep.protocol.manager.splits import Splits
from seep.protocol.manager.state import ManagerSettings, ManagerState, QueryPhase
from seep.protocol.manager.trimming import Trimming
from seep.protocol.message_ring import MessageRing
from seep.protocol.messages import (
    BackupFound,
    BackupStored,
    Committed,
    NodeFenced,
    OffsetsRead,
    Partitioned,
    Persisted,
    PersistFailed,
    Restored,
    RestoreFailed,
    TakeCheckpoint,
    ViewAcknowledged,
)


class Manager:
    """Everything it decides reaches the nodes as one ordered sequence of views.

    Scale out, scale in, migrate, balance, recover in parallel: each is a move or a split.
    """

    def __init__(
        self,
        graph: QueryGraph,
        parallelism: Mapping[str, int] | None = None,
        settings: ManagerSettings | None = None,
        beginning: Beginning | None = None,
    ) -> None:
        self.graph = graph
        self.settings = settings or ManagerSettings()
        state = self._state = ManagerState(graph, parallelism, self.settings, beginning or Beginning(0, {}, 0))
        self.cuts = Cutting(state)
        registry = self._registry = BackupRegistry(state)
        self._placer = Placer(state, registry, self.cuts)
        self._moves = Moves(state, registry, self._placer)
        self._recovery = Recovery(state, registry, self._placer, self.cuts, self._recovers_in_parts)
        self._splits = Splits(state, registry, self._placer, self.cuts, self._recovery)
        self._epochs = Epochs(state, self.cuts, self._moves)
        self._trimming = Trimming(state, registry, self._placer, self.cuts, self._recovery)
        self.roster, self.safe, self.log = state.roster, state.safe, state.log
        #: live nodes, and the last view that each has acknowledged
        self.nodes = state.roster.nodes
        #: where each instance lives, or lived last if its node is lost
        self.placement = state.roster.placement
        #: plans that are not complete, by number
        self.moves, self.splits = state.plans.moves, state.plans.splits
        #: instances that wait for a node, as there is none
        self.homeless = self._recovery.homeless
        self.replication = registry.replication
        #: the newest backup of each instance that counts, and instances that began empty and were never backed up
        self.backups, self.unsaved = registry.recorded, registry.unsaved
        self.ring = MessageRing()
        self._validated = 0  #: the last view that `validate` has looked at

    # -- what others read ---------------------------------------------------------------------------------------------

    @property
    def phase(self) -> QueryPhase:
        return self._state.phase

    @property
    def topology(self) -> Topology:
        return self._state.topology

    @property
    def version(self) -> int:
        """The version of the newest view."""
        return self._state.version

    @property
    def ticked(self) -> int:
        """The last epoch that was opened."""
        return self._state.ticked

    @property
    def final(self) -> int | None:
        """The epoch after which the query ends, once that is known."""
        return self._state.final

    @property
    def ending(self) -> bool:
        """Whether the input is to end, or has ended by itself."""
        return self._state.ending

    @property
    def committed(self) -> int:
        """The last epoch that all sinks have committed; 0 before the query is launched."""
        return self._epochs.committed

    @property
    def pending(self) -> Set[InstanceId]:
        """Instances that live nowhere now: they wait for a node, for a backup that is looked for, or for a split."""
        dead_origins = (split.origin for split in self.splits.values() if split.origin_is_dead)
        return {*self.homeless, *self._recovery.searches, *dead_origins}

    def used_nodes(self) -> set[str]:
        """Live nodes that host an instance or keep the only copy of a backup, or are about to."""
        return self._placer.used_nodes()

    def has_backups_on_nodes(self, operator: str) -> bool:
        """Whether nodes keep the backups of an operator's instances, or will: only these can be split."""
        return not any(self._registry.is_kept_by_no_node(i) for i in self.placement if i.operator == operator)

    def soonest(self, operator: str) -> int:
        """The epoch at which a move of the operator can be effective if it is announced now."""
        return self._moves.soonest(operator)

    def fresh_index(self, operator: str) -> int:
        """From this number on, no instance of the operator ever had one."""
        return self.roster.fresh_index(operator)

    # -- the query runs -----------------------------------------------------------------------------------------------

    def launch(self, placement: Mapping[InstanceId, str] | None = None) -> list[Effect]:
        """Starts every instance of the initial topology, on the given nodes or on the least loaded ones."""
        if not self.nodes:
            raise UserError("the query cannot be launched: no node has registered")
        unknown = set((placement or {}).values()) - set(self.nodes)
        if unknown:
            raise UserError(f"the placement names nodes that have not registered: {', '.join(sorted(unknown))}")
        self._state.phase = QueryPhase.RUNNING
        for instance in self.topology.all_instances():
            self._placer.launch(instance, (placement or {}).get(instance))
        return self._drain()

    def pulse(self) -> list[Effect]:
        """Time to trim, and to open the next epoch if the query keeps up with the open ones."""
        if self.phase is QueryPhase.RUNNING:
            self._state.pulses += 1
            if self._state.pulses % self.settings.trim_every == 0:
                self._trimming.trim()
                self._moves.complete()
                self._registry.exclude_late_replicas()
            self._epochs.open_next()
        return self._drain()

    def finish(self) -> list[Effect]:
        """Ends the input as if all sources were exhausted: the next epoch is the final one, or that of the last cut."""
        if self.phase is QueryPhase.RUNNING:
            self._epochs.end_input()
        return self._drain()

    def receive(self, sender: str, body: Any) -> list[Effect]:
        """Takes a letter from a node. A node that was given up is told so, whatever it says."""
        self.ring.took(sender, body)
        if not is_there(sender, self.nodes):
            return [Post(sender, NodeFenced())]
        if self.phase is QueryPhase.RUNNING:
            self._take(sender, body)
        return self._drain()

    def _take(self, sender: str, letter: object) -> None:
        match letter:
            case ViewAcknowledged(version):
                self.roster.acknowledged(sender, version)
                self.cuts.seal()
                self._moves.seal()
            case OffsetsRead():
                self._epochs.on_offsets_read(letter)
            case Committed():
                self._epochs.on_committed(letter)
            case Persisted():
                self._epochs.on_persisted(letter)
            case PersistFailed():
                self.cuts.on_persist_failed(letter)
            case BackupStored():
                self._registry.on_backup_stored(sender, letter)
            case BackupFound():
                self._recovery.on_backup_found(sender, letter)
            case Partitioned():
                self._splits.on_partitioned(letter)
            case Restored(part=None):
                self._recovery.on_restored(letter)
            case Restored(part=int(plan)):
                self._splits.on_restored(plan, letter)
            case RestoreFailed():
                if not self._splits.on_restore_failed(letter):
                    self._recovery.on_restore_failed(letter)
            case _:
                raise InternalError(f"the manager has no use for a letter of {sender}: {letter!r:.200}")

    # -- nodes come and go --------------------------------------------------------------------------------------------

    def node_joined(self, node: str, vm: str | None = None) -> list[Effect]:
        """A fresh node is there; nodes of the same VM may be lost together."""
        self.roster.join(node, vm, self.version + 1)
        self._state.view_is_old = True
        self._recovery.node_joined()
        return self._drain()

    def node_lost(self, node: str) -> list[Effect]:
        """The shell has given a node up; for the protocol it is gone for good, dead or not."""
        if self.roster.lose(node, self.version + 1):
            self._state.view_is_old = True
            self._state.effects.append(NodeLost(node=node))
            self._registry.lose(node)
            self._splits.node_lost(node)
            self._recovery.node_lost(node)
        return self._drain()

    def node_leaving(self, node: str) -> list[Effect]:
        """A live node will go: no instance and no backup is put there any more; those that are there are to be moved.

        Backups follow by themselves, for their owners see in the view that they are to be elsewhere.
        """
        if node in self.nodes and node not in self.roster.leaving:
            self.roster.leaving.add(node)
            self._state.view_is_old = True
            self._state.effects.append(NodeLeaving(node=node))
        return self._drain()

    # -- copies of state ----------------------------------------------------------------------------------------------

    def replicate(self, groups: Mapping[InstanceId, tuple[str, ...]]) -> list[Effect]:
        """From now on the backups of an instance are kept by all nodes of its group, the first passing them on.

        A node that does not host the instance and is live counts; an instance without any chooses by itself.
        """
        self._registry.regroup(groups)
        return self._drain()

    def checkpoint(self, operator: str | None = None, only: Collection[InstanceId] | None = None) -> list[Effect]:
        """Asks the instances whose state is backed up (of one operator, or `only` some) for a checkpoint now."""
        if operator is not None and operator not in self.graph.operators:
            raise UserError(f"there is no operator {operator!r} to take a checkpoint of")
        for instance in self._state.live_instances(Kind.STATEFUL):
            is_meant = operator in (None, instance.operator) and (only is None or instance in only)
            if is_meant and instance.operator not in self.settings.unkept:
                self._state.post_to_instance(TakeCheckpoint(self.roster.incarnation(instance)))
        return self._drain()

    def persist(
        self, number: int | None = None, full: bool | None = None, only: str | None = None, last: bool = False
    ) -> tuple[Cut | None, list[Effect]]:
        """Announces a cut a little ahead; None if one is under way, or the query does not run on.

        With `full` all state is written, without only what changed since the last complete cut, as far as instances
        know that; if it is not given, by the length of the chain. With `only`, it is of one operator, to be looked at.
        The `last` one is of a query that is ending, and its epoch is the final one.
        """
        if self.phase is not QueryPhase.RUNNING or self.final is not None or self.cuts.underway is not None:
            return None, []
        if self.ending != last:
            return None, []
        cut = self.cuts.announce(number, full, only)
        self._state.final = cut.epoch if last else None
        self._placer.publish_view()
        return cut, self._drain()

    def abandon_cut(self, number: int, why: str) -> list[Effect]:
        """Ends a cut that somebody has waited for long enough, if it is still under way."""
        if self.cuts.underway is not None and self.cuts.underway.cut.id == number:
            self.cuts.abandon(why)
        return self._drain()

    # -- plans --------------------------------------------------------------------------------------------------------

    def move(
        self,
        operator: str,
        parts: Mapping[int, SlotSet],
        first: int | None = None,
        *,
        prepare: bool = True,
        vertical: bool = False,
    ) -> tuple[Accepted | Refused, list[Effect]]:
        """Slots go to the given instances (by index; new ones are born) at an epoch a little ahead.

        Or at epoch `first`, so that it can be prepared. Later moves of the operator take effect after it. With
        `prepare`, the last backup is fetched ahead, where the settings allow it at all. If the move is `vertical`, new
        instances live on nodes that are in use, on those with a replica of their slots rather than on others.
        """
        return self._moves.move(operator, parts, first, prepare, vertical), self._drain()

    def split(self, origin: InstanceId, parts: Mapping[int, SlotSet]) -> tuple[Accepted | Refused, list[Effect]]:
        """Spreads the slots of a stateful instance over itself and new instances, from its backup.

        A live origin works on until all parts are restored; then the topology is amended from the backup's epoch on.
        """
        return self._splits.split(origin, parts), self._drain()

    def _recovers_in_parts(self, instance: InstanceId) -> bool:
        return self._splits.recover(instance)

    # -- effects, and that all is as it must be -----------------------------------------------------------------------

    def _drain(self) -> list[Effect]:
        state = self._state
        if state.view_is_old and state.phase is QueryPhase.RUNNING:
            self._placer.publish_view()
        effects, state.effects = state.effects, []
        self.ring.answered(effects)
        return effects

    def validate(self) -> None:
        """Raises InternalError with what does not hold that must hold between any two calls."""
        if self.phase is not QueryPhase.RUNNING:
            return
        broken = list(broken_rules(self))
        if self._validated != self.version:
            self._validated = self.version
            broken += broken_rules_of_view(self)
        if broken:
            raise InternalError(f"the manager, at view {self.version}: {'; '.join(broken)}")
