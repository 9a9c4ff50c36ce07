"""Runs a query in this process, with the real protocol machines, on one thread and without Spark, as a test says."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import inf
from types import TracebackType
from typing import NamedTuple, Self, assert_never

import pyarrow as pa

from policies.balance.loads import Balancer
from policies.balance.settings import BalanceSettings
from policies.migration.settings import MigrationSettings
from policies.scaling.decision import Policy
from policies.scaling.settings import ScalingSettings
from primitives.errors import EnvironmentFault, InternalError, UserError
from primitives.event import Event
from primitives.graph import InstanceId
from primitives.slots import SlotSet, split_evenly
from seep.control.migration import MigrationProgress
from seep.control.requests import MigrationRequests
from seep.control.targets import Target
from seep.kernel.kernel import Kernel, Told
from seep.kernel.mail import InOrder, Mail, OwnWork, RandomOrder
from seep.kernel.steering import KernelSteering
from seep.operators.errors import UserCodeFailed
from seep.protocol.cuts import Beginning, Cut, CutAbandoned, CutComplete
from seep.protocol.effects import Effect, Finished, LogOffsets, StateLost
from seep.protocol.instances.checkpointing import CheckpointSettings
from seep.protocol.manager.manager import Manager
from seep.protocol.manager.plans import Refused
from seep.protocol.manager.state import ManagerSettings
from seep.protocol.messages import BackupCounted, Data
from seep.protocol.node import Node
from seep.protocol.view import MANAGER
from seep.query.program import Program
from seep.query.query import Query
from seep.sources.definition import SourceDefinition
from seep.testing.scripted import BackUp, Cue, Kill, Notice, Restart, Savepoint, Scale, Script
from seep.testing.steering import PULSE, FreeNodes, RowCounts, StewardPlan
from seep.testing.stores import Stores


class _ScriptCue(NamedTuple):
    """A cue that takes effect as soon as its source has read up to a position."""

    source: str
    position: int
    cue: Cue


class _ProgramNode(Node[pa.RecordBatch]):
    """A node that names the instance whose user code failed, and counts rows."""

    count: Callable[[Data], None]

    def receive_stream(self, message: Data) -> list[Effect]:
        """See `Node`."""
        if message.receiver in self.instances:
            self.count(message)
        try:
            return super().receive_stream(message)
        except UserCodeFailed as failure:
            failure.instance = str(message.receiver.instance)
            raise


class _ProgramSetting:
    """The mail, nodes and manager of a program's simulated run; see `KernelSetting`."""

    def __init__(self, program: Program, checkpoint_every: int, seed: int | None) -> None:
        self._program = program
        self._checkpoints = CheckpointSettings(every=checkpoint_every)
        self._rng = None if seed is None else random.Random(seed)
        roll = max((sink.roll for sink, _ in program.sinks.values()), default=1)
        self._manager = ManagerSettings(window=8 + roll)
        #: the parallelism of the next run
        self.parallelism = program.parallelism
        #: called with the rows that an instance receives
        self.count: Callable[[Data], None] = lambda _: None

    def mail(self) -> Mail:
        """See `KernelSetting`."""
        return InOrder() if self._rng is None else RandomOrder(self._rng)

    def node(self, name: str, own: Callable[[OwnWork], None]) -> _ProgramNode:  # noqa: ARG002  (it puts nothing off)
        """See `KernelSetting`."""
        node = _ProgramNode(name, self._program, self._program.batches(), self._checkpoints)
        node.count = lambda message: self.count(message)
        return node

    def manager(self, beginning: Beginning | None) -> Manager:
        """See `KernelSetting`."""
        return Manager(self._program.graph, self.parallelism, self._manager, beginning)

    def delay(self, longest: int) -> int:
        """See `KernelSetting`."""
        return 1 if self._rng is None else self._rng.randint(1, longest)

    def segments(self) -> int:
        """See `KernelSetting`."""
        return self.delay(3)

    def credit(self) -> int:
        """See `KernelSetting`."""
        return 2


