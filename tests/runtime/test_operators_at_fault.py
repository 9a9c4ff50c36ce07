"""What operators may not do ends a run, in words: it is not tried again and again by recovery."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import seep
from primitives.errors import UserError
from seep.operators.definition import Input
from seep.spark.session import Host
from tests.runtime.counting import committed, start

SCHEMA = pa.schema([("key", pa.int64()), ("n", pa.int64())])
ROWS = 40_000


def growing(_partition: int, first: int, count: int) -> dict[str, Any]:
    """Rows of which the sum of key 3 is beyond 64 bits in the end."""
    numbers = np.arange(first, first + count, dtype=np.int64)
    return {"key": numbers % 10, "n": np.where(numbers == ROWS - 7, 2**63 - 1, numbers)}


def keyed(query: seep.Query) -> Any:
    return query.source("rows", seep.sources.generator(growing, SCHEMA, rows=ROWS), rate=20_000).key_by("key")


def test_a_sum_beyond_its_type_ends_the_run_with_operator_column_and_key(host: Host) -> None:
    query = seep.Query("beyond")
    keyed(query).aggregate("totals", parallelism=2, total=seep.sum("n")).sink("out", seep.sinks.collect())
    message = r"operator 'totals': the sum of column 'n' for key \{'key': 3\} is beyond int64"
    with start(host, query) as run, pytest.raises(UserError, match=message):
        run.wait(120)


def test_a_sum_that_may_be_null_is_so_after_a_recovery_too(host: Host) -> None:
    query = seep.Query("null")
    totals = keyed(query).aggregate("totals", emit="end", total=seep.sum("n", overflow="null"), n=seep.count())
    totals.sink("out", seep.sinks.collect())
    with start(host, query) as run:
        committed(run, 20)
        run.kill("totals")
        assert run.wait(120)
        found = {row["key"]: (row["n"], row["total"]) for row in run.result("out").to_pylist()}
    expected = {key: (ROWS // 10, sum(range(key, ROWS, 10))) for key in range(10)}
    assert found == expected | {3: (ROWS // 10, None)}


class Neighbours(seep.Operator):
    """Counts for another key than that of the row."""

    def output(self, inputs: Sequence[Input]) -> pa.Schema:
        return inputs[0].schema

    def open(self, context: seep.Context) -> None:
        self.counts = context.frame("counts", {"n": pa.int64()})

    def process(self, inputs: seep.Inputs) -> None:
        self.counts.add(inputs[0]["key"].to_numpy() + 1, n=1)


def test_state_of_a_key_of_another_instance_ends_the_run_with_operator_container_and_key(host: Host) -> None:
    query = seep.Query("neighbours")
    keyed(query).apply("beside", Neighbours, parallelism=2).sink("out", seep.sinks.collect())
    message = r"operator 'beside', state 'counts': key \d+ is not one of a row that came here, .* key_by"
    with start(host, query) as run, pytest.raises(UserError, match=message):
        run.wait(120)
