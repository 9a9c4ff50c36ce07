"""Stored state for changed operators: a savepoint of one query, and runs of others that go on from it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import seep
from formats.evolution import types_of
from primitives.errors import UserError
from primitives.state.chunk import Chunk
from seep.inspection.stored import Stored
from seep.operators.definition import Input
from seep.spark.session import Host
from seep.storage.settings import StorageSettings
from tests.runtime.counting import committed, start

ROWS, KEYS = 100_000, 50
SCHEMA = pa.schema([("n", pa.int64())])


def numbers(partition: int, first: int, count: int) -> dict[str, Any]:  # noqa: ARG001
    return {"n": np.arange(first, first + count, dtype=np.int64)}


def keyed(batch: pa.RecordBatch) -> dict[str, Any]:
    return {"key": batch["n"].to_numpy() % KEYS, "n": batch["n"]}


class Totals(seep.Operator):
    """The operator as it was first. It puts out each key that it counts, with all that it knows of it."""

    columns: ClassVar[Mapping[str, Any]] = {"n": pa.int64(), "total": pa.int64(), "note": pa.string()}

    def output(self, inputs: Sequence[Input]) -> pa.Schema:
        key = inputs[0].schema.field("key")
        return pa.schema([key, *(pa.field(name, kind) for name, kind in types_of(self.columns).items())])

    def open(self, context: seep.Context) -> None:
        self.counts = context.frame("counts", self.columns)

    def process(self, inputs: seep.Inputs) -> Any:
        return self.counts.take(np.unique(self.count(inputs[0])))

    def count(self, rows: pa.RecordBatch) -> Any:
        return self.counts.add(rows, n=1, total=rows["n"])


def query_of(operator: type[seep.Operator]) -> seep.Query:
    query = seep.Query("evolving")
    source = query.source("numbers", seep.sources.generator(numbers, SCHEMA, partitions=1, rows=ROWS))
    source.map("map", keyed).key_by("key").apply("counter", operator).sink("out", seep.sinks.collect())
    return query


@dataclass(frozen=True)
class Saved:
    """A savepoint of the operator as it was first."""

    storage: StorageSettings
    number: int
    counts: Mapping[int, int]  #: rows of each key before it

    def options(self, **more: Any) -> dict[str, Any]:
        return {"storage": self.storage, "restore": str(self.number), "checkpoint": None, **more}


@pytest.fixture(scope="module")
def saved(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    storage = StorageSettings(location=str(tmp_path_factory.mktemp("evolving")))
    with start(host, query_of(Totals), storage=storage, rate=seep.Rate(10_000), checkpoint=None) as run:
        committed(run, 20)
        number = run.savepoint()
    rows = Stored.open(storage, "evolving", number).table("counter", "counts").to_pylist()
    return Saved(storage, number, {row["key"]: row["n"] for row in rows})


def last_words(host: Host, saved: Saved, operator: type[seep.Operator], **more: Any) -> dict[int, dict[str, Any]]:
    """What a run that goes on from the savepoint puts out last for each key."""
    with start(host, query_of(operator), **saved.options(parallelism={"counter": 2}, **more)) as run:
        assert run.wait(120)
        return {row.pop("key"): row for row in run.result("out").to_pylist()}


EXPECTED = Counter(n % KEYS for n in range(ROWS))
TOTALS = {key: sum(range(key, ROWS, KEYS)) for key in range(KEYS)}


# -- columns ----------------------------------------------------------------------------------------------------------


class Renamed(Totals):
    """One column has another name, one is wider, one is new, one is gone."""

    columns: ClassVar[Mapping[str, Any]] = {
        "rows": seep.column(pa.int64(), aliases=["n"]),
        "total": pa.float64(),
        "bonus": seep.column(pa.int64(), default=7),
    }

    def count(self, rows: pa.RecordBatch) -> Any:
        return self.counts.add(rows, rows=1, total=rows["n"])


def test_columns_are_added_removed_renamed_and_widened_on_the_way_from_a_savepoint(host: Host, saved: Saved) -> None:
    found = last_words(host, saved, Renamed)
    assert found == {key: {"rows": EXPECTED[key], "total": TOTALS[key], "bonus": 7} for key in range(KEYS)}


class WithoutDefault(Totals):
    columns: ClassVar[Mapping[str, Any]] = {"n": pa.int64(), "page": pa.string()}


def test_a_new_column_without_a_default_is_refused_with_both_schemas(host: Host, saved: Saved) -> None:
    refusal = r"operator 'counter': stored state 'counts' does not fit: column 'page' .*default or an alias\n.*stored, "
    with pytest.raises(UserError, match=refusal) as refused:
        seep.launch(query_of(WithoutDefault), host.context, **saved.options())
    assert re.search(r"total: int64 +\| page: string", str(refused.value))


# -- names ------------------------------------------------------------------------------------------------------------


class OfAnotherName(Totals):
    def open(self, context: seep.Context) -> None:
        self.counts = context.frame("sums", self.columns, aliases=["before", "counts"])


def renamed(operator: type[seep.Operator], name: str = "totals", **options: Any) -> seep.Query:
    query = seep.Query("evolving")
    rows = seep.sources.generator(numbers, SCHEMA, partitions=1, rows=ROWS)
    source = query.source("integers", rows, aliases=["numbers"])
    source.map("map", keyed).key_by("key").apply(name, operator, **options).sink("out", seep.sinks.collect())
    return query


def test_operators_containers_and_sources_of_other_names_go_on_from_what_was_stored(host: Host, saved: Saved) -> None:
    query = renamed(OfAnotherName, parallelism=2, aliases=["counter"])
    with start(host, query, rate=seep.Rate(500), **saved.options()) as run:
        committed(run, 5)
        number = run.savepoint()
    rows = Stored.open(saved.storage, "evolving", number).table("totals", "sums").to_pylist()
    assert all(row["n"] >= saved.counts[row["key"]] for row in rows)
    assert len(rows) == KEYS
    again = renamed(OfAnotherName, parallelism=2, aliases=["counter"])  # aliases may stay, once state has the new name
    with start(host, again, storage=saved.storage, restore=str(number), checkpoint=None) as run:
        assert run.wait(120)
        found = {row["key"]: (row["n"], row["total"]) for row in run.result("out").to_pylist()}
    assert found == {key: (EXPECTED[key], TOTALS[key]) for key in range(KEYS)}


@pytest.mark.parametrize(
    ("operator", "name", "aliases", "message"),
    [
        (Totals, "totals", (), "has state of counter, .* Name the old one among its aliases"),
        (
            OfAnotherName,
            "counter",
            ["integers"],
            "'counter' has the alias 'integers', and 'integers' is still",
        ),
        (OfAnotherName, "counter", "totals", r"aliases are a list of names; write aliases=\['the-old-name'\]"),
        (OfAnotherName, "counter", ["counter"], "'counter' cannot be an alias of it; name what it was called before"),
    ],
)
def test_names_that_are_not_found_or_say_too_much_are_refused(
    host: Host, saved: Saved, operator: type[seep.Operator], name: str, aliases: Any, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        seep.launch(renamed(operator, name, aliases=aliases), host.context, **saved.options())


# -- versions ---------------------------------------------------------------------------------------------------------


class Thousandths(Totals):
    """The total is in thousandths since version 1."""

    version = 1

    def migrate_state(self, old_version: int, chunk: Chunk) -> Chunk:
        if chunk.name != "counts":
            return chunk
        assert old_version == 0
        place = chunk.rows.schema.get_field_index("total")
        return replace(chunk, rows=chunk.rows.set_column(place, "total", pc.multiply(chunk.rows["total"], 1000)))

    def count(self, rows: pa.RecordBatch) -> Any:
        return self.counts.add(rows, n=1, total=pc.multiply(rows["n"], 1000))


def test_an_operator_converts_its_state_itself(host: Host, saved: Saved) -> None:
    found = last_words(host, saved, Thousandths)
    assert {key: (row["n"], row["total"]) for key, row in found.items()} == {
        key: (EXPECTED[key], 1000 * TOTALS[key]) for key in range(KEYS)
    }


class Unable(Totals):
    version = 1

    def migrate_state(self, old_version: int, chunk: Chunk) -> Chunk:
        raise LookupError(f"version {old_version} of {chunk.name}")


class Unprepared(Totals):
    version = 1


@pytest.mark.parametrize(
    ("operator", "refusal"),
    [
        (
            Unable,
            "operator 'counter': migrate_state failed for state 'counts' of version 0 .*LookupError: version 0 of",
        ),
        (Unprepared, "operator 'counter': stored state 'counts' does not fit: .*give it a method migrate_state"),
    ],
)
def test_state_that_is_not_converted_is_refused_before_anything_starts(
    host: Host, saved: Saved, operator: type[seep.Operator], refusal: str
) -> None:
    with pytest.raises(UserError, match=refusal):
        seep.launch(query_of(operator), host.context, **saved.options())


# -- containers -------------------------------------------------------------------------------------------------------


class WithAnother(Totals):
    """Has a second container, which counts too."""

    columns: ClassVar[Mapping[str, Any]] = {**Totals.columns, "since": seep.column(pa.int64(), default=0)}

    def open(self, context: seep.Context) -> None:
        super().open(context)
        self.since = context.frame("since", {"n": pa.int64()})

    def count(self, rows: pa.RecordBatch) -> Any:
        self.since.add(rows, n=1)
        found = super().count(rows)
        self.counts.column("since")[found] = self.since.get(rows)[0]["n"]
        return found


def test_a_container_that_is_new_begins_empty(host: Host, saved: Saved) -> None:
    found = last_words(host, saved, WithAnother)
    assert {key: row["n"] for key, row in found.items()} == EXPECTED
    assert {key: row["since"] for key, row in found.items()} == Counter(EXPECTED) - Counter(saved.counts)


class Elsewhere(Totals):
    """Keeps its counts under another name."""

    def open(self, context: seep.Context) -> None:
        self.counts = context.frame("tallies", self.columns)


def test_a_container_that_is_gone_is_refused_with_both_schemas_before_anything_starts(host: Host, saved: Saved) -> None:
    with pytest.raises(UserError, match="operator 'counter': there is stored state 'counts', which is not") as refused:
        seep.launch(query_of(Elsewhere), host.context, **saved.options())
    assert "'counts', version 0" in str(refused.value)
    assert "| 'tallies', version 0" in str(refused.value)


def test_a_container_that_is_gone_is_dropped_if_that_is_allowed(host: Host, saved: Saved) -> None:
    found = last_words(host, saved, Elsewhere, allow_dropped_state=True)
    assert {key: row["n"] for key, row in found.items()} == Counter(EXPECTED) - Counter(saved.counts)
