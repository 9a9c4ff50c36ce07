"""Makes logs: all events of some settings in one table, in order of arrival (section 2.1 of the spec)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from nexmark.generator import EventGenerator, EventKind, EventSettings
from nexmark.generator.model import Ints, delays
from nexmark.schema import COMMON, KINDS, LOG, log_name

#: Number of events that are generated at a time.
_BLOCK = 1 << 17
#: The most milliseconds that an event is held back.
_LONGEST = 3_000


def log(settings: EventSettings, count: int) -> Iterator[pa.RecordBatch]:
    """Returns a log of this many events, in batches.

    >>> (batch,) = log(EventSettings(text=False, filler=False), 50)
    >>> batch["kind"].to_pylist()[:5], batch["b_price"].null_count
    ([0, 1, 1, 1, 2], 4)
    """
    if settings.held_back:
        yield from _held_back(EventGenerator(settings), count)
    else:
        yield from log_part(settings, 0, count, count)


def log_part(settings: EventSettings, first: int, end: int, last: int | None) -> Iterator[pa.RecordBatch]:
    """Returns the events at some positions of a log with `last` events, or of an endless one; none is held back."""
    events = EventGenerator(settings)
    for begin in range(first, end, _BLOCK):
        positions = np.arange(begin, min(begin + _BLOCK, end))
        watermarks = events.watermarks(begin, int(positions[-1]) + 1, last)
        yield _batch(events, positions, events.at(positions), events.arrivals(positions), watermarks)


def _held_back(events: EventGenerator, count: int) -> Iterator[pa.RecordBatch]:
    """Returns the log with held-back events; the order of arrival is computed for all events before the first batch."""
    positions = np.arange(count)
    numbers = events.at(positions)
    arrivals = events.arrivals(positions) + delays(numbers, events.model, events.settings.held_back, _LONGEST)
    order = np.argsort(arrivals, kind="stable")
    numbers, arrivals = numbers[order], arrivals[order]
    watermarks = np.minimum.accumulate(events.times(numbers)[::-1])[::-1]
    for first in range(0, count, _BLOCK):
        part = slice(first, first + _BLOCK)
        yield _batch(events, positions[part], numbers[part], arrivals[part], watermarks[part])


def _batch(events: EventGenerator, seqs: Ints, numbers: Ints, arrivals: Ints, watermarks: Ints) -> pa.RecordBatch:
    kinds = events.kinds(numbers)
    columns = {
        "seq": pa.array(seqs),
        "event_id": pa.array(numbers),
        "kind": pa.array(kinds),
        "date_time": pa.array(events.times(numbers)),
        "arrival_time": pa.array(arrivals),
        "watermark": pa.array(watermarks),
    }
    extras = []
    for kind in EventKind:
        rows = np.flatnonzero(kinds == kind)
        names = [name for name in KINDS[kind].names if name != "date_time"]
        made = events.columns(kind, numbers[rows], names)
        extras.append(_spread(made.pop("extra"), rows, len(numbers)))
        columns |= {log_name(kind, name): _spread(column, rows, len(numbers)) for name, column in made.items()}
    columns["extra"] = pa.compute.coalesce(*extras)
    assert not set(COMMON) - set(columns)
    return pa.record_batch([columns[name] for name in LOG.names], schema=LOG)


def _spread(column: pa.Array, rows: Ints, count: int) -> pa.Array:
    """Returns a column with values at the given rows of `count`, and nulls at the others."""
    taken, missing = np.zeros(count, np.int64), np.ones(count, np.bool_)
    taken[rows], missing[rows] = np.arange(len(rows)), False
    return column.take(pa.array(taken, mask=missing))
