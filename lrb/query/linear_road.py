"""The query: SEEP's Figure 5.

feeder -> forwarder -> toll_calculator -> toll_collector -> sink
              |              |                               |
              +------> toll_assessment -> balance_account ---+
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lrb.query.answers import answers
from lrb.query.balance_account import BalanceAccount
from lrb.query.beginning import InitialState
from lrb.query.columns import ALERT, ANSWERS, DUE, TOLL, TUPLES
from lrb.query.toll_assessment import TollAssessment
from lrb.query.toll_calculator import TollCalculator
from lrb.schema import UNUSED, TupleKind
from primitives.state.columnar.fixed import to_numbers
from seep.operators.routed import Routed
from seep.query.query import Query
from seep.rows.rate import Rate
from seep.sinks.definition import SinkDefinition
from seep.sources.definition import SourceDefinition

_TYPE = pc.field("type")


def linear_road(
    feeder: SourceDefinition,
    sink: SinkDefinition,
    history: Path | None = None,
    rate: Rate | None = None,
    beginning: InitialState | None = None,
) -> Query:
    """Builds the query on tuples with the columns of `lrb.schema.INPUT`, by event time `time`.

    Its answers have the columns of `ANSWERS`. It begins without state, or with that of `beginning`.
    """
    query = Query("linear-road")
    tuples = query.source("feeder", feeder, rate=rate).apply("forwarder", forwarder())
    crossings = tuples.key_by("road").apply("toll_calculator", TollCalculator(beginning))
    found = tuples.key_by("vid").apply("toll_assessment", TollAssessment(history, beginning), crossings.key_by("vid"))
    told = crossings.flat_map("toll_collector", collected, ANSWERS)
    balances = found.event_time("time").key_by("vid").apply("balance_account", BalanceAccount(beginning))
    told.union(balances).sink("sink", sink)
    return query


def forwarder() -> Routed:
    """Returns the operator that sends reports to the toll calculator, and queries to toll assessment.

    Travel time queries are dropped, as in all public implementations.
    """
    queries = _TYPE.isin([int(TupleKind.BALANCE), int(TupleKind.EXPENDITURE)])
    return Routed(needed, {"toll_calculator": int(TupleKind.REPORT) == _TYPE, "toll_assessment": queries}, TUPLES)


def needed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the needed columns: with the road of each report, and the due time if the source has it."""
    xway, direction = to_numbers(batch["xway"]), to_numbers(batch["direction"])
    made = {"road": pa.array(np.where(direction < 0, UNUSED, 2 * xway + direction).astype(np.int32, copy=False))}
    if DUE not in batch.schema.names:
        made[DUE] = pa.repeat(pa.scalar(UNUSED, pa.int64()), len(batch))
    return pa.record_batch([made[name] if name in made else batch[name] for name in TUPLES.names], schema=TUPLES)


def collected(crossings: pa.RecordBatch) -> pa.Table:
    """Returns a notification for each vehicle that enters a segment and stays, and an alert where one is due."""
    told = crossings.filter(pc.not_equal(crossings["toll"], UNUSED))
    warned = told.filter(pc.not_equal(told["accident"], UNUSED))
    return pa.Table.from_batches(
        [
            answers(TOLL, told, lav=told["lav"], toll=told["toll"]),
            answers(ALERT, warned, segment=warned["accident"]),
        ]
    )
