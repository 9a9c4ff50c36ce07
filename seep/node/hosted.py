"""The instances and the holder of a node, each with its own thread and mailbox."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, assert_never

import pyarrow as pa

from primitives.errors import InternalError
from primitives.event import Event
from primitives.outbox import nbytes_of
from primitives.slots import SlotSet
from primitives.state.processing import Containers
from seep.channels.links import InstanceStream
from seep.node.meter import Meter, Sized
from seep.node.share import CpuShare
from seep.node.usage import stolen_seconds
from seep.operators.base import BatchLogic
from seep.operators.room import StateBudget
from seep.protocol.cuts import CutAbandoned, CutComplete, Persist, Recall
from seep.protocol.effects import Commit, Effect, Finished, LogOffsets, OpenSink, Post, StateLost, Wake
from seep.protocol.holder import Holder, HolderLetter
from seep.protocol.instances.instance import Instance, InstancePhase
from seep.protocol.instances.keyed import KeyedInstance
from seep.protocol.instances.sink import CommitAccepted, CommitRefused, SinkOpened
from seep.protocol.instances.stateful import StatefulInstance
from seep.protocol.messages import Data, Retrieved, StateMoved
from seep.protocol.view import Incarnation, View
from seep.record.reports import HandedPart, InstanceFigures
from seep.sinks.definition import SinkFenced, SinkStore
from seep.threads.mailbox import Mailbox

Work = Callable[[], list[Effect]]

#: Seconds between two costly measurements of an instance, and how many times longer they are apart than they take.
_LOOK, _LOOK_SHARE = 0.3, 100


class NodeServices(Protocol):
    """The services of a node for its machines; called on the machine's thread."""

    name: str

    def perform(self, effect: Effect) -> None:
        """Carries out effects of any machine: letters and events."""
        ...

    def hand_over(self, message: Data) -> None:
        """Passes rows to an instance of the same node."""
        ...

    def open_stream(
        self, node: str, sender: Incarnation, receiver: Incarnation, on_room: Callable[[], None]
    ) -> InstanceStream | None:
        """Opens a stream to an instance on another node; returns None if that node is lost."""
        ...

    def persist(self, part: Persist) -> None:
        """Writes a part of a cut to storage."""
        ...

    def recall(self, hosted: HostedInstance, slots: SlotSet) -> None:
        """Reads the state of these slots from storage, and sends it to the instance as `Recalled`."""
        ...

    def failed(self, instance: Incarnation | None, epoch: int, reason: BaseException) -> None:
        """Reports that a machine has failed."""
        ...

    def left(self, hosted: HostedInstance) -> None:
        """Reports that an instance has ended."""
        ...


