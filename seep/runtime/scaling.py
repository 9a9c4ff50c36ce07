"""Scaling: decisions become plans on warm nodes, and stay open until their plans are complete, whatever fails.

Each round looks at how things are, so nothing depends on having heard of an event: a plan that is not there any more is
over; if the operator then has the instances that it should have, it was carried out, else it was aborted and is made
again.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from policies.assignment import rescaled
from policies.decision import Decision
from policies.observation import Change
from policies.settings import Mechanism, ScalingSettings
from primitives.graph import InstanceId, Kind
from primitives.slots import SlotSet
from seep.protocol.effects import Effect
from seep.protocol.manager import Manager
from seep.protocol.plans import Accepted, Refusal, Refused
from seep.runtime.driver import ManagerProcess

#: Refusals that pass by themselves.
_PASSING = (Refusal.BUSY, Refusal.NO_BACKUP, Refusal.NOT_RUNNING)

Parts = Mapping[int, SlotSet]


class WarmNodes(Protocol):
    """What scaling needs of the pool."""

    def available(self) -> list[str]:
        """Warm nodes that scale-out may take."""
        ...

    def want(self, count: int) -> None:
        """So many are needed now."""
        ...


@dataclass(slots=True)
class Scaling:
    """A decision on its way."""

    decision: Decision
    opened: float
    before: int  #: instances
    by_hand: bool = False
    plan: int | None = None
    first: int = 0  #: the epoch at which its move takes effect
    saved: bool = False  #: a checkpoint was asked for since
    waits: bool = False  #: for nodes, and that was told

    @property
    def operator(self) -> str:
        return self.decision.operator


@dataclass(slots=True)
class Scalings:
    """All decisions that are open, one per operator at most. `round` is for one thread, `open` for any."""

    process: ManagerProcess
    settings: ScalingSettings
    nodes: WarmNodes
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
            elif there.plan is None and by_hand >= there.by_hand:
                there.decision, there.by_hand, there.before = decision, by_hand, before

    def round(self) -> None:
        """Carries all of them on."""
        with self._lock:
            scalings = list(self._open.values())
        for scaling in scalings:
            if scaling.plan is None:
                self._begin(scaling)
            else:
                self._follow(scaling)

    # -- from a decision to its plan ----------------------------------------------------------------------------------

    def _begin(self, scaling: Scaling) -> None:
        needed = self.process.ask(lambda manager: self._nodes_needed(manager, scaling.decision))
        if needed > len(self.nodes.available()):
            self._wait(scaling, needed)
            return
        self.nodes.want(0)
        match self.process.change(lambda manager: self._plan(manager, scaling)):
            case Accepted(plan):
                scaling.plan = plan
                self._note_begun(scaling)
            case Refused(why) if why in _PASSING:
                self._help(scaling, why)
            case Refused(why):
                self._close(scaling)
                if why is not Refusal.ENDING:
                    self.process.events.add("scaling refused", operator=scaling.operator, detail=why.value)
            case None:
                self._close(scaling)  # it is as it should be

    def _nodes_needed(self, manager: Manager, decision: Decision) -> int:
        """New instances get nodes of their own; a split from backup has its origin replaced by a new one, too."""
        parts = _parts(manager, decision)
        fresh = [index for index in parts if index >= manager.fresh_index(decision.operator)]
        return len(fresh) + (1 if fresh and self._is_split(manager, decision) else 0)

    def _wait(self, scaling: Scaling, needed: int) -> None:
        self.nodes.want(needed)
        if not scaling.waits:
            scaling.waits = True
            detail = f"{needed} needed: {scaling.decision.why}"
            self.process.events.add("waiting for VMs", operator=scaling.operator, detail=detail)

    def _plan(self, manager: Manager, scaling: Scaling) -> tuple[Accepted | Refused | None, list[Effect]]:
        """Makes the plan; None if there is nothing to change."""
        decision, scaling.before = scaling.decision, _instances(manager, scaling.operator)
        scaling.first, scaling.saved = 0, False
        parts = _parts(manager, decision)
        if not parts:
            return None, []
        if self._is_split(manager, decision):
            return manager.split(*_from_one_origin(manager, decision.operator, parts))
        answer, effects = manager.move(decision.operator, parts)
        scaling.first = manager.topology.history[decision.operator][-1].first
        return answer, effects

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

    def _note_begun(self, scaling: Scaling) -> None:
        before, after, now = scaling.before, scaling.decision.parallelism, self.process.events.now
        with self._lock:
            self._changes.append(Change(scaling.operator, now, before, after))
        detail = f"{before} → {after}: {scaling.decision.why}"
        self.process.events.add(
            "scaling out" if after > before else "scaling in", operator=scaling.operator, detail=detail
        )

    # -- from a plan to its end ---------------------------------------------------------------------------------------

    def _follow(self, scaling: Scaling) -> None:
        is_open, instances, committed = self.process.ask(lambda manager: self._look(manager, scaling))
        if scaling.first and committed >= scaling.first and not scaling.saved:
            scaling.saved = True  # the sooner both sides have a backup, the sooner the plan is complete
            self.process.change(lambda manager: (None, manager.checkpoint(scaling.operator)))
        if not is_open:
            self._note_over(scaling, instances)

    def _look(self, manager: Manager, scaling: Scaling) -> tuple[bool, int, int]:
        plans = manager.moves.keys() | manager.splits.keys()
        return scaling.plan in plans, _instances(manager, scaling.operator), self.process.committed()

    def _note_over(self, scaling: Scaling, instances: int) -> None:
        scaling.plan = None
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
    return len(manager.topology.history[operator][-1].assignment.parts)


def _parts(manager: Manager, decision: Decision) -> Parts:
    """What each gaining instance gets."""
    assignment = manager.topology.history[decision.operator][-1].assignment
    hot = [instance.index for instance in decision.hot if instance.index in assignment.parts]
    return rescaled(assignment, decision.parallelism, manager.fresh_index(decision.operator), hot)


def _from_one_origin(manager: Manager, operator: str, parts: Parts) -> tuple[InstanceId, Parts]:
    """A split has one origin: that which is to lose most. What others should lose is left to the next decision."""
    owned = manager.topology.history[operator][-1].assignment.parts
    origin = max(owned, key=lambda index: sum(len(slots & owned[index]) for slots in parts.values()))
    lost = {index: slots & owned[origin] for index, slots in parts.items()}
    return InstanceId(operator, origin), {index: slots for index, slots in lost.items() if slots}
