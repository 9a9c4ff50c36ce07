"""Full-size logs, with all lengths as in the specification: results as Spark's, and counts as on its reference logs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from nexmark.driver import in_order
from nexmark.generator import EventGenerator, EventKind, EventSettings
from nexmark.generator.model import FIRST_ID
from nexmark.log import log
from nexmark.queries import QUERIES
from nexmark.schema import LOG
from nexmark.source import GeneratedEvents, LoggedEvents
from seep import sinks, testing
from seep.spark.session import Host, open_session
from tests.nexmark.oracle import Oracle

pytestmark = pytest.mark.acceptance

#: The two reference logs of the specification: 10,000 events a second, and 10 with as many auctions in flight as in
#: Megaphone's preset.
A = EventSettings(rate=10_000, filler=False)
B = EventSettings(rate=10, in_flight=25_920, filler=False)
MILLION = 1_000_000


class Full(NamedTuple):
    oracle: Oracle
    path: Path


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with open_session(SparkContext._active_spark_context, name="tests") as host:
        yield host


@pytest.fixture(scope="module", params=[(A, 300_000), (B, 60_000)], ids=["A", "B"])
def full(request: pytest.FixtureRequest, host: Host, tmp_path_factory: pytest.TempPathFactory) -> Full:
    settings, events = request.param
    path = tmp_path_factory.mktemp("full") / "log.parquet"
    pq.write_table(pa.Table.from_batches(log(settings, events), LOG), path)
    return Full(Oracle(SparkSession(host.context), path), path)


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_gives_what_spark_gives(name: str, full: Full) -> None:
    query = QUERIES[name].between(lambda wanted: LoggedEvents(wanted, full.path), sinks.collect())
    found = in_order(testing.run(query, rows_per_epoch=30_000)["out"])
    expected = in_order(full.oracle.result(name))
    assert found.equals(expected.cast(found.schema))


def rows(name: str, settings: EventSettings) -> pa.Table:
    query = QUERIES[name].between(lambda wanted: GeneratedEvents(wanted, settings, MILLION), sinks.collect())
    return testing.run(query, rows_per_epoch=100_000)["out"]


@pytest.mark.parametrize(
    ("name", "settings", "reference"),
    [("Q8", A, 60_000), ("Q9", B, 37_436), ("Q11", A, 19_922), ("Q11", B, 224_710), ("Q7", A, 10)],
)
def test_there_are_as_many_rows_as_on_the_reference_logs(name: str, settings: EventSettings, reference: int) -> None:
    """But for what depends on neighbouring events being alike, as Java's generator makes those of log A."""
    assert len(rows(name, settings)) == pytest.approx(reference, rel=0.02)


def test_bids_come_before_and_after_their_auction_as_often_as_on_the_reference_log() -> None:
    events, numbers = EventGenerator(A), np.arange(MILLION)
    opened = events.numbers(numbers, [EventKind.AUCTION])
    auctions = events.columns(EventKind.AUCTION, opened, ["id", "date_time", "expires"])
    bids = events.columns(EventKind.BID, events.numbers(numbers, [EventKind.BID]), ["auction", "date_time"])
    which, times = bids["auction"].to_numpy() - FIRST_ID, bids["date_time"].to_numpy()
    there = which < len(opened)
    which, times = which[there], times[there]
    assert np.mean(times < auctions["date_time"].to_numpy()[which]) == pytest.approx(0.045, abs=0.005)
    assert np.mean(times >= auctions["expires"].to_numpy()[which]) == pytest.approx(0.24, abs=0.01)
