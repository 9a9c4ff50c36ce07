"""The simulated world: the kernel under one seeded schedule, with faults, over a network that fails."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, assert_never

from primitives.event import Event
from primitives.graph import Kind
from seep.kernel.kernel import Kernel, Told, Trace
from seep.kernel.mail import OwnWork
from seep.protocol.cuts import Beginning, CutAbandoned, CutComplete
from seep.protocol.effects import Finished, LogOffsets, StateLost
from seep.protocol.instances.checkpointing import CheckpointSettings
from seep.protocol.logic import Logic, SourceLogic
from seep.protocol.manager.manager import Manager
from seep.protocol.manager.state import ManagerSettings
from seep.protocol.messages import BackupCounted
from seep.protocol.node import Node
from seep.protocol.view import MANAGER
from seep.simulator.control import EVERY, ScheduleControl
from seep.simulator.faults import Fault, What
from seep.simulator.mailed_hosting import MailedHosting
from seep.simulator.network import Network
from seep.simulator.queries import SimulatedQuery
from seep.simulator.store import SimulatedSinkStore

#: Factors of its delay that a fault lasts, if not 1.
_LASTS = {What.LEAVE: 10, What.SLOW: 5, What.NO_VMS: 5}


class Stuck(AssertionError):
    """The schedule did not end although all faults are over."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The size of a schedule."""

    rows: int = 10  #: most rows per source partition
    bite: int = 2  #: most rows per partition and epoch
    steps: int = 60_000
    after: int = 60  #: number of further steps after the end, in which zombies may act
    replicas: int = 0  #: number of nodes that keep each backup; 0: one in some schedules, none in others


@dataclass(slots=True)
class ScheduleTally:
    """Counts of events in a schedule."""

    events: dict[str, int] = field(default_factory=dict)
    #: fault, and a decision that was open when it struck
    pairs: dict[tuple[str, str], int] = field(default_factory=dict)

    def pair(self, fault: str, decision: str) -> None:
        self.pairs[fault, decision] = self.pairs.get((fault, decision), 0) + 1

    def count(self, kind: str) -> None:
        self.events[kind] = self.events.get(kind, 0) + 1


class QueryOperators:
    """Makes logic for the nodes of one world."""

    def __init__(self, query: SimulatedQuery, rng: random.Random, bite: int) -> None:
        self._query, self._rng, self._bite = query, rng, bite

    def logic(self, operator: str) -> Logic[Any]:
        return self._query.logic(operator)

    def standing(self, operator: str) -> Logic[Any] | None:
        return self._query.logic(operator)

    def source(self, operator: str) -> SourceLogic[Any]:
        return self._query.source(operator, lambda: self._rng.randint(0, self._bite))


class SimulatedSetting:
    """The random settings of a schedule's world, by its seed."""

    def __init__(self, seed: int, query: SimulatedQuery, rng: random.Random, bite: int) -> None:
        self._query, self._rng = query, rng
        self._checkpoints = self._checkpoint_settings()
        self._mails_holders = seed % 2 == 1
        self._operators = QueryOperators(query, rng, bite)
        self._batches = query.medium.batches(query.graph)
        self._manager = ManagerSettings(
            window=rng.choice((2, 4, 8)),
            lead=rng.choice((0, 1, 3)),
            warm_up=rng.random() < 0.5,
            trim_every=rng.choice((1, 1, 3)),
            recovery_parallelism=rng.choice((1, 1, 1, 2, 3)),
            cut_chain=rng.choice((0, 1, 3)),
            patience=dict.fromkeys(query.graph.operators, rng.choice((2, 20, 1 << 30))),
            last_cut=seed % 3 == 0,
        )

    def _checkpoint_settings(self) -> CheckpointSettings:
        every, changed = self._rng.choice((1, 2, 4, 9)), self._rng.choice((None, None, 3))
        credits = self._rng.choice((1, 1, 2, 3))
        return CheckpointSettings(every, changed, credits, apart=every % 7, stands=(every + credits) % 2 == 1)

    def mail(self) -> Network:
        """See `KernelSetting`."""
        return Network(self._rng)

    def node(self, name: str, own: Callable[[OwnWork], None]) -> Node[Any]:
        """See `KernelSetting`."""
        hosting = MailedHosting(own) if self._mails_holders else None
        outbox = self._query.medium.outbox
        return Node(name, self._operators, self._batches, self._checkpoints, outbox, hosting)

    def manager(self, beginning: Beginning | None) -> Manager:
        """See `KernelSetting`; a later run has another parallelism."""
        bits = {operator: spec.slot_bits for operator, spec in self._query.graph.operators.items()}
        parallelism = self._query.parallelism
        if beginning is not None:
            parallelism = {operator: self._rng.randint(1, min(3, 1 << size)) for operator, size in bits.items()}
        return Manager(self._query.graph, parallelism, self._manager, beginning)

    def delay(self, longest: int) -> int:
        """See `KernelSetting`."""
        return self._rng.randint(1, longest)

    def segments(self) -> int:
        """See `KernelSetting`."""
        return self._rng.choice((1, 1, 2, 12))

    def credit(self) -> int:
        """See `KernelSetting`."""
        return self._rng.choice((1, 2, 4))


