"""A node: one process that hosts instances, keeps backups for other nodes, and talks to the manager."""

from __future__ import annotations

import gc
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, assert_never

import pyarrow as pa

from policies.backup import BackupSection
from primitives.backup import NodeBackups
from primitives.emission import EMISSIONS, Emission
from primitives.errors import InternalError
from primitives.event import Event
from primitives.graph import Kind
from primitives.mapped import MappedFiles
from primitives.outbox import Outbox
from primitives.slots import SlotSet
from primitives.spill import SpillStore
from seep.channels.bulk import CREDIT
from seep.channels.letters import (
    CountSlots,
    EndNode,
    EventTold,
    ForgetPeers,
    FromNode,
    InstanceLeft,
    KnowPeers,
    LastWord,
    NewsOfPushed,
    NodeFailed,
    NodeReady,
    NoticeGiven,
    SayLastWord,
    ToNode,
)
from seep.channels.links import InstanceStream, Link, NoLinkEvents
from seep.channels.peers import Peers, PeersReceiver
from seep.channels.port import Address, Port
from seep.channels.security import Security
from seep.durable.archive import Archive
from seep.durable.backups import StorageHolder
from seep.logs.settings import LogSettings
from seep.node.failures import failure_to_json, is_internal
from seep.node.hosted import HostedHolder, HostedInstance
from seep.node.meter import Meter
from seep.node.node_log import NodeLog
from seep.node.share import CpuShare, NoShare
from seep.node.slot_meter import MeteredOperators
from seep.node.slot_meter import warm_up as warm_up_counting
from seep.node.stores import RemoteStore
from seep.node.usage import resources
from seep.operators.room import StateBudget
from seep.protocol.cuts import CutAbandoned, CutComplete, CutPart, Persist, Recall
from seep.protocol.effects import Commit, Effect, Finished, LogOffsets, OpenSink, Post, StateLost, Wake
from seep.protocol.holder import Holder
from seep.protocol.instances.checkpointing import CheckpointSettings
from seep.protocol.instances.instance import Instance
from seep.protocol.message_ring import dumped
from seep.protocol.messages import Data, NodeFenced, Persisted, PersistFailed
from seep.protocol.node import Node
from seep.protocol.view import MANAGER, STORAGE, Incarnation
from seep.query.program import Program
from seep.record.events import RefusedMessage
from seep.record.reports import NodeReport
from seep.sinks.definition import SinkStore, StoreSite
from seep.spark.inlet.intake import Intake
from seep.spark.inlet.source import spark_sources
from seep.spark.order import NodeOrder
from seep.storage.settings import StorageSettings
from vmpool.interruption import notices_of, watch
from vmpool.settings import VMSettings

