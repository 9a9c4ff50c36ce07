"""The query: SEEP's Figure 5.

feeder -> forwarder -> toll_calculator -> toll_collector -> sink
              |              |                               |
              +------> toll_assessment -> balance_account ---+
"""

from __future__ import annotations

from pathlib import Path

from lrb.query.balance_account import BalanceAccount
from lrb.query.beginning import InitialState
from lrb.query.columns import ANSWERS
from lrb.query.forwarder import forwarder
from lrb.query.toll_assessment import TollAssessment
from lrb.query.toll_calculator import TollCalculator
from lrb.query.toll_collector import collected
from seep.query.query import Query
from seep.rows.rate import Rate
from seep.sinks.definition import SinkDefinition
from seep.sources.definition import SourceDefinition


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
    answers = tuples.key_by("vid").apply("toll_assessment", TollAssessment(history, beginning), crossings.key_by("vid"))
    told = crossings.flat_map("toll_collector", collected, ANSWERS)
    balances = answers.event_time("time").key_by("vid").apply("balance_account", BalanceAccount(beginning))
    told.union(balances).sink("sink", sink)
    return query
