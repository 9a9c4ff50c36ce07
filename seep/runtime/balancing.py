"""Balancing: windows of what slots have to do are shown to a balancer, and what it decides is carried out.

A window in which an operator was scaled or recovered tells of pauses and of rows that are replayed, hence counted a
second time. One in which slots move may have their rows of both owners, or of none, as these report at times of their
own. And in the first one, nodes begin to count when they hear of it, each at another time. All these are thrown away.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from policies.balance.asking import asked
from policies.balance.loads import Balancer, HotKey, Rebalance, SlotLoads
from policies.balance.registry import make_balancer
from policies.balance.settings import BalanceSettings
from policies.migration.settings import MigrationSettings
from policies.observation import Change
from primitives.errors import SeepError, UserError
from primitives.graph import InstanceId, Kind, QueryGraph
from primitives.slots import SlotSet
from seep.protocol.manager import Manager
from seep.runtime.courses import StepByStep
from seep.runtime.driver import ManagerProcess
from seep.runtime.failures import place_of
from seep.runtime.goals import Parts, latest
from seep.runtime.migration import Migration, State
from seep.runtime.migrations import Migrations

#: Reports that may come so much later than what they tell of, in heartbeats.
_LATE = 6


@dataclass(slots=True)
class _Rebalancing:
    """A decision on its way."""

    migration: Migration
    before: float  #: the imbalance when it was made


@dataclass(slots=True)
class Balancing:
    """Of all operators that are balanced. `request` is for any thread, `round` for one.

    A balancer that fails or is slow is told once, and the query goes on as it is.
    """

    process: ManagerProcess
    settings: BalanceSettings
    migrations: Migrations
    steps: MigrationSettings  #: how slots move
    changes: Callable[[], Iterable[Change]]  #: of parallelism, and recoveries
    _balancer: Balancer = field(init=False)
    _balanced: tuple[str, ...] = field(init=False)
    _windows: dict[str, deque[SlotLoads]] = field(default_factory=dict)  #: of the operators that are counted
    _begun: dict[str, float] = field(default_factory=dict)  #: when the window began that is not over
    _counting: float = 0.0  #: since when these operators are counted
    _open: dict[str, _Rebalancing] = field(default_factory=dict)
    _hot: dict[str, set[int]] = field(default_factory=dict)  #: slots that were too hot in the last window
    _asked: dict[str, int] = field(default_factory=dict)  #: by hand -> windows that may pass until it is given up
    _slow: int = 0  #: decisions in a row that took too long
    _complaints: set[Hashable] = field(default_factory=set)  #: what was told once, or where it comes from

    def __post_init__(self) -> None:
        self._balancer = make_balancer(self.settings)
        self._balanced = balanced_operators(self.process.program.graph, self.settings)

    def request(self, operator: str) -> None:
        """By hand: slots of the operator move as soon as its balancer finds some, whether balancing is on or not."""
        check_balanced(self.process.program.graph, [operator], "balance")
        if self.process.ask(lambda manager: len(latest(manager, operator).parts)) < 2:
            raise UserError(f"{operator} has one instance, so there is nobody to give slots to; scale it out")
        self._asked[operator] = self.settings.history

    def round(self) -> None:
        """Ends the windows for which it is time."""
        self._have_counted()
        now = self.process.events.now
        ripe = [operator for operator, begun in self._begun.items() if now >= begun + self.settings.window]
        if ripe:
            self._end_windows(ripe, now)

    # -- windows ------------------------------------------------------------------------------------------------------

    def _have_counted(self) -> None:
        """Nodes count only what somebody wants to know."""
        if not (self.settings.enabled or self._asked or self._windows):
            return
        wanted = self.process.ask(self._wanted)
        if wanted == self._windows.keys():
            return
        self.process.count_slots(wanted)
        self._counting = self.process.events.now
        self._begun = dict.fromkeys(wanted, self._counting)
        self._windows = {each: self._windows.get(each) or deque(maxlen=self.settings.history) for each in wanted}

    def _wanted(self, manager: Manager) -> set[str]:
        balanced = {*self._asked, *self._open, *filter(self._is_balanced, manager.graph.order)}
        return {operator for operator in balanced if len(latest(manager, operator).parts) > 1}

    def _is_balanced(self, operator: str) -> bool:
        """Whether its slots move by themselves."""
        return self.settings.enabled and operator in self._balanced

    def _end_windows(self, operators: Iterable[str], now: float) -> None:
        changes = list(self.changes())
        loads = self.process.ask(lambda manager: {o: self._loads(manager, o, now) for o in operators})
        for operator, window in loads.items():
            if window is None:
                continue
            begun, self._begun[operator] = self._begun[operator], now
            if not self._is_disturbed(operator, changes, begun):
                self._windows[operator].append(window)
                self._conclude(operator, window)
                self._decide(operator)

    def _loads(self, manager: Manager, operator: str, now: float) -> SlotLoads | None:
        """None while there are instances that have told nothing: the window goes on."""
        slots, assignment, moving = self.process.metrics.slots, latest(manager, operator), SlotSet.empty()
        if not slots.is_whole(operator, assignment):
            return None
        for move in manager.moves.values():
            moving = moving | move.slots if move.operator == operator else moving
        return slots.end_window(operator, now - self._begun[operator], assignment, moving)

    def _is_disturbed(self, operator: str, changes: Iterable[Change], begun: float) -> bool:
        """Whether it is the first, or anything was changed in the operator since it began, or shortly before."""
        ends = [change.done for change in changes if change.operator == operator]
        if operator in self._open:
            ends.append(self._open[operator].migration.ended)
        late = _LATE * self.process.options.heartbeat
        return begun == self._counting or any(end is None or end + late > begun for end in ends)

    # -- from windows to a migration ----------------------------------------------------------------------------------

    def _decide(self, operator: str) -> None:
        windows = tuple(self._windows[operator])
        rebalance = self._ask_balancer(operator, windows)
        if rebalance is None:
            return
        self._tell_hot(operator, rebalance.hot)
        if not (operator in self._asked or self._is_balanced(operator)):
            return
        if rebalance.moves:
            self._begin(operator, windows[-1], rebalance)
        elif operator in self._asked:
            self._wait_on(operator)

    def _ask_balancer(self, operator: str, windows: Sequence[SlotLoads]) -> Rebalance | None:
        begun = time.monotonic()
        try:
            rebalance = asked(self._balancer, windows)
        except SeepError as reason:
            self._complain(operator, str(reason), place_of(reason))
            self._asked.pop(operator, None)
            return None
        self._slow = self._slow + 1 if time.monotonic() - begun > self.settings.window else 0
        if self._slow == 2:  # the first time there may have been something to compile
            name = type(self._balancer).__name__
            text = f"balancer {name} takes longer than a window of {self.settings.window:g} s to decide"
            self._complain(operator, text, "slow")
        return rebalance

    def _complain(self, operator: str, text: str, about: Hashable) -> None:
        if about not in self._complaints:
            self._complaints.add(about)
            self.process.events.add("balancing failed", operator=operator, detail=text)

    def _tell_hot(self, operator: str, found: Iterable[HotKey]) -> None:
        """Each once while it lasts."""
        known, self._hot[operator] = self._hot.get(operator, set()), {each.slot for each in found}
        for each in found:
            if each.slot not in known:
                name = str(InstanceId(operator, each.instance))
                numbers = {"slot": each.slot, "share": each.share}
                self.process.events.add("hot slot", operator=operator, instance=name, detail=each.why, numbers=numbers)

    def _wait_on(self, operator: str) -> None:
        """What was asked for by hand need not be called for in the very next window."""
        self._asked[operator] -= 1
        if not self._asked[operator]:
            del self._asked[operator]
            detail = f"the balancer found nothing worth moving in {self.settings.history} windows"
            self.process.events.add("nothing to balance", operator=operator, detail=detail)

    def _begin(self, operator: str, window: SlotLoads, rebalance: Rebalance) -> None:
        self._asked.pop(operator, None)
        before, slots = imbalance(window), sum(map(len, rebalance.moves.values()))
        numbers = {"imbalance": before, "slots": slots}
        self.process.events.add("balancing", operator=operator, detail=rebalance.why, numbers=numbers)
        moves = rebalance.moves
        migration = Migration(
            operator,
            StepByStep(self.steps),
            self.process.events.now,
            goal=lambda manager: _still_to_move(manager, operator, moves),
            settings=self.steps,
            why=rebalance.why,
            is_told=False,
        )
        self._open[operator] = _Rebalancing(migration, before)
        self.migrations.open(migration)

    # -- from a migration to its end ----------------------------------------------------------------------------------

    def _conclude(self, operator: str, window: SlotLoads) -> None:
        """What came of it shows in the first window after it."""
        rebalancing = self._open.pop(operator, None)
        if rebalancing is None:
            return
        migration = rebalancing.migration
        if migration.state is not State.DONE or migration.ended is None:
            self.process.events.add("balancing called off", operator=operator, detail=migration.why)
            return
        before, after, handed = rebalancing.before, imbalance(window), migration.handed
        numbers = {"before": before, "after": after, "slots": migration.slots, "bytes": handed.nbytes}
        self.process.events.add(
            "balanced",
            operator=operator,
            seconds=migration.ended - migration.opened,
            detail=f"the fullest instance had {before:.2f} times the mean, now {after:.2f}",
            numbers=numbers,
        )


def balanced_operators(graph: QueryGraph, settings: BalanceSettings) -> tuple[str, ...]:
    """Those that the settings name, or else all that have state; UserError if one is named that cannot be balanced."""
    if settings.operators is None:
        return tuple(name for name in graph.order if graph.kind(name) is Kind.STATEFUL)
    check_balanced(graph, settings.operators, "balance.operators")
    return settings.operators


def check_balanced(graph: QueryGraph, operators: Iterable[str], where: str) -> None:
    """UserError, told of `where` it stands, for the first that cannot be balanced."""
    possible = [name for name in graph.order if graph.kind(name) in (Kind.STATEFUL, Kind.STATELESS)]
    for name in operators:
        if name not in possible:
            raise UserError(f"{where}: {name!r} cannot be balanced; choose from {', '.join(possible) or 'none'}")


def check_balance(graph: QueryGraph, settings: BalanceSettings) -> None:
    """UserError where the settings do not fit the query, or name no balancer that can be made."""
    balanced_operators(graph, settings)
    make_balancer(settings)


def imbalance(window: SlotLoads) -> float:
    """How many times the mean the fullest instance had to do, by rows and by who owns what now; 1 if there were none.

    >>> from primitives.topology import Assignment
    >>> imbalance(SlotLoads(2.0, Assignment([0, 0, 1, 1]), np.array([30, 30, 10, 10])))
    1.5
    """
    _, owners = np.unique(window.assignment.owners, return_inverse=True)
    rows = np.bincount(owners, weights=window.rows)
    return float(rows.max() / rows.mean()) if rows.any() else 1.0


def _still_to_move(manager: Manager, operator: str, moves: Mapping[int, SlotSet]) -> Parts:
    assignment = latest(manager, operator)
    return {index: slots - assignment.slots_of(index) for index, slots in moves.items()}
