"""Puts answers of all types into the same columns, so that one sink takes them all, and separates them again."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lrb.query.columns import ALERT, ANSWERS, BALANCE, DUE, EXPENDITURE, TOLL
from lrb.schema import ALERTS, BALANCES, EXPENDITURES, TOLLS, UNUSED

_LAYOUTS = {TOLL: TOLLS, ALERT: ALERTS, BALANCE: BALANCES, EXPENDITURE: EXPENDITURES}


def answers(kind: int, asked: pa.RecordBatch, **columns: Any) -> pa.RecordBatch:
    """Returns answers of one type to the tuples that asked for them."""
    count = len(asked)
    columns |= {"type": _all(kind, "type", count), "time": asked["time"], "vid": asked["vid"], DUE: asked[DUE]}
    arrays = [columns.get(name, _all(UNUSED, name, count)) for name in ANSWERS.names]
    return pa.record_batch(list(map(_array, arrays)), schema=ANSWERS)


def outputs(rows: pa.Table) -> list[pa.Table]:
    """Returns tolls, alerts, balances and expenditures in their files' columns; Emit is Time if not given."""
    if "emit" not in rows.schema.names:
        rows = rows.append_column("emit", rows["time"])
    return [
        rows.filter(pc.equal(rows["type"], kind)).select(layout.names).cast(layout) for kind, layout in _LAYOUTS.items()
    ]


def _all(value: int, column: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, ANSWERS.field(column).type), count)


def _array(column: Any) -> pa.Array:
    return column if isinstance(column, pa.Array) else pa.array(column)
