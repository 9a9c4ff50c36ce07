"""Scaling: decisions become migrations, or splits of backups, and stay open until these are over, whatever fails.

Each round looks at how things are, so nothing depends on having heard of an event: a plan that is not there any more is
over; if the operator then has the instances that it should have, it was carried out, else it was aborted and is made
again.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

from policies.assignment import rescaled
from policies.decision import Decision
from policies.migration.settings import MigrationSettings, Strategy
from policies.observation import Change
from policies.settings import Mechanism, ScalingSettings
from primitives.graph import InstanceId, Kind
from seep.protocol.effects import Effect
from seep.protocol.manager import Manager
from seep.protocol.plans import Accepted, Refusal, Refused
from seep.runtime.courses import StepByStep
from seep.runtime.driver import ManagerProcess
from seep.runtime.goals import Parts, latest
from seep.runtime.migration import OVER, Migration, State
from seep.runtime.migrations import Migrations
from seep.runtime.waiting import Room

#: Refusals that pass by themselves.
_PASSING = (Refusal.BUSY, Refusal.NO_BACKUP, Refusal.NOT_RUNNING)


def at_once_unless_said(settings: MigrationSettings) -> MigrationSettings:
    """Scaling moves all slots in one step, unless somebody has chosen a strategy."""
    if "strategy" in settings.model_fields_set:
        return settings
    return settings.model_copy(update={"strategy": Strategy.ALL_AT_ONCE})


@dataclass(slots=True)
class Scaling:
    """A decision on its way."""

    decision: Decision
    opened: float
    before: int  #: instances
    by_hand: bool = False
    migration: Migration | None = None
    plan: int | None = None  #: of a split
    saved: bool = False  #: a checkpoint was asked for since
    is_begun: bool = False  #: slots are on their way

    @property
    def operator(self) -> str:
        return self.decision.operator


@dataclass(slots=True)
class Scalings:
    """All decisions that are open, one per operator at most. `round` is for one thread, `open` for any."""

    process: ManagerProcess
    settings: ScalingSettings
    migrations: Migrations
    steps: MigrationSettings  #: how slots move
    room: Room
    _open: dict[str, Scaling] = field(default_factory=dict)
    _changes: list[Change] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def changes(self) -> tuple[Change, ...]:
        """What was begun so far, done or not, oldest first."""
        with self._lock:
            return tuple(self._changes)

    def open(self, decision: Decision, by_hand: bool = False) -> None:
        """In place of an earlier one that is not under way yet; what was asked for by hand goes before policies."""
        before = self.process.ask(lambda manager: _instances(manager, decision.operator))
        with self._lock:
            there = self._open.get(decision.operator)
            if there is None:
                self._open[decision.operator] = Scaling(decision, self.process.events.now, before, by_hand)
            elif not there.is_begun and by_hand >= there.by_hand:
                there.decision, there.by_hand, there.before = decision, by_hand, before

    def round(self) -> None:
        """Carries all of them on."""
        with self._lock:
            scalings = list(self._open.values())
        for scaling in scalings:
            if scaling.migration is not None:
                self._follow_migration(scaling, scaling.migration)
            elif scaling.plan is not None:
                self._follow_split(scaling, scaling.plan)
            elif self.process.ask(lambda manager, scaling=scaling: self._is_split(manager, scaling.decision)):  # type: ignore[misc]
                self._split(scaling)
            else:
                self._migrate(scaling)

    # -- by handover --------------------------------------------------------------------------------------------------

    def _migrate(self, scaling: Scaling) -> None:
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
            return
        self._close(scaling)  # it is as it should be, or cannot be
        if migration.state is State.REFUSED:
            self.process.events.add("scaling refused", operator=scaling.operator, detail=migration.why)

    # -- from a backup ------------------------------------------------------------------------------------------------

    def _split(self, scaling: Scaling) -> None:
        needed = self.process.ask(lambda manager: _fresh(manager, scaling.decision))
        # the origin is replaced by a new instance, too
        if not self.room.is_there(scaling.operator, needed + 1, scaling.decision.why):
            return
        match self.process.change(lambda manager: self._plan(manager, scaling)):
            case Accepted(plan):
                scaling.plan = plan
                self._note_begun(scaling, self.process.events.now)
            case Refused(why) if why in _PASSING:
                self._help(scaling, why)
            case Refused(why):
                self._close(scaling)
                if why is not Refusal.ENDING:
                    self.process.events.add("scaling refused", operator=scaling.operator, detail=why.value)
            case None:
                self._close(scaling)  # it is as it should be

    def _plan(self, manager: Manager, scaling: Scaling) -> tuple[Accepted | Refused | None, list[Effect]]:
        """Makes the plan; None if there is nothing to change."""
        scaling.before, scaling.saved = _instances(manager, scaling.operator), False
        parts = _parts(manager, scaling.decision)
        return manager.split(*_from_one_origin(manager, scaling.operator, parts)) if parts else (None, [])

    def _is_split(self, manager: Manager, decision: Decision) -> bool:
        bounds = self.settings.operators.get(decision.operator, self.settings.default)
        return (
            (bounds.mechanism or self.settings.mechanism) is Mechanism.BACKUP
            and manager.graph.kind(decision.operator) is Kind.STATEFUL
            and decision.parallelism > _instances(manager, decision.operator)
        )

    def _help(self, scaling: Scaling, why: Refusal) -> None:
        """A split needs a backup; where none is due for long, one is asked for."""
        if why is Refusal.NO_BACKUP and not scaling.saved:
            scaling.saved = True
            self.process.change(lambda manager: (None, manager.checkpoint(scaling.operator)))

    def _follow_split(self, scaling: Scaling, plan: int) -> None:
        operator = scaling.operator
        is_open, instances = self.process.ask(lambda manager: (plan in manager.splits, _instances(manager, operator)))
        if not is_open:
            scaling.plan = None
            self._note_over(scaling, instances)

    # -- what is told -------------------------------------------------------------------------------------------------

    def _note_begun(self, scaling: Scaling, at: float) -> None:
        scaling.is_begun = True
        before, after = scaling.before, scaling.decision.parallelism
        with self._lock:
            self._changes.append(Change(scaling.operator, at, before, after))
        detail = f"{before} → {after}: {scaling.decision.why}"
        self.process.events.add(
            "scaling out" if after > before else "scaling in", operator=scaling.operator, detail=detail
        )

    def _note_over(self, scaling: Scaling, instances: int) -> None:
        scaling.is_begun = False
        began = self._end_change(scaling.operator, instances)
        if instances == scaling.before:
            self.process.events.add("scaling aborted", operator=scaling.operator, detail="it is tried again")
            return
        self._tell(scaling, began, instances)
        if instances == scaling.decision.parallelism or not scaling.by_hand:
            self._close(scaling)

    def _end_change(self, operator: str, instances: int) -> Change:
        with self._lock:
            at = next(i for i in reversed(range(len(self._changes))) if self._changes[i].operator == operator)
            ended = replace(self._changes[at], after=instances, done=self.process.events.now)
            self._changes[at] = ended
            return ended

    def _tell(self, scaling: Scaling, change: Change, instances: int) -> None:
        assert change.done is not None
        peak = max(self.process.latencies(change.begun), default=0.0)
        self.process.events.add(
            "scaled out" if instances > scaling.before else "scaled in",
            operator=scaling.operator,
            seconds=change.done - change.begun,
            detail=f"{scaling.before} → {instances}, latency up to {peak:.3f} s",
            parts={"waited": change.begun - scaling.opened},
            numbers={"before": scaling.before, "after": instances, "latency_peak": peak},
        )

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
