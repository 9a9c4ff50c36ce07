"""The core of the manager: ticks, views, safe epochs and cuts.

Everything it decides reaches the nodes as one ordered sequence of views. `recovery.py` adds what is done about nodes
that come and go, `manager.py` moves and splits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from primitives.errors import InternalError, UserError
from primitives.graph import InstanceId, Kind, QueryGraph
from primitives.topology import Topology
from seep.protocol.cuts import Beginning, Cut, CutAbandoned
from seep.protocol.effects import Effect, Finished, LogOffsets, Post
from seep.protocol.events import ReplicaLate, Retired
from seep.protocol.manager.cutting import Cutting
from seep.protocol.manager.replication import BackupCopy, Replication, is_there
from seep.protocol.manager.roster import Roster
from seep.protocol.manager.safety import SafeEpochs
from seep.protocol.manager.source_log import SourceLog
from seep.protocol.message_ring import MessageRing
from seep.protocol.messages import (
    BackupCounted,
    BackupStored,
    Committed,
    DeleteBackup,
    FromBackup,
    FromCommits,
    FromCut,
    FromLog,
    FromNothing,
    Logged,
    NodeFenced,
    OffsetsRead,
    Persisted,
    PersistFailed,
    StartInstance,
    StopInstance,
    TakeCheckpoint,
    Tick,
    Trim,
    ViewAcknowledged,
    ViewChanged,
)
from seep.protocol.view import STORAGE, Seat, View

Origin = FromNothing | FromBackup | FromLog | FromCommits | FromCut
Handler = Callable[[str, Any], None]


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    window: int = 16  #: epochs that may be open at once, from tick to commit (back-pressure)
    lead: int = 2  #: epochs between the announcement of a plan and its effect
    warm_up: bool = True  #: fetch state from backups ahead of a handover
    trim_every: int = 1  #: pulses from one look at what may be trimmed to the next
    recovery_parallelism: int = 1  #: over how many instances a failed stateful one is spread when it recovers
    #: operator -> pulses for which a holder may be behind the others of its chain; for ever where nothing is said
    patience: Mapping[str, int] = field(default_factory=dict)
    unkept: frozenset[str] = frozenset()  #: operators of whose state nobody keeps a backup: it may be lost
    cut_chain: int = 8  #: cuts that may build on one another, until the next one holds all state again
    last_cut: bool = False  #: the query ends with a cut after its final epoch, for which somebody asks; see `persist`


class QueryPhase(Enum):
    WAITING = "waiting"  #: not launched
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


class ManagerCore:
    """What keeps a query running, as long as no node is lost; reconfigures nothing by itself."""

    def __init__(
        self,
        graph: QueryGraph,
        parallelism: Mapping[str, int] | None = None,
        settings: ManagerSettings | None = None,
        beginning: Beginning | None = None,
    ) -> None:
        self.settings = settings or ManagerSettings()
        self.beginning = beginning or Beginning(0, {}, 0)
        self.phase = QueryPhase.WAITING
        self.topology = Topology.initial(graph, parallelism, self.beginning.epoch + 1)
        self.roster = Roster(self.beginning.first_incarnation)
        self.safe = SafeEpochs(graph, self.settings.unkept)
        self.log = SourceLog()
        self.cuts = Cutting(graph, self.settings.cut_chain)
        self.backups: dict[InstanceId, BackupCopy] = {}
        self.replication = Replication()
        self.version = 0
        self._loss_told = 0  #: the version of the view that tells the last loss of a node that had hosted anything
        self.ticked = self.beginning.epoch
        self.final: int | None = None
        #: the input is to end, or has ended by itself
        self.ending = False
        #: instances that began empty and were never backed up: they can begin empty again, after the same epoch
        self._unsaved: dict[InstanceId, int] = {}
        #: instances that there were from the beginning on
        self._first = frozenset(self.topology.all_instances())
        #: what the next view starts, by node
        self._starts: dict[str, list[StartInstance]] = {}
        self._view_is_old = False
        self._pulses = 0
        self._effects: list[Effect] = []
        self.ring = MessageRing()
        self._handlers = self._letters()

    def _letters(self) -> dict[type, Handler]:
        """What is done about each kind of letter."""
        return {
            ViewAcknowledged: self._on_view_acknowledged,
            OffsetsRead: self._on_offsets_read,
            BackupStored: self._on_backup_stored,
            Committed: self._on_committed,
            Persisted: self._on_persisted,
            PersistFailed: self._on_persist_failed,
        }

    @property
    def graph(self) -> QueryGraph:
        return self.topology.graph

    @property
    def nodes(self) -> Mapping[str, int]:
        """Live nodes, and the last view that each has acknowledged."""
        return self.roster.nodes

    @property
    def placement(self) -> Mapping[InstanceId, Seat]:
        """Where each instance lives, or lived last if its node is lost."""
        return self.roster.placement

    # -- entry points for the shell --------------------------------------------------------------------------------

    def launch(self, placement: Mapping[InstanceId, str] | None = None) -> list[Effect]:
        """Starts every instance of the initial topology, on the given nodes or on the least loaded ones."""
        if not self.nodes:
            raise UserError("the query cannot be launched: no node has registered")
        unknown = set((placement or {}).values()) - set(self.nodes)
        if unknown:
            raise UserError(f"the placement names nodes that have not registered: {', '.join(sorted(unknown))}")
        self.phase = QueryPhase.RUNNING
        for instance in self.topology.all_instances():
            self._bear(instance, self.beginning.epoch)
            self._read_on(instance)
            node = (placement or {}).get(instance) or self._pick_node()
            assert node is not None
            self._seat(instance, node, self._origin(instance))
        return self._drain()

    def receive(self, sender: str, body: Any) -> list[Effect]:
        """Takes a letter from a node. A node that was given up is told so, whatever it says."""
        self.ring.took(sender, body)
        if not is_there(sender, self.nodes):
            return [Post(sender, NodeFenced())]
        if self.phase is QueryPhase.RUNNING:
            handler = self._handlers.get(type(body))
            if handler is None:
                raise InternalError(f"the manager has no use for a letter of {sender}: {body!r:.200}")
            handler(sender, body)
        return self._drain()

    def pulse(self) -> list[Effect]:
        """Time to open the next epoch, if the query keeps up with the open ones."""
        if self.phase is QueryPhase.RUNNING:
            self._pulses += 1
            if self._pulses % self.settings.trim_every == 0:
                self._trim_outboxes()
                self._exclude_late_replicas()
            if self._may_tick():
                self._tick()
        return self._drain()

    def used_nodes(self) -> set[str]:
        """Live nodes that host an instance or keep the only copy of a backup, or are about to."""
        hosts = {seat.node for seat in self.placement.values()}
        holders = {copy.holders[0] for copy in self.backups.values() if len(copy.holders) == 1}
        return (hosts | holders | {*self._reserved()}) & self.nodes.keys()

    def replicate(self, groups: Mapping[InstanceId, tuple[str, ...]]) -> list[Effect]:
        """From now on the backups of an instance are kept by all nodes of its group, the first passing them on.

        A node that does not host the instance and is live counts; an instance without any chooses by itself.
        """
        known = {
            owner: tuple(node for node in dict.fromkeys(group) if is_there(node, self.nodes))
            for owner, group in groups.items()
            if owner in self.placement and self.graph.kind(owner.operator) is Kind.STATEFUL
        }
        self._view_is_old |= self.replication.regroup(known)
        return self._drain()

    @property
    def unsaved(self) -> Collection[InstanceId]:
        """Instances that began empty and were never backed up."""
        return self._unsaved

    @property
    def kept_instances(self) -> list[InstanceId]:
        """Those whose state is backed up."""
        return [i for i in self._placed(Kind.STATEFUL) if i.operator not in self.settings.unkept]

    def checkpoint(self, operator: str | None = None, only: Collection[InstanceId] | None = None) -> list[Effect]:
        """Asks the stateful instances (of one operator, or `only` some) for a checkpoint now."""
        if operator is not None and operator not in self.graph.operators:
            raise UserError(f"there is no operator {operator!r} to take a checkpoint of")
        for instance in self.kept_instances:
            if operator in (None, instance.operator) and (only is None or instance in only):
                self._post(self.placement[instance].node, TakeCheckpoint(self.roster.incarnation(instance)))
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
        cut = self.cuts.announce(self.ticked + 1 + self.settings.lead, self.version + 1, number, full, only)
        self.final = cut.epoch if last else None
        self._publish()
        return cut, self._drain()

    def abandon_cut(self, number: int, why: str) -> list[Effect]:
        """Ends a cut that somebody has waited for long enough, if it is still under way."""
        if self.cuts.underway is not None and self.cuts.underway.cut.id == number:
            self._tell(self.cuts.abandon(why))
        return self._drain()

    def finish(self) -> list[Effect]:
        """Ends the input as if all sources were exhausted: the next epoch is the final one, or that of the last cut."""
        if self.phase is QueryPhase.RUNNING:
            self._end_input()
        return self._drain()

    def _end_input(self) -> None:
        self.ending = True
        if self.final is None and not self.settings.last_cut:
            self.final = self.ticked + 1

    # -- ticks --------------------------------------------------------------------------------------------------------

    def _may_tick(self) -> bool:
        goes_on = self.final is None or self.ticked < self.final
        return goes_on and not self.cuts.holds_back(self.ticked + 1) and self._window_is_open()

    def _window_is_open(self) -> bool:
        return self.ticked + 1 - self._committed() <= self.settings.window

    def _committed(self) -> int:
        """The last epoch that all sinks have committed."""
        return min(self.safe.of(sink) for sink in self._sinks())

    def _tick(self) -> None:
        self.ticked += 1
        committed = self._committed()
        for source in self._placed(Kind.SOURCE):
            tick = Tick(self.roster.incarnation(source), self.ticked, self.ticked == self.final, committed)
            self._post(self.placement[source].node, tick)

    def _on_offsets_read(self, _: str, message: OffsetsRead) -> None:
        source = message.source.instance
        if not self.roster.is_current(message.source):
            return
        self.log.record(source, message.epoch, message.positions, message.exhausted)
        self._effects.append(LogOffsets(source, message.epoch, message.positions))
        self.cuts.offsets_read(message)
        self._post(self.placement[source].node, Logged(message.source, message.epoch))
        if not self.ending and self._input_has_ended(message.epoch):
            self._end_input()

    def _input_has_ended(self, epoch: int) -> bool:
        owners = (i for o in self.graph.of_kind(Kind.SOURCE) for i in self.topology.instances(o, epoch))
        return self.log.ended(owners, epoch)

    # -- safe epochs --------------------------------------------------------------------------------------------------

    def _on_backup_stored(self, sender: str, message: BackupStored) -> None:
        owner, holder = message.owner.instance, STORAGE if STORAGE in message.chain else sender
        if not self.roster.is_current(message.owner) or message.epoch < self.safe.of(owner):
            if holder not in (*self._holders(owner), *self.replication.chain(owner)):
                self._post(holder, DeleteBackup(owner, message.order))
            return
        self.replication.stored(holder, message, self.nodes, self._pulses)
        self._count_backup(owner)

    def _holders(self, owner: InstanceId) -> tuple[str, ...]:
        """Who has the recorded backup of an instance."""
        return self.backups[owner].holders if owner in self.backups else ()

    def _count_backup(self, owner: InstanceId) -> None:
        """Records the newest backup that all of the owner's holders have, if that is news."""
        found = self.replication.counts(owner, self.nodes)
        if found is None or found[0] < self.safe.of(owner) or not self.roster.is_live(owner):
            return
        epoch, copy = found
        if copy != self.backups.get(owner):
            self._record_backup(owner, epoch, copy)
            counted = BackupCounted(self.roster.incarnation(owner), epoch, copy.holders)
            self._post(self.placement[owner].node, counted)

    def _record_backup(self, owner: InstanceId, epoch: int, copy: BackupCopy) -> None:
        """The new copy is stored; only now the old one, where that is elsewhere, may go."""
        for holder in self._holders(owner):
            if holder not in copy.holders:
                self._post(holder, DeleteBackup(owner, copy.order))
        self.backups[owner] = copy
        self.safe.kept(owner, epoch)
        self._unsaved.pop(owner, None)

    def _exclude_late_replicas(self) -> None:
        """A holder that stays behind the others of its chain would have nothing trimmed any more."""
        for owner, nodes in self.replication.late(self._pulses, self.settings.patience, self.nodes).items():
            self.replication.exclude(owner, nodes)
            self._view_is_old = True
            self._effects.append(ReplicaLate(subject=owner, nodes=tuple(nodes)))

    def _on_committed(self, _: str, message: Committed) -> None:
        if self.roster.is_current(message.sink):
            self.safe.kept(message.sink.instance, message.epoch)
            self._complete_cut_if_all_is_in()
            self._finish_if_done()

    def _finish_if_done(self) -> None:
        if self.final is not None and self._is_committed(self.final) and self._is_kept(self.final):
            self.phase = QueryPhase.FINISHED
            self._tell(self.cuts.abandon("the query has ended"))
            self._effects.append(Finished(self.final))

    def _is_kept(self, final: int) -> bool:
        """Whether the last cut, if there has to be one, is complete."""
        return not self.settings.last_cut or self.cuts.complete_epoch == final

    def _is_committed(self, epoch: int) -> bool:
        return all(self._has_committed(sink, epoch) for sink in self._sinks())

    def _has_committed(self, sink: InstanceId, epoch: int) -> bool:
        """Up to an epoch, or up to the last one at which it owned anything."""
        last = self.topology.last_epoch(sink)
        return self.safe.of(sink) >= (epoch if last is None else min(last, epoch))

    def _sinks(self) -> list[InstanceId]:
        return [i for i in self.placement if self.graph.kind(i.operator) is Kind.SINK]

    def _trim_outboxes(self) -> None:
        trimmed = self.safe.advance(self.topology, self.placement, self.ticked)
        for instance, (epoch, output) in trimmed.items():
            if self.graph.kind(instance.operator) is Kind.SOURCE:
                self.log.trim(instance, epoch)
            if self.roster.is_live(instance):
                trim = Trim(self.roster.incarnation(instance), epoch, output - epoch)
                self._post(self.placement[instance].node, trim)
        for instance in self._emptied():
            if self.safe.is_done(self.topology, instance) and not self.cuts.is_owed_by(instance, self.topology):
                self._retire(instance)

    def _emptied(self) -> list[InstanceId]:
        """Instances that own nothing in the latest version of their operator."""
        changed = [o for o, history in self.topology.history.items() if len(history) > 1]
        return [i for i in self.placement if i.operator in changed and self.topology.last_epoch(i) is not None]

    def _retire(self, instance: InstanceId) -> None:
        """It owns nothing any more and nobody can ask it for anything: stop it and forget its backup."""
        self.safe.retire(instance)
        self._stop(instance)
        self.roster.remove(instance)
        self.replication.retire(instance)
        self.log.forget(instance)
        self._unsaved.pop(instance, None)
        copy = self.backups.pop(instance, None)
        if copy is not None:
            for holder in copy.holders:
                self._post(holder, DeleteBackup(instance, copy.order))
        self._view_is_old = True
        self._effects.append(Retired(subject=instance))

    def _stop(self, instance: InstanceId) -> None:
        if self.roster.is_live(instance):
            self._post(self.placement[instance].node, StopInstance(self.roster.incarnation(instance)))

    # -- cuts ---------------------------------------------------------------------------------------------------------

    def _on_persisted(self, _: str, message: Persisted) -> None:
        if self.cuts.persisted(message, self.topology):
            self._complete_cut_if_all_is_in()
            self._finish_if_done()

    def _on_persist_failed(self, _: str, message: PersistFailed) -> None:
        self._tell(self.cuts.persist_failed(message))

    def _complete_cut_if_all_is_in(self) -> None:
        if self.cuts.underway is not None and self._is_committed(self.cuts.underway.cut.epoch):
            self._tell(self.cuts.complete(self.topology))

    # -- placement and views ------------------------------------------------------------------------------------------

    def _bear(self, instance: InstanceId, epoch: int) -> None:
        """A new instance, empty after `epoch`."""
        self.safe.born(instance, epoch)
        self._unsaved[instance] = epoch

    def _read_on(self, instance: InstanceId) -> None:
        """A source begins where the run begins."""
        positions = self.beginning.positions.get(instance.operator, {})
        if positions:
            owned = self.topology.slots(instance, self.beginning.epoch + 1)
            mine = {slot: positions[slot] for slot in owned if slot in positions}
            self.log.record(instance, self.beginning.epoch, mine, exhausted=False)

    def _origin(self, instance: InstanceId, node: str | None = None) -> Origin | None:
        """Where the state of a new incarnation, on a node, can come from; None if every copy is lost."""
        match self.graph.kind(instance.operator):
            case Kind.SOURCE:
                epoch = self.safe.trimmed[instance]
                return FromLog(epoch, *self.log.after(instance, epoch), self.ticked, self.ticked == self.final)
            case Kind.SINK:
                return FromCommits(self.safe.of(instance))
            case Kind.STATELESS:
                return self._from_beginning(instance, self.graph.operators[instance.operator].keeps_extra)
        is_unkept, began = instance.operator in self.settings.unkept, self._unsaved.get(instance, -1)
        if is_unkept and self.safe.trimmed[instance] > began:
            return None
        if instance in self.backups:
            return self._from_backup(instance, node)
        return self._from_beginning(instance) if instance in self._unsaved else None

    def _from_beginning(self, instance: InstanceId, has_part: bool = True) -> FromCut | FromNothing:
        epoch = self.safe.of(instance)
        is_first = instance in self._first and epoch == self.beginning.epoch > 0
        return FromCut(epoch) if is_first and has_part else FromNothing(epoch)

    def _from_backup(self, instance: InstanceId, node: str | None) -> FromBackup:
        copy = self.backups[instance]
        holder = copy.nearest(node, instance.index)
        others = tuple(other for other in copy.holders if other != holder)
        return FromBackup(holder, None, others, self.safe.of(instance)) if others else FromBackup(holder)

    def _seat(self, instance: InstanceId, node: str, origin: Origin | None) -> None:
        """The next incarnation of an instance begins on a node, with the next view."""
        assert origin is not None
        identity = self.roster.next_incarnation(instance)
        self.roster.seat(identity, node)
        self.replication.begin(instance)
        self._starts.setdefault(node, []).append(StartInstance(identity, origin, self.safe.trimmed[instance]))
        self._view_is_old = True

    def _pick_node(self, avoid: Collection[str] = (), near: Collection[str] = (), first: bool = False) -> str | None:
        """The least loaded node, an idle one if there is any; one to avoid or to be left only in need.

        Of equals, one that is near; with `first`, one that is near even if it is not the least loaded.
        """
        return self.roster.least_loaded(self._reserved(), avoid, near, first)

    def _reserved(self) -> list[str]:
        """Nodes that are in use though no view says so yet."""
        return []

    def _publish(self) -> None:
        self.version += 1
        self._view_is_old = False
        self.topology = self.topology.forgotten(self._oldest_needed())
        self.safe.forget(self.topology.all_instances())
        view = View(
            self.version,
            self.topology,
            dict(self.placement),
            frozenset(self.nodes),
            dict(self.roster.vms),
            self.cuts.announced,
            frozenset(self.roster.leaving),
            dict(self.replication.groups),
        )
        starts, self._starts = self._starts, {}
        for node in self.nodes:
            self._post(node, ViewChanged(view, tuple(starts.get(node, ()))))

    def _oldest_needed(self) -> int:
        """The last epoch that every instance is past, even if it has to recover."""
        oldest = min(map(self.safe.needed_after, self.placement), default=0)
        return min(oldest, self.cuts.underway.cut.epoch - 1) if self.cuts.underway else oldest

    def _on_view_acknowledged(self, node: str, message: ViewAcknowledged) -> None:
        self.roster.acknowledged(node, message.version)
        underway = self.cuts.underway
        if underway is not None and self.roster.is_known_to_all(underway.version):
            self.cuts.view_acknowledged(underway.version)

    def _placed(self, kind: Kind) -> list[InstanceId]:
        return [i for i in self.placement if self.graph.kind(i.operator) is kind and self.roster.is_live(i)]

    def _post(self, to: str, body: object) -> None:
        self._effects.append(Post(to, body))

    def _tell(self, outcome: Effect | None) -> None:
        """Passes on what became of something, if anything did."""
        if outcome is not None:
            self._effects.append(outcome)
        if isinstance(outcome, CutAbandoned) and self.settings.last_cut and self.ticked < (self.final or 0):
            self.final = None  # which was to come; it will be that of the next last cut

    def _drain(self) -> list[Effect]:
        if self._view_is_old and self.phase is QueryPhase.RUNNING:
            self._publish()
        effects, self._effects = self._effects, []
        self.ring.answered(effects)
        return effects
