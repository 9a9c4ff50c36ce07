"""The forwarder: sends reports to the toll calculator by road, and queries to toll assessment by vehicle."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lrb.query.columns import DUE, TUPLES
from lrb.schema import UNUSED, TupleKind
from primitives.state.columnar.fixed import to_numbers
from seep.operators.routed import Routed

_TYPE = pc.field("type")


def forwarder() -> Routed:
    """Returns the operator. Travel time queries are dropped, as in all public implementations."""
    queries = _TYPE.isin([int(TupleKind.BALANCE), int(TupleKind.EXPENDITURE)])
    return Routed(tuples, {"toll_calculator": int(TupleKind.REPORT) == _TYPE, "toll_assessment": queries}, TUPLES)


def tuples(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the needed columns: with the road of each report, and the due time if the source has it."""
    xway, direction = to_numbers(batch["xway"]), to_numbers(batch["direction"])
    made = {"road": pa.array(np.where(direction < 0, UNUSED, 2 * xway + direction).astype(np.int32, copy=False))}
    if DUE not in batch.schema.names:
        made[DUE] = pa.repeat(pa.scalar(UNUSED, pa.int64()), len(batch))
    return pa.record_batch([made[name] if name in made else batch[name] for name in TUPLES.names], schema=TUPLES)
