"""Keeps rows that arrive before their time, for instance if one of several parts of a file is read ahead."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from primitives.slots import SlotSet
from primitives.state.columnar.fixed import to_numbers
from primitives.state.timers import Timers
from seep.operators.definition import Input
from seep.operators.keyed import key_columns, key_types
from seep.rows.batches import concat


class Ahead:
    """Keeps rows by key until their time; its container `state` is part of the operator's state.

    Costs next to nothing while no row is ahead.

    >>> ahead = Ahead(Input(pa.schema([("k", pa.int64()), ("time", pa.int32())]), ("k",), "time"), slot_bits=2)
    >>> ahead.due(pa.record_batch({"k": [1, 2], "time": pa.array([9, 7], pa.int32())}), 7, SlotSet.full(2)).to_pylist()
    [{'k': 2, 'time': 7}]
    """

    def __init__(self, stream: Input, slot_bits: int) -> None:
        assert stream.time is not None
        self._stream = stream
        self._time = stream.time
        kinds = {f"key_{at}": kind for at, kind in enumerate(key_types(stream).values())}
        self.state = Timers("ahead", kinds, slot_bits=slot_bits, value=pa.struct(list(stream.schema)))

    def due(self, rows: pa.RecordBatch, until: int, slots: SlotSet) -> pa.RecordBatch:
        """Returns the new and the kept rows of some slots with times up to `until`, by time; keeps the others."""
        times = to_numbers(rows[self._time])
        if len(rows) and times.max() > until:
            self._keep(rows.filter(pa.array(times > until)))
            rows = rows.filter(pa.array(times <= until))
        if len(self.state) and len(popped := self.state.pop(until, slots)):
            kept = pa.record_batch(popped["value"].flatten(), schema=self._stream.schema)
            rows = concat([rows, kept], self._stream.schema)
        return by_time(rows, self._time)

    def _keep(self, rows: pa.RecordBatch) -> None:
        whole = pa.StructArray.from_arrays(rows.columns, fields=list(rows.schema))
        self.state.schedule_batch(rows[self._time], key_columns(self._stream, rows), whole)


def by_time(rows: pa.RecordBatch, time: str) -> pa.RecordBatch:
    """Returns the rows ordered by time; the same batch if they are in order already."""
    times = to_numbers(rows[time])
    if (times[1:] >= times[:-1]).all():
        return rows
    return rows.take(pa.array(np.argsort(times, kind="stable")))
