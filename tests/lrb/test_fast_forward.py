"""The state that fast-forward builds up on one expressway is, on each of many, what they would have by then."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from lrb.data.writing import OUTPUTS
from lrb.generator import TrafficSettings
from lrb.query.answers import outputs
from lrb.query.linear_road import linear_road
from lrb.sources.live import LiveFeeder, paced, record, recorded
from lrb.trials.fast_forward import Rest, fast_forward
from lrb.validation.live_check import wrong_answers
from seep import sinks
from seep.query.query import Query
from seep.testing import InProcess

#: Seconds of all the traffic, and when the rest begins; there are jams, tolls and accidents on both sides of it.
SECONDS, CUT, XWAYS = 420, 330, 2
BUSY = TrafficSettings(
    seconds=SECONDS,
    rate=1.5,
    balances=0.1,
    expenditures=0.01,
    accidents_every=100,
    near_misses_every=100,
    jams_every=30,
)

Rows = list[list[tuple[int, ...]]]


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Rest:
    told: list[tuple[int, int]] = []
    rest = fast_forward(BUSY, CUT, tmp_path_factory.mktemp("rest"), lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1] == (BUSY.seconds, BUSY.seconds)
    return rest


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "traffic.arrow"
    record(BUSY, path)
    return path


def late_answers(query: Query, parallelism: Mapping[str, int] | None = None) -> Rows:
    """What is answered from the cut on."""
    with InProcess(query, parallelism=parallelism, rows_per_epoch=4_000) as process:
        process.run()
        tables = outputs(process.tables["sink"])
    found = []
    for output, table in zip(OUTPUTS, tables, strict=True):
        names = [name for name in output.printed if name != "qid"]  # which follow from the part that is played
        lines = zip(*(table[name].to_pylist() for name in names), strict=True)
        found.append(sorted(line for line in lines if line[names.index("time")] >= CUT))
    return found


def test_answers_are_those_of_a_query_that_has_seen_everything(rest: Rest, whole: Path) -> None:
    feeder = LiveFeeder(rest.path, XWAYS, vehicles=rest.vehicles, held=3)
    begun = linear_road(feeder, sinks.collect(), beginning=rest.beginning(XWAYS))
    seen = late_answers(linear_road(paced(whole, XWAYS, 1.0)[0], sinks.collect()))
    assert late_answers(begun, {"toll_calculator": 2, "toll_assessment": 3, "balance_account": 2}) == seen
    tolls, alerts, balances, _ = seen
    assert min(sum(toll[4] > 0 for toll in tolls), len(alerts), sum(each[3] > 0 for each in balances)) > 10


def test_what_is_played_is_what_is_left(rest: Rest, whole: Path) -> None:
    left, everything = recorded(rest.path, rest.vehicles), recorded(whole)
    assert (left.first, left.seconds) == (CUT, SECONDS)
    columns = ["vid", "xway", "time", "segment"]
    expected = everything.play(CUT, SECONDS, range(XWAYS)).select(columns)
    assert left.play(CUT, SECONDS, range(XWAYS)).select(columns).equals(expected)


def test_answers_on_many_expressways_are_checked_by_the_reference_on_one(whole: Path) -> None:
    with InProcess(linear_road(paced(whole, XWAYS, 1.0)[0], sinks.collect()), rows_per_epoch=4_000) as process:
        process.run()
        rows = process.tables["sink"]
    assert wrong_answers(rows, recorded(whole), XWAYS) == []
    fewer = rows.slice(1)
    (line, *shown) = wrong_answers(fewer, recorded(whole), XWAYS)
    assert "1 of" in line
    assert "missing" in shown[0]
