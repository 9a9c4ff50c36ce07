"""The columns of Linear Road's input, history and four outputs (sections 2, 3 and 8 of the spec)."""

from __future__ import annotations

from enum import IntEnum

import pyarrow as pa

UNUSED = -1  #: value of a field that a tuple's type does not have


class TupleKind(IntEnum):
    """The types of input tuples."""

    REPORT = 0
    BALANCE = 2
    EXPENDITURE = 3
    TRAVEL_TIME = 4


#: The 15 fields of an input tuple, in the order of the line.
INPUT = pa.schema(
    [
        pa.field("type", pa.int32(), nullable=False),
        pa.field("time", pa.int32(), nullable=False),
        pa.field("vid", pa.int64(), nullable=False),
        pa.field("speed", pa.int32(), nullable=False),
        pa.field("xway", pa.int32(), nullable=False),
        pa.field("lane", pa.int32(), nullable=False),
        pa.field("direction", pa.int32(), nullable=False),
        pa.field("segment", pa.int32(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("qid", pa.int64(), nullable=False),
        pa.field("s_init", pa.int32(), nullable=False),
        pa.field("s_end", pa.int32(), nullable=False),
        pa.field("dow", pa.int32(), nullable=False),
        pa.field("tod", pa.int32(), nullable=False),
        pa.field("day", pa.int32(), nullable=False),
    ]
)

#: Columns of the table of historical tolls.
HISTORY = pa.schema(
    [
        pa.field("vid", pa.int64(), nullable=False),
        pa.field("day", pa.int32(), nullable=False),
        pa.field("xway", pa.int32(), nullable=False),
        pa.field("toll", pa.int64(), nullable=False),
    ]
)


def _output(*names: str) -> pa.Schema:
    return pa.schema([pa.field(name, pa.int64(), nullable=False) for name in names])


#: The outputs. Those of queries are ordered by a vehicle column too, which their lines do not show.
TOLLS = _output("vid", "time", "emit", "lav", "toll")
ALERTS = _output("time", "emit", "vid", "segment")
BALANCES = _output("time", "emit", "result_time", "qid", "balance", "vid")
EXPENDITURES = _output("time", "emit", "qid", "balance", "vid")
