"""A routed operator puts out to each operator behind it what is for it, and to the others everything."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import seep
from primitives.errors import UserError
from seep.operators.routed import Routed
from seep.testing import InProcess, Kill, run, script

ROWS = [pa.record_batch({"n": [at, -at]}) for at in range(1, 7)]


def routed(routes: dict[str, pc.Expression], *story: object) -> seep.Query:
    query = seep.Query("routed")
    numbers = query.source("numbers", script(*(story or ROWS)))
    split = numbers.apply("split", Routed(lambda batch: {"n": pc.multiply(batch["n"], 10)}, routes))
    for name in ("positive", "negative", "all"):
        split.map(name, lambda batch: batch).sink(f"{name}-out", seep.sinks.collect())
    return query


POSITIVE = {"positive": pc.field("n") > 0, "negative": pc.field("n") < 0}


def test_an_operator_gets_the_rows_that_its_route_lets_through() -> None:
    tables = run(routed(POSITIVE))
    assert sorted(tables["positive-out"]["n"].to_pylist()) == [10, 20, 30, 40, 50, 60]
    assert sorted(tables["negative-out"]["n"].to_pylist()) == [-60, -50, -40, -30, -20, -10]
    assert len(tables["all-out"]) == 12


def test_what_went_by_a_route_is_replayed_by_it() -> None:
    story = [*ROWS[:3], Kill("split"), *ROWS[3:5], Kill("negative"), ROWS[5]]
    assert sorted(run(routed(POSITIVE, *story))["negative-out"]["n"].to_pylist()) == [-60, -50, -40, -30, -20, -10]


def test_a_route_to_an_operator_that_does_not_read_it_is_refused() -> None:
    with pytest.raises(UserError, match="a route to 'nobody', which does not read it"):
        InProcess(routed({"nobody": pc.field("n") > 0})).run()
