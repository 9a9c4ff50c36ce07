"""The world of one query's machines: delivers their letters, performs their effects, and has an agenda."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Protocol, assert_never

from primitives.event import Event
from primitives.graph import InstanceId
from seep.kernel.bulk_lanes import BulkLanes
from seep.kernel.cut_storage import CutStorage
from seep.kernel.mail import Carried, Channel, Item, Mail, OwnWork, Pull, SinkAnswer, Stream
from seep.protocol.bulk import BulkAcknowledged, flow_of
from seep.protocol.courier import Courier, LetterFrame
from seep.protocol.cuts import Beginning, CutAbandoned, CutComplete, Persist, Recall
from seep.protocol.effects import Commit, Effect, Finished, LogOffsets, OpenSink, Post, StateLost, Wake
from seep.protocol.holder import Holder
from seep.protocol.instances.sink import CommitAccepted, CommitRefused, SinkOpened
from seep.protocol.manager.manager import Manager
from seep.protocol.messages import (
    BackupCounted,
    Data,
    Persisted,
)
from seep.protocol.node import Node
from seep.protocol.view import MANAGER, STORAGE, Incarnation

#: The external stores of all sinks, as a process.
SINKS = "sinks"
#: The durable storage of cuts, as a process.
CUTS = "cuts"
#: The lane of work that a process has postponed.
OWN = "own"

#: Events and results of the machines, for the owner of the kernel.
Told = LogOffsets | CutComplete | CutAbandoned | Event | Finished | StateLost | BackupCounted
#: Called with each step: its number, its content, and whether it is an event rather than a message.
Trace = Callable[[int, str, bool], None]


class Sinks(Protocol):
    """The store of a query's sinks; it outlives all processes."""

    def open(self, sink: Incarnation) -> SinkOpened: ...

    def commit(self, commit: Commit) -> CommitAccepted | CommitRefused: ...

    def abandon(self, sink: Incarnation) -> None:
        """Handles the end of the sink's node, which has not said anything."""
        ...

    def rewind(self, epoch: int) -> None:
        """Undoes the commits after an epoch, because a new run begins there and commits them again."""
        ...


class KernelSetting(Protocol):
    """Makes the parts of a world, and sets its durations."""

    def mail(self) -> Mail: ...

    def node(self, name: str, own: Callable[[OwnWork], None]) -> Node[Any]:
        """Returns a new node, which may postpone its own work."""
        ...

    def manager(self, beginning: Beginning | None) -> Manager: ...

    def delay(self, longest: int) -> int:
        """Returns the number of steps of an action of the storage, at most `longest`."""
        ...

    def segments(self) -> int:
        """Returns the number of segments of the next message of a bulk lane."""
        ...

    def credit(self) -> int:
        """Returns the most unacknowledged segments between two processes."""
        ...


