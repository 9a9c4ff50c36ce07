"""The steward: decides what changes while a query runs, and carries each change through to its end.

A pure machine: `step(facts) -> commands`. It compares the present state with the wanted one, independently of what
happened in between, as the pool does with VMs. Its laws: every decision ends, with an event that says how; at most one
decision of a kind is open per operator; requests by hand go before policies; a policy or balancer that raises, hangs or
wants something impossible delays nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from policies.backup import BackupSection
from policies.balance.loads import Balancer
from policies.balance.registry import make_balancer
from policies.balance.settings import BalanceSettings
from policies.migration.settings import MigrationSettings
from policies.observation import Change, History
from policies.scaling.decision import Decision
from policies.scaling.governor import Governor
from policies.scaling.settings import ScalingSettings
from primitives.graph import QueryGraph
from seep.control.balancing import Balancing
from seep.control.checkpoint_turns import CheckpointTurns
from seep.control.commands import Command, TakeCheckpoints, brief
from seep.control.drains import Drains
from seep.control.migration import Migration, MigrationProgress
from seep.control.migrations import Migrations
from seep.control.orders import Orders
from seep.control.policy_rounds import PolicyRounds
from seep.control.replica_groups import ReplicaGroups
from seep.control.scalings import Scalings, at_once_unless_said
from seep.control.vm_needs import VMNeeds
from seep.protocol.manager.plans import Accepted, Refused
from seep.protocol.manager.state import QueryPhase
from seep.protocol.message_ring import MessageRing
from seep.record.facts import Facts
from seep.record.status import OpenDecision


@dataclass(frozen=True, slots=True)
class StewardSettings:
    """The settings of the steward and its parts. Times are seconds."""

    scaling: ScalingSettings = field(default_factory=ScalingSettings)
    migration: MigrationSettings = field(default_factory=MigrationSettings)
    balance: BalanceSettings = field(default_factory=BalanceSettings)
    backup: BackupSection = field(default_factory=BackupSection)
    checkpoint: float | None = 5.0  #: seconds between two checkpoints of an instance
    epoch: float = 0.05
    heartbeat: float = 0.1


class Steward:
    """Scaling, balance, drains, migrations, replica groups and the turns of checkpoints, of one run.

    What people ask for comes in by its methods, and takes effect with the next step.
    """

    def __init__(
        self,
        graph: QueryGraph,
        governor: Governor,
        settings: StewardSettings | None = None,
        balancer: Balancer | None = None,
    ) -> None:
        self.settings = settings or StewardSettings()
        scaling, balance = self.settings.scaling, self.settings.balance
        steps = at_once_unless_said(self.settings.migration)
        self._orders = Orders()
        self._vm_needs = VMNeeds(self._orders)
        self.migrations = Migrations(self._orders, self._vm_needs, self.settings.epoch, scaling.timeout)
        self._scalings = Scalings(self._orders, scaling, self.migrations, steps, self._vm_needs)
        self._rounds = PolicyRounds(self._orders, graph, scaling, governor, self._scalings)
        self._drains = Drains(self._orders, self.migrations, steps, scaling.timeout)
        self._replicas = ReplicaGroups(self._orders, self.settings.backup)
        self._balancing = Balancing(
            self._orders,
            graph,
            balance,
            self.migrations,
            steps,
            self.settings.heartbeat,
            scaling.timeout,
            balancer or make_balancer(balance),
        )
        every = self.settings.checkpoint
        self._turns = CheckpointTurns(every) if every is not None else None
        self._is_over = False
        #: its latest answers and commands
        self.ring = MessageRing()

    # -- requests -----------------------------------------------------------------------------------------------------

    def scale(self, facts: Facts, operator: str, parallelism: int) -> None:
        """Opens a decision as a policy does; policies that decide otherwise wait until it is done."""
        self._scalings.open(facts, Decision(operator, parallelism, "asked for"))

    def migrate(self, facts: Facts, migrations: Sequence[Migration]) -> tuple[int, ...]:
        """Opens migrations that begin together; returns their numbers. Raises UserError if a target is not possible."""
        for migration in migrations:
            if migration.goal is not None:
                migration.goal(facts.query)
        return self.migrations.open(*migrations)

    def cancel(self, facts: Facts, number: int, why: str = "called off") -> None:
        """Ends a migration: announces no further step; moved slots stay where they are."""
        if (migration := self.migrations.find(number)) is not None:
            self.migrations.cancel(facts, migration, why)

    def balance(self, facts: Facts, operator: str) -> None:
        """Moves slots of the operator as soon as its balancer finds some, whether balancing is on or not."""
        self._balancing.request(facts, operator)

    def drain(self, facts: Facts, node: str) -> None:
        """Moves all instances of a node elsewhere, and then has its VM stopped."""
        self._drains.begin(facts, node)

    # -- a step -------------------------------------------------------------------------------------------------------

    def step(self, facts: Facts) -> list[Command]:
        """Returns the commands that follow from the facts. Call it again as soon as commands are answered."""
        if self._is_over:
            return []
        self._vm_needs.begin_step()
        self._tolerate(partial(self._orders.answered, facts.answers, facts))
        if facts.query.phase is QueryPhase.RUNNING:
            for part in self._parts:
                self._tolerate(partial(part, facts))
        return self._taken(facts)

    def _taken(self, facts: Facts) -> list[Command]:
        commands = self._orders.taken()
        for answer in facts.answers:
            self.ring.took("", f"answer to {answer.number} at {facts.at:.2f} s: {_word(answer.value)}")
        for command in commands:
            self.ring.said(brief(command))
        return commands

    @property
    def _parts(self) -> tuple[Callable[[Facts], None], ...]:
        return (
            self._replicas.step,
            lambda facts: self._rounds.step(facts, partial(self._changes, facts)),
            self._scalings.step,
            self._drains.step,
            self.migrations.step,
            lambda facts: self._balancing.step(facts, partial(self._changes, facts)),
            self._take_checkpoints,
        )

    def end(self, facts: Facts) -> list[Command]:
        """Ends everything that is open, at the end of the run."""
        if not self._is_over:
            self._is_over = True
            self.migrations.end(facts)
            self._scalings.end(facts)
            self._drains.end(facts)
            self._balancing.end()
        return self._taken(facts)

    def _tolerate(self, step: Callable[[], None]) -> None:
        """Runs a part of the step. If it raises, one event reports that, and the query continues without it."""
        try:
            step()
        except Exception as reason:
            self._rounds.complain(reason)

    def _take_checkpoints(self, facts: Facts) -> None:
        if self._turns is not None and (due := self._turns.due(facts.at, facts.query.kept)):
            self._orders.give(TakeCheckpoints(tuple(due)))

    def _changes(self, facts: Facts) -> tuple[Change, ...]:
        found = (*self._scalings.changes, *self.migrations.changes, *facts.recoveries)
        return tuple(sorted(found, key=lambda change: change.begun))

    # -- queries ------------------------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether slots are going to move, so that the next step may be due after any commit."""
        return not self.migrations.is_idle

    def history(self, facts: Facts) -> History:
        """The observations and changes that policies see."""
        return self._rounds.history(self._changes(facts))

    def progress(self, facts: Facts, *numbers: int) -> tuple[MigrationProgress, ...]:
        """Returns the progress of these migrations; without numbers, of all that are kept, oldest first."""
        found = [self.migrations.find(number) for number in numbers] if numbers else self.migrations.listed()
        return tuple(self.migrations.progress(facts, each) for each in found if each is not None)

    def decisions(self) -> tuple[OpenDecision, ...]:
        """Returns all open decisions, migrations, wishes and drains."""
        scalings = (
            OpenDecision("scaling", each.operator, each.opened, each.by_hand, each.decision.why)
            for each in self._scalings.under_way
        )
        rebalances = (
            OpenDecision("rebalance", operator, each.migration.opened, False, each.migration.why)
            for operator, each in self._balancing.under_way.items()
        )
        wishes = (
            OpenDecision("balance", operator, since, True, "asked for")
            for operator, since in self._balancing.wishes.items()
        )
        migrations = (
            OpenDecision("migration", each.operator, each.opened, True, each.why)
            for each in self.migrations.under_way()
            if each.is_told
        )
        drains = (OpenDecision("drain", node, since, True, "") for node, since in self._drains.under_way.items())
        return (*scalings, *rebalances, *wishes, *migrations, *drains)

    def report(self, facts: Facts) -> Mapping[str, Any]:
        """The migrations, for the report of the run."""
        return {"migrations": self.migrations.to_json(facts), "total": self.migrations.total}

    def validate(self) -> None:
        """Raises InternalError with a rule that does not hold."""
        self.migrations.validate()
        self._scalings.validate()


def _word(value: object) -> str:
    """Returns an answer in a word: its result, or its type."""
    match value:
        case Accepted(plan):
            return f"accepted, plan {plan}"
        case Refused(why):
            return f"refused: {why.value}"
        case BaseException():
            return f"{type(value).__name__}: {value}"
    return type(value).__name__
