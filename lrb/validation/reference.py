"""Reference: Linear Road's rules in plain Python, one tuple at a time, to check faster programs against.

It shares nothing with the query, and reads like the rules: the numbers in brackets are the sections of the spec.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import groupby
from math import floor
from operator import attrgetter
from typing import NamedTuple

from primitives.errors import UserError

SEGMENTS = range(100)
EXIT = 4
TRAVEL_LANES = (1, 2, 3)

REPORT, BALANCE, EXPENDITURE = 0, 2, 3


class Tuple(NamedTuple):
    """An input line (2)."""

    type: int
    time: int
    vid: int
    speed: int = -1
    xway: int = -1
    lane: int = -1
    direction: int = -1
    segment: int = -1
    position: int = -1
    qid: int = -1
    s_init: int = -1
    s_end: int = -1
    dow: int = -1
    tod: int = -1
    day: int = -1


class Toll(NamedTuple):
    vid: int
    time: int
    emit: int
    lav: int
    toll: int


class Alert(NamedTuple):
    time: int
    emit: int
    vid: int
    segment: int


class Balance(NamedTuple):
    time: int
    emit: int
    result_time: int
    qid: int
    balance: int


class Expenditure(NamedTuple):
    time: int
    emit: int
    qid: int
    balance: int


class RoadPlace(NamedTuple):
    """A segment of one direction of an expressway."""

    xway: int
    direction: int
    segment: int

    def ahead(self, segments: int) -> RoadPlace:
        """Returns a place further downstream, in the direction of the traffic (1)."""
        return RoadPlace(self.xway, self.direction, self.segment + (segments if self.direction == 0 else -segments))


class Spot(NamedTuple):
    """A place where two stopped vehicles make an accident."""

    xway: int
    direction: int
    lane: int
    position: int


#: Tolls of earlier days: vehicle, day, expressway -> sum.
History = Callable[[int, int, int], int]


class Statistics(NamedTuple):
    """Traffic of a segment in a past minute with vehicles (5.1, 5.2)."""

    average: Fraction
    cars: int


@dataclass(slots=True)
class Trip:
    """The latest trip of a vehicle: its latest report, and the toll that it pays if it continues."""

    last: Tuple
    equal_reports: int = 1  #: up to the latest report, at its spot
    pending: int = 0

    @property
    def stands(self) -> bool:
        """Whether the vehicle stands: from the fourth equal report on a travel lane, until a different one (6.1)."""
        return self.equal_reports >= 4 and self.last.lane in TRAVEL_LANES


class AccountState(NamedTuple):
    """The account from a second on: when it was updated, and the sum of all charges (7.2)."""

    updated: int = 0
    balance: int = 0


@dataclass(slots=True)
class Answers:
    """The four outputs, in the order of their computation."""

    tolls: list[Toll] = field(default_factory=list)
    alerts: list[Alert] = field(default_factory=list)
    balances: list[Balance] = field(default_factory=list)
    expenditures: list[Expenditure] = field(default_factory=list)
    #: By query: all states with which a live run may answer a balance query (7.3).
    tolerated: dict[int, list[AccountState]] = field(default_factory=dict)


def minute(time: int) -> int:
    """4.1.

    >>> minute(0), minute(59), minute(60), minute(10_799)
    (1, 1, 2, 180)
    """
    return time // 60 + 1


def place(report: Tuple) -> RoadPlace:
    return RoadPlace(report.xway, report.direction, report.segment)


def spot(report: Tuple) -> Spot:
    return Spot(report.xway, report.direction, report.lane, report.position)


def default_history(vid: int, day: int, xway: int) -> int:
    """Returns the toll of an earlier day if there is no file of them (8.2)."""
    return (31 * vid + 17 * day + 7 * xway) % 99


def answers(tuples: Iterable[Tuple], history: History = default_history) -> Answers:
    """Returns all answers of a finite run; Emit is Time. The tuples come by time, in any order within a second.

    >>> answers([Tuple(0, 30, 7, 40, 0, 0, 0, 3, 15_900)]).tolls
    [Toll(vid=7, time=30, emit=30, lav=-1, toll=0)]
    """
    reference = LinearRoadReference(history)
    for time, together in groupby(tuples, key=attrgetter("time")):
        reference.second(time, list(together))
    return reference.answers


class LinearRoadReference:
    """The whole benchmark, called once per second."""

    def __init__(self, history: History = default_history) -> None:
        self.answers = Answers()
        self._history = history
        self._trips: dict[int, Trip] = {}
        self._accounts: dict[int, list[AccountState]] = defaultdict(
            lambda: [AccountState()]
        )  # the states of each, in order
        self._now = 0  # the current minute
        self._speeds: dict[RoadPlace, dict[int, list[int]]] = defaultdict(
            lambda: defaultdict(list)
        )  # of the current minute, by vehicle
        self._minutes: dict[int, dict[RoadPlace, Statistics]] = {}  # the five minutes before
        self._lavs: dict[RoadPlace, int] = {}  # of the current minute, computed when needed
        self._stopped: dict[Spot, set[int]] = defaultdict(set)
        self._accidents: set[tuple[RoadPlace, int]] = set()  # with their minute

    def second(self, time: int, tuples: list[Tuple]) -> None:
        """Processes all tuples of a second: reports, then accidents, then queries (4.3)."""
        self._begin(minute(time))
        reports = [each for each in tuples if each.type == REPORT]
        for report in reports:
            self._report(report)
        for report in reports:
            self._look_for_accident(report)
        for query in tuples:
            if query.type == BALANCE:
                states = self._accounts[query.vid]
                self.answers.balances.append(Balance(time, time, states[-1].updated, query.qid, states[-1].balance))
                self.answers.tolerated[query.qid] = recent(states, time)
            elif query.type == EXPENDITURE:
                self.answers.expenditures.append(Expenditure(time, time, query.qid, self._spent(query)))

    def _begin(self, now: int) -> None:
        """Closes the minute before this one, if a new one begins."""
        if now < self._now:
            raise UserError(f"a tuple of minute {now} comes after one of minute {self._now}; sort the tuples by time")
        if now > self._now:
            self._minutes[self._now] = {where: statistics(speeds) for where, speeds in self._speeds.items()}
            self._minutes = {each: known for each, known in self._minutes.items() if each >= now - 5}
            self._speeds.clear()
            self._lavs.clear()
            self._now = now

    # --- reports ------------------------------------------------------------------------------------------------------

    def _report(self, report: Tuple) -> None:
        """Counts a report in its minute (5), continues or begins its trip (4.2), and may enter a segment (5.5)."""
        self._speeds[place(report)][report.vid].append(report.speed)
        before = self._trips.get(report.vid)
        continued = before if before is not None and continues(before.last, report) else None
        trip = Trip(report) if continued is None else self._next(continued, report)
        self._trips[report.vid] = trip
        self._note_stop(before, trip)
        if continued is None or continued.last.segment != report.segment:
            self._enter(report, trip)
        elif report.lane == EXIT:
            trip.pending = 0  # 7.1: the toll of the segment in which it leaves is dropped

    def _next(self, trip: Trip, report: Tuple) -> Trip:
        equal = trip.equal_reports + 1 if spot(report) == spot(trip.last) else 1
        return Trip(report, equal, trip.pending)

    def _enter(self, report: Tuple, trip: Trip) -> None:
        """Enters a segment that is new for the trip: a charge (7.1) and a notification (5.5)."""
        states = self._accounts[report.vid]
        states.append(AccountState(report.time, states[-1].balance + trip.pending))
        trip.pending = 0
        if report.lane == EXIT:
            return
        here = place(report)
        accident = self._accident_ahead(here)
        lav = self._lav(here)
        toll = 0 if accident is not None else self._toll(here, lav)
        self.answers.tolls.append(Toll(report.vid, report.time, report.time, lav, toll))
        if accident is not None:
            self.answers.alerts.append(Alert(report.time, report.time, report.vid, accident))
        trip.pending = toll

    # --- statistics ---------------------------------------------------------------------------------------------------

    def _lav(self, here: RoadPlace) -> int:
        """Returns the LAV: over the last five minutes, without those in which nobody was here (5.3)."""
        if here not in self._lavs:
            averages = [known[here].average for known in self._minutes.values() if here in known]
            self._lavs[here] = floor(sum(averages, Fraction()) / len(averages)) if averages else -1
        return self._lavs[here]

    def _toll(self, here: RoadPlace, lav: int) -> int:
        """Returns the toll where there is no accident (5.4)."""
        before = self._minutes.get(self._now - 1, {}).get(here)
        return 2 * (before.cars - 50) ** 2 if before is not None and before.cars > 50 and lav < 40 else 0

    # --- accidents ----------------------------------------------------------------------------------------------------

    def _note_stop(self, before: Trip | None, trip: Trip) -> None:
        if before is not None and before.stands:
            self._stopped[spot(before.last)].discard(before.last.vid)
        if trip.stands:
            self._stopped[spot(trip.last)].add(trip.last.vid)

    def _look_for_accident(self, report: Tuple) -> None:
        """Notes an accident if the vehicle stands, and another one at its spot that has not fallen silent (6.2)."""
        if not self._trips[report.vid].stands:
            return
        others = self._stopped[spot(report)] - {report.vid}
        if any(self._trips[each].last.time >= report.time - 30 for each in others):
            self._accidents.add((place(report), self._now))

    def _accident_ahead(self, here: RoadPlace) -> int | None:
        """Returns the nearest segment, up to four ahead, with an accident in the minute before (6.4)."""
        for segments in range(5):
            there = here.ahead(segments)
            if there.segment in SEGMENTS and (there, self._now - 1) in self._accidents:
                return there.segment
        return None

    # --- queries ------------------------------------------------------------------------------------------------------

    def _spent(self, query: Tuple) -> int:
        """Answers an expenditure query (8.1)."""
        return self._history(query.vid, query.day, query.xway) if 1 <= query.day <= 69 else 0


def recent(states: Sequence[AccountState], time: int) -> list[AccountState]:
    """Returns the states that were valid in some second of the last 60 (7.3); `states` are ordered by time.

    >>> recent([AccountState(), AccountState(10, 0), AccountState(40, 7), AccountState(70, 9)], 100)
    [AccountState(updated=40, balance=7), AccountState(updated=70, balance=9)]
    """
    before = [state for state in states if state.updated <= time - 60]
    return before[-1:] + [state for state in states if state.updated > time - 60]


def continues(before: Tuple, report: Tuple) -> bool:
    """Whether a report continues the trip of the one before it (4.2)."""
    return (
        before.lane != EXIT
        and (before.xway, before.direction) == (report.xway, report.direction)
        and report.time - before.time <= 60
    )


def statistics(speeds: Mapping[int, Sequence[int]]) -> Statistics:
    """Returns the average of the vehicles' own averages (5.1), and the number of vehicles.

    >>> statistics({1: [60, 60], 2: [15]})
    Statistics(average=Fraction(75, 2), cars=2)
    """
    sums: Counter[int] = Counter()  # sums of speeds of vehicles by their number of reports
    for each in speeds.values():
        sums[len(each)] += sum(each)
    total = sum((Fraction(speed, reports) for reports, speed in sums.items()), Fraction())
    return Statistics(total / len(speeds), len(speeds))


def history_of(rows: Iterable[tuple[int, int, int, int]], asked: Set[tuple[int, int, int]]) -> History:
    """Returns the tolls of a table (vehicle, day, expressway, toll) that are asked for (8.1)."""
    sums: Counter[tuple[int, int, int]] = Counter()
    for vid, day, xway, toll in rows:
        if (vid, day, xway) in asked:
            sums[vid, day, xway] += toll
    return lambda vid, day, xway: sums[vid, day, xway]
