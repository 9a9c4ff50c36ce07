"""Stored state as a Spark DataFrame: tasks read it in parallel, each task some slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from primitives.errors import UserError
from primitives.slots import SlotSet
from seep.inspection.container import GROUP_BYTES
from seep.inspection.listing import Storage
from seep.inspection.stored import Stored
from seep.operators.keyed import plain, plain_schema
from seep.rows.readable import as_text, readable, readable_schema
from seep.spark.bootstrap import Shipment, make_importable
from seep.spark.bootstrap import unpacked as function_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.types import StructType

#: The work of a task, given its number.
Work = Callable[[int], Iterator[pa.RecordBatch]]

#: Replacements of types that Spark does not have.
_STAND_INS = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}


def dataframe(
    spark: SparkSession,
    storage: Storage,
    query: str,
    checkpoint: int | str,
    operator: str,
    container: str | None = None,
    *,
    slots: SlotSet | None = None,
    group_bytes: int = GROUP_BYTES,
) -> DataFrame:
    """Returns the rows of a container; each task reads slots with about `group_bytes` stored bytes.

    It is read again for every action, so use a savepoint, or a checkpoint that is not removed meanwhile. Python objects
    become JSON text, and so do values of types that Spark does not have.
    """
    stored = Stored.open(storage, query, checkpoint)
    if stored.store.name.startswith("memory:"):
        raise UserError(f"{stored.store.name} is in the memory of this process, and tasks run in others; use table()")
    read = stored.container(operator, container)
    schema = pa.schema([_field(each) for each in plain_schema(readable_schema(read.schema))])
    groups = read.groups(slots, group_bytes) or [SlotSet.empty()]  # without tasks, Spark would make one itself
    work = partial(_rows, storage, query, stored.manifest.id, operator, read.name, schema, groups)
    return _by_tasks(spark, work, len(groups), schema)


def _field(field: pa.Field) -> pa.Field:
    """Returns a column with a type that Spark has."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

    try:
        kind = to_arrow_type(from_arrow_type(_STAND_INS.get(field.type, field.type)), timezone="UTC")
    except PySparkException:
        kind = pa.string()
    return pa.field(field.name, kind)


def _by_tasks(spark: SparkSession, work: Work, tasks: int, schema: pa.Schema) -> DataFrame:
    """Returns a DataFrame of the rows that `work` yields in `tasks` tasks, each called with its number."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from seep.spark.shipping import packed, ship, travel_by_value

    travel_by_value()
    source = _source(ship(spark.sparkContext), packed(work), tasks, from_arrow_schema(schema))
    spark.dataSource.register(source)
    return spark.read.format(source.name()).load()


def _source(shipment: Shipment, payload: bytes, tasks: int, columns: StructType) -> type[DataSource]:
    """Makes the data source's classes here, so that they are sent by value to executors without our packages."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(tasks)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            make_importable(shipment)
            yield from function_in(payload)(partition.value)

    class StoredState(DataSource):
        @classmethod
        def name(cls) -> str:
            return "seep-state"

        def schema(self) -> StructType:
            return columns

        def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
            return Reader()

    return StoredState


def _rows(
    storage: Storage,
    query: str,
    checkpoint: int,
    operator: str,
    container: str,
    schema: pa.Schema,
    groups: Sequence[SlotSet],
    number: int,
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of one group of slots, in a task."""
    with Stored.open(storage, query, checkpoint) as stored:
        yield _converted(readable(stored.container(operator, container).chunk(groups[number]).rows), schema)


def _converted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(map(plain, batch.columns), schema, strict=True)
    return pa.RecordBatch.from_arrays([_as(field.type, column) for column, field in columns], schema=schema)


def _as(kind: pa.DataType, column: pa.Array) -> pa.Array:
    """Casts a column; a type that Spark does not have becomes text."""
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return as_text(column) if kind == pa.string() and not is_text else column.cast(kind)
