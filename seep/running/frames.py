"""DataFrames of a run's output, and Spark queries that write it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from primitives.errors import UserError
from seep.rows.spark_types import spark_form
from seep.sinks.in_driver import Collect
from seep.sinks.spark_sink import SparkSink
from seep.sinks.spool import EVERYTHING
from seep.spark.capacity import capacity
from seep.spark.out.registering import register
from seep.spark.out.source import NAME
from seep.spark.session import Host

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from seep.running.run import Run

#: Seconds between two checks whether an instance has opened its store.
_POLL = 0.02


class Frames:
    """The output of a run for Spark."""

    def __init__(self, run: Run, host: Host, spark: SparkSession | None) -> None:
        self._run, self._host = run, host
        self._spark = spark or SparkSession(host.context)

    def stream(self, sink: str | None, options: dict[str, Any]) -> DataFrame:
        """Returns a streaming DataFrame of a `spark` sink, from the first rows that no Spark query has processed."""
        definition = self._spark_sink(sink)
        register(self._spark)
        self._check_room()
        self._await_columns(definition)
        return self._spark.readStream.format(NAME).options(**options).load(str(definition.spool.root))

    def batch(self, sink: str | None) -> DataFrame:
        """Waits for the end of the run; returns all rows of a sink."""
        name = self._named(sink, (SparkSink, Collect), "seep.sinks.spark(…) or collect()")
        definition, schema = self._run.program.sinks[name]
        if isinstance(definition, SparkSink):
            definition.spool.take(EVERYTHING)  # the rows are read only at the end, so the sink must not wait
        self._run.wait()
        if not isinstance(definition, SparkSink):
            return self._spark.createDataFrame(self._run.result(name).cast(spark_form(schema)))
        register(self._spark)
        return self._spark.read.format(NAME).load(str(definition.spool.root))

    def write(self, form: str | None, checkpoint: str | Path | None, sink: str | None) -> DataStreamWriter:
        """Returns a Spark writer with a checkpoint location: next to the rows, because both belong together."""
        home = self._spark_sink(sink).spool.layout.hidden / "spark-checkpoint"
        place = home.as_uri() if checkpoint is None else str(checkpoint)
        writer = self.stream(sink, {}).writeStream.option("checkpointLocation", place)
        return writer if form is None else writer.format(form)

    def to_parquet(self, path: str | Path, checkpoint: str | Path | None, sink: str | None) -> StreamingQuery:
        return self.write("parquet", checkpoint, sink).start(str(path))

    def to_table(self, table: str, checkpoint: str | Path | None, sink: str | None) -> StreamingQuery:
        return self.write(None, checkpoint, sink).toTable(table)

    def _await_columns(self, definition: SparkSink) -> None:
        """Waits for an instance to open its store: until then, the directory may be empty, or show an earlier run."""
        columns = definition.spool.layout.schema(definition.run)
        while not columns.exists():
            if self._run.wait(_POLL) and not columns.exists():
                if definition.spool.schema is not None:  # it continued a run that had written everything
                    return
                raise UserError(f"the run has ended and wrote nothing to {definition.spool.root}; see its events")

    # -- which sink ---------------------------------------------------------------------------------------------------

    def _spark_sink(self, sink: str | None) -> SparkSink:
        definition, _ = self._run.program.sinks[self._named(sink, (SparkSink,), "seep.sinks.spark(…)")]
        assert isinstance(definition, SparkSink)
        return definition

    def _named(self, sink: str | None, kinds: tuple[type, ...], wanted: str) -> str:
        known = [name for name, (each, _) in self._run.program.sinks.items() if isinstance(each, kinds)]
        if sink is None and len(known) == 1:
            return known[0]
        if sink in known:
            return sink
        there = f"those of this query: {', '.join(known)}" if known else "this query has none; end a stream with one"
        said = "say which sink" if sink is None else f"{sink!r} is no such sink"
        raise UserError(f"a DataFrame is made of a sink {wanted}: {said}; {there}")

    def _check_room(self) -> None:
        """Raises unless Spark has a free task slot to read: nodes occupy theirs for the whole run."""
        slots, nodes = capacity(self._host.context).slots, len(self._run.nodes)
        if self._host.is_local and slots <= nodes:
            raise UserError(
                f"the Spark session has {slots} task slots, and {nodes} nodes hold them, so Spark cannot read anything "
                f"meanwhile; make it with master('local[{nodes + 4}]'), or launch with fewer nodes"
            )
