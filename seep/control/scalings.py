"""Scalings: carries out decisions by migrations, or splits of backups, despite failures.

Each step examines the present state, so nothing depends on having received an event. A plan that does not exist any
more has ended. If the operator then has the target's instances, the decision was carried out; otherwise the plan was
aborted and is made again. Every decision ends with an event that tells its result. A decision without progress is given
up after a timeout.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from policies.migration.settings import MigrationSettings, Strategy
from policies.names import check_names
from policies.observation import Change
from policies.scaling.assignment import rescaled
from policies.scaling.decision import Decision, NamesOperators, Policy
from policies.scaling.settings import Mechanism, ScalingSettings
from primitives.errors import InternalError, UserError
from primitives.event import OperatorEvent
from primitives.graph import InstanceId, Kind, QueryGraph
from seep.control.commands import SplitBackup, TakeCheckpoints
from seep.control.migration import Migration, MigrationState
from seep.control.migrations import Migrations
from seep.control.orders import Orders
from seep.control.pacing import StepByStep
from seep.control.targets import Parts
from seep.control.vm_needs import VMNeeds
from seep.protocol.manager.plans import Accepted, Refusal, Refused
from seep.record.events import (
    NothingToScale,
    ScaledIn,
    ScaledOut,
    ScalingAborted,
    ScalingCalledOff,
    ScalingGivenUp,
    ScalingIn,
    ScalingOut,
    ScalingRefused,
    ScalingReplaced,
    SplitNotPossible,
)
from seep.record.facts import Facts, QueryFacts
from seep.record.ring import Ring

#: Refusals that pass without any action, and those that pass with the next checkpoint.
_PASSING = (Refusal.BUSY, Refusal.NOT_RUNNING)
_WANTS_BACKUP = (Refusal.NO_BACKUP, Refusal.OLD_BACKUP)
#: Seconds until a refused request is tried again.
_AGAIN = 0.05
#: Seconds to wait for a backup to split, after a checkpoint was requested; then slots are handed over.
_BACKUP = 10.0
#: The number of ended changes that are kept for policies.
_KEPT = 1000


def at_once_unless_said(settings: MigrationSettings) -> MigrationSettings:
    """Returns the settings with all slots in one step, unless a strategy was chosen."""
    if "strategy" in settings.model_fields_set:
        return settings
    return settings.model_copy(update={"strategy": Strategy.ALL_AT_ONCE})


def check_scaling(settings: ScalingSettings, policy: Policy, graph: QueryGraph) -> None:
    """Raises UserError if the settings, or those of the policy, name operators that the query does not have."""
    check_names("scaling.operators", settings.operators, graph.order)
    if isinstance(policy, NamesOperators):
        policy.check(graph)


@dataclass(slots=True)
class Scaling:
    """An open decision, and its progress."""

    decision: Decision
    opened: float
    before: int  #: the number of instances before
    seen: int | None = None  #: instances that the policy saw when it decided; None if it was asked for by hand
    migration: Migration | None = None
    plan: int | None = None  #: number of a split's plan
    asks: int | None = None  #: the command for a split whose answer it waits for
    again: float = 0.0  #: the time at which a refused request is tried again
    is_handed_over: bool = False  #: whether slots are handed over though the backup was to be split
    asked: float | None = None  #: the time at which a checkpoint to split was requested
    change: Change | None = None  #: the change that policies see; None while no slots are moving
    waits_for: str = "its turn"
    got_on: float = field(init=False)  #: the time of its last progress
    steps: int = 0  #: the number of steps of its migration at that time
    turned_down: int | None = None  #: number of instances in the last decision that was refused because of this one

    def __post_init__(self) -> None:
        self.got_on = self.opened

    @property
    def operator(self) -> str:
        return self.decision.operator

    @property
    def by_hand(self) -> bool:
        return self.seen is None

    @property
    def is_begun(self) -> bool:
        """Whether slots move, or their moves are being computed."""
        is_cut = self.migration is not None and self.migration.asks is not None
        return self.change is not None or self.asks is not None or is_cut

    def note_progress(self, now: float) -> None:
        """Records progress. A step counts only if no earlier attempt has reached it."""
        made = self.migration.number if self.migration is not None else 0
        if made > self.steps:
            self.steps, self.got_on = made, now


@dataclass(slots=True)
class Scalings:
    """Carries out decisions on parallelism; at most one per operator is open."""

    orders: Orders
    settings: ScalingSettings
    migrations: Migrations
    steps: MigrationSettings  #: the settings of the migrations
    vm_needs: VMNeeds
    _open: dict[str, Scaling] = field(default_factory=dict)
    _changes: Ring[Change] = field(default_factory=lambda: Ring[Change](_KEPT))  #: the ended changes
    #: changes whose decision was given up while a plan was under way, until the plan is complete
    _left: list[Change] = field(default_factory=list)

    @property
    def changes(self) -> Iterator[Change]:
        """Returns the newest ended changes, and all that have begun."""
        yield from self._changes
        yield from self._left
        yield from (each.change for each in self._open.values() if each.change is not None)

    @property
    def under_way(self) -> tuple[Scaling, ...]:
        return tuple(self._open.values())

    def open(self, facts: Facts, decision: Decision, seen: int | None = None) -> None:
        """Opens a decision, in place of one that is not begun. No policy replaces what was asked for by hand.

        `seen` is how many instances a policy saw when it decided; None if somebody asks by hand.
        """
        before, by_hand = facts.query.instances(decision.operator), seen is None
        new = Scaling(decision, facts.at, before, seen)
        there = self._open.setdefault(decision.operator, new)
        former = there.decision
        if there is new:
            return
        is_replaced = not there.is_begun and by_hand >= there.by_hand
        if is_replaced:
            there.decision, there.seen, there.before = decision, seen, before
        if former.parallelism == decision.parallelism:
            return
        if is_replaced:
            there.got_on = facts.at
            why = f"to {former.parallelism}: {decision.parallelism} are wanted now"
            self.orders.tell(ScalingReplaced(operator=there.operator, why=why))
        elif there.turned_down != decision.parallelism:
            there.turned_down = decision.parallelism
            why = f"to {decision.parallelism}: it is being scaled to {former.parallelism}; ask again when that is done"
            self.orders.tell(ScalingRefused(operator=there.operator, why=why, meanwhile=former.parallelism))

    def step(self, facts: Facts) -> None:
        """Carries on all open decisions. A decision that raises an exception is ended; the others continue."""
        self._end_what_is_left(facts)
        for scaling in self.under_way:
            try:
                self._carry_on(facts, scaling)
            except UserError as reason:
                self._end(facts, scaling, ScalingRefused, str(reason))
            except Exception as reason:
                self._end(facts, scaling, ScalingRefused, f"{type(reason).__name__}: {reason}")
                raise

    def end(self, facts: Facts) -> None:
        """Ends all open decisions at the end of the run, when its migrations have ended."""
        for scaling in self.under_way:
            if scaling.migration is not None:
                self._follow_migration(facts, scaling, scaling.migration)
        for scaling in self.under_way:
            self._end(facts, scaling, ScalingCalledOff, "the run is over")

    def _carry_on(self, facts: Facts, scaling: Scaling) -> None:
        if self._is_stuck(facts, scaling):
            self._give_up(facts, scaling)
        elif scaling.migration is not None:
            self._follow_migration(facts, scaling, scaling.migration)
        elif scaling.plan is not None:
            self._follow_split(facts, scaling, scaling.plan)
        elif scaling.asks is not None or facts.at < scaling.again:
            return
        elif self._is_to_be_split(facts, scaling):
            self._split(facts, scaling)
        else:
            self._migrate(facts, scaling)

    # -- by time ------------------------------------------------------------------------------------------------------

    def _is_stuck(self, facts: Facts, scaling: Scaling) -> bool:
        scaling.note_progress(facts.at)
        return facts.at > scaling.got_on + self.settings.timeout + (self.steps.gap or 0.0)

    def _give_up(self, facts: Facts, scaling: Scaling) -> None:
        missing = self.vm_needs.missing(scaling.operator)
        awaited = f"{missing} VM{'s' if missing > 1 else ''}" if missing else scaling.waits_for
        why = f"to {scaling.decision.parallelism}: for {self.settings.timeout:g} s it waited for {awaited}"
        if scaling.migration is not None:
            self.migrations.cancel(facts, scaling.migration, why)
        self._end(facts, scaling, ScalingGivenUp, why)

    # -- by handover --------------------------------------------------------------------------------------------------

    def _migrate(self, facts: Facts, scaling: Scaling) -> None:
        scaling.waits_for = "another change of its slots"
        scaling.migration = Migration(
            scaling.operator,
            StepByStep(self.steps),
            facts.at,
            goal=lambda query: _parts(query, scaling),  # the decision may have changed by then
            settings=self.steps,
            why=scaling.decision.why,
            is_told=False,
        )
        self.migrations.open(scaling.migration)

    def _follow_migration(self, facts: Facts, scaling: Scaling, migration: Migration) -> None:
        if migration.begun is not None and migration.slots and scaling.change is None:
            scaling.before = migration.before
            self._note_begun(scaling, migration.begun)
        if not migration.is_over:
            return
        scaling.migration = None
        if scaling.change is not None:
            self._note_over(facts, scaling, migration.after)
        elif migration.state is MigrationState.DONE:
            self._end_with_nothing(facts, scaling)
        else:
            is_refused = migration.state is MigrationState.REFUSED
            self._end(facts, scaling, ScalingRefused if is_refused else ScalingCalledOff, migration.why)

    # -- from a backup ------------------------------------------------------------------------------------------------

    def _is_to_be_split(self, facts: Facts, scaling: Scaling) -> bool:
        """Whether the settings want a split, and a node has a backup for it."""
        wanted = self._is_split_wanted(facts.query, scaling.decision)
        if wanted and scaling.operator in facts.query.not_on_nodes and not scaling.is_handed_over:
            self._hand_over(scaling, Refusal.NOT_ON_A_NODE.value)
        return wanted and not scaling.is_handed_over

    def _is_split_wanted(self, query: QueryFacts, decision: Decision) -> bool:
        bounds = self.settings.operators.get(decision.operator, self.settings.default)
        return (
            (bounds.mechanism or self.settings.mechanism) is Mechanism.BACKUP
            and query.graph.kind(decision.operator) is Kind.STATEFUL
            and decision.parallelism > query.instances(decision.operator)
        )

    def _hand_over(self, scaling: Scaling, why: str) -> None:
        """Hands the slots over, as the backup cannot be split."""
        scaling.is_handed_over = True
        self.orders.tell(SplitNotPossible(operator=scaling.operator, why=why))

    def _split(self, facts: Facts, scaling: Scaling) -> None:
        """Requests a split.

        It needs one more node than there are new instances, because the origin is restarted too.
        """
        query, operator = facts.query, scaling.operator
        parts = _parts(query, scaling)
        scaling.before = query.instances(operator)
        needed = sum(index >= query.fresh[operator] for index in parts) + 1
        if not parts:
            self._end_with_nothing(facts, scaling)
        elif self.vm_needs.is_there(facts, operator, needed, scaling.decision.why):
            origin, shares = _from_one_origin(query, operator, parts)
            scaling.asks = self.orders.request(
                lambda number: SplitBackup(number, origin, shares), partial(self._on_split, scaling)
            )

    def _on_split(self, scaling: Scaling, facts: Facts, answer: object) -> None:
        scaling.asks, scaling.again = None, facts.at + _AGAIN
        match answer:
            case Accepted(plan):
                scaling.plan, scaling.asked, scaling.waits_for = plan, None, "the parts of its backup"
                self._note_begun(scaling, facts.at)
            case Refused(why) if why in _WANTS_BACKUP:
                self._await_backup(facts, scaling, why)
            case Refused(why) if why in _PASSING:
                scaling.waits_for = f"this to pass: {why.value}"
            case Refused(Refusal.NOT_ON_A_NODE as why):
                self._hand_over(scaling, why.value)
            case Refused(why):
                ends = ScalingCalledOff if why is Refusal.ENDING else ScalingRefused
                self._end(facts, scaling, ends, why.value)
            case _:
                self._end(facts, scaling, ScalingRefused, f"{type(answer).__name__}: {answer}")

    def _await_backup(self, facts: Facts, scaling: Scaling, why: Refusal) -> None:
        """Requests checkpoints to split once; if none comes in time, hands the slots over instead."""
        if scaling.asked is None:
            scaling.asked = facts.at
            those = tuple(each for each in facts.query.kept if each.operator == scaling.operator)
            self.orders.give(TakeCheckpoints(those))
        elif facts.at > scaling.asked + _BACKUP:
            self._hand_over(scaling, f"{why.value}, {_BACKUP:g} s after a checkpoint was asked for")

    def _follow_split(self, facts: Facts, scaling: Scaling, plan: int) -> None:
        if plan not in facts.query.splits:
            scaling.plan = None
            self._note_over(facts, scaling, facts.query.instances(scaling.operator))

    # -- events -------------------------------------------------------------------------------------------------------

    def _note_begun(self, scaling: Scaling, at: float) -> None:
        before, after = scaling.before, scaling.decision.parallelism
        scaling.change = Change(scaling.operator, at, before, after)
        event = ScalingOut if after > before else ScalingIn
        self.orders.tell(event(operator=scaling.operator, before=before, after=after, why=scaling.decision.why))

    def _note_over(self, facts: Facts, scaling: Scaling, instances: int) -> None:
        change = self._end_change(facts, scaling, instances)
        if instances == scaling.before and facts.query.ending:
            self._end(facts, scaling, ScalingCalledOff, Refusal.ENDING.value)
            return
        if instances == scaling.before:
            self.orders.tell(ScalingAborted(operator=scaling.operator, why="it is tried again"))
            return
        scaling.got_on, scaling.steps = facts.at, 0
        if instances == scaling.decision.parallelism or not scaling.by_hand:
            self._close(scaling)
        self._tell_done(facts, scaling, change)

    def _end_change(self, facts: Facts, scaling: Scaling, instances: int) -> Change:
        assert scaling.change is not None
        ended = replace(scaling.change, after=instances, done=facts.at)
        self._changes.append(ended)
        scaling.change = None
        return ended

    def _end_what_is_left(self, facts: Facts) -> None:
        """Ends changes whose decision was given up, and whose slots have moved nevertheless."""
        left, self._left = self._left, []
        for change in left:
            if facts.query.is_planned(change.operator):
                self._left.append(change)
            else:
                after = facts.query.instances(change.operator)
                self._changes.append(replace(change, after=after, done=facts.at))

    def _tell_done(self, facts: Facts, scaling: Scaling, change: Change) -> None:
        assert change.done is not None
        event = ScaledOut if change.after > scaling.before else ScaledIn
        self.orders.tell(
            event(
                operator=scaling.operator,
                before=scaling.before,
                after=change.after,
                seconds=change.done - change.begun,
                waited=change.begun - scaling.opened,
                latency_peak=facts.latencies.percentiles_since(change.begun).get("max", 0.0),
                why=scaling.decision.why,
            )
        )

    def _end(self, facts: Facts, scaling: Scaling, event: type[OperatorEvent], why: str) -> None:
        """Ends a decision that was not carried out; slots that have moved stay where they are."""
        if scaling.change is not None and facts.query.is_planned(scaling.operator):
            self._left.append(scaling.change)
        elif scaling.change is not None:
            self._end_change(facts, scaling, facts.query.instances(scaling.operator))
        self._close(scaling)
        self.orders.tell(event(operator=scaling.operator, why=why))

    def _end_with_nothing(self, facts: Facts, scaling: Scaling) -> None:
        self._end(facts, scaling, NothingToScale, f"it has {facts.query.instances(scaling.operator)} instances")

    def _close(self, scaling: Scaling) -> None:
        if scaling.asks is not None:
            self.orders.forget(scaling.asks)
        self.vm_needs.forget(scaling.operator)
        if self._open.get(scaling.operator) is scaling:
            del self._open[scaling.operator]

    # -- checks -------------------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raises InternalError with a rule that does not hold."""
        for operator, scaling in self._open.items():
            if operator != scaling.operator:
                raise InternalError(f"a decision on {scaling.operator} is kept as one on {operator}")
            if scaling.migration is not None and scaling.plan is not None:
                raise InternalError(f"the decision on {operator} is carried out by handover and from a backup")


def _parts(query: QueryFacts, scaling: Scaling) -> Parts:
    """Returns the slots that each gaining instance gets.

    Returns none if another change of the operator, such as a parallel recovery, came after the policy's decision, so
    that it would now scale in instead of out, or the reverse.
    """
    decision = scaling.decision
    assignment, wanted = query.latest(decision.operator), decision.parallelism
    if scaling.seen is not None and (wanted - scaling.seen) * (wanted - len(assignment.parts)) < 0:
        return {}
    hot = [instance.index for instance in decision.hot if instance.index in assignment.parts]
    return rescaled(assignment, int(decision.parallelism), query.fresh[decision.operator], hot)


def _from_one_origin(query: QueryFacts, operator: str, parts: Parts) -> tuple[InstanceId, Parts]:
    """Returns the instance that loses most slots, and its part: a split has one origin.

    The other instances keep their slots until the next decision.
    """
    owned = query.latest(operator).parts
    origin = max(owned, key=lambda index: sum(len(slots & owned[index]) for slots in parts.values()))
    lost = {index: slots & owned[origin] for index, slots in parts.items()}
    return InstanceId(operator, origin), {index: slots for index, slots in lost.items() if slots}
