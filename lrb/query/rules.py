"""Applies each report to its road and its vehicle (sections 4 to 7 of the spec), in compiled code."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lrb.query.columns import EXIT, LANE_SHIFT, POSITION_BITS, SEGMENT_BITS, SEGMENTS
from lrb.schema import UNUSED
from primitives.kernels import kernel
from primitives.state.columnar.intrinsics import pointer, prefetch

Ints = NDArray[np.int64]

#: Number of minutes that the LAV averages (5.3).
LAV_MINUTES = 5
#: Those minutes and the current one.
RING = LAV_MINUTES + 1

#: Fixed-point unit of average speeds. It is divisible by 1 to 16, so that averages of up to 16 reports are exact, and
#: sums of them do not depend on the order of reports.
UNIT = 720_720

#: A toll is charged with more cars than this, and a LAV below that (5.4).
_CARS, _SLOW = 50, 40
#: Number of segments that an accident alert looks ahead, with the vehicle's own (6.4).
_AHEAD_SEGMENTS = 5
#: Number of equal reports after which a vehicle stands (6.1).
_STANDING = 4
#: Seconds: the longest gap within a trip (4.2); the time after which a stopped vehicle counts as silent (6.2).
_TRIP_GAP, _SILENT = 60, 30

#: Columns of a vehicle's state.
HEARD, PLACE, EQUAL, PENDING, SPEEDS = range(5)
#: Bits in the column of speeds: the number of reports in this segment and minute, above the sum of their speeds.
_REPORTS_SHIFT = 32
ONE_REPORT = 1 << _REPORTS_SHIFT

#: Columns of a road's clock, of a cell, of the told values, and of stopped vehicles.
MINUTE, UNCHECKED = range(2)
CARS, SPEED_SUM = range(2)
LAV, TOLL, ACCIDENT = range(3)
ROAD, VID, SPOT, SECOND = range(4)

#: Number of rows by which memory is prefetched.
_AHEAD = 64


class RoadArrays(NamedTuple):
    """Some roads; the first index of each array is the road's place in them."""

    road: Ints  #: 2 * xway + direction
    clock: Ints  #: current MINUTE; second whose stopped vehicles are UNCHECKED for accidents, or -1
    cells: Ints  #: by minute (modulo RING) and segment: CARS, and SPEED_SUM of their averages
    accidents: Ints  #: by minute (modulo 2) and segment: 1 if there was an accident in that minute
    told: Ints  #: by segment: LAV, TOLL and ACCIDENT that entering vehicles are told; derived from the others


class Stops(NamedTuple):
    """Stopped vehicles."""

    rows: Ints  #: ROAD by place, VID, SPOT, SECOND of the last report
    used: Ints  #: number of rows in use


class Reports(NamedTuple):
    """Reports of a batch, ordered by time."""

    time: NDArray[np.int32]
    vid: Ints
    road: NDArray[np.int32]  #: by place
    speed: NDArray[np.int32]
    lane: NDArray[np.int32]
    segment: NDArray[np.int32]
    position: NDArray[np.int32]


class Vehicles(NamedTuple):
    """The state of vehicles in the layout of `InPlace`; `rows` are the rows of the reports."""

    words: Ints
    width: int
    first: int
    rows: Ints


class Entries(NamedTuple):
    """Reports that enter a segment, with room for all reports."""

    report: Ints  #: index of the report
    charged: Ints
    told: Ints  #: LAV, TOLL, ACCIDENT
    counts: Ints  #: number of entries, and number of reports that came too late