class HostedInstance:
    """An instance on its own thread. Calls of the node return no effects: the instance performs them on its thread.

    It also drives the streams to its receivers: each stream takes what the outbox's cursor for it yields, as long as
    the stream has room.
    """

    def __init__(
        self,
        instance: Instance[pa.RecordBatch],
        node: NodeServices,
        store: SinkStore | None,
        meter: Meter,
        share: CpuShare,
        room: StateBudget,
    ) -> None:
        self.me = instance.me
        self.meter = meter
        self._share = share
        self._turn = BudgetLock(room) if _shares_budget(instance) else nullcontext()
        self._look = 0.0
        self.instance = instance
        self._node = node
        self._sink = SinkDriver(instance, store, meter) if store is not None else None
        self._mailbox: Mailbox[Work] = Mailbox()
        self._streams: dict[Incarnation, InstanceStream] = {}
        self._thread = threading.Thread(target=self._run, name=f"seep instance {self.me}", daemon=True)
        self._thread.start()

    # -- called by the node -------------------------------------------------------------------------------------------

    def start(self, origin: Any, trimmed: int = 0) -> list[Effect]:
        self._mailbox.letter(partial(self.instance.start, origin, trimmed))
        return []

    def handle(self, message: object) -> list[Effect]:
        if isinstance(message, Data | StateMoved):
            self._mailbox.stream(partial(self._take, message))
        elif isinstance(message, View):
            self._mailbox.letter(partial(self._view, message))
        elif isinstance(message, Retrieved) and message.warm_up is not None:
            self._mailbox.letter(partial(self._warm, message, message.warm_up.first))
        elif isinstance(message, Retrieved) and message.stands:
            self._mailbox.letter(partial(self._stand_in, message))
        else:
            self._mailbox.letter(partial(self.instance.handle, message))
        return []

    def reconnect(self, peer: str) -> list[Effect]:
        self._mailbox.letter(partial(self.instance.reconnect, peer))
        return []

    def halt(self) -> None:
        self._mailbox.letter(self._halt)

    def pull(self, receiver: Incarnation) -> None:  # noqa: ARG002
        """Does nothing: the instance drives its streams itself."""
        return

    def room(self, receiver: Incarnation, node: str) -> None:
        """Continues a stream that has room again."""
        self._mailbox.stream(partial(self._pump_again, receiver, node))

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def figures(self) -> InstanceFigures:
        """Returns its figures for the node's report; read without a lock, so approximate."""
        outbox, processed = self.instance.outbox, self.instance.processed  # before the meter, which has all up to it
        metered = self.meter.figures(self.me, self.instance.phase.value, processed)
        return replace(
            metered,
            counted=self.instance.processed + 1,  # read after the meter, which then includes nothing later
            waiting=len(self._mailbox),
            outbox_bytes=outbox.nbytes,
            unsent=outbox.last - min(self._cursors(), default=outbox.last),
        )

    def _cursors(self) -> list[int]:
        """Returns the last epoch that each receiver has taken."""
        outbox = self.instance.outbox
        found = [outbox.position(receiver) for receiver in outbox.receivers]
        return [min(position - 1, outbox.last) for position in found if position is not None]

    # -- on its own thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self.instance.phase is not InstancePhase.HALTED:
                work = self._mailbox.take()
                begun = time.monotonic()
                with self._turn:
                    self._perform(work())
                    self._look_closer(begun)
                self.meter.cpu = time.thread_time()
                self.meter.busy += time.monotonic() - begun
                self._share.pace()
        except BaseException as reason:
            self._node.failed(self.me, self.instance.processed + 1, reason)
        finally:
            self._close()
            self._node.left(self)

    def _look_closer(self, now: float) -> None:
        """Makes the costly measurements from time to time. State that takes long to measure is measured less often."""
        if now < self._look:
            return
        self.meter.stolen = stolen_seconds()
        if isinstance(self.instance, KeyedInstance) and isinstance(self.instance.state, Sized):
            self.meter.state_bytes = self.instance.state.size()
        self._look = now + max(_LOOK, _LOOK_SHARE * (time.monotonic() - now))

    def _take(self, message: Data | StateMoved) -> list[Effect]:
        if isinstance(message, Data):
            self.meter.rows_in += sum(batch.num_rows for batch in message.batches.values())
            return self.instance.handle(message)
        held = self.instance.held_back
        effects = self.instance.handle(message)
        nbytes = sum(nbytes_of(chunk) for chunk in message.chunks)
        self.meter.handed.append(HandedPart(message.epoch, nbytes, held_back=self.instance.held_back - held))
        return effects

    def _warm(self, message: Retrieved, first: int) -> list[Effect]:
        chunks = message.checkpoint.state if message.checkpoint is not None else ()
        self.meter.handed.append(HandedPart(first, nbytes_ahead=sum(nbytes_of(chunk) for chunk in chunks)))
        return self.instance.handle(message)

    def _stand_in(self, message: Retrieved) -> list[Effect]:
        effects = self.instance.handle(message)
        if isinstance(self.instance, StatefulInstance):
            self.meter.watch(self.instance.logic)
        return effects

    def _view(self, view: View) -> list[Effect]:
        effects = self.instance.handle(view)
        for receiver in [receiver for receiver in self._streams if not view.is_current(receiver)]:
            self._close_stream(receiver)
        return effects

    def _halt(self) -> list[Effect]:
        self.instance.halt()
        return []

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Wake(_, receiver, node):
                    self._pump(receiver, node)
                case OpenSink():
                    assert self._sink is not None
                    self._perform(self._sink.open())
                case Commit():
                    assert self._sink is not None
                    self._perform(self._sink.commit(effect))
                case Persist():
                    self._node.persist(effect)
                case Recall(_, slots):
                    self._node.recall(self, slots)
                case Post() | Event():
                    self._node.perform(effect)
                case LogOffsets() | Finished() | StateLost() | CutComplete() | CutAbandoned():
                    raise InternalError(f"{self.me} wants what only the manager may: {effect!r:.200}")
                case _:
                    assert_never(effect)

    # -- streams ------------------------------------------------------------------------------------------------------

    def _pump(self, receiver: Incarnation, node: str) -> None:
        """Sends the receiver the messages that it does not have yet, as long as there is room."""
        if node == self._node.name:
            while (message := self.instance.pull(receiver)) is not None:
                self._node.hand_over(message)
            return
        stream = self._streams.get(receiver)
        if stream is None:
            stream = self._node.open_stream(node, self.me, receiver, partial(self.room, receiver, node))
            if stream is None:
                return
            self._streams[receiver] = stream
        while stream.has_room() and (message := self.instance.pull(receiver)) is not None:
            stream.offer(message)

    def _pump_again(self, receiver: Incarnation, node: str) -> list[Effect]:
        if receiver in self._streams:
            self._pump(receiver, node)
        return []

    def _close_stream(self, receiver: Incarnation) -> list[Effect]:
        stream = self._streams.pop(receiver, None)
        if stream is not None:
            stream.close()
        return []

    def _close(self) -> None:
        for receiver in list(self._streams):
            self._close_stream(receiver)
        if self._sink is not None:
            self._sink.close()
        if isinstance(self.meter.logic, BatchLogic):
            with self._turn:
                self.meter.logic.close()