class Kernel:
    """Manager, nodes, mail, sinks and storage of one query. The same setting and the same calls give the same run.

    A `restart` ends all processes, and starts others from the storage of cuts; sinks and that storage are kept.
    """

    def __init__(self, setting: KernelSetting, sinks: Sinks, tell: Callable[[Told], None]) -> None:
        self.setting, self.sinks, self._tell = setting, sinks, tell
        self.trace: Trace | None = None
        self.now = 0
        self.lives = 0
        self.cuts = CutStorage()
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._noted = 0
        self._begin(None)

    def _begin(self, beginning: Beginning | None) -> None:
        self.mail = self.setting.mail()
        self.nodes: dict[str, Node[Any]] = {}
        self.vms: dict[str, str] = {}
        #: the holder of backups outside of the nodes
        self.storage = Holder(STORAGE)
        self._couriers: dict[tuple[str, str], Courier] = {}
        self.bulk = BulkLanes(self.mail, self.setting, lambda name: name == MANAGER or name in self.nodes)
        #: streams with a `Pull` in the mail
        self._waking: set[tuple[Stream, str]] = set()
        self.manager = self.setting.manager(beginning)

    def restart(self) -> Beginning:
        """Ends all processes, the manager too; the manager of a new run begins from the last complete cut."""
        self.lives += 1
        for node in list(self.nodes):
            self.end(node)
        beginning = self.cuts.beginning(self.lives)
        self.sinks.rewind(beginning.epoch)
        self._begin(beginning)
        return beginning

    # -- steps --------------------------------------------------------------------------------------------------------

    def at(self, step: int, action: Callable[[], None]) -> None:
        """Adds an action to the agenda."""
        self._noted += 1
        heapq.heappush(self._agenda, (step, self._noted, action))

    def begin_step(self) -> None:
        """Advances time by one step, and runs the due actions."""
        self.now += 1
        while self._agenda and self._agenda[0][0] <= self.now:
            heapq.heappop(self._agenda)[2]()

    def skip_ahead(self, most: int | None = None) -> bool:
        """Moves time to the next action of the agenda, or to `most` if that is sooner, if no mail is left.

        Returns False if there is neither.
        """
        due = [*([self._agenda[0][0]] if self._agenda else ()), *([most] if most is not None else ())]
        if due:
            self.now = max(self.now, min(due) - 1)
        return bool(due)

    @property
    def has_plans(self) -> bool:
        """Whether there is anything on the agenda."""
        return bool(self._agenda)

    def deliver(self) -> None:
        """Delivers the next item of the mail, unless its channel skips its turn."""
        if (taken := self.mail.next()) is None:
            return
        channel, item = taken
        if self.trace and not isinstance(item, Pull):
            self.trace(self.now, f"{channel.source} -> {channel.target}: {item}", False)
        self._receive(channel, item)

    def _receive(self, channel: Channel, item: Item) -> None:
        target = channel.target
        match item:
            case Pull():
                self._pull(target, item)
            case Data():
                if (node := self.nodes.get(target)) is not None:
                    self.perform(target, node.receive_stream(item))
            case LetterFrame():
                self._receive_letter(channel.source, target, item)
            case Carried():
                if (message := self.bulk.arrived(channel.source, target, item)) is not None:
                    self.perform(target, self._take_message(channel.source, target, *message))
            case BulkAcknowledged():
                self.bulk.acknowledged(target, channel.source, item)
            case OpenSink(sink):
                self.mail.send(Channel(SINKS, channel.source, sink), SinkAnswer(sink, self.sinks.open(sink)))
            case Commit(sink):
                self.mail.send(Channel(SINKS, channel.source, sink), SinkAnswer(sink, self.sinks.commit(item)))
            case SinkAnswer(sink, body):
                if (node := self.nodes.get(target)) is not None:
                    self.perform(target, node.deliver(sink, body))
            case OwnWork(work):
                self.perform(target, work())
            case _:
                assert_never(item)

    def _pull(self, source: str, pull: Pull) -> None:
        node, (sender, receiver) = self.nodes.get(source), pull.stream
        message = node.pull(sender, receiver) if node is not None and self.mail.is_up(source, pull.node) else None
        if message is None:
            self._waking.discard((pull.stream, pull.node))
        else:
            self.mail.send(Channel(source, pull.node, pull.stream), message)
            self.mail.send(Channel(source, source, pull.stream), pull)

    def _receive_letter(self, source: str, target: str, frame: LetterFrame) -> None:
        if target != MANAGER and target not in self.nodes:
            return
        courier = self._courier(target, source)
        if courier.receive(frame):
            self.perform(target, self._take_message(source, target, frame.version, frame.body))
        if (acknowledgement := courier.acknowledgement()) is not None:
            self.mail.send(Channel(target, source, None), acknowledgement)

    def _take_message(self, source: str, target: str, version: int, body: Any) -> list[Effect]:
        if target == MANAGER:
            return self.manager.receive(source, body)
        return self.nodes[target].receive(source, version, body)

    # -- effects ------------------------------------------------------------------------------------------------------

    def perform(self, process: str, effects: list[Effect]) -> None:
        """Performs a machine's effects in order, if the machine is in a valid state."""
        self._validate(process)
        for effect in effects:
            match effect:
                case Post(to, body):
                    self._post(process, to, body)
                case Wake(sender, receiver, node):
                    self._wake(process, (sender, receiver), node)
                case OpenSink(sink) | Commit(sink):
                    self.mail.send(Channel(process, SINKS, sink), effect)
                case Persist():
                    self._persist(process, effect)
                case Recall(owner, slots):
                    recalled = self.cuts.read(owner.instance.operator, slots)
                    self.mail.send(Channel(CUTS, process, OWN), OwnWork(self._given(process, owner, recalled)))
                case CutComplete():
                    self.cuts.complete(effect)
                    self._tell(effect)
                case LogOffsets() | CutAbandoned() | Event() | Finished() | StateLost():
                    self._tell(effect)
                case _:
                    assert_never(effect)

    def _validate(self, process: str) -> None:
        if process == MANAGER:
            self.manager.validate()
        elif (node := self.nodes.get(process)) is not None:
            node.validate()

    def _given(self, node: str, owner: Incarnation, recalled: object) -> Callable[[], list[Effect]]:
        return lambda: self.nodes[node].deliver(owner, recalled) if node in self.nodes else []

    def _persist(self, node: str, effect: Persist) -> None:
        """Writes a part of a cut, which takes some steps; if the node ends before, there is no answer."""
        life = self.lives

        def written() -> None:
            if node in self.nodes and life == self.lives:
                self._post(node, MANAGER, Persisted(effect.owner, effect.cut.id, self.cuts.write(effect)))

        self.at(self.now + self.setting.delay(80), written)

    def _post(self, source: str, target: str, body: Any) -> None:
        if target == STORAGE:
            self._ask_storage(source, body)
            return
        version = self.nodes[source].version if source in self.nodes else 0
        if source != target and (flow := flow_of(body)) is not None:
            self.bulk.post(source, target, flow, version, body)
        else:
            self.mail.send(Channel(source, target, None), self._courier(source, target).post(version, body))
        if isinstance(body, BackupCounted):
            self._tell(body)

    def _ask_storage(self, source: str, body: Any) -> None:
        """Lets the asker work on the storage, which takes some steps; if it ends before, there is no answer."""
        life = self.lives

        def done() -> None:
            if life == self.lives and (source == MANAGER or source in self.nodes):
                for effect in self.storage.receive(source, body):
                    assert isinstance(effect, Post)
                    self._answer_of_storage(source, effect)

        self.at(self.now + self.setting.delay(60), done)

    def _answer_of_storage(self, asker: str, answer: Post) -> None:
        """Delivers an answer of the storage; an answer to the asker itself arrives at once."""
        if answer.to != asker:
            self._post(asker, answer.to, answer.body)
        elif asker == MANAGER:
            self.perform(MANAGER, self.manager.receive(STORAGE, answer.body))
        else:
            node = self.nodes[asker]
            self.perform(asker, node.receive(STORAGE, node.version, answer.body))

    def _wake(self, process: str, stream: Stream, node: str) -> None:
        if (stream, node) not in self._waking:
            self._waking.add((stream, node))
            self.mail.send(Channel(process, process, stream), Pull(stream, node))

    def _courier(self, end: str, peer: str) -> Courier:
        courier = self._couriers.get((end, peer))
        if courier is None:
            courier = self._couriers[end, peer] = Courier()
        return courier

    # -- processes and links ------------------------------------------------------------------------------------------

    def join(self, name: str, vm: str | None = None) -> None:
        """Registers a new node, whose name no node has had."""
        lane = Channel(name, name, OWN)
        self.nodes[name] = self.setting.node(name, lambda work: self.mail.send(lane, work))
        if vm is not None:
            self.vms[name] = vm
        self.perform(MANAGER, self.manager.node_joined(name, vm))

    def end(self, name: str) -> None:
        """Ends the process of a node silently; nothing has noticed yet."""
        if (node := self.nodes.pop(name, None)) is not None:
            for identity in node.instances:
                self.sinks.abandon(identity)
            self._waking = {(stream, at) for stream, at in self._waking if stream[0] not in node.instances}
        self.mail.remove(name)
        self.bulk.remove(name)

    def give_up(self, name: str) -> bool:
        """Gives a node up, as a failure detector does; returns False if it was given up before."""
        was_live = name in self.manager.nodes
        if was_live:
            self.perform(MANAGER, self.manager.node_lost(name))
        return was_live

    def mend(self, a: str, b: str) -> None:
        """Restores the link between two processes: messages that may be lost are sent again."""
        for end, peer in ((a, b), (b, a)):
            for frame in self._courier(end, peer).again():
                self.mail.send(Channel(end, peer, None), frame)
            self.bulk.mend(end, peer)
            if end in self.nodes:
                self.perform(end, self.nodes[end].reconnect(peer))

    def live(self) -> list[str]:
        """Returns the nodes that exist and are not given up, in order of their joining."""
        return [n for n in self.nodes if n in self.manager.nodes]

    def has_backup(self, owner: InstanceId) -> bool:
        """Whether any live node keeps a backup of the owner that can be restored."""
        stores = [self.storage.store, *(self.nodes[n].holder.store for n in self.live())]
        safe, void = self.manager.safe.of(owner), self.manager.replication.void_before(owner)
        return any((store.epoch(owner) or -1) >= safe and store.order(owner) >= void for store in stores)
