"""An instance as a state machine: it processes whole epochs in order, each once, from aligned input to outbox.

This base holds the parts that all kinds of operator share: alignment, epochs, streams to receivers and from senders,
and views. `keyed.py`, `source.py` and `sink.py` add the state of each kind and its recovery.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar, cast

from primitives.emission import Batches, Emission
from primitives.errors import InternalError
from primitives.graph import Edge, InstanceId
from primitives.outbox import Outbox
from primitives.partition import partition_buffer_state
from primitives.restore import replay_buffer_state
from primitives.slots import SlotSet
from primitives.trim import trim
from seep.protocol.effects import Effect, Post, Wake
from seep.protocol.instances.inbox import Inbox
from seep.protocol.logic import Piece
from seep.protocol.message_ring import MessageRing
from seep.protocol.messages import MAX_WATERMARK, Attach, Data, Trim
from seep.protocol.standing import HandedStates
from seep.protocol.view import Incarnation, View

Batch = TypeVar("Batch")


class InstancePhase(Enum):
    RESTORING = "restoring"  #: waits for its state
    STANDBY = "standby"  #: has its state, and waits for the view that makes it an owner
    RUNNING = "running"
    HALTED = "halted"  #: fenced or stopped


@dataclass(slots=True)
class Work(Generic[Batch]):
    """An epoch that is being processed: its rows have arrived, the state of some slots may still be on its way."""

    epoch: int
    inputs: Mapping[int, tuple[Batch, ...]]
    watermark: int
    created: float
    waiting: dict[InstanceId, SlotSet]
    in_pieces: bool
    was_held: bool = False  #: whether rows of these slots had to wait
    outputs: list[Mapping[Edge, Batch]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Surroundings(Generic[Batch]):
    """The things that a node gives to an instance at its start."""

    node: str
    view: View
    batches: Batches[Batch]
    outbox: Outbox[Emission[Batch]]  #: empty; the node sets where it spills to
    handed: HandedStates = field(default_factory=HandedStates)  #: the states that the holder of the same node gives


class Instance(ABC, Generic[Batch]):
    """The base of all kinds of instance: takes messages and returns effects."""

    def __init__(self, me: Incarnation, given: Surroundings[Batch]) -> None:
        self.me = me
        self.node = given.node
        self.view = given.view
        self.phase = InstancePhase.RESTORING
        self.inbox = Inbox()
        self.outbox = given.outbox
        self.work: Work[Batch] | None = None
        #: number of rows that had to wait for the state of their slots
        self.held_back = 0
        self._batches = given.batches
        #: sender -> its incarnation that was asked for data; data of others is refused
        self._attached: dict[InstanceId, int] = {}
        #: requests for data that came before there was any
        self._early: list[Attach] = []
        self._effects: list[Effect] = []
        self.ring = MessageRing()
        self._handlers: dict[type, Callable[[Any], None]] = {
            Data: self._on_data,
            Attach: self._on_attach,
            Trim: self._on_trim,
            View: self._on_view,
        }

    # -- entry points for the shell --------------------------------------------------------------------------------

    def handle(self, message: object) -> list[Effect]:
        """Takes one message and returns its effects; a halted instance does nothing."""
        self.ring.took("", message)
        if self.phase is not InstancePhase.HALTED:
            handler = self._handlers.get(type(message))
            if handler is None:
                raise InternalError(f"{self.me} has no use for {message!r:.200}: its kind takes no such message")
            handler(message)
        return self._drain()

    @abstractmethod
    def start(self, origin: Any, trimmed: int = 0) -> list[Effect]:
        """Begins from the state that the manager has named; no receiver needs output up to `trimmed`."""

    def reconnect(self, peer: str) -> list[Effect]:
        """Asks the instances of a node for rows again after its link has reconnected; state is not lost with a link."""
        if self.phase is InstancePhase.RUNNING:
            for sender, first in self._needs().items():
                if sender.operator != self.me.instance.operator and self.view.placement[sender].node == peer:
                    self._ask(sender, first)
        return self._drain()

    def pull(self, receiver: Incarnation) -> Data | None:
        """Returns the next message to a receiver, if there is one, routed by the topology of its epoch."""
        while (entry := self.outbox.pull(receiver)) is not None:
            epoch, emission = entry
            topology = self.view.topology
            if topology.owns(receiver.instance, epoch):
                share = partition_buffer_state(
                    emission, topology, epoch, self.me.instance, receiver.instance, self._batches
                )
                return Data(self.me, receiver, epoch, share, emission.watermark, emission.created)
        return None

    def halt(self) -> None:
        self.phase = InstancePhase.HALTED
        self.outbox.close()

    @property
    def processed(self) -> int:
        """The last epoch that was processed as a whole."""
        return self.inbox.processed

    # -- epochs -----------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Processes epochs as long as their input and the state of their slots have arrived."""
        while self.phase is InstancePhase.RUNNING:
            epoch = self.processed + 1
            self._depart(epoch)
            if not self.view.topology.owns(self.me.instance, epoch):
                return
            if self.work is None:
                if not self._inputs_are_in(epoch):
                    return
                self._open(epoch)
            self._absorb_arrivals()
            assert self.work is not None
            if self.work.waiting:
                self.work.was_held = True
                return
            self._close(self.work)

    def _inputs_are_in(self, epoch: int) -> bool:
        return self.inbox.has_all(epoch, self.view.topology.senders(self.me.instance, epoch))

    def _open(self, epoch: int) -> None:
        topology, me = self.view.topology, self.me.instance
        arriving = topology.arrivals(me, epoch)
        inputs, watermark, created = _union(self.inbox.take(epoch))
        self.work = Work(epoch, inputs, watermark, created, arriving, bool(arriving))
        resident = topology.slots(me, epoch)
        for slots in arriving.values():
            resident -= slots
        if resident:
            self._process(self.work, resident)

    def _process(self, work: Work[Batch], slots: SlotSet) -> None:
        inputs = self._only(work.inputs, slots) if work.in_pieces else work.inputs
        if work.was_held:
            self.held_back += sum(len(cast(Sized, batch)) for batches in inputs.values() for batch in batches)
        work.outputs.append(self._compute(Piece(work.epoch, inputs, work.watermark, slots)))

    def _only(self, inputs: Mapping[int, tuple[Batch, ...]], slots: SlotSet) -> dict[int, tuple[Batch, ...]]:
        edges = {edge.port: edge for edge in self.view.topology.graph.inputs[self.me.instance.operator]}
        chosen = {
            port: [self._batches.select(edges[port], batch, slots) for batch in batches]
            for port, batches in inputs.items()
        }
        return {port: tuple(b for b in batches if b is not None) for port, batches in chosen.items()}

    def _close(self, work: Work[Batch]) -> None:
        self.work = None
        self.inbox.close(work.epoch)
        self._deliver(work)

    def _deliver(self, work: Work[Batch]) -> None:
        self._emit(work.epoch, Emission(self._combined(work.outputs), work.watermark, work.created))

    def _combined(self, outputs: Sequence[Mapping[Edge, Batch]]) -> Mapping[Edge, Batch]:
        if len(outputs) == 1:
            return outputs[0]
        edges = dict.fromkeys(edge for output in outputs for edge in output)
        return {edge: self._batches.concat([o[edge] for o in outputs if edge in o]) for edge in edges}

    def _emit(self, epoch: int, emission: Emission[Batch]) -> None:
        if epoch <= self.outbox.trimmed:
            return  # replayed only for the state; all receivers have this output already
        self.outbox.append(epoch, emission)
        for receiver in self._receivers():
            self._wake(receiver)

    # -- invariants -------------------------------------------------------------------------------------------------

    def broken_rules(self) -> Iterator[str]:
        """Returns the rules that the instance breaks; between two calls there must be none."""
        if self.phase is InstancePhase.RUNNING and self.view.is_fenced(self.me):
            yield f"{self.me} runs, and {self.view.incarnation(self.me.instance)} has taken its place"
        if self.work is not None and self.work.epoch != self.processed + 1:
            yield f"{self.me} works on epoch {self.work.epoch} after {self.processed}"
        if self.phase is InstancePhase.RUNNING and len(self.outbox) and self.outbox.last > self.processed:
            yield f"{self.me} has sent epoch {self.outbox.last}, and processed {self.processed}"

    # -- what other kinds of operator do differently ---------------------------------------------------------------

    @abstractmethod
    def _compute(self, piece: Piece[Batch]) -> Mapping[Edge, Batch]:
        """Computes the operator's output for the rows of some slots of an epoch."""

    def _depart(self, epoch: int) -> None:
        """Hands over the slots that leave before `epoch`; only keyed state ever does."""

    def _absorb_arrivals(self) -> None:
        """Adds the state of arriving slots; only keyed state ever arrives."""

    # -- receivers ----------------------------------------------------------------------------------------------------

    def _on_attach(self, attach: Attach) -> None:
        if self.phase is not InstancePhase.RUNNING:
            self._early.append(attach)
        elif not self.view.is_fenced(attach.receiver):
            self._serve(attach)

    def _serve(self, attach: Attach) -> None:
        # The request may be older than a trim: the receiver has advanced since, or the outbox would not be trimmed.
        replay_buffer_state(self.outbox, attach.receiver, max(attach.first, self.outbox.trimmed + 1))
        self._wake(attach.receiver)

    def _receivers(self) -> list[Incarnation]:
        return [receiver for receiver in self.outbox.receivers if isinstance(receiver, Incarnation)]

    def _wake(self, receiver: Incarnation) -> None:
        seat = self.view.placement.get(receiver.instance)
        if seat is not None:
            self._effects.append(Wake(self.me, receiver, seat.node))

    def _on_trim(self, message: Trim) -> None:
        trim(self.outbox, message.epoch + message.ahead)

    # -- senders ------------------------------------------------------------------------------------------------------

    def _on_data(self, message: Data) -> None:
        if self._is_attached(message.sender) and self.inbox.accept(message):
            self._advance()

    def _is_attached(self, sender: Incarnation) -> bool:
        """Returns whether a message is from the incarnation that was asked: messages of replaced ones are refused."""
        return self._attached.get(sender.instance) == sender.number

    def _needs(self) -> dict[InstanceId, int]:
        """Returns all senders for which this instance will wait, and the first epoch of each."""
        topology, me, following = self.view.topology, self.me.instance, self.processed + 1
        operators = (me.operator, *topology.graph.upstream[me.operator])
        turns = {following, *(epoch for o in operators for epoch in topology.boundaries(o, after=following))}
        needs: dict[InstanceId, int] = {}
        for epoch in sorted(turns):
            senders = topology.senders(me, epoch) if topology.owns(me, epoch) else ()
            for sender in (*senders, *topology.arrivals(me, epoch)):
                needs.setdefault(sender, epoch)
        return needs

    def _attach_to_senders(self) -> None:
        """Asks each sender whose current incarnation has not been asked yet."""
        for sender, first in self._needs().items():
            number = self.view.placement[sender].incarnation
            if self._attached.get(sender) != number:
                self.inbox.discard(sender)
                self._attached[sender] = number
                self._ask(sender, first)

    def _ask(self, sender: InstanceId, first: int) -> None:
        seat = self.view.placement[sender]
        self._post(seat.node, Attach(Incarnation(sender, seat.incarnation), self.me, first, self._bases_from(sender)))

    def _bases_from(self, sender: InstanceId) -> Mapping[int, int]:  # noqa: ARG002
        return {}

    # -- views --------------------------------------------------------------------------------------------------------

    def _begin(self, epoch: int) -> None:
        """Starts to run after `epoch`; earlier epochs are complete."""
        self.inbox.processed = epoch
        self.phase = InstancePhase.RUNNING
        self._attach_to_senders()
        early, self._early = self._early, []
        for attach in early:
            self._on_attach(attach)
        self._advance()

    def _on_view(self, view: View) -> None:
        self.view = view
        if view.is_fenced(self.me):
            self.halt()
        elif self.phase is InstancePhase.RUNNING:
            for receiver in self._receivers():
                if not view.is_current(receiver):
                    self.outbox.detach(receiver)
            self._attach_to_senders()
            self._advance()

    def _post(self, to: str, body: object) -> None:
        self._effects.append(Post(to, body))

    def _drain(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        self.ring.answered(effects)
        return effects


def _union(messages: Sequence[Data]) -> tuple[dict[int, tuple[Any, ...]], int, float]:
    """Returns all rows of an epoch by port, the lowest watermark, and the oldest time of creation."""
    inputs: dict[int, list[Any]] = {}
    for message in messages:
        for port, batch in message.batches.items():
            inputs.setdefault(port, []).append(batch)
    watermark = min((m.watermark for m in messages), default=MAX_WATERMARK)
    created = min((m.created for m in messages if m.created), default=0.0)
    return {port: tuple(batches) for port, batches in inputs.items()}, watermark, created
