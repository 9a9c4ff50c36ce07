"""Aggregates by key are those that Spark makes of the same rows: NaN, zeros, nulls, integers at limits, decimals."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import seep
from primitives.errors import UserError
from seep.rows.spark_types import spark_schema

FLOATS = [math.nan, math.inf, -math.inf, -0.0, 0.0, 1.5, -2.25, None]
#: Of one sign for each key: Spark's try_sum is null as well if only a part of the sum is beyond the type.
LONGS = [2**63 - 1, 2**62, 7, 0, None], [-(2**63), -(2**62), -7, 0, None]
INTS = [2**31 - 1, -(2**31), 12, 0, None]
PRICES = [Decimal("99999.99"), Decimal("-99999.99"), Decimal("0.01"), Decimal("-0.05"), Decimal("10.00"), None]
LARGE = [Decimal(10**38 - 1), Decimal(3), None], [Decimal(1 - 10**38), Decimal(-3), None]
SCHEMA = pa.schema(
    [
        ("k", pa.decimal128(9, 2)),
        ("f", pa.float64()),
        ("l", pa.int64()),
        ("i", pa.int32()),
        ("p", pa.decimal128(7, 2)),
        ("large", pa.decimal128(38, 0)),
    ]
)


def rows_of(seed: int) -> pa.Table:
    """Some hundred rows of some keys, of which a few have rows without values only."""
    chance = random.Random(seed)
    rows = []
    for key in [None, *(Decimal(number) / 4 for number in range(-20, 60))]:
        values = FLOATS, chance.choice(LONGS), INTS, PRICES, chance.choice(LARGE)
        few = [chance.sample(each, chance.randint(1, len(each))) for each in values]
        for _ in range(chance.randint(1, 6)):
            row = [chance.choice(each) for each in few]
            rows.append(dict(zip(SCHEMA.names, [key, *row], strict=True)))
    return pa.Table.from_pylist(rows, SCHEMA)


def in_spark(spark: SparkSession, table: pa.Table) -> DataFrame:
    return spark.createDataFrame([tuple(row.values()) for row in table.to_pylist()], spark_schema(table.schema))


def here(table: pa.Table, aggregates: dict[str, Any]) -> dict[Any, list[Any]]:
    query = seep.Query("aggregates")
    keyed = query.source("rows", seep.sources.memory(table)).key_by("k")
    keyed.aggregate("by-key", emit="end", **aggregates).sink("out", seep.sinks.collect())
    return by_key(seep.testing.run(query)["out"].to_pylist())


def by_key(rows: list[dict[str, Any]]) -> dict[Any, list[Any]]:
    return {row["k"]: [value for name, value in row.items() if name != "k"] for row in rows}


def is_same(one: Any, other: Any) -> bool:
    """Also in its type and, of decimals, in the digits after the point; zeros are equal, as they are in Spark."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-14)
    return type(one) is type(other) and str(one) == str(other)


@pytest.mark.parametrize("seed", range(3))
def test_every_key_has_the_aggregates_that_spark_gives_it(spark: SparkSession, seed: int) -> None:
    table = rows_of(seed)
    names = [name for name in SCHEMA.names if name != "k"]
    asked = {"n": seep.count(), **{f"{name}-{f}": getattr(seep, f)(name) for f in ("min", "max") for name in names}}
    asked |= {f"{name}-mean": seep.mean(name) for name in ("f", "l", "i", "p")}
    asked |= {f"{name}-count": seep.count(name) for name in names}
    asked |= {f"{name}-sum": seep.sum(name) for name in ("f", "i", "p")}
    asked |= {f"{name}-tried": seep.sum(name, overflow="null") for name in ("l", "large")}
    theirs = [F.count("*").alias("n"), *(getattr(F, f)(name) for f in ("min", "max") for name in names)]
    theirs += [F.avg(name) for name in ("f", "l", "i", "p")]
    theirs += [F.count(name) for name in names]
    theirs += [F.sum(name) for name in ("f", "i", "p")]
    theirs += [F.try_sum(name) for name in ("l", "large")]
    expected = by_key([row.asDict() for row in in_spark(spark, table).groupBy("k").agg(*theirs).collect()])
    found = here(table, asked)
    assert found.keys() == expected.keys()
    for key, values in found.items():
        differing = [
            (name, mine, other)
            for name, mine, other in zip(asked, values, expected[key], strict=True)
            if not is_same(mine, other)
        ]
        assert not differing, (key, differing)


def test_what_is_an_error_in_spark_is_one_here(spark: SparkSession) -> None:
    for name, value in (("l", 2**63 - 1), ("large", Decimal(10**38 - 1))):
        rows = [{"k": Decimal(1), name: value}, {"k": Decimal(1), name: type(value)(1)}]
        table = pa.Table.from_pylist(rows, SCHEMA)
        with pytest.raises(ArithmeticException):
            in_spark(spark, table).groupBy("k").agg(F.sum(name)).collect()
        with pytest.raises(UserError, match=f"'by-key': the sum of column '{name}' for key .*1.00.* is beyond"):
            here(table, {"total": seep.sum(name)})