@kernel
def drive(reports: Reports, start: int, vehicles: Vehicles, roads: RoadArrays, stops: Stops, entries: Entries) -> int:
    """Applies the reports from `start` on; returns the first one without room in `stops`, or their number."""
    times, vids, numbers, speeds, lanes, segments, positions = reports
    clock, cells, told = roads.clock, roads.cells, roads.told
    width, first, rows, words = vehicles.width, vehicles.first, vehicles.rows, pointer(vehicles.words)
    count = len(times)
    for at in range(start, count):
        prefetch(words, rows[min(at + _AHEAD, count - 1)] * width + first)
        if stops.used[0] == len(stops.rows):
            return at
        time, road, state = np.int64(times[at]), numbers[at], rows[at] * width + first
        minute = time // 60 + 1
        heard = words[state + HEARD] - 1
        if minute < clock[road, MINUTE] or time <= heard:
            entries.counts[1] += 1
            continue
        if -1 < clock[road, UNCHECKED] < time:
            look_for_accidents(road, roads, stops)
        if minute > clock[road, MINUTE]:
            begin_minute(road, minute, roads, stops)
        lane, segment = np.int64(lanes[at]), np.int64(segments[at])
        place = lane << LANE_SHIFT | segment << POSITION_BITS | np.int64(positions[at])
        before = words[state + PLACE]
        same_segment = heard >= 0 and segment_of(before) == segment
        goes_on = heard >= 0 and time - heard <= _TRIP_GAP and before >> LANE_SHIFT != EXIT

        earlier = words[state + SPEEDS] if same_segment and heard // 60 + 1 == minute else 0
        words[state + SPEEDS] = earlier + ONE_REPORT + speeds[at]
        cells[road, minute % RING, segment, CARS] += earlier == 0
        cells[road, minute % RING, segment, SPEED_SUM] += average(words[state + SPEEDS]) - average(earlier)

        equal = min(words[state + EQUAL] + 1, _STANDING) if goes_on and place == before else 1
        is_standing = stands(equal, place)
        if is_standing or stands(words[state + EQUAL], before):
            note_stop(stops, road, vids[at], place, time, is_standing)
        if is_standing:
            clock[road, UNCHECKED] = time

        if not (goes_on and same_segment):
            enter(entries, at, lane, words[state + PENDING] if goes_on else 0, road, segment, told)
            words[state + PENDING] = 0 if lane == EXIT else told[road, segment, TOLL]
        elif lane == EXIT:
            words[state + PENDING] = 0
        words[state + HEARD], words[state + PLACE], words[state + EQUAL] = time + 1, place, equal
    return count


@kernel
def segment_of(place: int) -> int:
    return place >> POSITION_BITS & (1 << SEGMENT_BITS) - 1


@kernel
def stands(equal: int, place: int) -> bool:
    """Whether a vehicle stands on a travel lane, after this number of equal reports (6.1)."""
    return equal >= _STANDING and 0 < place >> LANE_SHIFT < EXIT


@kernel
def enter(entries: Entries, at: int, lane: int, charged: int, road: int, segment: int, told: Ints) -> None:
    """Adds an entry: the charge for the segment before, and what the vehicle is told (5.5)."""
    entry = entries.counts[0]
    entries.counts[0] += 1
    entries.report[entry], entries.charged[entry] = at, charged
    for column in range(3):
        entries.told[entry, column] = UNUSED if lane == EXIT else told[road, segment, column]


# --- statistics -------------------------------------------------------------------------------------------------------


@kernel
def average(speeds: int) -> int:
    """Returns the average speed of a vehicle's reports in a segment and minute, in UNITs; 0 without reports (5.1)."""
    reports = speeds >> _REPORTS_SHIFT
    return UNIT * (speeds & ONE_REPORT - 1) // reports if reports else 0


@kernel
def begin_minute(road: int, minute: int, roads: RoadArrays, stops: Stops) -> None:
    """Closes the minutes before: computes the statistics that apply in this minute, and clears the cells for it."""
    for passed in range(max(roads.clock[road, MINUTE] + 1, minute - LAV_MINUTES), minute + 1):
        roads.cells[road, passed % RING] = 0
    for passed in range(max(roads.clock[road, MINUTE] + 1, minute - 1), minute + 1):
        roads.accidents[road, passed % 2] = 0
    roads.clock[road, MINUTE] = minute
    strike_off_silent(stops, road, 60 * (minute - 1) - _TRIP_GAP)
    tell(road, roads)


