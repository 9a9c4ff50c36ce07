"""What people ask about the inside of a real run: its slots, its state, SQL over it, and its dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import seep
from primitives.errors import UserError
from seep.running.remote_control import RunListing, find
from seep.running.run import Run
from seep.spark.session import Host
from tests.runtime.counting import KEYS, SCHEMA, awaited, committed, numbers, start


def keyed(batch: pa.RecordBatch) -> dict[str, Any]:
    """Fails on every thousandth row; of the others, a third has the key 7."""
    n = batch["n"].to_numpy()
    if not (n % 1000).all():
        raise ValueError("a thousandth row")
    return {"key": np.where(n % 3, n * 7919 % KEYS, 7), "n": batch["n"]}


def looked_at() -> seep.Query:
    query = seep.Query("looked_at", on_error="dead-letters", dead_letters=seep.sinks.collect())
    source = query.source("numbers", seep.sources.generator(numbers, SCHEMA))
    totals = (
        source.map("map", keyed).key_by("key").aggregate("counter", n=seep.count(), total=seep.sum("n"), emit="end")
    )
    totals.sink("out", seep.sinks.collect())
    return query


@pytest.fixture(scope="module")
def running(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Run, RunListing]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEEP_HOME", str(tmp_path_factory.mktemp("home")))
        with start(host, looked_at(), rate=seep.Rate(20_000)) as run:
            committed(run, 100)
            yield run, find("looked_at")


def test_the_load_of_slots_is_known_once_somebody_asks_though_nothing_is_balanced(
    running: tuple[Run, RunListing],
) -> None:
    run, listing = running
    assert not run.status().balanced
    awaited(run, lambda: bool(listing.tell("slots", operator="counter")["rows"]))
    load = listing.tell("slots", operator="counter")
    assert (load["slots"], load["bucket"], len(load["rows"]), load["owners"]) == (256, 1, 256, [0])
    assert load["seconds"] >= 2.0
    assert sum(load["rows"]) > 0
    assert load["rows"].index(max(load["rows"])) == load["hottest"]["slot"]
    assert (load["hottest"]["instance"], load["hottest"]["key"]) == (0, "7")
    assert not run.status().balanced
    with pytest.raises(UserError, match="'numbers' is no operator with slots; those are map, counter"):
        listing.tell("slots", operator="numbers")


def test_state_is_paged_and_looked_up_and_asked_in_sql(running: tuple[Run, RunListing]) -> None:
    run, listing = running
    first = listing.tell("state", operator="counter", limit=10)
    assert [row["key"] for row in first["rows"]] == list(range(10))
    assert first["total"] == KEYS
    (container,) = first["containers"]
    assert first["containers"][container]["keys"] == ["key"]
    (row,) = listing.tell("state", operator="counter", key=["7"])["rows"]
    assert row["key"] == 7
    answer = listing.tell("sql", operator="counter", sql=f'SELECT count(*) AS keys, min(key) FROM "{container}"')
    assert (answer["columns"][0]["name"], answer["rows"], answer["more"]) == ("keys", [[KEYS, 0]], False)
    with pytest.raises(UserError, match="'map' keeps no state; those that do: counter"):
        listing.tell("state", operator="map")
    with pytest.raises(
        UserError, match="the query failed: a query over state is one SELECT over its tables; COPY is not allowed"
    ):
        listing.tell("sql", operator="counter", sql="COPY (SELECT 1) TO '/tmp/x'")
    table = run.state("counter").sql(f'SELECT sum("count()") AS rows FROM "{container}"')
    assert table["rows"][0].as_py() > 0


def test_dead_letters_have_the_function_the_error_and_the_row(running: tuple[Run, RunListing]) -> None:
    run, listing = running
    awaited(run, lambda: bool(listing.tell("dead-letters")["letters"]))
    answer = listing.tell("dead-letters", operator="map")
    letter = answer["letters"][-1]
    assert (letter["operator"], letter["instance"], letter["function"]) == ("map", "map[0]", "keyed")
    assert letter["error"] == "ValueError: a thousandth row"
    assert letter["row"].startswith('{"n": ')
    assert letter["row"].endswith("000}")
    assert 0 <= letter["at"] <= run.events.now
    assert answer["totals"]["map"] >= len(answer["letters"])
    assert listing.tell("dead-letters", operator="counter") == {"letters": [], "totals": {}}
    with pytest.raises(UserError, match="there is no operator 'joined'; there are numbers, map, counter"):
        listing.tell("dead-letters", operator="joined")
