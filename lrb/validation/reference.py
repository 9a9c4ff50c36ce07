"""Reference: Linear Road's rules in plain Python, one tuple at a time, to check faster programs against.

It shares nothing with the query, and reads like the rules: the numbers in brackets are the sections of the spec.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import groupby
from math import floor
from operator import attrgetter
from typing import NamedTuple

from primitives.errors import UserError

FEET_PER_SEGMENT = 5280
SEGMENTS = range(100)
ENTRANCE, EXIT = 0, 4
TRAVEL_LANES = (1, 2, 3)

REPORT, BALANCE, EXPENDITURE = 0, 2, 3


class Tuple(NamedTuple):
    """A line of the input (2)."""

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
        """Downstream is where the traffic goes (1)."""
        return RoadPlace(self.xway, self.direction, self.segment + (segments if self.direction == 0 else -segments))


class Spot(NamedTuple):
    """Where a vehicle can stop, so that another one runs into it."""

    xway: int
    direction: int
    lane: int
    position: int


#: Tolls of the past: vehicle, day, expressway -> sum.
History = Callable[[int, int, int], int]


class Statistics(NamedTuple):
    """Of a segment in a minute that is over, in which vehicles were there (5.1, 5.2)."""

    average: Fraction
    cars: int


@dataclass(slots=True)
class Trip:
    """What is known of a vehicle's latest trip: its latest report, and the toll that it will pay if it goes on."""

    last: Tuple
    equal_reports: int = 1  #: up to and with the last one, at its spot
    pending: int = 0

    @property
    def stands(self) -> bool:
        """6.1: from the fourth equal report on a travel lane, until one that differs."""
        return self.equal_reports >= 4 and self.last.lane in TRAVEL_LANES


class AccountState(NamedTuple):
    """What an account says from a second on: when it was updated, the sum of all charges (7.2)."""

    updated: int = 0
    balance: int = 0


@dataclass(slots=True)
class Answers:
    """The four outputs, in the order in which they arise."""

    tolls: list[Toll] = field(default_factory=list)
    alerts: list[Alert] = field(default_factory=list)
    balances: list[Balance] = field(default_factory=list)
    expenditures: list[Expenditure] = field(default_factory=list)
    #: By query, all states that a live run may answer a balance query with (7.3).
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
    """8.2: the tolls of the past when there is no file of them."""
    return (31 * vid + 17 * day + 7 * xway) % 99


def answers(tuples: Iterable[Tuple], history: History = default_history) -> Answers:
    """All that a finite run must give, where Emit is Time. The tuples come by time, in any order within a second.

    >>> answers([Tuple(0, 30, 7, 40, 0, 0, 0, 3, 15_900)]).tolls
    [Toll(vid=7, time=30, emit=30, lav=-1, toll=0)]
    """
    reference = LinearRoadReference(history)
    for time, together in groupby(tuples, key=attrgetter("time")):
        reference.second(time, list(together))
    return reference.answers