@kernel
def tell(road: int, roads: RoadArrays) -> None:
    """Computes what vehicles are told that enter the segments of a road in the current minute."""
    minute, step = roads.clock[road, MINUTE], 1 if roads.road[road] % 2 == 0 else -1
    for segment in range(SEGMENTS):
        told = roads.told[road, segment]
        told[LAV] = lav(roads.cells[road, :, segment], minute)
        told[ACCIDENT] = accident_ahead(roads.accidents[road, (minute - 1) % 2], segment, step)
        cars = roads.cells[road, (minute - 1) % RING, segment, CARS]
        is_tolled = told[ACCIDENT] < 0 and cars > _CARS and told[LAV] < _SLOW
        told[TOLL] = 2 * (cars - _CARS) ** 2 if is_tolled else 0


@kernel
def lav(cells: Ints, minute: int) -> int:
    """Returns the LAV of a segment's cells (5.3), with an error below a billionth."""
    total, defined = 0.0, 0
    for past in range(minute - LAV_MINUTES, minute):
        cell = cells[past % RING]
        if cell[CARS]:
            total += cell[SPEED_SUM] / (UNIT * cell[CARS])
            defined += 1
    return int(np.floor(total / defined + 1e-9)) if defined else UNUSED


# --- accidents --------------------------------------------------------------------------------------------------------


@kernel
def accident_ahead(accidents: Ints, segment: int, step: int) -> int:
    """Returns the nearest segment with an accident, or -1 (6.4)."""
    for ahead in range(_AHEAD_SEGMENTS):
        there = segment + ahead * step
        if 0 <= there < SEGMENTS and accidents[there]:
            return there
    return UNUSED


@kernel
def note_stop(stops: Stops, road: int, vid: int, place: int, time: int, is_standing: bool) -> None:
    """Adds a vehicle to the stopped ones, updates it, or removes it."""
    rows, at = stops.rows, 0
    while at < stops.used[0] and (rows[at, VID] != vid or rows[at, ROAD] != road):
        at += 1
    if is_standing:
        rows[at, ROAD], rows[at, VID], rows[at, SPOT], rows[at, SECOND] = road, vid, place, time
        stops.used[0] = max(stops.used[0], at + 1)
    elif at < stops.used[0]:
        strike_off(stops, at)


@kernel
def strike_off(stops: Stops, at: int) -> None:
    stops.used[0] -= 1
    stops.rows[at] = stops.rows[stops.used[0]]


@kernel
def strike_off_silent(stops: Stops, road: int, before: int) -> None:
    """Removes stopped vehicles that have fallen silent."""
    for at in range(stops.used[0] - 1, -1, -1):
        if stops.rows[at, ROAD] == road and stops.rows[at, SECOND] < before:
            strike_off(stops, at)


@kernel
def look_for_accidents(road: int, roads: RoadArrays, stops: Stops) -> None:
    """Finds accidents (6.2) after all reports of the unchecked second; compares all pairs of stopped vehicles."""
    time = roads.clock[road, UNCHECKED]
    roads.clock[road, UNCHECKED] = -1
    for one in range(stops.used[0]):
        reporter = stops.rows[one]
        if reporter[ROAD] == road and reporter[SECOND] == time and has_partner(stops, one):
            roads.accidents[road, (time // 60 + 1) % 2, segment_of(reporter[SPOT])] = 1


@kernel
def has_partner(stops: Stops, one: int) -> bool:
    """Whether another vehicle stands at the same place and has not fallen silent."""
    reporter = stops.rows[one]
    for at in range(stops.used[0]):
        other = stops.rows[at]
        is_there = other[ROAD] == reporter[ROAD] and other[SPOT] == reporter[SPOT]
        if is_there and at != one and other[SECOND] >= reporter[SECOND] - _SILENT:
            return True
    return False


# --- vehicles that are gone -------------------------------------------------------------------------------------------


@kernel
def silent(words: Ints, width: int, first: int, begin: int, end: int, before: int) -> Ints:
    """Returns the rows from `begin` to `end` of vehicles whose last report is older than `before`."""
    found, count = np.empty(end - begin, np.int64), 0
    for row in range(begin, end):
        heard = words[row * width + first + HEARD]
        if 0 < heard <= before:
            found[count] = row
            count += 1
    return found[:count]
