"""Policy rounds: the policy sees each observation; its decisions are carried out, unless they come too late."""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from policies.observation import Change, History, Observation
from policies.scaling.decision import Decision
from policies.scaling.detector import Bottleneck, Cause, bottlenecks
from policies.scaling.governor import Governor
from policies.scaling.settings import ScalingSettings
from primitives.graph import InstanceId, QueryGraph
from seep.control.commands import Consult
from seep.control.orders import Orders
from seep.control.scalings import Scalings
from seep.record.events import BottleneckFound, PolicySlow, ScalingFailed
from seep.record.facts import Facts

#: Number of observations that are remembered.
_REMEMBERED = 720
#: The least seconds that a policy gets, however short the report interval is.
_LEAST = 1.0
#: Number of different failures that are reported.
_MOST = 100


@dataclass(slots=True)
class PolicyRounds:
    """Consults the policy after each observation. If the policy is slow or fails, nothing else waits for it."""

    orders: Orders
    graph: QueryGraph
    settings: ScalingSettings
    governor: Governor
    scalings: Scalings
    _observations: deque[Observation] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    _asks: int | None = None  #: the question that the policy has not answered yet
    _asked: float = 0.0
    _is_late: bool = False  #: whether its answer is late, and will be ignored
    _known: set[tuple[InstanceId, Cause]] = field(default_factory=set)  #: bottlenecks that were reported
    _complaints: set[tuple[str, str, int]] = field(default_factory=set)  #: places of failures that were reported

    def history(self, changes: tuple[Change, ...]) -> History:
        """Returns the observations and changes that policies see."""
        return History(self.graph, tuple(self._observations), changes)

    @property
    def is_asking(self) -> bool:
        return self._asks is not None

    def step(self, facts: Facts, changes: Callable[[], tuple[Change, ...]]) -> None:
        observation = facts.observation
        if observation is not None and (not self._observations or observation.at > self._observations[-1].at):
            self._observations.append(observation)
            self._round(facts, self.history(changes()))
        self._notice_late(facts)

    def _notice_late(self, facts: Facts) -> None:
        """Reports, once for each question, that it was not answered in time."""
        limit = max(self.settings.detector.report, _LEAST)
        if self._asks is not None and not self._is_late and facts.at > self._asked + limit:
            self._is_late = True
            self.orders.tell(PolicySlow(policy=self._policy, seconds=facts.at - self._asked))

    def _round(self, facts: Facts, history: History) -> None:
        """Reports new bottlenecks and consults the policy, at the end of a report interval."""
        self._tell(bottlenecks(history, self.settings.detector))
        if self._asks is None and not facts.query.ending:
            self._asked, self._is_late = facts.at, False
            work = partial(self.governor.decide, history)
            name = f"policy {self._policy}"
            self._asks = self.orders.request(
                lambda number: Consult(number, "policy", name, work), partial(self._on_decided, history)
            )

    def _on_decided(self, history: History, facts: Facts, answer: Any) -> None:
        """Opens the decisions of the policy. A late answer is dropped: the next round asks again."""
        self._notice_late(facts)
        is_late, self._asks, self._is_late = self._is_late, None, False
        if isinstance(answer, BaseException):
            self.complain(answer)
        elif not is_late:
            decisions: list[Decision] = answer
            for decision in decisions:
                self.scalings.open(facts, decision, seen=history.parallelism(decision.operator))

    @property
    def _policy(self) -> str:
        return type(self.governor.policy).__name__

    def complain(self, reason: BaseException) -> None:
        """Reports a failure, once for each line of code that raises it."""
        place = _place_of(reason)
        if place not in self._complaints and len(self._complaints) < _MOST:
            self._complaints.add(place)
            self.orders.tell(
                ScalingFailed(why=f"{type(reason).__name__}: {reason}\n{''.join(traceback.format_exception(reason))}")
            )

    def _tell(self, found: list[Bottleneck]) -> None:
        """Reports the bottlenecks that are new since the last round."""
        known, self._known = self._known, {(each.instance, each.cause) for each in found}
        for each in found:
            if (each.instance, each.cause) not in known:
                self.orders.tell(BottleneckFound(subject=each.instance, cause=each.cause, why=each.why))


def _place_of(reason: BaseException) -> tuple[str, str, int]:
    """Returns the type of an error, and the file and line that first raised it, which do not depend on its text."""
    while reason.__cause__ is not None:
        reason = reason.__cause__
    frames = traceback.extract_tb(reason.__traceback__)
    file, line = (frames[-1].filename, frames[-1].lineno or 0) if frames else ("", 0)
    return type(reason).__name__, file, line
