"""The core of the manager: ticks, views, safe epochs, and recovery by rebind (plan kind 2).

Everything it decides reaches the nodes as one ordered sequence of views. `manager.py` adds moves and splits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from primitives.errors import UserError
from primitives.graph import InstanceId, Kind, QueryGraph
from primitives.topology import Topology
from seep.protocol.cuts import Beginning, Cut, CutAbandoned, CutComplete, CutUnderWay
from seep.protocol.effects import Effect, Event, Finished, LogOffsets, Post, StateLost
from seep.protocol.messages import (
    BackupCounted,
    BackupFound,
    BackupStored,
    Committed,
    DeleteBackup,
    Fenced,
    FindBackup,
    FromBackup,
    FromCommits,
    FromCut,
    FromLog,
    FromNothing,
    Logged,
    OffsetsRead,
    Persisted,
    PersistFailed,
    Restored,
    RestoreFailed,
    StartInstance,
    StopInstance,
    TakeCheckpoint,
    Tick,
    Trim,
    ViewAcknowledged,
    ViewChanged,
)
from seep.protocol.safety import SafeEpochs
from seep.protocol.source_log import SourceLog
from seep.protocol.view import Incarnation, Seat, View

Origin = FromNothing | FromBackup | FromLog | FromCommits | FromCut


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    window: int = 16  #: epochs that may be open at once, from tick to commit (back-pressure)
    lead: int = 2  #: epochs between the announcement of a plan and its effect
    warm_up: bool = True  #: fetch state from backups ahead of a handover
    trim_every: int = 1  #: pulses from one look at what may be trimmed to the next
    recovery_parallelism: int = 1  #: over how many instances a failed stateful one is spread when it recovers
    cut_chain: int = 8  #: cuts that may build on one another, until the next one holds all state again


class Phase(Enum):
    WAITING = "waiting"  #: not launched
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


class BackupCopy(NamedTuple):
    """Where the recorded backup of an instance is."""

    holder: str
    order: tuple[int, int]


class ManagerCore:
    """What keeps a query running and heals it; reconfigures nothing by itself."""

    def __init__(
        self,
        graph: QueryGraph,
        parallelism: Mapping[str, int] | None = None,
        settings: ManagerSettings | None = None,
        beginning: Beginning | None = None,
    ) -> None:
        self.settings = settings or ManagerSettings()
        self.beginning = beginning or Beginning(0, {}, 0)
        self.phase = Phase.WAITING
        self.topology = Topology.initial(graph, parallelism, self.beginning.epoch + 1)
        self.placement: dict[InstanceId, Seat] = {}
        self.safe = SafeEpochs(graph)
        self.log = SourceLog()
        self.backups: dict[InstanceId, BackupCopy] = {}
        self.version = 0
        self.ticked = self.beginning.epoch
        #: the last cut that was announced, and the one that is not complete yet
        self.cut: Cut | None = None
        self.cutting: CutUnderWay | None = None
        self._complete_cut: Cut | None = None
        self._chained = 0
        self._pulses = 0
        self.final: int | None = None
        #: live nodes, and the last view that each has acknowledged
        self.nodes: dict[str, int] = {}
        #: where live nodes run, as far as that is known
        self._vms: dict[str, str] = {}
        #: live nodes that will go: nothing is put there any more
        self.leaving: set[str] = set()
        #: instances that began empty and were never backed up: they can begin empty again
        self._unsaved: set[InstanceId] = set()
        #: instances that there were from the beginning on
        self._first = frozenset(self.topology.all_instances())
        self._incarnations: Counter[InstanceId] = Counter()
        #: instances that wait for a node
        self._homeless: list[InstanceId] = []
        #: instances without any recorded backup, and the nodes that were asked for an unrecorded one
        self._searches: dict[InstanceId, set[str]] = {}
        #: what the next view starts, by node
        self._starts: dict[str, list[StartInstance]] = {}
        self._view_is_old = False
        self._effects: list[Effect] = []
        self._handlers: dict[type, Callable[[str, Any], None]] = {
            ViewAcknowledged: self._on_view_acknowledged,
            OffsetsRead: self._on_offsets_read,
            BackupStored: self._on_backup_stored,
            Committed: self._on_committed,
            Restored: self._on_restored,
            RestoreFailed: self._on_restore_failed,
            BackupFound: self._on_backup_found,
            Persisted: self._on_persisted,
            PersistFailed: self._on_persist_failed,
        }

    @property
    def graph(self) -> QueryGraph:
        return self.topology.graph

    # -- entry points for the shell --------------------------------------------------------------------------------

    def launch(self, placement: Mapping[InstanceId, str] | None = None) -> list[Effect]:
        """Starts every instance of the initial topology, on the given nodes or on the least loaded ones."""
        if not self.nodes:
            raise UserError("the query cannot be launched: no node has registered")
        unknown = set((placement or {}).values()) - set(self.nodes)
        if unknown:
            raise UserError(f"the placement names nodes that have not registered: {', '.join(sorted(unknown))}")
        self.phase = Phase.RUNNING
        for instance in self.topology.all_instances():
            self._bear(instance, self.beginning.epoch)
            self._read_on(instance)
            node = (placement or {}).get(instance) or self._pick_node()
            assert node is not None
            self._seat(instance, node, self._origin(instance))
        return self._drain()

    def receive(self, sender: str, body: Any) -> list[Effect]:
        """Takes a letter from a node. A node that was given up is told so, whatever it says."""
        if sender not in self.nodes:
            return [Post(sender, Fenced())]
        if self.phase is Phase.RUNNING:
            self._handlers[type(body)](sender, body)
        return self._drain()

    def pulse(self) -> list[Effect]:
        """Time to open the next epoch, if the query keeps up with the open ones."""
        if self.phase is Phase.RUNNING:
            self._pulses += 1
            if self._pulses % self.settings.trim_every == 0:
                self._trim_outboxes()
            if self._may_tick():
                self._tick()
        return self._drain()

    def node_joined(self, node: str, vm: str | None = None) -> list[Effect]:
        """A fresh node is there; nodes of the same VM may be lost together."""
        self.nodes[node] = 0
        if vm is not None:
            self._vms[node] = vm
        self._view_is_old = True
        homeless, self._homeless = self._homeless, []
        for instance in homeless:
            self._rebind(instance)
        return self._drain()

    def node_lost(self, node: str) -> list[Effect]:
        """The shell has given a node up; for the protocol it is gone for good, dead or not."""
        if self.nodes.pop(node, None) is not None:
            self._vms.pop(node, None)
            self.leaving.discard(node)
            self._view_is_old = True
            self._effects.append(Event("node lost", node))
            for owner in [o for o, copy in self.backups.items() if copy.holder == node]:
                del self.backups[owner]
            self._recover_from(node)
        return self._drain()

    def node_leaving(self, node: str) -> list[Effect]:
        """A live node will go: no instance and no backup is put there any more; those that are there are to be moved.

        Backups follow by themselves, for their owners see in the view that they are to be elsewhere.
        """
        if node in self.nodes and node not in self.leaving:
            self.leaving.add(node)
            self._view_is_old = True
            self._effects.append(Event("node leaving", node))
        return self._drain()

    def used_nodes(self) -> set[str]:
        """Live nodes that host an instance or keep a backup, or are about to."""
        hosts = {seat.node for seat in self.placement.values()}
        return (hosts | {copy.holder for copy in self.backups.values()} | {*self._reserved()}) & self.nodes.keys()

    def checkpoint(self, operator: str | None = None) -> list[Effect]:
        """Asks the stateful instances (of one operator) for a checkpoint now."""
        if operator is not None and operator not in self.graph.operators:
            raise UserError(f"there is no operator {operator!r} to take a checkpoint of")
        for instance, seat in self.placement.items():
            stateful = self.graph.kind(instance.operator) is Kind.STATEFUL
            if stateful and operator in (None, instance.operator) and seat.node in self.nodes:
                self._post(seat.node, TakeCheckpoint(Incarnation(instance, seat.incarnation)))
        return self._drain()

    def persist(
        self, number: int | None = None, full: bool | None = None, only: str | None = None
    ) -> tuple[Cut | None, list[Effect]]:
        """Announces a cut a little ahead; None if one is under way, or the query does not run on.

        With `full` all state is written, without only what changed since the last complete cut, as far as instances
        know that; if it is not given, by the length of the chain. With `only`, it is of one operator, to be looked at.
        """
        if self.phase is not Phase.RUNNING or self.final is not None or self.cutting is not None:
            return None, []
        if full is None:
            full = self._chained >= self.settings.cut_chain
        number = number or 1 + (self.cut.id if self.cut else 0)
        base = None if full else self.complete_cut_epoch
        self.cut = Cut(number, self.ticked + 1 + self.settings.lead, base, only)
        self._publish()
        self.cutting = CutUnderWay(self.cut, self.version)
        return self.cut, self._drain()

    def finish(self) -> list[Effect]:
        """Ends the input as if all sources were exhausted: the next epoch is the final one."""
        if self.phase is Phase.RUNNING and self.final is None:
            self.final = self.ticked + 1
        return self._drain()

    # -- ticks --------------------------------------------------------------------------------------------------------

    def _may_tick(self) -> bool:
        if self.cutting is not None and not self.cutting.sealed and self.cutting.cut.epoch <= self.ticked + 1:
            return False
        return (self.final is None or self.ticked < self.final) and self._window_is_open()

    def _window_is_open(self) -> bool:
        return self.ticked + 1 - min(self.safe.of(sink) for sink in self._sinks()) <= self.settings.window

    def _tick(self) -> None:
        self.ticked += 1
        for source in self._placed(Kind.SOURCE):
            self._post(
                self.placement[source].node, Tick(self._incarnation(source), self.ticked, self.ticked == self.final)
            )

    def _on_offsets_read(self, _: str, message: OffsetsRead) -> None:
        source = message.source.instance
        if not self._is_current(message.source):
            return
        self.log.record(source, message.epoch, message.positions, message.exhausted)
        self._effects.append(LogOffsets(source, message.epoch, message.positions))
        if self.cutting is not None and message.epoch == self.cutting.cut.epoch:
            self.cutting.positions.setdefault(source.operator, {}).update(message.positions)
        self._post(self.placement[source].node, Logged(message.source, message.epoch))
        if self.final is None and self._input_has_ended(message.epoch):
            self.final = self.ticked + 1

    def _input_has_ended(self, epoch: int) -> bool:
        owners = (i for o in self.graph.of_kind(Kind.SOURCE) for i in self.topology.instances(o, epoch))
        return self.log.ended(owners, epoch)

    # -- safe epochs --------------------------------------------------------------------------------------------------

    def _on_backup_stored(self, holder: str, message: BackupStored) -> None:
        owner, known = message.owner.instance, self.backups.get(message.owner.instance)
        if not self._is_current(message.owner) or message.epoch < self.safe.of(owner):
            if known is None or known.holder != holder:
                self._post(holder, DeleteBackup(owner, message.order))
            return
        self._record_backup(owner, message.epoch, BackupCopy(holder, message.order))
        self._post(self.placement[owner].node, BackupCounted(message.owner, message.epoch, holder))

    def _record_backup(self, owner: InstanceId, epoch: int, copy: BackupCopy) -> None:
        """The new copy is stored; only now the old one, if it is elsewhere, may go."""
        known = self.backups.get(owner)
        if known is not None and known.holder != copy.holder:
            self._post(known.holder, DeleteBackup(owner, known.order))
        self.backups[owner] = copy
        self.safe.kept(owner, epoch)
        self._unsaved.discard(owner)

    def _on_committed(self, _: str, message: Committed) -> None:
        if self._is_current(message.sink):
            self.safe.kept(message.sink.instance, message.epoch)
            self._complete_cut_if_all_is_in()
            self._finish_if_done()

    def _finish_if_done(self) -> None:
        if self.final is not None and all(self._has_committed(sink, self.final) for sink in self._sinks()):
            self.phase = Phase.FINISHED
            if self.cutting is not None:
                self._abandon_cut("the query has ended")
            self._effects.append(Finished(self.final))

    def _has_committed(self, sink: InstanceId, epoch: int) -> bool:
        """Up to an epoch, or up to the last one at which it owned anything."""
        last = self.topology.last_epoch(sink)
        return self.safe.of(sink) >= (epoch if last is None else min(last, epoch))

    def _sinks(self) -> list[InstanceId]:
        return [i for i in self.placement if self.graph.kind(i.operator) is Kind.SINK]

    def _trim_outboxes(self) -> None:
        trimmed = self.safe.advance(self.topology, self.placement, self.ticked)
        for instance, epoch in trimmed.items():
            if self.graph.kind(instance.operator) is Kind.SOURCE:
                self.log.trim(instance, epoch)
            if self.placement[instance].node in self.nodes:
                self._post(self.placement[instance].node, Trim(self._incarnation(instance), epoch))
        for instance in self._emptied():
            if self.safe.is_done(self.topology, instance) and not self._owes_a_part(instance):
                self._retire(instance)

    def _emptied(self) -> list[InstanceId]:
        """Instances that own nothing in the latest version of their operator."""
        changed = [o for o, history in self.topology.history.items() if len(history) > 1]
        return [i for i in self.placement if i.operator in changed and self.topology.last_epoch(i) is not None]

    def _retire(self, instance: InstanceId) -> None:
        """It owns nothing any more and nobody can ask it for anything: stop it and forget its backup."""
        self.safe.retire(instance)
        seat = self.placement.pop(instance)
        if seat.node in self.nodes:
            self._post(seat.node, StopInstance(Incarnation(instance, seat.incarnation)))
        copy = self.backups.pop(instance, None)
        if copy is not None:
            self._post(copy.holder, DeleteBackup(instance, copy.order))
        if instance in self._homeless:
            self._homeless.remove(instance)
        self._view_is_old = True
        self._effects.append(Event("retired", str(instance)))

    @property
    def complete_cut_epoch(self) -> int | None:
        """The epoch of the last complete cut of this run."""
        return self._complete_cut.epoch if self._complete_cut else None

    # -- cuts ---------------------------------------------------------------------------------------------------------

    def _read_on(self, instance: InstanceId) -> None:
        """A source begins where the run begins."""
        positions = self.beginning.positions.get(instance.operator, {})
        if positions:
            owned = self.topology.slots(instance, self.beginning.epoch + 1)
            mine = {slot: positions[slot] for slot in owned if slot in positions}
            self.log.record(instance, self.beginning.epoch, mine, exhausted=False)

    def _parts_wanted(self) -> list[InstanceId]:
        assert self.cutting is not None
        epoch, only = self.cutting.cut.epoch, self.cutting.cut.only
        operators = self.graph.of_kind(Kind.STATEFUL) if only is None else (only,)
        return [i for o in operators for i in self.topology.instances(o, epoch)]

    def _owes_a_part(self, instance: InstanceId) -> bool:
        return self.cutting is not None and instance in self._parts_wanted() and instance not in self.cutting.parts

    def _on_persisted(self, _: str, message: Persisted) -> None:
        """Whichever incarnation it was: after the same epoch the same slots have the same state."""
        owner, cutting = message.owner.instance, self.cutting
        if cutting is None or message.cut != cutting.cut.id:
            return
        if message.part.slots == self.topology.slots(owner, cutting.cut.epoch):
            cutting.parts[owner] = message.part
            self._complete_cut_if_all_is_in()

    def _on_persist_failed(self, _: str, message: PersistFailed) -> None:
        if self.cutting is not None and message.cut == self.cutting.cut.id:
            self._abandon_cut(f"{message.owner}: {message.why}")

    def _complete_cut_if_all_is_in(self) -> None:
        cutting = self.cutting
        if cutting is None or not all(self._has_committed(sink, cutting.cut.epoch) for sink in self._sinks()):
            return
        if all(instance in cutting.parts for instance in self._parts_wanted()):
            self.cutting = None
            if cutting.cut.only is None:
                self._complete_cut = cutting.cut
                self._chained = 0 if cutting.cut.base is None else self._chained + 1
            self._effects.append(CutComplete(cutting.cut, cutting.positions, cutting.parts))

    def _abandon_cut(self, why: str) -> None:
        assert self.cutting is not None
        self._effects.append(CutAbandoned(self.cutting.cut, why))
        self.cutting = None

    def _abandon_cut_missed_by(self, instance: InstanceId, epoch: int) -> None:
        """An instance goes on after an epoch that is not before the cut: what it has not written, it never will."""
        if self.cutting is not None and epoch >= self.cutting.cut.epoch and self._owes_a_part(instance):
            self._abandon_cut(f"{instance} was restored at epoch {epoch}, after the cut")

    # -- recovery -----------------------------------------------------------------------------------------------------

    def _recover_from(self, node: str) -> None:
        for instance in [i for i, seat in self.placement.items() if seat.node == node]:
            self._rebind(instance)
        self._give_up_fruitless_searches()

    def _rebind(self, instance: InstanceId) -> None:
        """Plan kind 2: the same instance in its next incarnation on another node, under the unchanged topology."""
        if self.phase is not Phase.RUNNING:
            return
        origin = self._origin(instance)
        node = self._pick_node()
        if origin is None:
            self._search(instance)
        elif node is None:
            self._homeless.append(instance)
        else:
            self._seat(instance, node, origin)
            self._effects.append(Event("rebound", str(instance), f"to {node}"))

    def _origin(self, instance: InstanceId) -> Origin | None:
        """Where the state of a new incarnation can come from; None if every copy is lost."""
        match self.graph.kind(instance.operator):
            case Kind.SOURCE:
                epoch = self.safe.trimmed[instance]
                return FromLog(epoch, *self.log.after(instance, epoch), self.ticked, self.final)
            case Kind.SINK:
                return FromCommits(self.safe.of(instance))
            case Kind.STATELESS:
                return FromNothing(self.safe.of(instance))
        if instance in self.backups:
            return FromBackup(self.backups[instance].holder)
        if instance not in self._unsaved:
            return None
        epoch = self.safe.of(instance)
        is_first = instance in self._first and epoch == self.beginning.epoch > 0
        return FromCut(epoch) if is_first else FromNothing(epoch)

    def _search(self, instance: InstanceId) -> None:
        """No recorded copy is left; a live node may still have one whose record did not get through."""
        self._searches[instance] = set(self.nodes)
        for node in self.nodes:
            self._post(node, FindBackup(self._incarnation(instance)))
        self._give_up_fruitless_searches()

    def _on_backup_found(self, holder: str, message: BackupFound) -> None:
        owner = message.owner.instance
        if owner not in self._searches or not self._is_current(message.owner):
            return
        self._searches[owner].discard(holder)
        if message.epoch is not None and message.epoch >= self.safe.of(owner):
            del self._searches[owner]
            self.backups[owner] = BackupCopy(holder, message.order)
            self._rebind(owner)
        self._give_up_fruitless_searches()

    def _give_up_fruitless_searches(self) -> None:
        for instance in [i for i, asked in self._searches.items() if not asked & self.nodes.keys()]:
            del self._searches[instance]
            self._fail(instance)

    def _fail(self, instance: InstanceId) -> None:
        self.phase = Phase.FAILED
        self._effects.append(StateLost(instance, self.safe.of(instance)))

    def _on_restored(self, _: str, message: Restored) -> None:
        owner = message.instance.instance
        if self._is_current(message.instance) and message.holder in self.nodes:
            self._record_backup(owner, message.epoch, BackupCopy(message.holder, (message.instance.number, -1)))
            self._abandon_cut_missed_by(owner, message.epoch)
            self._effects.append(Event("restored", str(message.instance), f"at epoch {message.epoch}"))

    def _on_restore_failed(self, _: str, message: RestoreFailed) -> None:
        if self._is_current(message.instance):
            self.backups.pop(message.instance.instance, None)
            self._rebind(message.instance.instance)

    # -- placement and views ------------------------------------------------------------------------------------------

    def _bear(self, instance: InstanceId, epoch: int) -> None:
        """A new instance, empty after `epoch`."""
        self.safe.born(instance, epoch)
        self._unsaved.add(instance)

    def _seat(self, instance: InstanceId, node: str, origin: Origin | None) -> None:
        """The next incarnation of an instance begins on a node, with the next view."""
        assert origin is not None
        identity = self._next_incarnation(instance)
        self.placement[instance] = Seat(node, identity.number)
        self._starts.setdefault(node, []).append(StartInstance(identity, origin, self.safe.trimmed[instance]))
        self._view_is_old = True

    def _next_incarnation(self, instance: InstanceId) -> Incarnation:
        number = max(self._incarnations[instance], self.beginning.first_incarnation)
        self._incarnations[instance] = number + 1
        return Incarnation(instance, number)

    def _pick_node(self, avoid: frozenset[str] = frozenset()) -> str | None:
        """The least loaded node, an idle one if there is any; one to avoid or to be left only in need."""
        load = Counter(seat.node for seat in self.placement.values())
        load.update(self._reserved())
        return min(self.nodes, key=lambda n: (n in self.leaving, n in avoid, load[n], n), default=None)

    def _reserved(self) -> list[str]:
        """Nodes that are in use though no view says so yet."""
        return []

    def _publish(self) -> None:
        self.version += 1
        self._view_is_old = False
        self.topology = self.topology.forgotten(self._oldest_needed())
        view = View(
            self.version,
            self.topology,
            dict(self.placement),
            frozenset(self.nodes),
            dict(self._vms),
            self.cut,
            frozenset(self.leaving),
        )
        starts, self._starts = self._starts, {}
        for node in self.nodes:
            self._post(node, ViewChanged(view, tuple(starts.get(node, ()))))

    def _oldest_needed(self) -> int:
        """The last epoch that every instance is past, even if it has to recover."""
        oldest = min((min(self.safe.of(i), self.safe.trimmed[i]) for i in self.placement), default=0)
        return min(oldest, self.cutting.cut.epoch - 1) if self.cutting else oldest

    def _on_view_acknowledged(self, node: str, message: ViewAcknowledged) -> None:
        self.nodes[node] = message.version
        if self.cutting is not None and all(known >= self.cutting.version for known in self.nodes.values()):
            self.cutting.sealed = True

    def _placed(self, kind: Kind) -> list[InstanceId]:
        return [
            i for i, seat in self.placement.items() if self.graph.kind(i.operator) is kind and seat.node in self.nodes
        ]

    def _incarnation(self, instance: InstanceId) -> Incarnation:
        return Incarnation(instance, self.placement[instance].incarnation)

    def _is_current(self, identity: Incarnation) -> bool:
        seat = self.placement.get(identity.instance)
        return seat is not None and seat.incarnation == identity.number

    def _post(self, to: str, body: object) -> None:
        self._effects.append(Post(to, body))

    def _drain(self) -> list[Effect]:
        if self._view_is_old and self.phase is Phase.RUNNING:
            self._publish()
        effects, self._effects = self._effects, []
        return effects
