"""Makes logs: all events of some settings in one table, in the order of their arrival (section 2.1 of the spec)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from nexmark.generator import EventGenerator, EventKind, EventSettings
from nexmark.generator.model import Ints, delays
from nexmark.schema import COMMON, KINDS, LOG, log_name

#: Events that are made at a time.
_BLOCK = 1 << 17
#: Milliseconds that an event is held back, at most.
_LONGEST = 3_000


def log(settings: EventSettings, count: int) -> Iterator[pa.RecordBatch]:
    """A log of so many events, in batches.

    >>> (batch,) = log(EventSettings(text=False, filler=False), 50)
    >>> batch["kind"].to_pylist()[:5], batch["b_price"].null_count
    ([0, 1, 1, 1, 2], 4)
    """
    if settings.held_back:
        yield from _held_back(EventGenerator(settings), count)
    else:
        yield from log_part(settings, 0, count, count)


def log_part(settings: EventSettings, first: int, end: int, last: int | None) -> Iterator[pa.RecordBatch]:
    """The events at some positions of a log that has `last` of them, or no end; none is held back."""
    events = EventGenerator(settings)
    for begin in range(first, end, _BLOCK):
        positions = np.arange(begin, min(begin + _BLOCK, end))
        watermarks = events.watermarks(begin, int(positions[-1]) + 1, last)
        yield _batch(events, positions, events.at(positions), events.arrivals(positions), watermarks)


def _held_back(events: EventGenerator, count: int) -> Iterator[pa.RecordBatch]:
    """The order of arrival is that of all events, so it is known of all before the first is put out."""
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
    """The column at these of so many rows, and null at the others."""
    taken, missing = np.zeros(count, np.int64), np.ones(count, np.bool_)
    taken[rows], missing[rows] = np.arange(len(rows)), False
    return column.take(pa.array(taken, mask=missing))
