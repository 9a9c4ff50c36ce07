"""The load of a schedule: the work of each operator and slot, and the measurements of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from policies.balance.loads import SlotLoads
from policies.observation import InstanceReport, Observation
from primitives.errors import EnvironmentFault
from primitives.graph import InstanceId, Kind
from seep.control.commands import Consult, EndWindow
from seep.kernel.kernel import Kernel
from seep.simulator.policies import Manner

#: The most waiting questions of one kind, as in a real run.
_WAITING = 16


class Load:
    """The load of each operator, in numbers of fully used instances; constant, or changing every few seconds.

    The slots of an operator have different shares of it. Measurements follow from the owners of slots.
    """

    def __init__(self, rng: random.Random, operators: Mapping[str, int]) -> None:
        self.is_steady = rng.random() < 0.6
        self._period = rng.choice((3.0, 8.0))
        self._levels = {o: [rng.choice((0.1, 0.3, 0.6, 1.0, 1.7)) for _ in range(4)] for o in operators}
        self._shares = {o: self._shares_of(rng, 1 << bits) for o, bits in operators.items()}

    @staticmethod
    def _shares_of(rng: random.Random, slots: int) -> list[float]:
        skew = rng.choice((0.0, 0.0, 1.0, 3.0))
        weights = [1.0 + skew * rng.random() ** 2 * slots for _ in range(slots)]
        return [weight / sum(weights) for weight in weights]

    def of(self, operator: str, seconds: float) -> float:
        """Returns the load of an operator, in fully used instances."""
        levels = self._levels[operator]
        return levels[0] if self.is_steady else levels[int(seconds / self._period) % len(levels)]

    def of_slots(self, operator: str, seconds: float) -> list[float]:
        """Returns the load of each slot of an operator, in fully used instances."""
        return [share * self.of(operator, seconds) for share in self._shares[operator]]


class SimulatedSenses:
    """The measurements of a schedule, and the answers to the steward's questions."""

    def __init__(
        self,
        kernel: Kernel,
        rng: random.Random,
        load: Load,
        report: float,
        seconds: Callable[[], float],
        manners: Mapping[str, Manner],
        step_seconds: float,
    ) -> None:
        self._kernel, self._rng, self._load, self._report = kernel, rng, load, report
        self._seconds, self._manners, self._step_seconds = seconds, manners, step_seconds
        self._life = kernel.lives
        self._observation: Observation | None = None
        self._next_report = report
        self._watched: frozenset[str] = frozenset()
        #: by kind: waiting questions, including the one that is being answered
        self._questions: dict[str, list[tuple[Consult, Callable[[object], None]]]] = {}
        self._answered: dict[str, int] = {}
        self._asked: float = 0.0
        self.late = False  #: whether a policy has answered too late since the last check

    # -- measurements -------------------------------------------------------------------------------------------------

    def observation(self) -> Observation | None:
        """See `Senses`."""
        at = self._seconds()
        if at >= self._next_report:
            self._next_report = at + self._report
            self._observation = self._observe(at)
        return self._observation

    def _observe(self, at: float) -> Observation:
        manager, reports = self._kernel.manager, dict[InstanceId, InstanceReport]()
        for operator, history in manager.topology.history.items():
            work, parts = self._load.of_slots(operator, at), history[-1].assignment.parts
            for index, slots in parts.items():
                instance = InstanceId(operator, index)
                seat = manager.placement.get(instance)
                if seat is not None and seat.node in manager.nodes:
                    used = sum(work[slot] for slot in slots)
                    rate = 1000.0 * used
                    reports[instance] = InstanceReport(
                        instance, seat.node, min(used, 1.2), min(used, 1.0), rate, rate, slots=len(slots)
                    )
        worst = max((report.utilisation for report in reports.values()), default=0.0)
        latency = dict.fromkeys(("p50", "p95", "p99", "max"), 2.0 if worst > 1.0 else 0.1)
        sources = manager.graph.of_kind(Kind.SOURCE)
        offered = {source: 1000.0 * self._load.of(source, at) for source in sources}
        return Observation(at, self._report, reports, offered, dict.fromkeys(sources, 0.0), latency)

    def state_bytes(self) -> Mapping[InstanceId, int]:
        """See `Senses`."""
        return {}

    def watch_slots(self, operators: frozenset[str]) -> None:
        """See `Senses`."""
        self._watched = operators

    def slot_loads(self, window: EndWindow) -> SlotLoads | None:
        """See `Senses`; sometimes an instance has not reported."""
        if window.operator not in self._watched or self._rng.random() < 0.1:
            return None
        work = self._load.of_slots(window.operator, self._seconds())
        rows = np.array([int(1000 * each * window.seconds) for each in work])
        return SlotLoads(window.seconds, window.assignment, rows, moving=window.moving)

    # -- questions ----------------------------------------------------------------------------------------------------

    def consult(self, question: Consult, answer: Callable[[object], None]) -> None:
        """See `Senses`. Questions of one kind are answered one after the other, as by one thread."""
        waiting = self._questions.setdefault(question.kind, [])
        if len(waiting) > _WAITING:
            answer(EnvironmentFault(f"{question.name} cannot be asked: {_WAITING} questions wait"))
            return
        waiting.append((question, answer))
        if question.kind == "policy":
            self._asked = self._seconds()
        if len(waiting) == 1:
            self._begin(question.kind)

    def _begin(self, kind: str) -> None:
        manner = self._manners.get(kind, Manner.SHIPPED)
        answered = self._answered[kind] = self._answered.get(kind, 0) + 1
        if manner is Manner.HANGS and answered > 1:
            return
        slow = manner is Manner.SLOW and self._rng.random() < 0.7
        steps = int(self._rng.uniform(1.2, 4.0) / self._step_seconds) if slow else self._rng.choice((1, 1, 3, 20))
        self._kernel.at(self._kernel.now + steps, partial(self._answer, kind))

    def _answer(self, kind: str) -> None:
        if self._life != self._kernel.lives:
            return
        question, answer = self._questions[kind].pop(0)
        self.late |= kind == "policy" and self._seconds() > self._asked + max(self._report, 1.0) + 0.1
        try:
            answer(question.work())
        except Exception as reason:
            answer(reason)
        if self._questions[kind]:
            self._begin(kind)
