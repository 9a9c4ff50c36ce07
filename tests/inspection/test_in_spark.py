"""Stored state in Spark, and the state of a real run."""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from primitives.errors import UserError
from primitives.slots import SlotSet
from primitives.state.frame import Frame
from primitives.state.processing import Containers
from seep.inspection import Stored, dataframe, rewrite
from seep.rows.position import Position
from seep.rows.rate import Rate
from seep.spark.session import Host, open_session
from seep.storage.settings import StorageSettings
from seep.testing import rows
from tests.inspection.orders import QUERY, SLOT_BITS, WORDS, Counter, Stage
from tests.runtime.counting import KEYS, committed, counting, found, start


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    """The session that runs in this process already, or a new one."""
    with open_session(SparkContext._active_spark_context, name="tests") as host:
        yield host


@pytest.fixture(scope="module")
def spark(host: Host) -> Iterator[SparkSession]:
    """A session that pyspark has forgotten when its context is gone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparkSession, "_instantiatedSession", None)
        yield SparkSession(host.context)


@pytest.mark.parametrize("name", ["counts", "last page", "lists", "bids", "timers"])
def test_a_dataframe_has_every_row_once_however_many_tasks_read_it(
    stage: Stage, spark: SparkSession, name: str
) -> None:
    stage.take(Counter().see(*WORDS))
    frame = dataframe(spark, stage.location, QUERY, "latest", "counter", name, group_bytes=1000)
    assert frame.rdd.getNumPartitions() > 1
    assert rows(frame.toArrow()) == rows(Stored.open(stage.location, QUERY).table("counter", name))


def test_a_dataframe_of_some_slots_has_these_only(stage: Stage, spark: SparkSession) -> None:
    stage.take(Counter().see(*WORDS))
    for slots in (SlotSet.range(2, 4), SlotSet.empty()):
        frame = dataframe(spark, stage.location, QUERY, 1, "counter", "counts", slots=slots)
        table = Stored.open(stage.location, QUERY).table("counter", "counts", slots=slots)
        assert rows(frame.toArrow()) == rows(table)


class Wide(Counter):
    """State in columns of types that Spark does not have."""

    def __init__(self) -> None:
        values = {"u": pa.uint64(), "day": pa.date32(), "at": pa.timestamp("ms", "UTC"), "took": pa.duration("s")}
        self.counts = Frame("counts", {"word": pa.uint32()}, values, slot_bits=SLOT_BITS)
        self.state = Containers(self.counts)


def test_types_that_spark_does_not_have_become_others(stage: Stage, spark: SparkSession) -> None:
    wide = Wide()
    wide.counts.put({"word": [2**32 - 1]}, u=[2**64 - 1], day=[3], at=[1000], took=[7])
    stage.take(wide)
    (row,) = dataframe(spark, stage.location, QUERY, 1, "counter").toArrow().to_pylist()
    (as_stored,) = Stored.open(stage.location, QUERY).table("counter").to_pylist()
    assert {**row, "u": int(row["u"])} == as_stored


def test_a_store_in_memory_is_not_for_tasks(spark: SparkSession) -> None:
    with pytest.raises(UserError, match="no complete checkpoint"):
        dataframe(spark, "memory://inspection", QUERY, "latest", "counter")


def test_a_savepoint_of_a_run_has_what_was_counted_up_to_it(host: Host, tmp_path: Path) -> None:
    storage = StorageSettings(location=str(tmp_path / "storage"))
    with start(host, counting(partitions=2), storage=storage, rate=Rate(5_000), parallelism={"counter": 2}) as run:
        committed(run, 10)
        taken = run.savepoint()
    stored = Stored.open(storage, "counting", taken)
    read = {int(partition): Position(*at) for partition, at in stored.manifest.sources["numbers"].items()}  # type: ignore[misc]
    values = [n + partition * 1_000_000 for partition, at in read.items() for n in range(at.rows)]
    expected = Count(value * 7919 % KEYS for value in values)
    table = stored.table("counter")
    assert sum(expected.values()) > 0
    assert dict(zip(table["key"].to_pylist(), table["count()"].to_pylist(), strict=True)) == expected


def test_a_run_goes_on_from_a_savepoint_that_was_rewritten(host: Host, tmp_path: Path) -> None:
    storage = StorageSettings(location=str(tmp_path / "storage"))
    query, partitions = counting(rows=2_000, partitions=2), 2
    with start(host, query, storage=storage, rate=Rate(1_000)) as run:
        committed(run, 10)
        taken = run.savepoint()

    def a_thousand_more(_: str, __: str, table: pa.Table) -> pa.Table:
        place = table.column_names.index("count()")
        return table.set_column(place, "count()", pc.add(table["count()"], 1000))

    made = rewrite(storage, "counting", a_thousand_more, taken)
    before = {*Stored.open(storage, "counting", taken).table("counter")["key"].to_pylist()}
    with start(host, query, storage=storage, restore=str(made), parallelism={"counter": 2}) as run:
        run.wait(120)
        result = {key: n for key, (n, _) in found(run).items()}
    values = [n + partition * 1_000_000 for partition in range(partitions) for n in range(2_000)]
    counts = Count(value * 7919 % KEYS for value in values)
    assert before
    assert result == {key: n + (1000 if key in before else 0) for key, n in counts.items()}
