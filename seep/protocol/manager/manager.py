"""The manager: coordinates the query, makes plans and carries them out. There is one per query, in the driver.

It consists of machines that share one `ManagerState`, and passes each call and each letter to the right one. Only one
rule makes the query wait: no epoch is opened before every live node knows the plans and cuts for it.
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
    """The coordinator of a query, whose decisions reach the nodes as one ordered sequence of views.

    Scaling out and in, migrations, balancing and parallel recovery: each consists of moves and splits.
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
        #: the node and incarnation of each instance; of an instance without a live node, the last ones
        self.placement = state.roster.placement
        #: plans that are not complete, by number
        self.moves, self.splits = state.plans.moves, state.plans.splits
        #: instances that wait for a node, as there is none
        self.homeless = self._recovery.homeless
        self.replication = registry.replication
        #: the recorded backup of each instance, and instances that began empty and were never backed up
        self.backups, self.unsaved = registry.recorded, registry.unsaved
        self.ring = MessageRing()
        self._validated = 0  #: the last view that `validate` has checked

    # -- state for others to read -------------------------------------------------------------------------------------

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
        """The epoch after which the query ends; None as long as it is unknown."""
        return self._state.final

    @property
    def ending(self) -> bool:
        """Whether the input has ended or has been told to end."""
        return self._state.ending

    @property
    def committed(self) -> int:
        """The last epoch that all sinks have committed; 0 before the query is launched."""
        return self._epochs.committed

    @property
    def pending(self) -> Set[InstanceId]:
        """The instances that are on no node now: they wait for a node, a backup that is searched, or a split."""
        dead_origins = (split.origin for split in self.splits.values() if split.origin_is_dead)
        return {*self.homeless, *self._recovery.searches, *dead_origins}

    def used_nodes(self) -> set[str]:
        """The live nodes that host an instance, keep the only copy of a backup, or are about to."""
        return self._placer.used_nodes()

    def has_backups_on_nodes(self, operator: str) -> bool:
        """Returns whether nodes keep backups of an operator's instances, or will: only these can be split."""
        return not any(self._registry.is_kept_by_no_node(i) for i in self.placement if i.operator == operator)

    def soonest(self, operator: str) -> int:
        """Returns the first epoch at which a move of the operator can be effective if it is announced now."""
        return self._moves.soonest(operator)

    def fresh_index(self, operator: str) -> int:
        """Returns the lowest index above all that instances of the operator have ever had."""
        return self.roster.fresh_index(operator)

    # -- run of the query ---------------------------------------------------------------------------------------------

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
        """Trims, and opens the next epoch if the query keeps up with the open ones."""
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
        """Takes a letter from a node. A node that was given up gets only the answer that it was."""
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

    # -- changes of nodes ---------------------------------------------------------------------------------------------

    def node_joined(self, node: str, vm: str | None = None) -> list[Effect]:
        """Adds a new node; nodes of the same VM may be lost together."""
        self.roster.join(node, vm, self.version + 1)
        self._state.view_is_old = True
        self._recovery.node_joined()
        return self._drain()

    def node_lost(self, node: str) -> list[Effect]:
        """Handles that the shell has given a node up; it is never used again, even if its process still runs."""
        if self.roster.lose(node, self.version + 1):
            self._state.view_is_old = True
            self._state.effects.append(NodeLost(node=node))
            self._registry.lose(node)
            self._splits.node_lost(node)
            self._recovery.node_lost(node)
        return self._drain()

    def node_leaving(self, node: str) -> list[Effect]:
        """Marks a live node as leaving: it gets no more instances or backups; the instances on it have to be moved.

        Its backups move without a request, because their owners see in the view that other nodes are to keep them.
        """
        if node in self.nodes and node not in self.roster.leaving:
            self.roster.leaving.add(node)
            self._state.view_is_old = True
            self._state.effects.append(NodeLeaving(node=node))
        return self._drain()

    # -- copies of state ----------------------------------------------------------------------------------------------

    def replicate(self, groups: Mapping[InstanceId, tuple[str, ...]]) -> list[Effect]:
        """Makes all nodes of an instance's group the holders of its backups, as a chain in the given order.

        Only live nodes that do not host the instance count; an instance without any chooses a holder itself.
        """
        self._registry.regroup(groups)
        return self._drain()

    def checkpoint(self, operator: str | None = None, only: Collection[InstanceId] | None = None) -> list[Effect]:
        """Requests checkpoints of the instances with backups, of one operator or of `only` some."""
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
        """Announces a cut a few epochs ahead; returns None if one is under way, or the query does not run any more.

        With `full`, all state is written; without it, only the changes since the last complete cut, if an instance
        knows them. If `full` is None, the length of the chain decides. With `only`, the cut has one operator, for
        inspection. The `last` one is the cut of a query that is ending, and its epoch is the final one.
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
        """Abandons a cut whose deadline has passed, if it is still under way."""
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
        """Moves slots to the given instances (by index; unused indices create new ones) at an epoch a little ahead.

        If `first` is given, that epoch is used, so that the move can be prepared. Later moves of the operator take
        effect after it. With `prepare`, the new owners fetch the last backup ahead, if the settings allow it. If the
        move is `vertical`, new instances start on nodes in use, preferably on those with a replica of their slots.
        """
        return self._moves.move(operator, parts, first, prepare, vertical), self._drain()

    def split(self, origin: InstanceId, parts: Mapping[int, SlotSet]) -> tuple[Accepted | Refused, list[Effect]]:
        """Divides the slots of a stateful instance among itself and new instances, from its backup.

        A live origin works until all parts are restored; then the topology is amended from the backup's epoch on.
        """
        return self._splits.split(origin, parts), self._drain()

    def _recovers_in_parts(self, instance: InstanceId) -> bool:
        return self._splits.recover(instance)

    # -- effects and invariants ---------------------------------------------------------------------------------------

    def _drain(self) -> list[Effect]:
        state = self._state
        if state.view_is_old and state.phase is QueryPhase.RUNNING:
            self._placer.publish_view()
        effects, state.effects = state.effects, []
        self.ring.answered(effects)
        return effects

    def validate(self) -> None:
        """Raises InternalError with each rule that does not hold between two calls."""
        if self.phase is not QueryPhase.RUNNING:
            return
        broken = list(broken_rules(self))
        if self._validated != self.version:
            self._validated = self.version
            broken += broken_rules_of_view(self)
        if broken:
            raise InternalError(f"the manager, at view {self.version}: {'; '.join(broken)}")
