"""The columns that flow between the operators, and how a road and a place on it are encoded as one number."""

from __future__ import annotations

import pyarrow as pa

SEGMENTS = 100
LANES = 5
EXIT = 4  #: the exit lane; 0 is the entrance, the others are travel lanes

#: A place combines lane, segment and position in one number.
POSITION_BITS, SEGMENT_BITS = 20, 7
LANE_SHIFT = POSITION_BITS + SEGMENT_BITS

#: Types of answers, as in the first field of an output line.
TOLL, ALERT, BALANCE, EXPENDITURE = 0, 1, 2, 3


def _columns(*names: str, **others: pa.DataType) -> pa.Schema:
    """Builds a schema: the listed columns are int64, as they take part in 64-bit arithmetic; the others are given."""
    return pa.schema(
        [pa.field(name, kind, nullable=False) for name, kind in {**dict.fromkeys(names, pa.int64()), **others}.items()]
    )


_INT = pa.int32()

#: The time at which a tuple was due, in microseconds of unix time. Live runs measure response times by it; else -1.
DUE = "due"

#: The columns of a tuple that operators need. A road is one direction of an expressway: 2 * xway + direction; or -1.
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

#: A vehicle enters a segment. `charged` is the toll of the segment that it leaves. `lav`, `toll` and `accident` (a
#: segment ahead, or -1) are what it is told. If the toll is -1, it is on the exit lane and is told nothing.
CROSSINGS = _columns("vid", "toll", "charged", DUE, time=_INT, lav=_INT, accident=_INT)

#: Answers of any type; -1 in columns that a type does not have.
ANSWERS = _columns("vid", "qid", "toll", "balance", DUE, type=_INT, time=_INT, lav=_INT, segment=_INT, result_time=_INT)
