"""A query in this process: the real protocol machines, one thread, no Spark, and whatever the test does to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf
from types import TracebackType
from typing import Any, NamedTuple, Self

import pyarrow as pa

from primitives.errors import EnvironmentFault, InternalError, UserError
from primitives.event import Event
from primitives.graph import InstanceId
from primitives.slots import SlotSet, split_evenly
from seep.operators.errors import UserCodeFailed
from seep.protocol.checkpointing import CheckpointSettings
from seep.protocol.core import ManagerSettings
from seep.protocol.effects import Commit, Effect, Finished, LogOffsets, OpenSink, Post, StateLost, Wake
from seep.protocol.manager import Manager
from seep.protocol.messages import Data, StateMoved
from seep.protocol.node import Node
from seep.protocol.plans import Refused
from seep.protocol.view import MANAGER, Incarnation
from seep.query.program import Program
from seep.query.query import Query
from seep.testing.mail import Channel, Mail
from seep.testing.scripted import Checkpoint, Cue, Kill, Scale, Script
from seep.testing.stores import Stores

_STORE = "store"


class _Letter(NamedTuple):
    version: int
    body: Any


class _Pull(NamedTuple):
    """The sender of a stream looks whether it has something for the receiver."""

    sender: Incarnation
    receiver: Incarnation
    node: str


class _Answer(NamedTuple):
    sink: Incarnation
    body: Any


class InProcess:
    """A query that goes on only when it is told to. The same calls give the same run.

    Nodes are objects, and messages between them are queued in one place: by default they are delivered in the order
    of sending; with a `seed`, in an order drawn by lot (a query must give the same rows in any).

    >>> import pyarrow as pa, seep
    >>> from seep.testing import InProcess, script
    >>> query = seep.Query("words")
    >>> lines = query.source("lines", script(pa.record_batch({"word": ["a", "b"]}), pa.record_batch({"word": ["a"]})))
    >>> lines.key_by("word").aggregate("counter", n=seep.count(), emit="end").sink("out", seep.sinks.collect())
    >>> with InProcess(query) as run:
    ...     opened = run.pulse()  # the first epoch
    ...     run.settle()  # all that follows from it happens
    ...     run.kill("counter")
    ...     run.run()
    >>> sorted(run.tables["out"].to_pylist(), key=lambda row: row["word"])
    [{'word': 'a', 'n': 2}, {'word': 'b', 'n': 1}]
    """

    def __init__(
        self,
        query: Query | Program,
        *,
        nodes: int = 3,
        parallelism: Mapping[str, int] | None = None,
        checkpoint_every: int = 4,
        rows_per_epoch: int = 1_000,
        seed: int | None = None,
    ) -> None:
        """With at least two nodes there is a place for backups. A source reads at most `rows_per_epoch` at a time."""
        program = query if isinstance(query, Program) else query.compile(parallelism=parallelism)
        self.program = _untimed(program, rows_per_epoch)
        self.nodes: dict[str, Node[pa.RecordBatch]] = {}
        self.events: list[Event] = []  #: what happened that is worth telling
        self.finished = False
        self._checkpoints = CheckpointSettings(every=checkpoint_every)
        self._mail = Mail(seed)
        self._stores = Stores(self.program.sinks)
        self._joined = 0
        self._cues = {name: list(source.cues) for name, source in self._scripts().items()}
        self._due: list[Cue] = []
        roll = max((sink.roll for sink, _ in self.program.sinks.values()), default=1)
        self.manager = Manager(self.program.graph, self.program.parallelism, ManagerSettings(window=8 + roll))
        for _ in range(nodes):
            self.join()
        self._perform(MANAGER, self.manager.launch())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the stores of the sinks; what was committed stays in `tables`."""
        self._stores.close()

    # -- going on -----------------------------------------------------------------------------------------------------

    def pulse(self) -> bool:
        """Has the manager open the next epoch, if the query keeps up; nothing is delivered yet."""
        before = self.manager.ticked
        self._perform(MANAGER, self.manager.pulse())
        return self.manager.ticked > before

    def step(self) -> bool:
        """Delivers one message; False if none is under way."""
        while self._due and not self._waits(self._due[0]):
            self._befall(self._due.pop(0))
        if not self._mail:
            return False
        channel, item = self._mail.take()
        self._deliver(channel, item)
        return True

    def settle(self) -> None:
        """Delivers messages until none is under way."""
        while self.step():
            pass

    def run(self, epochs: int = 100_000) -> None:
        """Goes on to the end of the input; UserError if that does not come within so many epochs."""
        last = self.manager.ticked + epochs
        while not self.finished:
            if self.manager.ticked >= last:
                raise UserError(
                    f"query {self.program.name!r} has not ended after {epochs} epochs; "
                    "give it sources that end, or use pulse() and settle()"
                )
            moved = self.pulse()
            if not moved and not self._mail and not self.finished:
                raise InternalError(f"query {self.program.name!r} is stuck after epoch {self.manager.ticked}")
            self.settle()
        if self._due:
            raise UserError(f"query {self.program.name!r} ended before its script came to {self._due[0]}; add batches")

    # -- what befalls it ----------------------------------------------------------------------------------------------

    def kill(self, operator: str, index: int = 0) -> None:
        """The node of an instance ends without a word, with all that it hosts; a fresh one takes its place."""
        seat = self.manager.placement.get(InstanceId(operator, index))
        if seat is None:
            raise UserError(f"there is no instance {index} of operator {operator!r} to kill")
        self.kill_node(seat.node)

    def kill_node(self, name: str) -> None:
        """A node ends without a word, which is noticed at once; a fresh one takes its place."""
        for identity in self.nodes.pop(name).instances:
            self._stores.abandon(identity)
        self._mail.forget(name)
        self._perform(MANAGER, self.manager.node_lost(name))
        self.join()

    def join(self) -> None:
        """One more node registers."""
        self._joined += 1
        name = f"node-{self._joined}"
        self.nodes[name] = Node(name, self.program, self.program.batches(), self._checkpoints)
        self._perform(MANAGER, self.manager.node_joined(name))

    def checkpoint(self, operator: str | None = None) -> None:
        """Asks all instances with state (of one operator) for a checkpoint."""
        self._perform(MANAGER, self.manager.checkpoint(operator))

    def move(self, operator: str, parts: Mapping[int, SlotSet | Iterable[int]]) -> None:
        """Slots go to the given instances, by number, a few epochs ahead; new numbers make new instances."""
        given = {i: slots if isinstance(slots, SlotSet) else SlotSet(list(slots)) for i, slots in parts.items()}
        answer, effects = self.manager.move(operator, given)
        self._perform(MANAGER, effects)
        if isinstance(answer, Refused):
            raise UserError(f"slots of operator {operator!r} cannot be moved: {answer.why.value}")

    def scale_out(self, operator: str, parallelism: int) -> None:
        """Spreads the operator's slots evenly over so many instances, more or fewer than now."""
        if operator not in self.program.graph.operators:
            raise UserError(f"there is no operator {operator!r} to scale")
        owners = sorted(self.manager.topology.history[operator][-1].assignment.parts)
        fresh = self.manager.fresh_index(operator)
        chosen = [*owners, *range(fresh, fresh + parallelism)][:parallelism]
        shares = split_evenly(SlotSet.full(self.program.graph.operators[operator].slot_bits), parallelism)
        self.move(operator, dict(zip(chosen, shares, strict=True)))

    scale_in = scale_out

    # -- what came of it ----------------------------------------------------------------------------------------------

    @property
    def tables(self) -> dict[str, pa.Table]:
        """What every sink has committed so far, whatever its kind; rows by epoch, then by instance."""
        return self._stores.tables()

    @property
    def epoch(self) -> int:
        """The last epoch that was opened."""
        return self.manager.ticked

    def instances(self, operator: str) -> list[int]:
        """The numbers of the instances that own slots of the operator, by the latest plan."""
        return sorted(self.manager.topology.history[operator][-1].assignment.parts)

    # -- messages and effects -----------------------------------------------------------------------------------------

    def _deliver(self, channel: Channel, item: _Letter | _Pull | _Answer | Data | StateMoved) -> None:
        name, effects = channel.target, list[Effect]()
        match item:
            case _Letter(version, body) if name == MANAGER:
                effects = self.manager.receive(channel.source, body)
            case _Letter(version, body):
                effects = self.nodes[name].receive(channel.source, version, body)
            case _Pull():
                self._pull(name, item)
            case _Answer(sink, body):
                effects = self.nodes[name].deliver(sink, body)
            case Data() | StateMoved():
                effects = self._receive_stream(name, item)
        self._perform(name, effects)

    def _receive_stream(self, name: str, message: Data | StateMoved) -> list[Effect]:
        try:
            return self.nodes[name].receive_stream(message)
        except UserCodeFailed as failure:
            failure.instance = str(message.receiver.instance)
            raise

    def _pull(self, source: str, pull: _Pull) -> None:
        message = self.nodes[source].pull(pull.sender, pull.receiver)
        if message is not None:
            self._send(source, pull.node, (pull.sender, pull.receiver), message)
            self._send(source, source, (pull.sender, pull.receiver), pull)

    def _send(self, source: str, target: str, lane: object, item: object) -> None:
        if target == MANAGER or target in self.nodes:
            self._mail.put(Channel(source, target, lane), item)

    def _perform(self, process: str, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Post(to, body):
                    version = self.nodes[process].version if process in self.nodes else 0
                    self._send(process, to, None, _Letter(version, body))
                case Wake(sender, receiver, node):
                    self._send(process, process, (sender, receiver), _Pull(sender, receiver, node))
                case OpenSink(sink):
                    self._send(_STORE, process, sink, _Answer(sink, self._stores.open(sink)))
                case Commit(sink):
                    self._send(_STORE, process, sink, _Answer(sink, self._stores.commit(effect)))
                case LogOffsets(source, _, positions):
                    self._follow_script(source, positions.get(0))
                case Event():
                    self.events.append(effect)
                case Finished():
                    self.finished = True
                case StateLost():
                    raise EnvironmentFault(str(effect))

    # -- scripts ------------------------------------------------------------------------------------------------------

    def _scripts(self) -> dict[str, Script]:
        return {n: definition for n, (definition, _) in self.program.sources.items() if isinstance(definition, Script)}

    def _follow_script(self, source: InstanceId, position: int | None) -> None:
        cues = self._cues.get(source.operator, [])
        while cues and position is not None and cues[0][0] <= position:
            self._due.append(cues.pop(0)[1])

    def _waits(self, cue: Cue) -> bool:
        """An operator is scaled when what was begun before is complete."""
        under_way = {plan.operator for plan in self.manager.moves.values()}
        return isinstance(cue, Scale) and cue.operator in under_way

    def _befall(self, cue: Cue) -> None:
        match cue:
            case Kill(operator, index):
                self.kill(operator, index)
            case Scale(operator, parallelism):
                self.scale_out(operator, parallelism)
            case Checkpoint(operator):
                self.checkpoint(operator)


def _untimed(program: Program, rows_per_epoch: int) -> Program:
    """The program without rates, and with epochs that are never late: how much sources read is up to no clock.

    And strict with operators of users.
    """
    sources = {
        name: (definition, replace(setting, rate=None, epoch_seconds=inf, max_rows=rows_per_epoch))
        for name, (definition, setting) in program.sources.items()
    }
    operators = {
        name: (definition, replace(setting, strict=True)) for name, (definition, setting) in program.operators.items()
    }
    return replace(program, sources=sources, operators=operators)
