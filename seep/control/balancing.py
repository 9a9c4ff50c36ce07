"""Balancing: shows a balancer how much work each slot had in a window of time, and carries out its decision.

Three kinds of window are discarded. If the operator was scaled or recovered, the window has pauses, and counts replayed
rows twice. If slots moved, their rows may be counted by both owners or by none, as each reports at its own time. In the
first window, each node begins to count at its own time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from policies.balance.asking import asked
from policies.balance.loads import Balancer, HotKey, Rebalance, SlotLoads
from policies.balance.registry import make_balancer
from policies.balance.settings import BalanceSettings
from policies.migration.settings import MigrationSettings
from policies.observation import Change
from primitives.errors import UserError
from primitives.graph import InstanceId, Kind, QueryGraph
from primitives.slots import SlotSet
from seep.control.commands import Consult, EndWindow, WatchSlots
from seep.control.migration import Migration, MigrationState
from seep.control.migrations import Migrations
from seep.control.orders import Orders
from seep.control.pacing import StepByStep
from seep.control.targets import Parts
from seep.record.events import (
    Balanced,
    BalancingBegun,
    BalancingCalledOff,
    BalancingFailed,
    HotSlot,
    NothingToBalance,
)
from seep.record.facts import Facts, QueryFacts

#: The most heartbeats by which a report may be later than the interval that it describes.
_LATE = 6
#: Seconds until an incomplete window is tried again.
_AGAIN = 0.05


@dataclass(slots=True)
class Rebalancing:
    """A rebalance in progress."""

    migration: Migration
    before: float  #: the imbalance when it was made


@dataclass(slots=True)
class _Counted:
    """An operator whose rows nodes count by slot."""

    begun: float  #: when the present window began
    since: float  #: when counting began
    windows: deque[SlotLoads]
    ends: int | None = None  #: the command that ends the window, until it is answered
    again: float = 0.0  #: when a window that could not be ended is tried again
    asks: int | None = None  #: the question to the balancer, until it is answered
    asked: float = 0.0  #: when it was asked
    is_slow: bool = False  #: whether it has not answered within a window


@dataclass(slots=True)
class _Wish:
    """A manual request for balance."""

    since: float
    windows: int  #: number of windows until it is given up


@dataclass(slots=True)
class Balancing:
    """Balances operators. If the balancer fails or is slow, one event reports it, and the query continues."""

    orders: Orders
    graph: QueryGraph
    settings: BalanceSettings
    migrations: Migrations
    steps: MigrationSettings  #: the settings of the migrations
    heartbeat: float  #: seconds
    timeout: float  #: seconds until a manual request, or the effect of a rebalance, is given up
    balancer: Balancer
    _balanced: tuple[str, ...] = field(init=False)
    _counted: dict[str, _Counted] = field(default_factory=dict)
    _open: dict[str, Rebalancing] = field(default_factory=dict)
    _hot: dict[str, set[int]] = field(default_factory=dict)  #: slots that were too hot in the last window
    _wishes: dict[str, _Wish] = field(default_factory=dict)
    _slow: int = 0  #: decisions in a row that took longer than a window
    _complaints: set[Hashable] = field(default_factory=set)  #: complaints that were reported, each once

    def __post_init__(self) -> None:
        self._balanced = balanced_operators(self.graph, self.settings)

    @property
    def under_way(self) -> Mapping[str, Rebalancing]:
        return self._open

    @property
    def wishes(self) -> Mapping[str, float]:
        """Operators for which balance was asked for by hand, and when."""
        return {operator: wish.since for operator, wish in self._wishes.items()}

    def request(self, facts: Facts, operator: str) -> None:
        """Requests balance by hand: slots move as soon as the balancer finds some, whether balancing is on or not."""
        check_balanced(self.graph, [operator], "balance")
        if facts.query.instances(operator) < 2:
            raise UserError(f"{operator} has one instance, so there is nobody to give slots to; scale it out")
        self._wishes.setdefault(operator, _Wish(facts.at, self.settings.history))

    def step(self, facts: Facts, changes: Callable[[], tuple[Change, ...]]) -> None:
        """Ends the windows that are long enough."""
        if not (self.settings.enabled or self._wishes or self._counted or self._open):
            return
        self._end_wishes(facts)
        self._end_unmeasured(facts)
        self._have_counted(facts)
        for operator, counted in self._counted.items():
            self._notice_slow(facts, operator, counted)
            if counted.ends is None and facts.at >= max(counted.again, counted.begun + self.settings.window):
                self._end_window(facts, operator, counted, changes())

    def end(self) -> None:
        """Ends all rebalances and wishes at the end of the run."""
        for operator in tuple(self._open):
            del self._open[operator]
            self.orders.tell(BalancingCalledOff(operator=operator, why="the run is over"))
        for operator in tuple(self._wishes):
            self._end_wish(operator, "the run is over")

    # -- windows ------------------------------------------------------------------------------------------------------

    def _have_counted(self, facts: Facts) -> None:
        """Makes nodes count the slots of the operators that are balanced now, and of no others."""
        wanted = self._wanted(facts.query)
        if wanted == self._counted.keys():
            return
        self.orders.give(WatchSlots(frozenset(wanted)))
        self._counted = {operator: self._counting(facts, operator) for operator in sorted(wanted)}

    def _counting(self, facts: Facts, operator: str) -> _Counted:
        """Starts counting again; keeps reported complaints and an open question to the balancer."""
        there = self._counted.get(operator)
        windows = there.windows if there is not None else deque[SlotLoads](maxlen=self.settings.history)
        counted = _Counted(facts.at, facts.at, windows)
        if there is not None:
            counted.asks, counted.asked, counted.is_slow = there.asks, there.asked, there.is_slow
        return counted

    def _wanted(self, query: QueryFacts) -> set[str]:
        balanced = {*self._wishes, *self._open, *filter(self._is_balanced, self.graph.order)}
        return {operator for operator in balanced if query.instances(operator) > 1}

    def _is_balanced(self, operator: str) -> bool:
        """Whether the settings balance the operator without a request."""
        return self.settings.enabled and operator in self._balanced

    def _end_window(self, facts: Facts, operator: str, counted: _Counted, changes: tuple[Change, ...]) -> None:
        moving = SlotSet.empty()
        for move in facts.query.moves.values():
            moving = moving | move.slots if move.operator == operator else moving
        seconds, assignment = facts.at - counted.begun, facts.query.latest(operator)
        is_disturbed = self._is_disturbed(operator, changes, counted)
        counted.ends = self.orders.request(
            lambda number: EndWindow(number, operator, seconds, assignment, moving),
            partial(self._on_window, operator, counted, facts.at, is_disturbed),
        )

    def _on_window(
        self, operator: str, counted: _Counted, ended: float, is_disturbed: bool, facts: Facts, answer: object
    ) -> None:
        """Handles the counts of a window.

        If an instance has not reported yet, there are none, and the window continues.
        """
        counted.ends, counted.again = None, facts.at + _AGAIN
        if not isinstance(answer, SlotLoads):
            return
        counted.begun = ended
        if self._counted.get(operator) is counted and not is_disturbed:
            counted.windows.append(answer)
            self._conclude(operator, answer)
            self._ask_balancer(facts, operator, counted)

    def _is_disturbed(self, operator: str, changes: Iterable[Change], counted: _Counted) -> bool:
        """Whether the window is the first one, or the operator was changed during it or shortly before."""
        ends = [change.done for change in changes if change.operator == operator]
        if operator in self._open:
            ends.append(self._open[operator].migration.ended)
        late = _LATE * self.heartbeat
        return counted.begun == counted.since or any(end is None or end + late > counted.begun for end in ends)

    # -- the balancer -------------------------------------------------------------------------------------------------

    def _ask_balancer(self, facts: Facts, operator: str, counted: _Counted) -> None:
        """Asks one question at a time. The next question has the windows that end before this one is answered."""
        if counted.asks is None:
            windows, counted.asked = tuple(counted.windows), facts.at
            work = partial(asked, self.balancer, windows)
            counted.asks = self.orders.request(
                lambda number: Consult(number, "balancer", self._name, work),
                partial(self._on_rebalance, operator, windows[-1]),
            )

    def _on_rebalance(self, operator: str, window: SlotLoads, facts: Facts, answer: object) -> None:
        counted = self._counted.get(operator)
        is_late = counted is not None and counted.is_slow
        if counted is not None:
            self._note_duration(operator, facts.at - counted.asked)
            counted.asks, counted.is_slow = None, False
        if not isinstance(answer, Rebalance):
            self._complain(operator, str(answer), (type(answer), str(answer)[:200]))
            if operator in self._wishes:
                self._end_wish(operator, "the balancer has failed")
        elif counted is not None and not is_late:
            self._decide(facts, operator, window, answer)

    def _note_duration(self, operator: str, seconds: float) -> None:
        """Reports the second slow answer in a row; a single one may be slow because the balancer compiles code."""
        self._slow = self._slow + 1 if seconds > self.settings.window else 0
        if self._slow == 2:
            self._tell_slow(operator)

    def _notice_slow(self, facts: Facts, operator: str, counted: _Counted) -> None:
        """Gives up an answer that takes more than two windows: it would be based on old loads."""
        if counted.asks is not None and not counted.is_slow and facts.at > counted.asked + 2 * self.settings.window:
            counted.is_slow = True
            self._tell_slow(operator)

    def _tell_slow(self, operator: str) -> None:
        text = f"{self._name} takes longer than a window of {self.settings.window:g} s to decide"
        self._complain(operator, text, "slow")

    @property
    def _name(self) -> str:
        return f"balancer {type(self.balancer).__name__}"

    def _complain(self, operator: str, text: str, about: Hashable) -> None:
        if about not in self._complaints and len(self._complaints) < 100:
            self._complaints.add(about)
            self.orders.tell(BalancingFailed(operator=operator, why=text))

    # -- from windows to a migration ----------------------------------------------------------------------------------

    def _decide(self, facts: Facts, operator: str, window: SlotLoads, rebalance: Rebalance) -> None:
        self._tell_hot(operator, rebalance.hot)
        is_wanted = operator in self._wishes or self._is_balanced(operator)
        if operator in self._open or facts.query.ending or not is_wanted:
            return
        if rebalance.moves:
            self._begin(facts, operator, window, rebalance)
        elif operator in self._wishes:
            self._wait_on(operator)

    def _tell_hot(self, operator: str, found: Iterable[HotKey]) -> None:
        """Reports each hot slot once while it stays hot."""
        known, self._hot[operator] = self._hot.get(operator, set()), {each.slot for each in found}
        for each in found:
            if each.slot not in known:
                owner = InstanceId(operator, each.instance)
                self.orders.tell(HotSlot(subject=owner, slot=each.slot, share=each.share, why=each.why))

    def _wait_on(self, operator: str) -> None:
        """Keeps a wish open for some more windows, in which the balancer may find something to move."""
        self._wishes[operator].windows -= 1
        if not self._wishes[operator].windows:
            self._end_wish(operator, f"the balancer found nothing worth moving in {self.settings.history} windows")

    def _end_wishes(self, facts: Facts) -> None:
        for operator, wish in tuple(self._wishes.items()):
            if facts.query.instances(operator) < 2:
                self._end_wish(operator, "it has one instance")
            elif facts.query.ending:
                self._end_wish(operator, "the query is about to end")
            elif facts.at > wish.since + self.timeout:
                why = f"for {self.timeout:g} s there was no undisturbed window, or no word of {self._name}"
                self._end_wish(operator, why)

    def _end_wish(self, operator: str, why: str) -> None:
        del self._wishes[operator]
        self.orders.tell(NothingToBalance(operator=operator, why=why))

    def _begin(self, facts: Facts, operator: str, window: SlotLoads, rebalance: Rebalance) -> None:
        self._wishes.pop(operator, None)
        before, slots = imbalance(window), sum(map(len, rebalance.moves.values()))
        self.orders.tell(BalancingBegun(operator=operator, why=rebalance.why, imbalance=before, slots=slots))
        moves = rebalance.moves
        migration = Migration(
            operator,
            StepByStep(self.steps),
            facts.at,
            goal=lambda query: _still_to_move(query, operator, moves),
            settings=self.steps,
            why=rebalance.why,
            is_told=False,
        )
        self._open[operator] = Rebalancing(migration, before)
        self.migrations.open(migration)

    # -- from a migration to its end ----------------------------------------------------------------------------------

    def _conclude(self, operator: str, window: SlotLoads) -> None:
        """Reports the result of a rebalance, which the first window after it shows."""
        rebalancing = self._open.pop(operator, None)
        if rebalancing is None:
            return
        migration = rebalancing.migration
        if migration.state is not MigrationState.DONE or migration.ended is None:
            self.orders.tell(BalancingCalledOff(operator=operator, why=migration.why))
            return
        self.orders.tell(
            Balanced(
                operator=operator,
                seconds=migration.ended - migration.opened,
                before=rebalancing.before,
                after=imbalance(window),
                slots=migration.slots,
                bytes=migration.handed.nbytes,
            )
        )

    def _end_unmeasured(self, facts: Facts) -> None:
        """Ends a rebalance whose result no window can show."""
        for operator, rebalancing in tuple(self._open.items()):
            ended = rebalancing.migration.ended
            is_alone = facts.query.instances(operator) < 2
            if ended is not None and (is_alone or facts.at > ended + self.timeout):
                del self._open[operator]
                why = "it has one instance now" if is_alone else f"for {self.timeout:g} s no window could be measured"
                self.orders.tell(BalancingCalledOff(operator=operator, why=f"slots have moved, but {why}"))


def balanced_operators(graph: QueryGraph, settings: BalanceSettings) -> tuple[str, ...]:
    """Returns the operators in the settings, or else all with state. Raises UserError if one cannot be balanced."""
    if settings.operators is None:
        return tuple(name for name in graph.order if graph.kind(name) is Kind.STATEFUL)
    check_balanced(graph, settings.operators, "balance.operators")
    return settings.operators


def check_balanced(graph: QueryGraph, operators: Iterable[str], where: str) -> None:
    """Raises UserError for the first operator that cannot be balanced; the text names the setting, `where`."""
    possible = [name for name in graph.order if graph.kind(name) in (Kind.STATEFUL, Kind.STATELESS)]
    for name in operators:
        if name not in possible:
            raise UserError(f"{where}: {name!r} cannot be balanced; choose from {', '.join(possible) or 'none'}")


def check_balance(graph: QueryGraph, settings: BalanceSettings) -> None:
    """Raises UserError if the settings do not fit the query, or name no balancer that can be made."""
    balanced_operators(graph, settings)
    make_balancer(settings)


def imbalance(window: SlotLoads) -> float:
    """Returns the load of the fullest instance over the mean load, by rows and present owners; 1 without rows.

    >>> from primitives.topology import Assignment
    >>> imbalance(SlotLoads(2.0, Assignment([0, 0, 1, 1]), np.array([30, 30, 10, 10])))
    1.5
    """
    _, owners = np.unique(window.assignment.owners, return_inverse=True)
    rows = np.bincount(owners, weights=window.rows)
    return float(rows.max() / rows.mean()) if rows.any() else 1.0


def _still_to_move(query: QueryFacts, operator: str, moves: Mapping[int, SlotSet]) -> Parts:
    """Returns the rest of the parts, without slots that have moved meanwhile and instances that are gone."""
    assignment = query.latest(operator)
    return {i: slots - assignment.slots_of(i) for i, slots in moves.items() if i in assignment.parts}
