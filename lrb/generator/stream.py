"""Generates traffic as batches, ordered by time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from lrb.data.checking import SEGMENTS
from lrb.generator.chance import chance
from lrb.generator.driving import INTS, LONGS, PARKED, PERIOD, VEHICLE, DrivingState, Shares, TupleRows, drive
from lrb.generator.settings import TrafficSettings
from lrb.generator.trouble import troubles
from lrb.schema import INPUT

#: Seconds of one batch, during which speed limits and places of incidents do not change.
_STEP = 10
_MOST_PARKED = 1 << 16
#: The most tuples of one report, including its query.
_WITH_QUERY = 2


def traffic(settings: TrafficSettings) -> Iterator[pa.RecordBatch]:
    """Returns all tuples, in batches of a few seconds each.

    >>> sum(len(batch) for batch in traffic(TrafficSettings(seconds=2, balances=0, expenditures=0)))
    30
    """
    rates = settings.reports_per_second()
    trouble, roads = troubles(settings), _empty(settings)
    chances = settings.balances, settings.expenditures, settings.travel_times, settings.returning, settings.silent
    shares = Shares(*map(float, chances))  # one type, so that the kernel is compiled once
    for first in range(0, settings.seconds, _STEP):
        end = min(first + _STEP, settings.seconds)
        caps, traps = (find(settings.xways, first, end) for find in (trouble.caps, trouble.traps))
        rows = _room(roads, first, rates[first:end])
        drive(first, rates[first:end], roads, caps, traps, trouble.incidents, shares, rows)
        yield _batch(rows)


def gathered(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Returns the same rows in batches of at least `rows`, except the last one."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= rows:
            yield pa.concat_batches(waiting)
            waiting.clear()
    if waiting:
        yield pa.concat_batches(waiting)


def _empty(settings: TrafficSettings) -> DrivingState:
    """Returns the state of empty roads."""
    largest = int(np.ceil(settings.reports_per_second().max())) + 1
    return DrivingState(
        vehicles=np.zeros((settings.xways, PERIOD, largest), VEHICLE),
        sizes=np.zeros((settings.xways, PERIOD), np.int64),
        density=np.zeros((settings.xways, 2, SEGMENTS), np.int64),
        parked=np.zeros(_MOST_PARKED, PARKED),
        counters=np.array([1, 1, 0]),
        chance=chance(settings.seed),
    )


def _room(roads: DrivingState, first: int, rates: np.ndarray[tuple[int], np.dtype[np.float64]]) -> TupleRows:
    """Returns enough room for the tuples of these seconds: every vehicle that is there or enters may report."""
    there = roads.sizes[:, np.arange(first, first + len(rates)) % PERIOD].sum()
    let_in = len(roads.sizes) * np.ceil(rates + 1).sum()
    most = _WITH_QUERY * int(there + let_in)
    return TupleRows(
        np.empty((len(INTS), most), np.int32), np.empty((len(LONGS), most), np.int64), np.zeros(1, np.int64)
    )


def _batch(rows: TupleRows) -> pa.RecordBatch:
    count = int(rows.used[0])
    columns = dict(zip(INTS, rows.ints, strict=True)) | dict(zip(LONGS, rows.longs, strict=True))
    return pa.record_batch([pa.array(columns[name][:count]) for name in INPUT.names], schema=INPUT)