#: Checkpoints are requested by the manager's clock; nodes do not count epochs for them.
NEVER = 1 << 60
#: Seconds at least between two checkpoints that only plans need: otherwise each step of a migration would take one.
_APART = 1.0
#: Python's switch interval between threads; a long one costs latency, not throughput.
SWITCH_INTERVAL = 0.0005
#: Buffers of messages and backups larger than this are in files, not in memory.
SHELVED = 32 << 20
#: A report is sent with every so many heartbeats.
REPORT_EVERY = 3


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The settings of every node of a run; sent with its task."""

    run: str
    driver: Address
    security: Security
    epoch: float
    heartbeat: float
    patience: float  #: seconds that the manager may be unreachable
    buffer_budget: int
    state_budget: int
    vm: VMSettings = field(default_factory=VMSettings)
    storage: StorageSettings = field(default_factory=StorageSettings)
    backup: BackupSection = field(default_factory=BackupSection)
    checkpoint: float | None = None  #: seconds between two checkpoints
    bulk_credit: int = CREDIT  #: bytes of state under way to one peer
    begins_from: int | None = None  #: the checkpoint in storage that the run begins from
    log: LogSettings = field(default_factory=LogSettings)


class NodeProcess(PeersReceiver):
    """The shell of one `Node`: its port, its links, its threads. `run` returns when the node ends."""

    def __init__(self, program: Program, settings: NodeSettings, host: str, order: NodeOrder, directory: Path) -> None:
        self._order = order
        self._program = program
        self._settings = settings
        self._lock = threading.RLock()  #: guards the node machine
        self._reporting = threading.Lock()  #: only one thread at a time takes figures that meters report once
        self._meters: dict[Incarnation, Meter] = {}
        self._threads: dict[Incarnation, HostedInstance] = {}  #: until they have ended
        self._ended = threading.Event()
        self._alone_since: float | None = None
        self._directory = directory
        self._share = CpuShare(settings.vm.cpu, settings.vm.credit) if settings.vm.cpu else NoShare()
        self._storage = StorageHolder(settings.storage, program.name, settings.run, self)
        self._room = StateBudget(settings.state_budget, directory / "state")
        self._counted: frozenset[str] = frozenset()  #: operators whose rows are counted by slot
        self._archive = Archive(settings.storage, program.name, settings.begins_from, program.aliases)
        self._shelf = MappedFiles(directory / "shelf", above=SHELVED)
        self._intake = Intake(program.name, settings.storage, settings.security, directory)
        for source in spark_sources(program).values():
            source.settle(self._intake)
        self._port = Port(host, settings.security, self, shop=self._intake)
        self.name = self._register()
        self._log = NodeLog(settings.log, settings.run, self.name, settings.security)
        self._log.begins(self._port.address)
        self.peers = Peers(self.name, settings.security, self, credit=settings.bulk_credit, shelf=self._shelf)
        self.peers.know(MANAGER, settings.driver)
        self._intake.open(self.peers, self._ended)
        self.node: Node[pa.RecordBatch] = Node(
            self.name,
            MeteredOperators(program.in_room(self._room), lambda: self._counted),
            program.batches(),
            self._checkpoints(),
            self._outbox,
            hosting=self,
        )
        self.peers.post(MANAGER, 0, NodeReady(self.name))
        self._watch_for_notice()

    def run(self) -> None:
        """Serves until it is told to end, is fenced, or loses the manager."""
        beats = 0
        while not self._ended.wait(self._settings.heartbeat):
            beats += 1
            self.peers.heartbeat(MANAGER, self._report() if beats % REPORT_EVERY == 0 else None)
            if beats % REPORT_EVERY == 0:
                self._send_lines()
            self.peers.acknowledge()
            self._leave_if_alone()
        self.close()

    def close(self) -> None:
        """Closes everything: port, links, files."""
        hosted = self._hosted()
        for each in hosted:
            each.halt()
        for each in hosted:
            each.join(1.0)
        self._archive.close()
        self._storage.close()
        self.peers.close()
        self._port.close()
        self._log.ends()
        shutil.rmtree(self._directory, ignore_errors=True)

    # -- what the port hears ------------------------------------------------------------------------------------------

    def on_message(self, message: Data, nbytes: int) -> None:  # noqa: ARG002
        self.hand_over(message)

    def on_stream_open(self, peer: str, sender: Incarnation, receiver: Incarnation, again: bool) -> None:  # noqa: ARG002
        """Handles a stream; if it was broken, messages may be lost, so the instances ask for them again."""
        if again:
            self.on_link_restored(peer)

    def on_call(self, peer: str, method: str, body: Any) -> Any:  # noqa: ARG002
        if method == "story":
            return self._story(*self.node.instances)
        return self._intake.on_call(method, body)

    def on_fault(self, peer: str, text: str) -> None:
        self._tell(EventTold(RefusedMessage(node=self.name, sender=peer, why=text)))

    # -- what peers say -----------------------------------------------------------------------------------------------

    def on_letter(self, peer: str, version: int, body: Any) -> None:
        if isinstance(body, ToNode):
            self._on_order(body)
        else:
            self._receive(peer, version, body)
        if isinstance(body, NodeFenced):
            self._log.fenced()
            self._ended.set()

    def on_heartbeat(self, peer: str, body: Any) -> None:
        pass

    def on_link_broken(self, peer: str, refused: bool) -> None:
        self._log.link_broken(peer, refused)
        if peer == MANAGER and self._alone_since is None:
            self._alone_since = time.monotonic()

    def on_link_restored(self, peer: str) -> None:
        self._log.link_restored(peer)
        if peer == MANAGER:
            self._alone_since = None
            return
        with self._lock:
            self._perform_all(self.node.reconnect(peer))

    def on_unsendable(self, peer: str, reason: Exception) -> None:  # noqa: ARG002
        self.failed(None, 0, reason)

    def _on_order(self, order: ToNode) -> None:
        """Handles a letter of the manager's process that is not part of the protocol."""
        match order:
            case KnowPeers(addresses):
                self._meet(addresses)
            case ForgetPeers(names):
                for name in names:
                    self.peers.forget(name)
            case CountSlots(operators):
                self._counted = frozenset(operators)
            case NewsOfPushed(source, news):
                self._intake.on_news(source, dict(news))
            case SayLastWord():
                self._tell(LastWord(self._report()))
            case EndNode():
                self._log.told_to_end()
                self._ended.set()
            case _:
                assert_never(order)

    def _meet(self, addresses: Mapping[str, tuple[str, int]]) -> None:
        for name, (host, port) in addresses.items():
            if name != self.name:
                self.peers.know(name, Address(host, port))

    def _receive(self, peer: str, version: int, body: Any) -> None:
        try:
            with self._lock:
                self._perform_all(self.node.receive(peer, version, body))
        except BaseException as reason:
            self.failed(None, 0, reason)

    # -- NodeServices: what hosted machines ask for ------------------------------------------------------------------

    def perform(self, effect: Effect) -> None:
        match effect:
            case Post(to, body) if to == self.name:
                self._receive(to, self.node.version, body)
            case Post(to, body) if to == STORAGE:
                self._storage.ask(self.name, body)
            case Post(to, body):
                self.peers.post(to, self.node.version, body)
            case Event():
                self._tell(EventTold(effect))
            case Persist() | Recall() | Wake() | OpenSink() | Commit():
                raise InternalError(f"node {self.name} was asked for what only an instance does: {effect!r:.200}")
            case LogOffsets() | Finished() | StateLost() | CutComplete() | CutAbandoned():
                raise InternalError(f"node {self.name} was asked for what only the manager does: {effect!r:.200}")
            case _:
                assert_never(effect)

    def hand_over(self, message: Data) -> None:
        self.node.receive_stream(message)

    def open_stream(
        self, node: str, sender: Incarnation, receiver: Incarnation, on_room: Callable[[], None]
    ) -> InstanceStream | None:
        schemas = {
            edge.port: self._program.schemas[edge] for edge in self._program.graph.inputs[receiver.instance.operator]
        }
        link = self.peers.link(node)
        return link.stream(sender, receiver, schemas, on_room) if link is not None else None

    def persist(self, part: Persist) -> None:
        if part.cut.only is not None:
            self.peers.post(
                MANAGER, self.node.version, Persisted(part.owner, part.cut.id, CutPart(part.slots, None, part.chunks))
            )
            return
        slot_bits = self._program.graph.operators[part.owner.instance.operator].slot_bits
        self._archive.write(part, slot_bits, self._on_written)

    def _on_written(self, said: Persisted | PersistFailed) -> None:
        self._log.written(said)
        self.peers.post(MANAGER, self.node.version, said)

    def recall(self, hosted: HostedInstance, slots: SlotSet) -> None:
        operator, logic = hosted.me.instance.operator, hosted.meter.logic
        self._archive.read(
            operator,
            slots,
            tuple(logic.state.snapshot(SlotSet.empty())),
            getattr(logic, "evolution", None),
            lambda recalled: _ignore(hosted.handle(recalled)),
            lambda reason: self.failed(hosted.me, 0, reason),
        )

    def on_answer(self, to: str, body: Any) -> None:
        if to == self.name:
            self._receive(STORAGE, self.node.version, body)
        else:
            self.peers.post(to, self.node.version, body)

    def on_storage_failed(self, reason: BaseException) -> None:
        self.failed(None, 0, reason)

    def failed(self, instance: Incarnation | None, epoch: int, reason: BaseException) -> None:
        self._log.failed(instance, epoch, reason)
        self._send_lines()
        failure = self._log.redacted(failure_to_json(self.name, instance, epoch, reason))
        concerned = () if instance is None else (instance,)
        self._tell(NodeFailed(failure, self._story(*concerned) if is_internal(failure) else {}))

    def _story(self, *instances: Incarnation) -> dict[str, tuple[str, ...]]:
        """Returns the last messages and answers of this node and some of its instances; for any thread."""
        machines = {str(me): self.node.instances.get(me) for me in instances}
        rings = {name: machine.ring for name, machine in machines.items() if machine is not None}
        return dumped({f"node {self.name}": self.node.ring, **rings})

    def left(self, hosted: HostedInstance) -> None:
        """Sends the last report of an instance that was told to stop, but not of those that end with the node."""
        self._threads.pop(hosted.me, None)
        if not self._ended.is_set():
            with self._reporting:
                last_word = hosted.figures()
            self._tell(InstanceLeft(last_word))

    def _perform_all(self, effects: list[Effect]) -> None:
        for effect in effects:
            self.perform(effect)

    # -- a Hosting: where machines run --------------------------------------------------------------------------------

    def instance(self, instance: Instance[pa.RecordBatch]) -> HostedInstance:
        meter = self._meters.pop(instance.me)
        meter.watch(getattr(instance, "_logic", None))
        hosted = HostedInstance(instance, self, self._store(instance.me), meter, self._share, self._room)
        self._threads[instance.me] = hosted
        return hosted

    def holder(self, holder: Holder) -> HostedHolder:
        holder.store = NodeBackups(shelf=self._shelf)
        return HostedHolder(holder, self, self._share)

    def _checkpoints(self) -> dict[str, CheckpointSettings]:
        backup = self._settings.backup
        apart = round(max(_APART, self._settings.checkpoint or 0.0) / self._settings.epoch)
        return {
            o: CheckpointSettings(NEVER, credits=backup.of(o).credits, apart=apart, stands=backup.of(o).stands)
            for o in self._program.graph.operators
        }

    def _store(self, me: Incarnation) -> SinkStore | None:
        operator = me.instance.operator
        if self._program.graph.kind(operator) is not Kind.SINK:
            return None
        definition, schema = self._program.sinks[operator]
        if definition.place is StoreSite.DRIVER:
            link = self.peers.link(MANAGER)
            assert link is not None, "the manager is never gone while its node lives"
            return RemoteStore(link, self._ended)
        return definition.store(operator, schema)

    def _outbox(self, me: Incarnation) -> Outbox[Emission[pa.RecordBatch]]:
        meter = self._meters[me] = Meter()
        if self._program.graph.kind(me.instance.operator) is Kind.SINK:
            return Outbox()
        store = SpillStore(self._directory / str(me), EMISSIONS)
        return Outbox(size=meter.size, budget=self._settings.buffer_budget, spill=store)

    # -- the manager --------------------------------------------------------------------------------------------------

    def _register(self) -> str:
        """Tells the driver the address of this node; returns this node's name."""
        link = Link(f"order {self._order.id}", MANAGER, self._settings.driver, self._settings.security, NoLinkEvents())
        try:
            answer = link.call(
                "register",
                {
                    "address": list(self._port.address),
                    "order": self._order.id,
                    "process": list(astuple(self._order.process)),
                    "directory": str(self._directory),
                },
            )
        finally:
            link.close()
        return str(answer["name"])

    def _send_lines(self) -> None:
        """Sends the log lines since the last time; while the manager cannot be reached, they wait."""
        if self._alone_since is None and (lines := self._log.take()) is not None:
            self._tell(lines)

    def _tell(self, body: FromNode) -> None:
        self.peers.post(MANAGER, self.node.version, body)

    def _hosted(self) -> list[HostedInstance]:
        return [hosted for me, hosted in list(self._threads.items()) if me in self.node.instances]

    def _watch_for_notice(self) -> None:
        """Asks the cloud, on its own thread, whether this VM is about to be taken away."""
        notices = notices_of(self._settings.vm)
        if notices is not None:
            arguments = (notices, self._settings.vm.notices_every, self._on_notice, self._ended)
            threading.Thread(target=watch, args=arguments, name="seep notices", daemon=True).start()

    def _on_notice(self, seconds: float) -> None:
        self._tell(NoticeGiven(seconds))

    def _report(self) -> NodeReport:
        with self._reporting:
            memory = self._settings.vm.memory
            return NodeReport(
                at=time.monotonic(),
                cpu=self._share.paid(),
                cores=self._share.cores,
                memory=None if memory is None else int(memory),
                resources=resources(),
                instances=tuple(hosted.figures() for hosted in self._hosted()),
                transfers=self.peers.transfers(),
            )

    def _leave_if_alone(self) -> None:
        """Ends this node if the manager has been unreachable for too long."""
        if self._alone_since is not None and time.monotonic() - self._alone_since > self._settings.patience:
            self._log.alone(self._settings.patience)
            self._ended.set()


def _ignore(_: object) -> None:
    """Ignores the answer of a hosted instance."""


def prepare_process() -> None:
    """Prepares this process for low latency: loads kernels, avoids long pauses, and switches threads often."""
    _load_kernels()
    sys.setswitchinterval(SWITCH_INTERVAL)
    gc.collect()
    gc.freeze()


@cache
def _load_kernels() -> None:
    """Loads the kernels once; forked processes inherit them."""
    from formats import regroup
    from primitives.state import frame, rows

    frame.warm_up()
    rows.warm_up()
    regroup.warm_up()
    warm_up_counting()