class InProcess:
    """A query that advances only by explicit calls. The same calls give the same run.

    Nodes are objects, and messages between them are in one queue: by default they are delivered in the order of
    sending; with a `seed`, in random order (a query must give the same rows in any order).

    >>> import pyarrow as pa, seep
    >>> from seep.testing import InProcess, script
    >>> query = seep.Query("words")
    >>> lines = query.source("lines", script(pa.record_batch({"word": ["a", "b"]}), pa.record_batch({"word": ["a"]})))
    >>> lines.key_by("word").aggregate("counter", n=seep.count(), emit="end").sink("out", seep.sinks.collect())
    >>> with InProcess(query) as run:
    ...     opened = run.pulse()  # the first epoch
    ...     run.settle()  # delivers all messages that follow
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
        scaling: ScalingSettings | Policy | None = None,
        balance: BalanceSettings | Balancer | None = None,
        migration: MigrationSettings | None = None,
        capacity: float | None = None,
    ) -> None:
        """Backups need at least two nodes. A source reads at most `rows_per_epoch` rows in an epoch.

        `scaling` and `balance` are settings as for a real run, or a policy and a balancer of your own; `migration` says
        how slots move. For them, each pulse takes one second, and an instance that gets `capacity` rows in an epoch is
        fully used.
        """
        program = query if isinstance(query, Program) else query.compile(parallelism=parallelism)
        self.program = _untimed(program, rows_per_epoch)
        self.events: list[Event] = []  #: the events of the run
        self.finished = False
        self._scripts = {name: each for name, (each, _) in self.program.sources.items() if isinstance(each, Script)}
        self._cues = {
            name: [_ScriptCue(name, position, cue) for position, cue in script.cues]
            for name, script in self._scripts.items()
        }
        self._due: list[_ScriptCue] = []
        #: the savepoint that the script waits for, and its cut when that is announced
        self._saving: _ScriptCue | None = None
        self._cut: Cut | None = None
        #: nodes that end as soon as they are not used any more
        self._leaving: list[str] = []
        self._joined, self._nodes = 0, nodes
        self._stores = Stores(self.program.sinks)
        self._setting = _ProgramSetting(self.program, checkpoint_every, seed)
        self._plan = StewardPlan(self.program, scaling, balance, migration)
        self._requests = MigrationRequests(self.program.graph, self._plan.migration)
        self._pulses = 0
        self._kernel = Kernel(self._setting, self._stores, self._take)
        self._counts = RowCounts(
            self._kernel, self.program, self._plan.scaling.detector.report, capacity, self._seconds
        )
        self._setting.count = self._counts.count
        self._launch()

    def _launch(self) -> None:
        vms = FreeNodes(self._kernel, self.join, self._release_node)
        steward = self._plan.steward()
        self._steering = KernelSteering(self._kernel, steward, vms, self._counts, self._seconds, self.events.append)
        for _ in range(self._nodes):
            self.join()
        self._perform(self.manager.launch())

    def _seconds(self) -> float:
        return self._pulses * PULSE

    def _release_node(self, node: str) -> None:
        if node not in self._leaving:
            self._leaving.append(node)

    def _perform(self, effects: list[Effect]) -> None:
        self._kernel.perform(MANAGER, effects)

    @property
    def manager(self) -> Manager:
        """The manager of the current run."""
        return self._kernel.manager

    @property
    def nodes(self) -> Mapping[str, Node[pa.RecordBatch]]:
        """The nodes of the current run, by name."""
        return self._kernel.nodes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the stores of the sinks; committed rows stay in `tables`."""
        self._stores.close()

    # -- advancing ----------------------------------------------------------------------------------------------------

    def pulse(self) -> bool:
        """Makes the manager open the next epoch, if the query keeps up; delivers no message."""
        before = self.manager.ticked
        self._pulses += 1
        self._steering.step()
        self._perform(self.manager.pulse())
        return self.manager.ticked > before

    def step(self) -> bool:
        """Delivers one message; returns False if there is none."""
        self._follow_scripts()
        self._kernel.begin_step()
        if not self._kernel.mail:
            return self._kernel.skip_ahead()
        self._kernel.deliver()
        return True

    def settle(self) -> None:
        """Delivers messages until there is none."""
        while self.step():
            pass

    def run(self, epochs: int = 100_000) -> None:
        """Runs to the end of the input; raises UserError if that takes more than `epochs` epochs."""
        last = self.manager.ticked + epochs
        while not self.finished:
            if self.manager.ticked >= last:
                raise UserError(
                    f"query {self.program.name!r} has not ended after {epochs} epochs; "
                    "give it sources that end, or use pulse() and settle()"
                )
            moved = self.pulse()
            self._check_not_stuck(moved)
            self.settle()
        if self._due:
            late = self._due[0].cue
            raise UserError(f"query {self.program.name!r} ended before its script came to {late}; add batches")

    def _check_not_stuck(self, moved: bool) -> None:
        if not moved and not self._kernel.mail and not self._kernel.has_plans and not self.finished:
            raise InternalError(f"query {self.program.name!r} is stuck after epoch {self.manager.ticked}")

    # -- failures -----------------------------------------------------------------------------------------------------

    def kill(self, operator: str, index: int | None = None) -> None:
        """Kills the node of an instance, with everything that it hosts; a new node joins.

        Without `index`, it is the operator's first instance.
        """
        self.kill_node(self._node_of(operator, index, "to kill"))

    def kill_node(self, name: str) -> None:
        """Kills a node, which is detected at once; a new node joins."""
        self._kernel.end(name)
        self._kernel.give_up(name)
        self.join()

    def _node_of(self, operator: str, index: int | None, purpose: str) -> str:
        if index is None:
            index = min((i.index for i in self.manager.placement if i.operator == operator), default=0)
        seat = self.manager.placement.get(InstanceId(operator, index))
        if seat is None:
            raise UserError(f"there is no instance {index} of operator {operator!r} {purpose}")
        return seat.node

    def notice(self, operator: str, index: int | None = None) -> None:
        """Gives notice that the VM of an instance's node will end: its instances move elsewhere, then the node ends.

        A new node joins at once. The moved slots belong to instances with new numbers.
        """
        leaving = self._node_of(operator, index, "whose node could leave")
        self.join()
        self.drain(leaving)

    # -- requests to the steward --------------------------------------------------------------------------------------

    def scale(self, operator: str, parallelism: int) -> None:
        """Scales an operator to `parallelism` instances, as a policy would; `events` say when it is done."""
        if operator not in self.program.graph.operators:
            raise UserError(f"there is no operator {operator!r} to scale")
        self._steering.steward.scale(self._steering.facts(), operator, parallelism)

    def migrate(self, operator: str, target: Target, **settings: object) -> int:
        """Moves slots of an operator to the target, step by step; returns the number of the migration.

        The target is a number of instances, an assignment, or slots by instance; settings are those of
        `MigrationSettings`, such as `strategy="fluid"`.
        """
        opened = self._requests.migrate(self._seconds(), {operator: target}, settings)
        return self._steering.steward.migrate(self._steering.facts(), opened)[0]

    def progress(self, migration: int) -> MigrationProgress:
        """Returns the progress of a migration."""
        found = self._steering.steward.progress(self._steering.facts(), migration)
        if not found:
            raise UserError(f"there is no migration {migration}, or none that is still known")
        return found[0]

    def balance(self, operator: str) -> None:
        """Balances an operator: slots move as soon as its balancer chooses some."""
        self._steering.steward.balance(self._steering.facts(), operator)

    def drain(self, node: str) -> None:
        """Moves everything on a node elsewhere; then the node ends."""
        if node not in self.manager.nodes:
            raise UserError(f"there is no node {node!r}; there are {', '.join(self.manager.nodes)}")
        self._steering.steward.drain(self._steering.facts(), node)

    # -- single steps -------------------------------------------------------------------------------------------------

    def join(self) -> None:
        """Adds a node."""
        self._joined += 1
        self._kernel.join(f"node-{self._joined}")

    def savepoint(self) -> int:
        """Takes a savepoint of the whole query, and advances until it is complete; returns its epoch."""
        cut = None
        while not self._is_saved(cut):
            if self.finished or self.manager.ending:
                raise UserError(f"query {self.program.name!r} ends before a savepoint of it could be complete")
            if self.manager.cuts.underway is None:
                cut = self._announce_cut()
            self._check_not_stuck(self.pulse())
            self.settle()
        assert cut is not None
        return cut.epoch

    def _is_saved(self, cut: Cut | None) -> bool:
        return cut is not None and self.manager.cuts.complete_epoch == cut.epoch

    def _announce_cut(self) -> Cut | None:
        cut, effects = self.manager.persist()
        self._perform(effects)
        return cut

    def restart(self, parallelism: Mapping[str, int] | None = None) -> None:
        """Kills all processes, and begins a new run of the query.

        It continues from the last savepoint, or begins from nothing if there is none, with as many instances as
        `parallelism` says, and with the same number of nodes as the first run. Sinks remove what they committed after
        the savepoint, as far as they can: see `SinkDefinition.resumed`.
        """
        for operator, count in (parallelism or {}).items():
            if operator not in self.program.graph.operators:
                raise UserError(f"there is no operator {operator!r} to have {count} instances")
        self._setting.parallelism = {**self._setting.parallelism, **(parallelism or {})}
        if self._saving is not None:
            self._cues[self._saving.source].insert(0, self._saving)
        self._saving = self._cut = None
        self._leaving.clear()
        self.finished = False
        self._kernel.restart()
        self._launch()

    def checkpoint(self, operator: str | None = None) -> None:
        """Asks all instances with state, or those of one operator, for a checkpoint."""
        self._perform(self.manager.checkpoint(operator))

    def move(self, operator: str, parts: Mapping[int, SlotSet | Iterable[int]]) -> None:
        """Moves slots to the given instances, by number, in a few epochs; new numbers make new instances."""
        given = {i: slots if isinstance(slots, SlotSet) else SlotSet(list(slots)) for i, slots in parts.items()}
        answer, effects = self.manager.move(operator, given)
        self._perform(effects)
        if isinstance(answer, Refused):
            raise UserError(f"slots of operator {operator!r} cannot be moved: {answer.why.value}")

    def scale_out(self, operator: str, parallelism: int) -> None:
        """Divides the operator's slots evenly among `parallelism` instances, more or fewer than now."""
        if operator not in self.program.graph.operators:
            raise UserError(f"there is no operator {operator!r} to scale")
        owners = sorted(self.manager.topology.history[operator][-1].assignment.parts)
        fresh = self.manager.fresh_index(operator)
        chosen = [*owners, *range(fresh, fresh + parallelism)][:parallelism]
        shares = split_evenly(SlotSet.full(self.program.graph.operators[operator].slot_bits), parallelism)
        self.move(operator, dict(zip(chosen, shares, strict=True)))

    scale_in = scale_out

    # -- results ------------------------------------------------------------------------------------------------------

    @property
    def tables(self) -> dict[str, pa.Table]:
        """The rows that every sink, of any kind, has committed so far; by epoch, then by instance."""
        return self._stores.tables()

    @property
    def epoch(self) -> int:
        """The last epoch that was opened."""
        return self.manager.ticked

    def instances(self, operator: str) -> list[int]:
        """The numbers of the instances that own slots of the operator, by the latest plan."""
        return sorted(self.manager.topology.history[operator][-1].assignment.parts)

    # -- notices of the machines --------------------------------------------------------------------------------------

    def _take(self, told: Told) -> None:
        match told:
            case LogOffsets(source, _, positions):
                self._note_position(source.operator, positions.get(0))
            case CutComplete(cut):
                self._release_script(cut)
            case Event():
                self.events.append(told)
                self._steering.hear(told)
            case Finished():
                self.finished = True
                self._steering.end()
            case StateLost():
                raise EnvironmentFault(str(told))
            case CutAbandoned() | BackupCounted():
                pass
            case _:
                assert_never(told)

    # -- scripts ------------------------------------------------------------------------------------------------------

    def _note_position(self, source: str, position: int | None) -> None:
        cues = self._cues.get(source, [])
        while cues and position is not None and cues[0].position <= position:
            self._due.append(cues.pop(0))

    def _follow_scripts(self) -> None:
        """Carries out due cues that need not wait, announces a cut that a script waits for, and ends unused nodes."""
        while self._due and not self._waits(self._due[0].cue):
            self._carry_out(self._due.pop(0))
        if self._saving is not None and self.manager.cuts.underway is None:
            self._cut = self._announce_cut()
        for node in list(self._leaving):
            self._end_if_empty(node)

    def _waits(self, cue: Cue) -> bool:
        """Whether a cue must wait: for a savepoint, or, to scale an operator, for moves of that operator."""
        under_way = {plan.operator for plan in self.manager.moves.values()}
        return self._saving is not None or (isinstance(cue, Scale) and cue.operator in under_way)

    def _carry_out(self, due: _ScriptCue) -> None:
        match due.cue:
            case Kill(operator, index):
                self.kill(operator, index)
            case Scale(operator, parallelism):
                self.scale_out(operator, parallelism)
            case BackUp(operator):
                self.checkpoint(operator)
            case Savepoint():
                self._saving = due
            case Restart(parallelism):
                self.restart(parallelism)
            case Notice(operator, index):
                self.notice(operator, index)
            case _:
                assert_never(due.cue)

    def _release_script(self, cut: Cut) -> None:
        """Lets a script continue whose savepoint is complete."""
        if self._saving is not None and cut == self._cut:
            self._scripts[self._saving.source].release(self._saving.position)
            self._saving = self._cut = None

    def _end_if_empty(self, node: str) -> None:
        """Ends a leaving node when nothing is left on it."""
        if node not in self.manager.used_nodes():
            self._leaving.remove(node)
            self._kernel.end(node)
            self._kernel.give_up(node)


def _untimed(program: Program, rows_per_epoch: int) -> Program:
    """Returns the program without rates and with infinite epochs, so that no clock decides how much sources read.

    It checks users' operators strictly.
    """
    sources = {
        name: (_waiting_script(definition), replace(setting, rate=None, epoch_seconds=inf, max_rows=rows_per_epoch))
        for name, (definition, setting) in program.sources.items()
    }
    operators = {
        name: (definition, replace(setting, strict=True)) for name, (definition, setting) in program.operators.items()
    }
    return replace(program, sources=sources, operators=operators)


def _waiting_script(definition: SourceDefinition) -> SourceDefinition:
    """Returns a copy of a script for one run, in which it waits at its savepoints."""
    return definition.for_one_run() if isinstance(definition, Script) else definition
