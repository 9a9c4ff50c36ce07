"""Moves each vehicle every 30 s, in compiled code over all expressways, one second after another."""

from __future__ import annotations

from math import log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lrb.data.checking import FEET_PER_SEGMENT, SEGMENTS
from lrb.generator.chance import Chance, below, between, draw
from lrb.schema import UNUSED, TupleKind
from primitives.kernels import kernel

#: Seconds between two reports of a vehicle, and the number of groups: each group reports in its own second.
PERIOD = 30
FEET_PER_STEP = 44  #: distance in a step for each mile per hour

VEHICLE = np.dtype(
    [
        ("vid", np.int64),
        ("position", np.int32),
        ("speed", np.int32),
        ("free_speed", np.int32),  # speed on an empty road
        ("lane", np.int32),
        ("direction", np.int32),
        ("exit", np.int32),  # segment in which the vehicle leaves
        ("incident", np.int32),  # incident at which it stands, or -1
        ("place", np.int32),  # its place among the vehicles that stand there
        ("stood", np.int32),  # number of its reports there
    ]
)
#: A vehicle that will return.
PARKED = np.dtype([("vid", np.int64), ("due", np.int64)])

_ENTRANCE, _EXIT = 0, 4
_DOWNTOWN = (33, 66)
_TRIP = 18  #: average number of segments beyond the first two
_SPARSE, _SLOWER = 20, 0.6  #: vehicles that do not slow a segment; miles per hour lost for each more
_CRAWL, _LEAST = 12, 4  #: lowest speed of a full road, and of a vehicle
_JITTER = 6
_CHANGES_LANE, _STAYS_ON_ENTRANCE, _EXITS_AT_ONCE = 0.2, 0.1, 0.1
_AWAY, _AWAY_SPREAD = 61, 1000

_REPORT, _BALANCE, _EXPENDITURE, _TRAVEL_TIME = (int(kind) for kind in TupleKind)

_NEXT_VID, _NEXT_QID, _PARKED = range(3)  #: indexes of the counters

Record = Any  #: an element of a structured array, in compiled code


class DrivingState(NamedTuple):
    """The state of all vehicles, carried from one second to the next."""

    vehicles: NDArray[np.void]  #: by expressway and group
    sizes: NDArray[np.int64]  #: number of vehicles in each group
    density: NDArray[np.int64]  #: vehicles by expressway, direction and segment
    parked: NDArray[np.void]  #: vehicles that will return, unordered
    counters: NDArray[np.int64]  #: the next vehicle id, the next query id, the number of parked vehicles
    chance: Chance


class Shares(NamedTuple):
    """Probabilities of events at a report."""

    balances: float
    expenditures: float
    travel_times: float
    returning: float
    silent: float


class TupleRows(NamedTuple):
    """Rows of new tuples: columns of 4 and of 8 bytes (vehicle and query id), and the number of rows in use."""

    ints: NDArray[np.int32]
    longs: NDArray[np.int64]
    used: NDArray[np.int64]


#: Rows of `TupleRows.ints`, in the order of the schema.
INTS = (
    "type",
    "time",
    "speed",
    "xway",
    "lane",
    "direction",
    "segment",
    "position",
    "s_init",
    "s_end",
    "dow",
    "tod",
    "day",
)
_TYPE, _TIME, _SPEED, _XWAY, _LANE, _DIRECTION, _SEGMENT, _POSITION, _S_INIT, _S_END, _DOW, _TOD, _DAY = range(
    len(INTS)
)
LONGS = ("vid", "qid")
_VID, _QID = range(len(LONGS))


@kernel
def drive(
    first: int,
    rates: NDArray[np.float64],
    roads: DrivingState,
    caps: NDArray[np.int32],
    traps: NDArray[np.int32],
    incidents: NDArray[np.void],
    shares: Shares,
    rows: TupleRows,
) -> None:
    """Moves all vehicles from second `first` on; `rates` has the reports per expressway of each second."""
    for second in range(len(rates)):
        time = first + second
        for xway in range(len(roads.vehicles)):
            reports = _move_group(time, xway, roads, caps[xway], traps[xway], incidents, shares, rows)
            wanted = int(rates[second] + draw(roads.chance))
            _let_in(time, xway, wanted - reports, roads, shares, rows)


