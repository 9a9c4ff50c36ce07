"""A DataFrame as a source: the driver has the DataFrame, and nodes have the rows that tasks have pushed to them."""

from __future__ import annotations

import time as clocks
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from primitives.errors import InternalError, UserError
from seep.rows.times import Duration
from seep.sources.base import ReaderDefinition, check_partitions, naming
from seep.sources.definition import SourceSetting
from seep.sources.logic import Clock, RowDescription
from seep.sources.reader import SourceReader
from seep.spark.inlet.intake import Intake
from seep.spark.inlet.reader import PushedLogic, PushedReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from seep.query.program import Program

#: The most bytes that may be pushed and not read.
AHEAD = 256 << 20


@dataclass(frozen=True, slots=True)
class StreamingOptions:
    """The options with which Spark runs a streaming DataFrame."""

    checkpoint: str | None = None  #: Spark's checkpointLocation
    trigger: Mapping[str, Any] = field(default_factory=dict)  #: the arguments of `DataStreamWriter.trigger`


def from_spark(
    df: DataFrame,
    *,
    time: str | None = None,
    out_of_order: Duration = 0,
    partitions: int = 4,
    ahead: int = AHEAD,
    checkpoint: str | Path | None = None,
    trigger: Mapping[str, Any] | None = None,
) -> SparkSource:
    """Makes a source of a Spark DataFrame, batch or streaming, for `query.source(…)`.

    Spark's tasks push its rows to the nodes during the run. The partitions of the DataFrame are dealt to `partitions`
    partitions of the source. Spark waits while `ahead` bytes are pushed and not read. For a streaming DataFrame,
    `checkpoint` is Spark's checkpointLocation, and `trigger` as in Spark: `{"availableNow": True}`.

    >>> clicks = seep.from_spark(spark.readStream.format("rate").load(), time="timestamp")   # doctest: +SKIP
    """
    return SparkSource(df, time, out_of_order, check_partitions(partitions), ahead, _streaming(df, checkpoint, trigger))


class SparkSource(ReaderDefinition):
    """See `from_spark`."""

    def __init__(
        self,
        df: DataFrame,
        time: str | None,
        out_of_order: Duration,
        partitions: int,
        ahead: int,
        streaming: StreamingOptions | None,
    ) -> None:
        from seep.rows.spark_types import arrow_schema

        super().__init__(time, out_of_order)
        if ahead < 1:
            raise UserError(f"ahead={ahead!r}; give the bytes that Spark may push before they are read, at least 1")
        self.ahead = ahead
        self.streaming = streaming  #: None: the DataFrame is finite
        self._df: DataFrame | None = df
        self._partitions = partitions
        self._schema = arrow_schema(df.schema)
        self._intake: Intake | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out the DataFrame, which cannot be sent to nodes."""
        return self.__dict__ | {"_df": None}

    @property
    def df(self) -> DataFrame:
        """The DataFrame, on the driver only."""
        if self._df is None:
            raise InternalError("a DataFrame stays with the driver")
        return self._df

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def may_be_renamed(self) -> bool:
        """Whether the source may be renamed: False, as its rows are in storage under its name."""
        return False

    @property
    def partitions(self) -> int:
        return self._partitions

    def settle(self, intake: Intake) -> None:
        """Sets the intake with the pushed rows, on a node."""
        self._intake = intake

    def logic(self, setting: SourceSetting, clock: Clock = clocks.time) -> PushedLogic:
        with naming(setting.operator):
            rows = RowDescription(self.schema, self.partitions, self.time, self._lag())
            if self._intake is None:
                raise UserError("Spark pushes only to nodes: start the query with seep.launch")
        reader = PushedReader(setting.operator, self.partitions, self._intake, self.schema)
        return PushedLogic(setting, rows, reader, clock)

    def reader(self) -> SourceReader:
        raise InternalError("rows that were pushed are read by their source's own logic")


def spark_sources(program: Program) -> dict[str, SparkSource]:
    """Returns the sources of a program that are DataFrames."""
    return {name: source for name, (source, _) in program.sources.items() if isinstance(source, SparkSource)}


def _streaming(
    df: DataFrame, checkpoint: str | Path | None, trigger: Mapping[str, Any] | None
) -> StreamingOptions | None:
    if df.isStreaming:
        return StreamingOptions(None if checkpoint is None else str(checkpoint), dict(trigger or {}))
    for name, given in (("checkpoint", checkpoint), ("trigger", trigger)):
        if given is not None:
            raise UserError(f"{name}= is for streaming DataFrames, and this one is finite: leave it out")
    return None
