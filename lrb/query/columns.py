"""The columns that flow between the operators, and how a road and a place on it are encoded as one number."""

from __future__ import annotations

import pyarrow as pa

SEGMENTS = 100
LANES = 5
EXIT = 4  #: the lane; the others are the entrance, 0, and those of travel

#: A place is lane, segment and position; equal places are equal numbers.
POSITION_BITS, SEGMENT_BITS = 20, 7
LANE_SHIFT = POSITION_BITS + SEGMENT_BITS

#: Types of answers, as in the first field of their lines.
TOLL, ALERT, BALANCE, EXPENDITURE = 0, 1, 2, 3


def _columns(*names: str, **others: pa.DataType) -> pa.Schema:
    """Columns of int64, those that take part in 64-bit arithmetic; and others."""
    return pa.schema(
        [pa.field(name, kind, nullable=False) for name, kind in {**dict.fromkeys(names, pa.int64()), **others}.items()]
    )


_INT = pa.int32()

#: When a tuple was due, in microseconds of unix time: in live runs, where responses are timed by it; otherwise -1.
DUE = "due"

#: Of a tuple, what any operator needs. A road is one direction of an expressway: 2 * xway + direction; or -1.
TUPLES = _columns(
    "vid",
    "qid",
    DUE,
    type=_INT,
    time=_INT,
    road=_INT,
    speed=_INT,
    lane=_INT,
    segment=_INT,
    position=_INT,
    xway=_INT,
    day=_INT,
)

#: A vehicle enters a segment: `charged` is the toll of the segment it leaves; it is told `lav` and `toll`, and of an
#: accident in a segment ahead, or else -1. If the toll is -1 it is on the exit lane, and is told nothing.
CROSSINGS = _columns("vid", "toll", "charged", DUE, time=_INT, lav=_INT, accident=_INT)

#: Answers of any type; -1 in the columns that the type does not have.
ANSWERS = _columns("vid", "qid", "toll", "balance", DUE, type=_INT, time=_INT, lav=_INT, segment=_INT, result_time=_INT)