@kernel
def _move_group(
    time: int,
    xway: int,
    roads: DrivingState,
    caps: NDArray[np.int32],
    traps: NDArray[np.int32],
    incidents: NDArray[np.void],
    shares: Shares,
    rows: TupleRows,
) -> int:
    """Moves the vehicles of one expressway that are due; returns how many reported.

    Goes from the last to the first, as a vehicle that leaves is replaced by the last one.
    """
    group, reports = time % PERIOD, 0
    vehicles, density = roads.vehicles[xway, group], roads.density[xway]
    for number in range(roads.sizes[xway, group] - 1, -1, -1):
        vehicle = vehicles[number]
        silent = draw(roads.chance) < shares.silent
        density[vehicle.direction, vehicle.position // FEET_PER_SEGMENT] -= 1
        if not silent:
            _move(time, vehicle, density, caps, traps, incidents, roads.chance)
            _report(time, xway, vehicle, roads, shares, rows)
            reports += 1
        elif vehicle.incident >= 0:
            incidents[vehicle.incident].standing -= 1
        if silent or vehicle.lane == _EXIT:
            _park(time, vehicle.vid, roads, shares)
            roads.sizes[xway, group] -= 1
            vehicles[number] = vehicles[roads.sizes[xway, group]]
        else:
            density[vehicle.direction, vehicle.position // FEET_PER_SEGMENT] += 1
    return reports


# --- one vehicle ------------------------------------------------------------------------------------------------------


@kernel
def _move(
    time: int,
    vehicle: Record,
    density: NDArray[np.int64],
    caps: NDArray[np.int32],
    traps: NDArray[np.int32],
    incidents: NDArray[np.void],
    chance: Chance,
) -> None:
    """Moves a vehicle until its next report: it stands, stops, leaves, or drives on."""
    if vehicle.incident >= 0 and _stands(time, vehicle, incidents[vehicle.incident]):
        return
    segment = vehicle.position // FEET_PER_SEGMENT
    over = max(0, density[vehicle.direction, segment] - _SPARSE)
    wanted = max(_CRAWL, vehicle.free_speed - int(_SLOWER * over))
    speed = min(wanted, caps[vehicle.direction, segment]) + between(chance, -_JITTER, _JITTER)
    target = _reachable(vehicle, max(_LEAST, speed))
    if _stops(time, vehicle, target, traps, incidents):
        return
    vehicle.speed = max(_LEAST, speed)
    vehicle.lane = _next_lane(vehicle, segment, target // FEET_PER_SEGMENT, chance)
    vehicle.position = target


@kernel
def _stands(time: int, vehicle: Record, incident: Record) -> bool:
    """Whether a stopped vehicle still stands."""
    if time < incident.end + vehicle.place * incident.stagger and vehicle.stood < incident.reports:
        vehicle.stood += 1
        return True
    incident.standing -= 1
    vehicle.incident = -1
    return False


@kernel
def _reachable(vehicle: Record, speed: int) -> int:
    """Returns the position after a step, which is never beyond the segment in which the vehicle leaves."""
    if vehicle.direction == 0:
        return int(min(vehicle.position + FEET_PER_STEP * speed, (vehicle.exit + 1) * FEET_PER_SEGMENT - 1))
    return int(max(vehicle.position - FEET_PER_STEP * speed, vehicle.exit * FEET_PER_SEGMENT))


@kernel
def _next_lane(vehicle: Record, before: int, after: int, chance: Chance) -> int:
    """Returns the next lane: the exit lane in its last segment, at once or a step later; else 0 to 3."""
    if after == vehicle.exit and (before == after or draw(chance) < _EXITS_AT_ONCE):
        return _EXIT
    if vehicle.lane == _ENTRANCE:
        return _ENTRANCE if draw(chance) < _STAYS_ON_ENTRANCE else between(chance, 1, 3)
    return between(chance, 1, 3) if draw(chance) < _CHANGES_LANE else int(vehicle.lane)


@kernel
def _stops(time: int, vehicle: Record, target: int, traps: NDArray[np.int32], incidents: NDArray[np.void]) -> bool:
    """Whether the vehicle passes an incident that still needs vehicles, and so stops there."""
    here, there = vehicle.position // FEET_PER_SEGMENT, target // FEET_PER_SEGMENT
    for segment in (here, there):
        number = traps[vehicle.direction, segment]
        if number >= 0 and segment != vehicle.exit and _catches(time, vehicle, target, incidents[number]):
            _stop(vehicle, number, incidents[number])
            return True
    return False


@kernel
def _catches(time: int, vehicle: Record, target: int, incident: Record) -> bool:
    if not incident.begin <= time < incident.end or incident.joined == incident.cars:
        return False
    if incident.relay and incident.standing > 0:
        return False
    if vehicle.direction == 0:
        return bool(vehicle.position < incident.position <= target)
    return bool(target <= incident.position < vehicle.position)


@kernel
def _stop(vehicle: Record, number: int, incident: Record) -> None:
    vehicle.position = incident.position
    vehicle.lane = (incident.lane - 1 + incident.joined * incident.apart) % 3 + 1
    vehicle.speed = 0
    vehicle.incident, vehicle.place, vehicle.stood = number, incident.joined, 1
    incident.joined += 1
    incident.standing += 1


# --- entering and leaving ---------------------------------------------------------------------------------------------


@kernel
def _let_in(time: int, xway: int, vehicles: int, roads: DrivingState, shares: Shares, rows: TupleRows) -> None:
    """Adds vehicles to the group that is due, as far as there is room."""
    group = time % PERIOD
    for _ in range(min(vehicles, roads.vehicles.shape[2] - roads.sizes[xway, group])):
        vehicle = roads.vehicles[xway, group][roads.sizes[xway, group]]
        vehicle.vid = _next_vid(time, roads)
        _enter(vehicle, roads.chance)
        roads.density[xway, vehicle.direction, vehicle.position // FEET_PER_SEGMENT] += 1
        roads.sizes[xway, group] += 1
        _report(time, xway, vehicle, roads, shares, rows)


@kernel
def _enter(vehicle: Record, chance: Chance) -> None:
    """Starts a new trip. Half of the trips begin downtown, and each has a segment left in which it can leave."""
    vehicle.direction = below(chance, 2)
    segment = between(chance, _DOWNTOWN[0], _DOWNTOWN[1]) if draw(chance) < 0.5 else below(chance, SEGMENTS)
    length = 2 + int(-_TRIP * log(1 - draw(chance)))
    if vehicle.direction == 0:
        segment = min(segment, SEGMENTS - 3)
        vehicle.exit = min(segment + length, SEGMENTS - 1)
    else:
        segment = max(segment, 2)
        vehicle.exit = max(segment - length, 0)
    vehicle.position = segment * FEET_PER_SEGMENT + below(chance, FEET_PER_SEGMENT)
    vehicle.speed = between(chance, 10, 40)
    vehicle.free_speed = between(chance, 55, 85)
    vehicle.lane, vehicle.incident = _ENTRANCE, -1


@kernel
def _next_vid(time: int, roads: DrivingState) -> int:
    """Returns the id of a random parked vehicle, if it is due, or a new id."""
    counters, parked = roads.counters, roads.parked
    number = below(roads.chance, counters[_PARKED])
    if counters[_PARKED] > 0 and parked[number].due <= time:
        vid = int(parked[number].vid)
        counters[_PARKED] -= 1
        parked[number] = parked[counters[_PARKED]]
        return vid
    counters[_NEXT_VID] += 1
    return int(counters[_NEXT_VID]) - 1


@kernel
def _park(time: int, vid: int, roads: DrivingState, shares: Shares) -> None:
    """Parks some of the vehicles that leave; they return later on any expressway."""
    counters, parked = roads.counters, roads.parked
    if draw(roads.chance) < shares.returning and counters[_PARKED] < len(parked):
        parked[counters[_PARKED]].vid = vid
        parked[counters[_PARKED]].due = time + _AWAY + below(roads.chance, _AWAY_SPREAD)
        counters[_PARKED] += 1


# --- tuples -----------------------------------------------------------------------------------------------------------


@kernel
def _report(time: int, xway: int, vehicle: Record, roads: DrivingState, shares: Shares, rows: TupleRows) -> None:
    """Adds a position report, and sometimes a query after it."""
    row, ints = _row(_REPORT, time, vehicle.vid, rows), rows.ints
    ints[_SPEED, row], ints[_XWAY, row], ints[_LANE, row] = vehicle.speed, xway, vehicle.lane
    ints[_DIRECTION, row], ints[_POSITION, row] = vehicle.direction, vehicle.position
    ints[_SEGMENT, row] = vehicle.position // FEET_PER_SEGMENT
    chance = draw(roads.chance)
    if chance < shares.balances:
        _ask(_BALANCE, time, vehicle.vid, roads, rows)
    elif chance < shares.balances + shares.expenditures:
        row = _ask(_EXPENDITURE, time, vehicle.vid, roads, rows)
        ints[_XWAY, row], ints[_DAY, row] = xway, between(roads.chance, 1, 69)
    elif chance < shares.balances + shares.expenditures + shares.travel_times:
        row = _ask(_TRAVEL_TIME, time, vehicle.vid, roads, rows)
        ints[_XWAY, row], ints[_S_INIT, row] = xway, below(roads.chance, SEGMENTS)
        ints[_S_END, row], ints[_DOW, row] = below(roads.chance, SEGMENTS), below(roads.chance, 7)
        ints[_TOD, row] = below(roads.chance, 1440)


@kernel
def _ask(kind: int, time: int, vid: int, roads: DrivingState, rows: TupleRows) -> int:
    row: int = _row(kind, time, vid, rows)
    rows.longs[_QID, row] = roads.counters[_NEXT_QID]
    roads.counters[_NEXT_QID] += 1
    return row


@kernel
def _row(kind: int, time: int, vid: int, rows: TupleRows) -> int:
    """Adds a tuple with all other fields unused; returns its row."""
    row = int(rows.used[0])
    rows.used[0] += 1
    rows.ints[:, row] = UNUSED
    rows.ints[_TYPE, row], rows.ints[_TIME, row] = kind, time
    rows.longs[_VID, row], rows.longs[_QID, row] = vid, UNUSED
    return row
