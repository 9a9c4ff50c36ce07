"""A closed loop: a simulated counter whose parallelism a governed policy decides, one report interval at a time.

The counter owns real slots, given to its instances as the project gives them, and is as fast as its hottest instance
lets it be. While it changes it works at half its rate and is busy all the time; what it cannot do stays behind.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from policies.observation import Change, History, InstanceReport, Observation
from policies.scaling.assignment import rescaled
from policies.scaling.decision import Policy
from policies.scaling.governor import Governor
from policies.scaling.settings import ScalingSettings
from primitives.graph import InstanceId
from primitives.topology import Assignment
from tests.policies.scenes import SECONDS, WORDS, report

SLOT_BITS = 6
#: Rows per second that an instance of the counter does at its limit.
CAPACITY = 1000.0

#: Rows per second that are offered, by the time since the query began to run.
Curve = Callable[[float], float]


@dataclass
class Loop:
    """Runs one report interval at each `step`."""

    policy: Policy
    settings: ScalingSettings
    curve: Curve
    noise: float = 0.0  #: part by which what is measured is off, at most
    change_takes: int = 1  #: report intervals of one change
    seed: int = 0
    assignment: Assignment = field(default_factory=lambda: Assignment.contiguous(1, SLOT_BITS))
    behind: float = 0.0
    observations: list[Observation] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    parallelism: list[int] = field(default_factory=list)  #: at the end of each interval
    left: int = 0  #: report intervals until the change under way is done

    def __post_init__(self) -> None:
        self.governor = Governor(self.policy, self.settings, {"counter": 1 << SLOT_BITS})
        self.chance = random.Random(self.seed)
        self.fresh = 1

    def run(self, intervals: int) -> Loop:
        for _ in range(intervals):
            self.step()
        return self

    def step(self) -> None:
        self._observe()
        self._finish_change()
        for decision in self.governor.decide(self.history):
            assert decision.operator == "counter"
            self._begin_change(decision.parallelism, [each.index for each in decision.hot])
        self.parallelism.append(len(self.assignment.parts))

    @property
    def history(self) -> History:
        return History(WORDS, tuple(self.observations), tuple(self.changes))

    @property
    def now(self) -> float:
        return self.observations[-1].at if self.observations else 0.0

    @property
    def directions(self) -> str:
        """What was changed so far: + for more instances, - for fewer."""
        return "".join("+" if change.after > change.before else "-" for change in self.changes)

    def shares(self) -> dict[InstanceId, float]:
        return {
            InstanceId("counter", index): len(slots) / (1 << SLOT_BITS)
            for index, slots in self.assignment.parts.items()
        }

    # -- what happens --------------------------------------------------------------------------------------------------

    def _observe(self) -> None:
        offered, shares, slower = self.curve(self.now), self.shares(), 2 if self.left else 1
        rows = min(offered + self.behind / SECONDS, CAPACITY / max(shares.values()) / slower)
        self.behind = max(0.0, self.behind + (offered - rows) * SECONDS)
        hottest = min(1.0, rows * max(shares.values()) / CAPACITY)
        latency = 0.05 / max(0.02, 1.0 - hottest) + self.behind / rows
        counters = [self._counter(instance, rows, share) for instance, share in shares.items()]
        quiet = [
            report("words[0]", rows_out=rows, utilisation=0.001),
            report("splitter[0]", rows_in=rows, rows_out=rows, utilisation=0.001),
            report("out[0]"),
        ]
        self.observations.append(
            Observation(
                self.now + SECONDS,
                SECONDS,
                {each.instance: each for each in (*quiet, *counters)},
                {"words": offered},
                {"words": self.behind},
                {"p99": latency},
                epochs_in_flight=1,
            )
        )

    def _counter(self, instance: InstanceId, rows: float, share: float) -> InstanceReport:
        used = 1.0 if self.left else min(1.0, rows * share / CAPACITY * (1 + self.chance.uniform(-1, 1) * self.noise))
        slots = len(self.assignment.slots_of(instance.index))
        return report(str(instance), utilisation=used, busy=used, rows_in=rows * share, rows_out=1.0, slots=slots)

    def _begin_change(self, wanted: int, hot: list[int]) -> None:
        present = len(self.assignment.parts)
        self.assignment = self.assignment.moved(rescaled(self.assignment, wanted, self.fresh, hot))
        self.fresh += max(0, wanted - present)
        self.changes.append(Change("counter", self.now, present, wanted))
        self.left = self.change_takes

    def _finish_change(self) -> None:
        if self.left:
            self.left -= 1
            if not self.left:
                last = self.changes.pop()
                self.changes.append(Change(last.operator, last.begun, last.before, last.after, self.now))


def steady(rows: float) -> Curve:
    return lambda _: rows


def step_at(moment: float, before: float, after: float) -> Curve:
    return lambda at: before if at < moment else after


def ramp(low: float, high: float, begin: float, end: float) -> Curve:
    """Low until `begin`, then straight up to `end`, and as fast down again."""

    def curve(at: float) -> float:
        part = max(0.0, 1 - abs(at - end) / (end - begin))
        return low + (high - low) * part

    return curve


def sawtooth(low: float, high: float, period: float) -> Curve:
    return lambda at: low + (high - low) * (at % period) / period
