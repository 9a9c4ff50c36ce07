"""The spool between a sink and Spark's reader: each row once, whoever is killed, repeats itself or lags behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from primitives.errors import EnvironmentFault, UserError
from primitives.graph import InstanceId
from seep import sinks
from seep.protocol.messages import MAX_WATERMARK
from seep.protocol.view import Incarnation
from seep.rows.spark_types import spark_schema
from seep.sinks.definition import SinkFenced, SinkStore
from seep.sinks.spark_sink import SparkSink
from seep.sinks.spool import EVERYTHING
from seep.spark.out.source import BatchReader, SeepDataSource, StreamReader, _divided, _Sized

SCHEMA = pa.schema([("epoch", pa.int64()), ("instance", pa.int64())])
INSTANCES = 2


def rows(epoch: int, index: int) -> list[pa.RecordBatch]:
    """Every third epoch has no rows; the others have one or two."""
    count = epoch % 3
    return [pa.record_batch([pa.array([epoch] * count, pa.int64()), pa.array([index] * count, pa.int64())], SCHEMA)]


def expected(last: int) -> list[tuple[int, int]]:
    return sorted((e, i) for i in range(INSTANCES) for e in range(1, last + 1) for _ in range(e % 3))


class Instances:
    """The instances of a sink, which commit epoch after epoch and may be killed between any two."""

    def __init__(self, definition: SparkSink) -> None:
        self.definition = definition
        self.lives = [0] * INSTANCES
        self.stores: list[SinkStore] = [definition.store("out", SCHEMA) for _ in self.lives]
        self.taken = [self._open(index) for index in range(INSTANCES)]
        self.durable = list(self.taken)

    def _me(self, index: int) -> Incarnation:
        return Incarnation(InstanceId("out", index), self.lives[index])

    def _open(self, index: int) -> int:
        return self.stores[index].open(self._me(index))

    def commit(self, index: int, watermark: int = 0) -> None:
        self.taken[index] += 1
        epoch = self.taken[index]
        self.durable[index] = self.stores[index].commit(self._me(index), epoch, rows(epoch, index), watermark)

    def finish(self) -> int:
        """All commit the final epoch, and with it all before."""
        last = max(self.taken) + 1
        for index in range(INSTANCES):
            while self.taken[index] < last:
                self.commit(index, MAX_WATERMARK if self.taken[index] + 1 == last else 0)
        return last

    def kill(self, index: int) -> None:
        self.lives[index] += 1
        self.stores[index] = self.definition.store("out", SCHEMA)
        self.taken[index] = self.durable[index] = self._open(index)

    def show(self) -> int:
        """What all have made durable, as the driver does."""
        epoch = min(self.durable)
        self.definition.spool.show(self.definition.run, epoch)
        return epoch


class Query:
    """A Spark query, as Spark drives a reader: offsets are logged before a batch runs, and committed later."""

    def __init__(self, definition: SparkSink) -> None:
        self.definition = definition
        self.reader = self._reader()
        self.offset = self.reader.initialOffset()
        self.planned: dict[str, object] | None = None
        self.finished: dict[str, object] | None = None
        self.found: list[tuple[int, int]] = []

    def _reader(self) -> StreamReader:
        reader = StreamReader(self.definition.spool, spark_schema(SCHEMA), ReadAllAvailable())
        reader.patience = 0
        return reader

    def read(self, end: dict[str, object]) -> list[tuple[int, int]]:
        tasks = self.reader.partitions(self.offset, end)
        return sorted(pair for task in tasks for batch in self.reader.read(task) for pair in pairs(batch))

    def batch(self) -> None:
        end = self.planned or self.reader.latestOffset(self.offset, ReadAllAvailable())
        if end != self.offset:
            if self.finished is not None:
                self.reader.commit(self.finished)
            self.found += self.read(end)
            self.offset = self.finished = end
        self.planned = None

    def die_in_a_batch(self) -> None:
        """The batch is planned and read, and the query restarts from its checkpoint before it is complete."""
        if self.planned is None:
            self.planned = self.reader.latestOffset(self.offset, ReadAllAvailable())
        self.read(self.planned)
        self.reader = self._reader()


def pairs(batch: pa.RecordBatch) -> Iterator[tuple[int, int]]:
    return zip(batch["epoch"].to_pylist(), batch["instance"].to_pylist(), strict=True)


STEPS = st.sampled_from(["commit 0", "commit 0", "commit 1", "commit 1", "kill 0", "kill 1", "show", "batch", "die"])


@hypothesis_settings(max_examples=30)
@given(st.lists(STEPS, max_size=40), st.integers(1, 3))
def test_a_query_gets_each_row_once_whoever_is_killed_when(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], roll: int
) -> None:
    definition = sinks.spark(tmp_path_factory.mktemp("spool") / "out", roll=roll)
    instances = Instances(definition)
    query = Query(definition)
    for step in steps:
        match step.split():
            case ["commit", index]:
                instances.commit(int(index))
            case ["kill", index]:
                instances.kill(int(index))
            case ["show"]:
                instances.show()
            case ["batch"]:
                query.batch()
            case ["die"]:
                query.die_in_a_batch()
    last = instances.finish()
    assert instances.show() == last
    query.batch()  # of what was planned already, if anything was
    query.batch()
    assert sorted(query.found) == expected(last)


def test_what_spark_has_done_with_is_removed_and_not_before(tmp_path: Path) -> None:
    definition = sinks.spark(tmp_path)
    instances, query = Instances(definition), Query(definition)
    for _ in range(2):
        for index in range(INSTANCES):
            instances.commit(index)
        instances.show()
        query.batch()
    assert {part.last for part in definition.spool.layout.parts()} == {2}  # of the batch that was the last one
    assert (definition.spool.taken, definition.spool.trimmed) == (1, 1)


def test_nothing_is_read_before_it_is_shown(tmp_path: Path) -> None:
    definition = sinks.spark(tmp_path)
    instances, query = Instances(definition), Query(definition)
    instances.commit(0)
    query.batch()
    assert query.found == []


def test_whoever_asks_too_early_waits_a_little(tmp_path: Path) -> None:
    definition = sinks.spark(tmp_path)
    instances, query = Instances(definition), Query(definition)
    for index in range(INSTANCES):
        instances.commit(index)
    query.reader.patience = 60.0
    showing = threading.Timer(0.05, instances.show)
    showing.start()
    query.batch()
    assert query.found == expected(1)


def test_epochs_without_rows_make_no_batch(tmp_path: Path) -> None:
    definition = sinks.spark(tmp_path)
    instances, query = Instances(definition), Query(definition)
    for _ in range(3):
        for index in range(INSTANCES):
            instances.commit(index)
    assert instances.show() == 3
    assert query.reader.latestOffset(query.offset, ReadAllAvailable())["epoch"] == 2


def test_a_limit_in_bytes_divides_what_is_shown_but_no_epoch(tmp_path: Path) -> None:
    definition = sinks.spark(tmp_path)
    instances, query = Instances(definition), Query(definition)
    for _ in range(5):
        for index in range(INSTANCES):
            instances.commit(index)
    instances.show()
    ends = []
    for most in (1, 1, EVERYTHING):
        query.offset = query.reader.latestOffset(query.offset, ReadMaxBytes(most))
        ends.append(query.offset["epoch"])
    assert ends == [1, 2, 5]


def test_a_query_that_takes_what_is_there_stops_there(tmp_path: Path) -> None:
    definition = sinks.spark(tmp_path)
    instances, query = Instances(definition), Query(definition)
    for epoch in (1, 2):
        for index in range(INSTANCES):
            instances.commit(index)
        instances.show()
        if epoch == 1:
            query.reader.prepareForTriggerAvailableNow()
    assert query.reader.latestOffset(query.offset, ReadAllAvailable())["epoch"] == 1


def test_files_are_divided_among_tasks_by_their_size() -> None:
    files = [_Sized(str(n), nbytes) for n, nbytes in enumerate([20 << 20, 10 << 20, 10 << 20, 40 << 20, 1])]
    assert [task.paths for task in _divided(files)] == [("0", "1"), ("2",), ("3",), ("4",)]


# -- back-pressure ----------------------------------------------------------------------------------------------------


def big(nbytes: int) -> list[pa.RecordBatch]:
    return [pa.record_batch([pa.array(range(nbytes // 16), pa.int64())] * 2, SCHEMA)]


def test_a_sink_waits_until_spark_takes_what_it_was_shown(tmp_path: Path) -> None:
    definition = sinks.spark(tmp_path, backlog=200_000)
    store = definition.store("out", SCHEMA)
    me = Incarnation(InstanceId("out", 0), 0)
    store.open(me)
    for epoch in range(1, 6):
        store.commit(me, epoch, big(100_000), 0)  # not shown yet: Spark is not to blame
    definition.spool.show(definition.run, 5)
    waiting = threading.Thread(target=store.commit, args=(me, 6, big(100_000), 0), daemon=True)
    waiting.start()
    definition.spool.take(3)  # leaves two, which are as much as there may be
    waiting.join(0.1)
    assert waiting.is_alive()
    assert [part.last for part in definition.spool.layout.parts()] == [1, 2, 3, 4, 5]
    definition.spool.take(4)
    waiting.join(10)
    assert definition.spool.layout.parts()[-1].last == 6


def test_a_sink_that_is_replaced_while_it_waits_hears_of_it_and_its_successor_waits_as_well(tmp_path: Path) -> None:
    definition = sinks.spark(tmp_path, backlog=100_000)
    first, second = (definition.store("out", SCHEMA) for _ in range(2))
    me, successor = (Incarnation(InstanceId("out", 0), number) for number in (0, 1))
    first.open(me)
    first.commit(me, 1, big(100_000), 0)
    definition.spool.show(definition.run, 1)
    fenced = threading.Event()

    def commit() -> None:
        try:
            first.commit(me, 2, big(100_000), 0)
        except SinkFenced:
            fenced.set()

    threading.Thread(target=commit, daemon=True).start()
    assert second.open(successor) == 1
    assert fenced.wait(10)
    waiting = threading.Thread(target=second.commit, args=(successor, 2, big(16), 0), daemon=True)
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    definition.spool.take(EVERYTHING)
    waiting.join(10)
    assert not waiting.is_alive()


# -- restored runs ----------------------------------------------------------------------------------------------------


def test_a_restored_run_takes_back_what_was_not_shown_and_the_query_goes_on(tmp_path: Path) -> None:
    definition = sinks.spark(tmp_path)
    instances, query = Instances(definition), Query(definition)
    for _ in range(5):
        for index in range(INSTANCES):
            instances.commit(index)
    definition.spool.show(definition.run, 4)
    query.batch()
    again = definition.resumed(4, definition.note())
    again.check("out", SCHEMA)
    restored = Instances(again)
    restored.taken = [4] * INSTANCES  # as the manager tells them
    assert {part.last for part in again.spool.layout.parts()} == {1, 2, 4}
    query.batch()
    for _ in range(4):
        for index in range(INSTANCES):
            restored.commit(index)
    restored.show()
    query.batch()
    assert sorted(query.found) == expected(8)


def test_a_run_that_was_followed_by_another_shows_nothing_any_more(tmp_path: Path) -> None:
    definition = sinks.spark(tmp_path)
    Instances(definition)
    again = definition.resumed(4, definition.note())
    Instances(again)
    definition.spool.show(definition.run, 9)
    assert again.spool.shown == 0


def test_a_checkpoint_before_what_spark_was_shown_is_refused(tmp_path: Path) -> None:
    definition = sinks.spark(tmp_path)
    Instances(definition)
    definition.spool.show(definition.run, 5)
    with pytest.raises(UserError, match="shown the rows up to epoch 5, and the checkpoint is of epoch 4"):
        definition.resumed(4, definition.note())


def test_a_new_run_does_not_write_where_another_has(tmp_path: Path) -> None:
    Instances(sinks.spark(tmp_path))
    with pytest.raises(UserError, match=r"sink 'out'.*output of an earlier run.*restore that run"):
        sinks.spark(tmp_path).check("out", SCHEMA)


# -- what is refused --------------------------------------------------------------------------------------------------


def test_a_type_that_spark_has_not_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="sink 'out': column 'count' is of the type uint64"):
        sinks.spark(tmp_path).check("out", pa.schema([("count", pa.uint64())]))


def test_a_query_that_lags_behind_another_is_refused(tmp_path: Path) -> None:
    definition = sinks.spark(tmp_path)
    instances, ahead, behind = Instances(definition), Query(definition), Query(definition)
    for _ in range(2):
        for index in range(INSTANCES):
            instances.commit(index)
        instances.show()
        ahead.batch()
    with pytest.raises(UserError, match="up to epoch 1 are removed, for another query had them"):
        behind.batch()
    with pytest.raises(UserError, match="went to a streaming query"):
        BatchReader(definition.spool, spark_schema(SCHEMA)).partitions()


def test_the_checkpoint_of_another_spool_is_refused(tmp_path: Path) -> None:
    one, other = sinks.spark(tmp_path / "one"), sinks.spark(tmp_path / "other")
    Instances(one)
    Instances(other)
    with pytest.raises(UserError, match="not what the checkpoint of this Spark query knows"):
        Query(one).reader.latestOffset(Query(other).offset, ReadAllAvailable())


def test_the_failure_of_a_run_is_told_when_all_that_was_shown_is_read(tmp_path: Path) -> None:
    definition = sinks.spark(tmp_path)
    instances, query = Instances(definition), Query(definition)
    for index in range(INSTANCES):
        instances.commit(index)
    instances.show()
    definition.spool.fail(definition.run, "division by zero")
    query.batch()
    assert sorted(query.found) == expected(1)
    with pytest.raises(EnvironmentFault, match="division by zero"):
        query.batch()


def test_a_source_without_a_path_or_before_anything_was_written_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="load"):
        SeepDataSource({})
    with pytest.raises(UserError, match="start the query first"):
        SeepDataSource({"path": str(tmp_path)}).schema()


@pytest.mark.parametrize("given", ["0", "many"])
def test_a_limit_that_is_no_number_of_bytes_is_refused(tmp_path: Path, given: str) -> None:
    source = SeepDataSource({"path": str(tmp_path), "maxBytesPerTrigger": given})
    with pytest.raises(UserError, match="maxBytesPerTrigger is"):
        source.streamReader(spark_schema(SCHEMA))


def test_a_finished_run_without_rows_is_an_empty_frame(tmp_path: Path) -> None:
    definition = sinks.spark(tmp_path)
    store = definition.store("out", SCHEMA)
    me = Incarnation(InstanceId("out", 0), 0)
    store.open(me)
    store.commit(me, 1, [], MAX_WATERMARK)
    definition.spool.show(definition.run, 1)
    reader = BatchReader(definition.spool, spark_schema(SCHEMA))
    assert [batch.num_rows for task in reader.partitions() for batch in reader.read(task)] == []