class World(Kernel):
    """Manager, nodes, network, sinks and faults of one schedule. The same seed and faults give the same run."""

    mail: Network

    def __init__(
        self, seed: int, query: SimulatedQuery, faults: list[Fault], limits: Limits, trace: Trace | None = None
    ) -> None:
        self.rng = random.Random(f"{seed} schedule")
        self.query, self.limits = query, limits
        self.store = SimulatedSinkStore(query.medium.rows)
        self.tally = ScheduleTally()
        self.finished: int | None = None
        self.lost: StateLost | None = None
        #: epoch -> source operator -> slot -> position after the epoch: the durable source log
        self.offsets: dict[int, dict[str, dict[int, int]]] = {}
        #: armed kills, by the delay until the node is given up
        self.tripwires: list[int] = []
        #: durations for which the next links are cut on which a message with state has arrived in part
        self.armed_cuts: list[int] = []
        self._named = 0
        #: the step after which all faults and their consequences are over
        self.calm = max((fault.step + _LASTS.get(fault.what, 1) * fault.delay for fault in faults), default=0) + 100
        super().__init__(SimulatedSetting(seed, query, self.rng, limits.bite), self.store, self._take)
        self.trace = trace
        self.control = ScheduleControl(self, seed)
        self._launch()
        self._plan(faults)

    def _launch(self) -> None:
        self.control.begin(self.rng.randint(2, 4))
        self.perform(MANAGER, self.manager.launch())

    def begin_again(self) -> None:
        """Ends all processes, the driver too; a new run continues from the last complete cut."""
        if self.finished is None and self.lost is None:
            began = self.restart().epoch
            self.offsets = {epoch: read for epoch, read in self.offsets.items() if epoch <= began}
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
        """Performs one random action."""
        self.begin_step()
        if self.armed_cuts:
            self._cut_halfway()
        if self.now % EVERY == 0:
            self.control.step()
        is_idle = not self.mail
        if is_idle or self.rng.random() < 0.06:
            self._pulse_or_skip(is_idle)
        else:
            self.deliver()

    def _pulse_or_skip(self, is_idle: bool) -> None:
        effects = self.manager.pulse()
        self.perform(MANAGER, effects)
        if self.manager.ending and self.manager.settings.last_cut:
            self.perform(MANAGER, self.manager.persist(last=True)[1])
        if not effects and is_idle:
            self.skip_ahead(self.now - self.now % EVERY + EVERY)

    # -- results of the machines --------------------------------------------------------------------------------------

    def _take(self, told: Told) -> None:
        match told:
            case LogOffsets(source, epoch, positions):
                self.offsets.setdefault(epoch, {}).setdefault(source.operator, {}).update(positions)
            case BackupCounted():
                self._trip(told)
            case CutComplete():
                self.tally.count("cut complete")
            case CutAbandoned():
                self.tally.count("cut abandoned")
                self._give_up_without_last_cut()
            case Event():
                self.count(told)
                self.control.hear(told)
            case Finished(epoch):
                self.finished = epoch
                self.at(self.now + 1, self.control.end)
            case StateLost():
                self.lost = told
                self.at(self.now + 1, self.control.end)
            case _:
                assert_never(told)

    def count(self, event: Event) -> None:
        """Counts an event."""
        self.tally.count(event.kind)
        if self.trace:
            self.trace(self.now, event.text(), True)

    def _give_up_without_last_cut(self) -> None:
        """Fails and restarts a run whose last cut is abandoned after its final epoch has begun."""
        life = self.lives

        def failed() -> None:
            if life == self.lives:
                self.tally.count("last cut abandoned")
                self.begin_again()

        if self.manager.settings.last_cut and self.manager.final is not None:
            self.at(self.now + 1, failed)

    # -- processes and links ------------------------------------------------------------------------------------------

    def register(self) -> None:
        """Registers a node that the pool did not order."""
        self._named += 1
        self.join(f"x{self._named}", f"other-vm{self.rng.randint(1, 4)}")

    def kill(self, name: str, delay: int) -> None:
        """Ends the process of a node, which is given up a little later."""
        self.end(name)
        self.at(self.now + min(delay, 80), lambda: self.lose(name))

    def _trip(self, message: BackupCounted) -> None:
        """Carries out an armed kill on the owner of a backup just recorded, if its slots have moved."""
        owner = message.owner.instance
        if self.tripwires and len(self.manager.topology.history[owner.operator]) > 1:
            self.kill(self.manager.placement[owner].node, self.tripwires.pop())

    def lose(self, name: str) -> None:
        """Gives up a node; the pool replaces it."""
        if self.give_up(name):
            self.control.fleet.node_lost(name)

    def cut(self, a: str, b: str, delay: int) -> None:
        """Cuts a link, which is restored later."""
        network = self.mail

        def mend() -> None:
            network.mend(a, b)
            if network is self.mail:
                self.mend(a, b)

        if network.is_up(a, b):
            network.cut(a, b)
            self.at(self.now + delay, mend)

    def _cut_halfway(self) -> None:
        ends = next((ends for ends in self.bulk.halfway() if self.mail.is_up(*ends)), None)
        if ends is not None:
            delay = self.armed_cuts.pop(0)
            if self.now + delay < self.calm:
                self.cut(*ends, delay)

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