class LinearRoadReference:
    """The whole benchmark, fed with one second after another."""

    def __init__(self, history: History = default_history) -> None:
        self.answers = Answers()
        self._history = history
        self._trips: dict[int, Trip] = {}
        self._accounts: dict[int, list[AccountState]] = defaultdict(
            lambda: [AccountState()]
        )  # one state after the other
        self._now = 0  # the minute
        self._speeds: dict[RoadPlace, dict[int, list[int]]] = defaultdict(
            lambda: defaultdict(list)
        )  # of now, by vehicle
        self._minutes: dict[int, dict[RoadPlace, Statistics]] = {}  # the five before
        self._lavs: dict[RoadPlace, int] = {}  # of now, once asked for
        self._stopped: dict[Spot, set[int]] = defaultdict(set)
        self._accidents: set[tuple[RoadPlace, int]] = set()  # with the minute

    def second(self, time: int, tuples: list[Tuple]) -> None:
        """All tuples of one second: reports, then accidents, then queries (4.3)."""
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
        """Closes the minute before this one, if it is a new one."""
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
        """A report counts in its minute (5), goes on with a trip or begins one (4.2), and may enter a segment (5.5)."""
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
        """A report in a segment in which its trip was not before: a charge (7.1) and a notification (5.5)."""
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
        """5.3: over the last five minutes, those left out in which nobody was here."""
        if here not in self._lavs:
            averages = [known[here].average for known in self._minutes.values() if here in known]
            self._lavs[here] = floor(sum(averages, Fraction()) / len(averages)) if averages else -1
        return self._lavs[here]

    def _toll(self, here: RoadPlace, lav: int) -> int:
        """5.4, where there is no accident."""
        before = self._minutes.get(self._now - 1, {}).get(here)
        return 2 * (before.cars - 50) ** 2 if before is not None and before.cars > 50 and lav < 40 else 0

    # --- accidents ----------------------------------------------------------------------------------------------------

    def _note_stop(self, before: Trip | None, trip: Trip) -> None:
        if before is not None and before.stands:
            self._stopped[spot(before.last)].discard(before.last.vid)
        if trip.stands:
            self._stopped[spot(trip.last)].add(trip.last.vid)

    def _look_for_accident(self, report: Tuple) -> None:
        """6.2: it stands, and so does another one at its spot that has not fallen silent."""
        if not self._trips[report.vid].stands:
            return
        others = self._stopped[spot(report)] - {report.vid}
        if any(self._trips[each].last.time >= report.time - 30 for each in others):
            self._accidents.add((place(report), self._now))

    def _accident_ahead(self, here: RoadPlace) -> int | None:
        """6.4: the nearest segment, up to four ahead, that had an accident in the minute before."""
        for segments in range(5):
            there = here.ahead(segments)
            if there.segment in SEGMENTS and (there, self._now - 1) in self._accidents:
                return there.segment
        return None

    # --- queries ------------------------------------------------------------------------------------------------------

    def _spent(self, query: Tuple) -> int:
        """8.1."""
        return self._history(query.vid, query.day, query.xway) if 1 <= query.day <= 69 else 0


def recent(states: Sequence[AccountState], time: int) -> list[AccountState]:
    """Those that held at some second of the last 60 (7.3); the states are by time.

    >>> recent([AccountState(), AccountState(10, 0), AccountState(40, 7), AccountState(70, 9)], 100)
    [AccountState(updated=40, balance=7), AccountState(updated=70, balance=9)]
    """
    before = [state for state in states if state.updated <= time - 60]
    return before[-1:] + [state for state in states if state.updated > time - 60]


def continues(before: Tuple, report: Tuple) -> bool:
    """Whether a report goes on with the trip of the one before it (4.2)."""
    return (
        before.lane != EXIT
        and (before.xway, before.direction) == (report.xway, report.direction)
        and report.time - before.time <= 60
    )


def statistics(speeds: Mapping[int, Sequence[int]]) -> Statistics:
    """The average of the vehicles' own averages (5.1), and how many they are.

    >>> statistics({1: [60, 60], 2: [15]})
    Statistics(average=Fraction(75, 2), cars=2)
    """
    sums: Counter[int] = Counter()  # of the speeds of vehicles with so many reports
    for each in speeds.values():
        sums[len(each)] += sum(each)
    total = sum((Fraction(speed, reports) for reports, speed in sums.items()), Fraction())
    return Statistics(total / len(speeds), len(speeds))


def history_of(rows: Iterable[tuple[int, int, int, int]], asked: Set[tuple[int, int, int]]) -> History:
    """The tolls of a table (vehicle, day, expressway, toll), as far as they are asked for (8.1)."""
    sums: Counter[tuple[int, int, int]] = Counter()
    for vid, day, xway, toll in rows:
        if (vid, day, xway) in asked:
            sums[vid, day, xway] += toll
    return lambda vid, day, xway: sums[vid, day, xway]


def tuples_of(lines: Iterable[str]) -> Iterator[Tuple]:
    """The tuples of well-formed lines."""
    for line in lines:
        yield Tuple(*map(int, line.split(",")))
