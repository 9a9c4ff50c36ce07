"""The simulated world: the shell that drives the real protocol machines through one seeded schedule."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from policies.replicas import replica_groups
from primitives.event import Event
from primitives.graph import InstanceId, Kind
from seep.protocol.checkpointing import CheckpointSettings
from seep.protocol.core import ManagerSettings
from seep.protocol.courier import Courier, Frame
from seep.protocol.cuts import CutAbandoned, CutComplete, Persist, Recall
from seep.protocol.effects import Commit, Effect, Finished, LogOffsets, OpenSink, Post, StateLost, Wake
from seep.protocol.holder import Holder
from seep.protocol.logic import Logic, SourceLogic
from seep.protocol.manager import Manager
from seep.protocol.messages import BackupCounted, DeleteBackup, FindBackup, Persisted, Retrieve, StoreBackup
from seep.protocol.node import Node
from seep.protocol.sink import CommitAccepted, CommitRefused, SinkOpened
from seep.protocol.view import MANAGER, STORAGE, Incarnation
from seep.simulator.archive import Archive
from seep.simulator.faults import Fault
from seep.simulator.mailed import BehindMailbox
from seep.simulator.network import Channel, Network
from seep.simulator.queries import Query
from seep.simulator.store import SinkStore

STORE = "store"
#: The lane of what a node has for its own holder to do.
HOLDER = "holder"
#: Told of each step: when, what, and whether it is an event rather than a message.
Trace = Callable[[int, str, bool], None]
Stream = tuple[Incarnation, Incarnation, str, str]


class Stuck(AssertionError):
    """The schedule did not come to an end although all faults are over."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a schedule is."""

    rows: int = 10  #: per source partition, at most
    bite: int = 2  #: rows per partition and epoch, at most
    steps: int = 60_000
    after: int = 60  #: steps that go on after the end, to see what zombies do
    replicas: int = 0  #: nodes that keep each backup, placed anew whenever one comes or goes; 0: as upstream


@dataclass(slots=True)
class Tally:
    """What a schedule exercised."""

    events: dict[str, int] = field(default_factory=dict)

    def count(self, kind: str) -> None:
        self.events[kind] = self.events.get(kind, 0) + 1


class Operators:
    """Makes logic for the nodes of one world."""

    def __init__(self, query: Query, rng: random.Random, bite: int) -> None:
        self._query, self._rng, self._bite = query, rng, bite

    def logic(self, operator: str) -> Logic[Any]:
        return self._query.logic(operator)

    def standing(self, operator: str) -> Logic[Any] | None:
        return self._query.logic(operator)

    def source(self, operator: str) -> SourceLogic[Any]:
        return self._query.source(operator, lambda: self._rng.randint(0, self._bite))