def _shares_budget(instance: Instance[pa.RecordBatch]) -> bool:
    state = getattr(instance, "state", None)
    return isinstance(state, Containers) and state.shares_budget


class BudgetLock:
    """Held while an instance uses containers that share a budget; afterwards, none of their objects is in use."""

    def __init__(self, room: StateBudget) -> None:
        self._room = room

    def __enter__(self) -> None:
        self._room.lock.acquire()

    def __exit__(self, *_: object) -> None:
        try:
            self._room.budget.settle()
        finally:
            self._room.lock.release()


class SinkDriver:
    """Carries out the commits of a sink instance with its store."""

    def __init__(self, instance: Instance[pa.RecordBatch], store: SinkStore, meter: Meter) -> None:
        self._instance = instance
        self._store = store
        self._meter = meter
        self._told = 0
        #: epoch -> creation time of its oldest row, for epochs that are not durable
        self._open: dict[int, float] = {}

    def open(self) -> list[Effect]:
        self._told = self._store.open(self._instance.me)
        return self._instance.handle(SinkOpened(self._told))

    def commit(self, effect: Commit) -> list[Effect]:
        if effect.created:
            self._open[effect.epoch] = effect.created
        self._meter.put_out(effect.watermark, effect.created)
        batches = [batch for batches in effect.inputs.values() for batch in batches if batch.num_rows]
        try:
            durable = self._store.commit(effect.sink, effect.epoch, batches, effect.watermark)
            if effect.flush and durable < effect.epoch:
                durable = self._store.flush()
        except SinkFenced:
            return self._instance.handle(CommitRefused(effect.epoch))
        if durable <= self._told:
            return []
        self._told = durable
        self._measure(durable)
        return self._instance.handle(CommitAccepted(durable))

    def close(self) -> None:
        self._store.close()

    def _measure(self, durable: int) -> None:
        now = time.time()
        for epoch in [e for e in self._open if e <= durable]:
            self._meter.latencies.append(max(0.0, now - self._open.pop(epoch)))  # clocks of machines may differ


class HostedHolder:
    """A holder on its own thread: merging a large backup delays only other backups."""

    def __init__(self, holder: Holder, node: NodeServices, share: CpuShare) -> None:
        self._holder = holder
        self._share = share
        self._node = node
        self._mailbox: Mailbox[Work] = Mailbox()
        threading.Thread(target=self._run, name="seep holder", daemon=True).start()

    def on_view(self, view: View) -> None:
        self._mailbox.letter(partial(_no_effects, self._holder.on_view, view))

    def receive(self, sender: str, letter: HolderLetter) -> list[Effect]:
        self._mailbox.letter(partial(self._holder.receive, sender, letter))
        return []

    def _run(self) -> None:
        while True:
            try:
                for effect in self._mailbox.take()():
                    self._node.perform(effect)
                self._share.pace()
            except BaseException as reason:
                self._node.failed(None, 0, reason)
                return


def _no_effects(method: Callable[[View], None], view: View) -> list[Effect]:
    method(view)
    return []
