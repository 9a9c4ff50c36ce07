"""Scaling: decisions become migrations, or splits of backups, and stay open until these are over, whatever fails.

Each round looks at how things are, so nothing depends on having heard of an event: a plan that is not there any more is
over; if the operator then has the instances that it should have, it was carried out, else it was aborted and is made
again. Every decision ends with an event that says how; one that does not get on for too long is given up.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

from policies.assignment import rescaled
from policies.decision import Decision, NamesOperators, Policy
from policies.migration.settings import MigrationSettings, Strategy
from policies.names import check_names
from policies.observation import Change
from policies.settings import Mechanism, ScalingSettings
from primitives.graph import InstanceId, Kind, QueryGraph
from seep.protocol.effects import Effect
from seep.protocol.manager import Manager
from seep.protocol.plans import Accepted, Refusal, Refused
from seep.runtime.courses import StepByStep
from seep.runtime.driver import ManagerProcess
from seep.runtime.goals import Parts, latest
from seep.runtime.migration import OVER, Migration, State
from seep.runtime.migrations import Migrations
from seep.runtime.ring import Ring
from seep.runtime.waiting import Room

#: Refusals that pass by themselves, and those that pass with the next checkpoint.
_PASSING = (Refusal.BUSY, Refusal.NOT_RUNNING)
_WANTS_BACKUP = (Refusal.NO_BACKUP, Refusal.OLD_BACKUP)
#: Seconds that a backup to split is waited for, once a checkpoint was asked for; then slots are handed over.
_BACKUP = 10.0
#: Changes that are over and kept, for policies.
_KEPT = 1000
#: The event for a migration that ends before anything has moved.
_WITHOUT_A_MOVE = {
    State.CANCELLED: "scaling called off",
    State.REFUSED: "scaling refused",
}


def at_once_unless_said(settings: MigrationSettings) -> MigrationSettings:
    """Scaling moves all slots in one step, unless somebody has chosen a strategy."""
    if "strategy" in settings.model_fields_set:
        return settings
    return settings.model_copy(update={"strategy": Strategy.ALL_AT_ONCE})


def check_scaling(settings: ScalingSettings, policy: Policy, graph: QueryGraph) -> None:
    """UserError if the settings, or those of the policy, name operators that the query does not have."""
    check_names("scaling.operators", settings.operators, graph.order)
    if isinstance(policy, NamesOperators):
        policy.check(graph)


@dataclass(slots=True)
class Scaling:
    """A decision on its way."""

    decision: Decision
    opened: float
    before: int  #: instances
    by_hand: bool = False
    migration: Migration | None = None
    plan: int | None = None  #: of a split
    is_handed_over: bool = False  #: though its backup was to be split
    asked: float | None = None  #: when a checkpoint was asked for, to be split
    change: Change | None = None  #: what policies see of it; None while no slots are on their way
    waits_for: str = "its turn"
    got_on: float = field(init=False)  #: when it last made a step
    steps: int = 0  #: that its migration had made then
    turned_down: int | None = None  #: instances of the last decision that was refused because of this one

    def __post_init__(self) -> None:
        self.got_on = self.opened

    @property
    def operator(self) -> str:
        return self.decision.operator

    @property
    def is_begun(self) -> bool:
        """Whether slots are on their way."""
        return self.change is not None

    def note_progress(self, now: float) -> None:
        """Steps count that no earlier attempt has made: one that is made again and again does not get on."""
        made = self.migration.number if self.migration is not None else 0
        if made > self.steps:
            self.steps, self.got_on = made, now


@dataclass(slots=True)
class Scalings:
    """All decisions that are open, one per operator at most. `round` is for one thread, `open` for any."""

    process: ManagerProcess
    settings: ScalingSettings
    migrations: Migrations
    steps: MigrationSettings  #: how slots move
    room: Room
    _open: dict[str, Scaling] = field(default_factory=dict)
    _changes: Ring[Change] = field(default_factory=lambda: Ring[Change](_KEPT))  #: that are over
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def changes(self) -> tuple[Change, ...]:
        """The newest that were done, and all that are begun."""
        with self._lock:
            return (*self._changes, *(each.change for each in self._open.values() if each.change is not None))

    def open(self, decision: Decision, by_hand: bool = False) -> None:
        """In place of an earlier one that is not under way yet; what was asked for by hand goes before policies."""
        before = self.process.ask(lambda manager: _instances(manager, decision.operator))
        new = Scaling(decision, self.process.events.now, before, by_hand)
        with self._lock:
            there = self._open.setdefault(decision.operator, new)
            is_replaced = there is not new and not there.is_begun and by_hand >= there.by_hand
            former = there.decision
            if is_replaced:
                there.decision, there.by_hand, there.before = decision, by_hand, before
        if former.parallelism == decision.parallelism:
            return
        if is_replaced:
            there.got_on = new.opened
            self._tell(there, "scaling replaced", f"to {former.parallelism}: {decision.parallelism} are wanted now")
        elif there.turned_down != decision.parallelism:
            there.turned_down = decision.parallelism
            why = f"to {decision.parallelism}: it is being scaled to {former.parallelism}; ask again when that is done"
            self._tell(there, "scaling refused", why)

    def round(self) -> None:
        """Carries all of them on; one that fails is over, and does not keep others from going on in the next round."""
        for scaling in self._listed():
            try:
                self._carry_on(scaling)
            except Exception as reason:
                self._end(scaling, "scaling refused", f"{type(reason).__name__}: {reason}")
                raise

    def end(self) -> None:
        """The run is over, and its migrations are."""
        for scaling in self._listed():
            if scaling.migration is not None:
                self._follow_migration(scaling, scaling.migration)
        for scaling in self._listed():
            self._end(scaling, "scaling called off", "the run is over")

    def _listed(self) -> list[Scaling]:
        with self._lock:
            return list(self._open.values())

    def _carry_on(self, scaling: Scaling) -> None:
        if self._is_stuck(scaling):
            self._give_up(scaling)
        elif scaling.migration is not None:
            self._follow_migration(scaling, scaling.migration)
        elif scaling.plan is not None:
            self._follow_split(scaling, scaling.plan)
        elif self._is_to_be_split(scaling):
            self._split(scaling)
        else:
            self._migrate(scaling)

    # -- by time ------------------------------------------------------------------------------------------------------

    def _is_stuck(self, scaling: Scaling) -> bool:
        now = self.process.events.now
        scaling.note_progress(now)
        return now > scaling.got_on + self.settings.timeout + (self.steps.gap or 0.0)

    def _give_up(self, scaling: Scaling) -> None:
        missing = self.room.missing(scaling.operator)
        awaited = f"{missing} VM{'s' if missing > 1 else ''}" if missing else scaling.waits_for
        why = f"to {scaling.decision.parallelism}: for {self.settings.timeout:g} s it waited for {awaited}"
        if scaling.migration is not None:
            self.migrations.cancel(scaling.migration, why)
        self.room.forget(scaling.operator)
        self._end(scaling, "scaling given up", why)

    # -- by handover --------------------------------------------------------------------------------------------------

    def _migrate(self, scaling: Scaling) -> None:
        scaling.waits_for = "another change of its slots"
        scaling.migration = Migration(
            scaling.operator,
            StepByStep(self.steps),
            self.process.events.now,
            goal=lambda manager: _parts(manager, scaling.decision),  # the decision may be another one by then
            settings=self.steps,
            why=scaling.decision.why,
            is_told=False,
        )
        self.migrations.open(scaling.migration)

    def _follow_migration(self, scaling: Scaling, migration: Migration) -> None:
        if migration.begun is not None and migration.slots and not scaling.is_begun:
            scaling.before = migration.before
            self._note_begun(scaling, migration.begun)
        if migration.state not in OVER:
            return
        scaling.migration = None
        if scaling.is_begun:
            self._note_over(scaling, migration.after)
        elif migration.state is State.DONE:
            self._end(scaling, "nothing to scale", f"it has {scaling.before} instances")
        else:
            self._end(scaling, _WITHOUT_A_MOVE[migration.state], migration.why)

    # -- from a backup ------------------------------------------------------------------------------------------------

    def _is_to_be_split(self, scaling: Scaling) -> bool:
        """As the settings say, if any node has a backup to split."""
        wanted, possible = self.process.ask(lambda manager: self._how(manager, scaling.decision))
        if wanted and not possible and not scaling.is_handed_over:
            self._hand_over(scaling, Refusal.NOT_ON_A_NODE.value)
        return wanted and not scaling.is_handed_over

    def _how(self, manager: Manager, decision: Decision) -> tuple[bool, bool]:
        """Whether it is to be carried out by a split of a backup, and whether that is possible at all."""
        operator = decision.operator
        bounds = self.settings.operators.get(operator, self.settings.default)
        wanted = (
            (bounds.mechanism or self.settings.mechanism) is Mechanism.BACKUP
            and manager.graph.kind(operator) is Kind.STATEFUL
            and decision.parallelism > _instances(manager, operator)
        )
        return wanted, manager.has_backups_on_nodes(operator)

    def _hand_over(self, scaling: Scaling, why: str) -> None:
        """What cannot be split is handed over by its owner."""
        scaling.is_handed_over = True
        self._tell(scaling, "split not possible", f"{why}; its owners hand slots over instead")

    def _split(self, scaling: Scaling) -> None:
        needed = self.process.ask(lambda manager: _fresh(manager, scaling.decision))
        # the origin is replaced by a new instance, too
        if not self.room.is_there(scaling.operator, needed + 1, scaling.decision.why):
            return
        match self.process.change(lambda manager: self._plan(manager, scaling)):
            case Accepted(plan):
                scaling.plan, scaling.asked, scaling.waits_for = plan, None, "the parts of its backup"
                self._note_begun(scaling, self.process.events.now)
            case Refused(why) if why in _WANTS_BACKUP:
                self._await_backup(scaling, why)
            case Refused(why) if why in _PASSING:
                scaling.waits_for = f"this to pass: {why.value}"
            case Refused(why):
                self._end(
                    scaling, "scaling called off" if why is Refusal.ENDING else "scaling refused", detail=why.value
                )
            case None:
                self._end(scaling, "nothing to scale", f"it has {scaling.before} instances")

    def _plan(self, manager: Manager, scaling: Scaling) -> tuple[Accepted | Refused | None, list[Effect]]:
        """Makes the plan; None if there is nothing to change."""
        scaling.before = _instances(manager, scaling.operator)
        parts = _parts(manager, scaling.decision)
        return manager.split(*_from_one_origin(manager, scaling.operator, parts)) if parts else (None, [])

    def _await_backup(self, scaling: Scaling, why: Refusal) -> None:
        """One is asked for, as it may not be due for long; and not waited for longer than a handover is worth."""
        now = self.process.events.now
        if scaling.asked is None:
            scaling.asked = now
            self.process.change(lambda manager: (None, manager.checkpoint(scaling.operator)))
        elif now > scaling.asked + _BACKUP:
            self._hand_over(scaling, f"{why.value}, {_BACKUP:g} s after a checkpoint was asked for")

    def _follow_split(self, scaling: Scaling, plan: int) -> None:
        operator = scaling.operator
        is_open, instances = self.process.ask(lambda manager: (plan in manager.splits, _instances(manager, operator)))
        if not is_open:
            scaling.plan = None
            self._note_over(scaling, instances)

    # -- what is told -------------------------------------------------------------------------------------------------

    def _note_begun(self, scaling: Scaling, at: float) -> None:
        before, after = scaling.before, scaling.decision.parallelism
        with self._lock:
            scaling.change = Change(scaling.operator, at, before, after)
        detail = f"{before} → {after}: {scaling.decision.why}"
        self._tell(scaling, "scaling out" if after > before else "scaling in", detail)

    def _note_over(self, scaling: Scaling, instances: int) -> None:
        change = self._end_change(scaling, instances)
        if instances == scaling.before:
            self._tell(scaling, "scaling aborted", "it is tried again")
            return
        scaling.got_on, scaling.steps = self.process.events.now, 0
        if instances == scaling.decision.parallelism or not scaling.by_hand:
            self._close(scaling)
        self._tell_done(scaling, change)

    def _end_change(self, scaling: Scaling, instances: int) -> Change:
        with self._lock:
            assert scaling.change is not None
            ended = replace(scaling.change, after=instances, done=self.process.events.now)
            self._changes.append(ended)
            scaling.change = None
            return ended

    def _tell_done(self, scaling: Scaling, change: Change) -> None:
        assert change.done is not None
        before, after = scaling.before, change.after
        peak = max(self.process.latencies(change.begun), default=0.0)
        self.process.events.add(
            "scaled out" if after > before else "scaled in",
            operator=scaling.operator,
            seconds=change.done - change.begun,
            detail=f"{before} → {after}, latency up to {peak:.3f} s",
            parts={"waited": change.begun - scaling.opened},
            numbers={"before": before, "after": after, "latency_peak": peak},
        )

    def _tell(self, scaling: Scaling, kind: str, detail: str) -> None:
        self.process.events.add(kind, operator=scaling.operator, detail=detail)

    def _end(self, scaling: Scaling, kind: str, detail: str) -> None:
        """It ends otherwise than as it was meant to; if slots were on their way, they are where they are now."""
        if scaling.is_begun:
            self._end_change(scaling, self.process.ask(lambda manager: _instances(manager, scaling.operator)))
        self._close(scaling)
        self._tell(scaling, kind, detail)

    def _close(self, scaling: Scaling) -> None:
        with self._lock:
            if self._open.get(scaling.operator) is scaling:
                del self._open[scaling.operator]


def _instances(manager: Manager, operator: str) -> int:
    return len(latest(manager, operator).parts)


def _fresh(manager: Manager, decision: Decision) -> int:
    first_fresh = manager.fresh_index(decision.operator)
    return sum(index >= first_fresh for index in _parts(manager, decision))


def _parts(manager: Manager, decision: Decision) -> Parts:
    """What each gaining instance gets."""
    assignment = latest(manager, decision.operator)
    hot = [instance.index for instance in decision.hot if instance.index in assignment.parts]
    return rescaled(assignment, decision.parallelism, manager.fresh_index(decision.operator), hot)


def _from_one_origin(manager: Manager, operator: str, parts: Parts) -> tuple[InstanceId, Parts]:
    """A split has one origin: that which is to lose most. What others should lose is left to the next decision."""
    owned = latest(manager, operator).parts
    origin = max(owned, key=lambda index: sum(len(slots & owned[index]) for slots in parts.values()))
    lost = {index: slots & owned[origin] for index, slots in parts.items()}
    return InstanceId(operator, origin), {index: slots for index, slots in lost.items() if slots}