class World:
    """Manager, nodes, network, sinks and faults of one schedule. The same seed and faults give the same run."""

    def __init__(
        self, seed: int, query: Query, faults: list[Fault], limits: Limits, trace: Trace | None = None
    ) -> None:
        self.rng = random.Random(f"{seed} schedule")
        self.query, self.limits, self.trace = query, limits, trace
        self.network = Network(self.rng)
        self.store = SinkStore()
        self.tally = Tally()
        self.now = 0
        self.finished: int | None = None
        self.lost: StateLost | None = None
        #: epoch -> source operator -> slot -> position after the epoch: the durable source log
        self.offsets: dict[int, dict[str, dict[int, int]]] = {}
        self.nodes: dict[str, Node[Any]] = {}
        #: node -> the VM that it shares with others
        self.vms: dict[str, str] = {}
        self.frozen: set[str] = set()
        self.slow: set[str] = set()
        #: armed kills, by how late the node is given up
        self.tripwires: list[int] = []
        self._couriers: dict[tuple[str, str], Courier] = {}
        self._streams: list[Stream] = []
        self._waking: set[Stream] = set()
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._named = 0
        self._settings = self._checkpoint_settings()
        self._mails_holders = seed % 2 == 1
        self._operators = Operators(query, self.rng, limits.bite)
        self._batches = query.medium.batches(query.graph)
        self.archive = Archive()
        #: what keeps backups outside of the nodes
        self.storage = Holder(STORAGE)
        self.lives = 0
        self._manager_settings = ManagerSettings(
            window=self.rng.choice((2, 4, 8)),
            lead=self.rng.choice((0, 1, 3)),
            warm_up=self.rng.random() < 0.5,
            trim_every=self.rng.choice((1, 1, 3)),
            recovery_parallelism=self.rng.choice((1, 1, 1, 2, 3)),
            cut_chain=self.rng.choice((0, 1, 3)),
            patience=dict.fromkeys(query.graph.operators, self.rng.choice((2, 20, 1 << 30))),
            last_cut=seed % 3 == 0,
        )
        self.manager = Manager(query.graph, query.parallelism, self._manager_settings)
        self._launch()
        self._plan(faults)

    def _checkpoint_settings(self) -> CheckpointSettings:
        every, changed = self.rng.choice((1, 2, 4, 9)), self.rng.choice((None, None, 3))
        credits = self.rng.choice((1, 1, 2, 3))
        return CheckpointSettings(every, changed, credits, apart=every % 7, stands=(every + credits) % 2 == 1)

    def _launch(self) -> None:
        for _ in range(self.rng.randint(2, 5)):
            self.join()
        self.perform(MANAGER, self.manager.launch())
        self.place_replicas()

    def restart(self) -> None:
        """All processes are gone at once, the driver too; a new run goes on from the last complete cut."""
        if self.finished is not None or self.lost is not None:
            return
        self.lives += 1
        self.storage = Holder(STORAGE)
        self.network = Network(self.rng)
        self.nodes.clear()
        self.frozen.clear()
        self._couriers.clear()
        self._streams.clear()
        self._waking.clear()
        beginning = replace(self.archive.saved.beginning, generation=self.lives)
        self.store.rewind(beginning.epoch)
        self.offsets = {epoch: read for epoch, read in self.offsets.items() if epoch <= beginning.epoch}
        bits = {o: spec.slot_bits for o, spec in self.query.graph.operators.items()}
        parallelism = {operator: self.rng.randint(1, min(3, 1 << size)) for operator, size in bits.items()}
        self.manager = Manager(self.query.graph, parallelism, self._manager_settings, beginning)
        self._launch()

    def _plan(self, faults: list[Fault]) -> None:
        from seep.simulator.chaos import strike

        for fault in faults:
            self.at(fault.step, lambda fault=fault: strike(self, fault))  # type: ignore[misc]

    # -- running ------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Takes steps until the query has finished or failed, and some more."""
        while self.finished is None and self.lost is None:
            if self.now > self.limits.steps:
                raise Stuck(f"no end after {self.now} steps; {self._state()}")
            self.step()
        for _ in range(self.limits.after):
            self.step()

    def step(self) -> None:
        """One thing happens, chosen at random among all that can."""
        self.now += 1
        while self._agenda and self._agenda[0][0] <= self.now:
            heapq.heappop(self._agenda)[2]()
        busy, choices = self.network.busy, len(self.network.busy) + len(self._streams)
        if choices == 0 or self.rng.random() < 0.06:
            self._pulse_or_skip(choices)
            return
        chosen = int(self.rng.random() * choices)
        if chosen < len(busy):
            self._deliver(busy[chosen])
        else:
            self._transmit(chosen - len(busy))

    def _pulse_or_skip(self, choices: int) -> None:
        effects = self.manager.pulse()
        self.perform(MANAGER, effects)
        if self.manager.ending and self.manager.settings.last_cut:
            self.perform(MANAGER, self.manager.persist(last=True)[1])
        if not effects and choices == 0 and self._agenda:
            self.now = max(self.now, self._agenda[0][0] - 1)

    def _deliver(self, channel: Channel) -> None:
        target = channel.target
        if target in self.frozen or (target in self.slow and self.rng.random() < 0.9):
            return
        if self.network.dawdles(channel) or not self.network.is_up(channel.source, target):
            return
        item = self.network.take(channel)
        if self.trace:
            self.trace(self.now, f"{channel.source} -> {target}: {item}", False)
        if target == STORE:
            self._write(channel.source, item)
        elif channel.lane is None:
            self._receive(channel.source, target, item)
        elif channel.lane == HOLDER:
            self.perform(target, item())
        elif (node := self.nodes.get(target)) is not None:
            effects = node.receive_stream(item) if channel.source != STORE else node.deliver(*item)
            self.perform(target, effects)

    def _receive(self, source: str, target: str, frame: Frame) -> None:
        if target != MANAGER and target not in self.nodes:
            return
        courier = self._courier(target, source)
        if courier.receive(frame):
            receive = self.manager.receive if target == MANAGER else None
            effects = (
                receive(source, frame.body)
                if receive
                else self.nodes[target].receive(source, frame.version, frame.body)
            )
            self.perform(target, effects)
        if (acknowledgement := courier.acknowledgement()) is not None:
            self.network.send(Channel(target, source, None), acknowledgement)

    def _transmit(self, place: int) -> None:
        stream = self._streams[place]
        sender, receiver, source, target = stream
        if source in self.frozen:
            return
        node = self.nodes.get(source)
        message = node.pull(sender, receiver) if node is not None and self.network.is_up(source, target) else None
        if message is not None:
            self.network.send(Channel(source, target, (sender, receiver)), message)
        else:
            self._streams[place] = self._streams[-1]
            self._streams.pop()
            self._waking.discard(stream)

    def _write(self, source: str, effect: OpenSink | Commit) -> None:
        answer: int
        if isinstance(effect, OpenSink):
            answer = SinkOpened(self.store.open(effect.sink))
        else:
            rows = {
                port: [row for b in batches for row in self.query.medium.rows(b)]
                for port, batches in effect.inputs.items()
            }
            accepted = self.store.commit(effect.sink, effect.epoch, rows)
            answer = CommitAccepted(effect.epoch) if accepted else CommitRefused(effect.epoch)
        self.network.send(Channel(STORE, source, effect.sink), (effect.sink, answer))

    # -- effects ------------------------------------------------------------------------------------------------------

    def perform(self, process: str, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Post(to, body):
                    self._post(process, to, body)
                    if isinstance(body, BackupCounted):
                        self._trip(to, body)
                case Wake(sender, receiver, node):
                    self._wake((sender, receiver, process, node))
                case OpenSink(sink) | Commit(sink):
                    self.network.send(Channel(process, STORE, sink), effect)
                case LogOffsets(source, epoch, positions):
                    self.offsets.setdefault(epoch, {}).setdefault(source.operator, {}).update(positions)
                case Persist():
                    self._persist(process, effect)
                case Recall(owner, slots):
                    recalled = self.archive.read(owner.instance.operator, slots)
                    self.network.send(Channel(STORE, process, owner), (owner, recalled))
                case CutComplete():
                    self.archive.complete(effect, self.lives)
                    self.tally.count("cut complete")
                case CutAbandoned():
                    self.tally.count("cut abandoned")
                    self._give_up_without_last_cut()
                case Event():
                    self.tally.count(effect.kind)
                    if self.trace:
                        self.trace(self.now, effect.text(), True)
                case Finished(epoch):
                    self.finished = epoch
                case StateLost():
                    self.lost = effect

    def _give_up_without_last_cut(self) -> None:
        """A run whose last cut is abandoned when its final epoch has begun fails, and is started again."""
        life = self.lives

        def failed() -> None:
            if life == self.lives:
                self.tally.count("last cut abandoned")
                self.restart()

        if self.manager.settings.last_cut and self.manager.final is not None:
            self.at(self.now + 1, failed)

    def _persist(self, node: str, effect: Persist) -> None:
        """Writing takes a while; if the node ends before, nobody hears of it."""
        life = self.lives

        def written() -> None:
            if node in self.nodes and life == self.lives:
                self._post(node, MANAGER, Persisted(effect.owner, effect.cut.id, self.archive.write(effect)))

        self.at(self.now + self.rng.randint(1, 80), written)

    def _post(self, source: str, target: str, body: Any) -> None:
        if target == STORAGE:
            self._ask_storage(source, body)
            return
        version = self.nodes[source].version if source in self.nodes else 0
        self.network.send(Channel(source, target, None), self._courier(source, target).post(version, body))

    def _ask_storage(self, source: str, body: Any) -> None:
        """Whoever asks works on the storage by itself, and takes a while; nobody hears of it if it ends before."""
        life = self.lives
        ask: dict[type, Callable[[str, Any], list[Effect]]] = {
            StoreBackup: self.storage.on_store,
            Retrieve: self.storage.on_retrieve,
            DeleteBackup: lambda _, message: self.storage.on_delete(message),
            FindBackup: lambda _, message: self.storage.on_find(message),
        }

        def done() -> None:
            if life != self.lives or (source != MANAGER and source not in self.nodes):
                return
            for effect in ask[type(body)](source, body):
                assert isinstance(effect, Post)
                if effect.to == source == MANAGER:
                    self.perform(MANAGER, self.manager.receive(STORAGE, effect.body))
                elif effect.to == source:
                    node = self.nodes[source]
                    self.perform(source, node.receive(STORAGE, node.version, effect.body))
                else:
                    self._post(source, effect.to, effect.body)

        self.at(self.now + self.rng.randint(1, 60), done)

    def _wake(self, stream: Stream) -> None:
        if stream not in self._waking:
            self._waking.add(stream)
            self._streams.append(stream)

    def _courier(self, end: str, peer: str) -> Courier:
        return self._couriers.setdefault((end, peer), Courier())

    # -- processes and links ------------------------------------------------------------------------------------------

    def at(self, step: int, action: Callable[[], None]) -> None:
        """Puts something on the agenda."""
        heapq.heappush(self._agenda, (step, len(self._agenda) + self._named * 100_000, action))
        self._named += 1

    def join(self) -> None:
        """A fresh node registers."""
        self._named += 1
        name = f"n{self._named}"
        lane = Channel(name, name, HOLDER)
        hosting = BehindMailbox(lambda work: self.network.send(lane, work)) if self._mails_holders else None
        outbox = self.query.medium.outbox
        self.nodes[name] = Node(name, self._operators, self._batches, self._settings, outbox, hosting)
        self.vms[name] = f"vm{self.rng.randint(1, 4)}"
        self.perform(MANAGER, self.manager.node_joined(name, self.vms[name]))
        self.place_replicas()

    def kill(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.network.remove(name)

    def end(self, name: str, delay: int) -> None:
        """Kills a node that is given up a little later."""
        self.kill(name)
        self.at(self.now + min(delay, 80), lambda: self.give_up(name))

    def _trip(self, node: str, message: BackupCounted) -> None:
        """The backup just recorded is of slots that have changed hands: whoever is armed for that strikes now."""
        if self.tripwires and len(self.manager.topology.history[message.owner.instance.operator]) > 1:
            self.end(node, self.tripwires.pop())

    def give_up(self, name: str) -> None:
        """The failure detector's word; a replacement is on its way."""
        if name in self.manager.nodes:
            self.perform(MANAGER, self.manager.node_lost(name))
            self.place_replicas()
            self.at(self.now + self.rng.randint(0, 80), self.join)

    def place_replicas(self) -> None:
        """As the runtime does, where the schedule says so."""
        if self.limits.replicas:
            manager = self.manager
            stateful = [i for i in manager.placement if self.query.graph.kind(i.operator) is Kind.STATEFUL]
            hosts = {i: seat.node for i, seat in manager.placement.items()}
            sizes, present = dict.fromkeys(stateful, 1), manager.replication.groups
            groups = replica_groups(sizes, hosts, list(manager.nodes), self.limits.replicas, self.vms, present)
            self.perform(MANAGER, manager.replicate(groups))

    def cut(self, a: str, b: str, delay: int) -> None:
        if self.network.is_up(a, b):
            self.network.cut(a, b)
            self.at(self.now + delay, lambda: self._mend(a, b))

    def _mend(self, a: str, b: str) -> None:
        self.network.mend(a, b)
        for end, peer in ((a, b), (b, a)):
            for frame in self._courier(end, peer).again():
                self.network.send(Channel(end, peer, None), frame)
            if end in self.nodes:
                self.perform(end, self.nodes[end].reconnect(peer))

    def live(self) -> list[str]:
        """The nodes that are there and not given up, in order of their joining."""
        return [n for n in self.nodes if n in self.manager.nodes]

    def has_backup(self, owner: InstanceId) -> bool:
        """Whether any live node keeps a backup of the owner that is fit for a restore."""
        stores = [self.storage.store, *(self.nodes[n].holder.store for n in self.live())]
        safe, void = self.manager.safe.of(owner), self.manager.replication.void_before(owner)
        return any((store.epoch(owner) or -1) >= safe and store.order(owner) >= void for store in stores)

    def _state(self) -> str:
        at = {str(i): instance.processed for node in self.live() for i, instance in self.nodes[node].instances.items()}
        sinks = {
            str(i): self.manager.safe.of(i)
            for i in self.manager.placement
            if self.query.graph.kind(i.operator) is Kind.SINK
        }
        return (
            f"ticked {self.manager.ticked}, final {self.manager.final}, committed {sinks}, processed {at}, "
            f"moves {self.manager.moves}, splits {self.manager.splits}"
        )
