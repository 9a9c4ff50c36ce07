"""A query: the operators that a user declares, by name, in the order of their declaration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from primitives.errors import UserError
from primitives.slots import DEFAULT_SLOT_BITS, check_slot_bits
from seep.operators.definition import Definition, Input
from seep.query.checks import (
    can_be_key,
    check_columns,
    check_keyed,
    check_name,
    check_same_query,
    check_time,
    clock_of,
    common_clock,
)
from seep.query.launcher import launch
from seep.query.stream import Stream
from seep.query.vertex import (
    DEAD_LETTERS_SINK,
    CodeOptions,
    OnError,
    OperatorOptions,
    OperatorVertex,
    SourceVertex,
    Vertex,
    VertexOptions,
    as_rate,
    check_aliases,
    check_on_error,
    check_options,
    kind_of,
    lines_of,
    streams_into,
)
from seep.rows.rate import Rate
from seep.rows.times import is_event_time
from seep.sinks.definition import SinkDefinition
from seep.sources.definition import SourceDefinition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

from seep.query.program import Program, Resume


class Query:
    """A query under construction: sources, operators on their streams, and sinks.

    >>> import pyarrow as pa, seep
    >>> query = seep.Query("doubles")
    >>> numbers = query.source("numbers", seep.sources.memory([pa.record_batch({"n": [1, 2, 3]})]))
    >>> doubled = numbers.map("double", lambda batch: {"n": pa.compute.multiply(batch["n"], 2)})
    >>> doubled.sink("out", seep.sinks.collect())
    >>> seep.testing.run(query)["out"]["n"].to_pylist()
    [2, 4, 6]
    """

    def __init__(
        self,
        name: str,
        *,
        parallelism: int = 1,
        slot_bits: int = DEFAULT_SLOT_BITS,
        on_error: OnError = "stop",
        dead_letters: SinkDefinition | None = None,
    ) -> None:
        """`parallelism`, `slot_bits` and `on_error` are defaults for all operators.

        With `on_error="dead-letters"`, rows on which a user's function fails go to the sink `dead-letters`, which is
        the given `dead_letters`, or one that collects them at the driver.
        """
        check_name(name)
        check_options(name, {"parallelism": parallelism}, VertexOptions)
        check_slot_bits(slot_bits)
        check_on_error(f"query {name!r}", on_error)
        self.name = name
        self.parallelism = parallelism
        self.slot_bits = slot_bits
        self.on_error = on_error
        self.dead_letters = dead_letters
        self.vertices: dict[str, Vertex] = {}

    def __repr__(self) -> str:
        """Shows the operators in the order of their declaration, each with its inputs."""
        return f"<Query {self.name!r}: {', '.join(map(_as_call, self.vertices.values())) or 'no operators yet'}>"

    def _repr_html_(self) -> str:
        """Shows the operators as a graph in a notebook."""
        from seep.reports.notebook import query_html

        edges = [(origin, v.name) for v in self.vertices.values() for _, s in streams_into(v) for origin in s.origins]
        kinds = {name: kind_of(vertex) for name, vertex in self.vertices.items()}
        return query_html(self.name, kinds, edges, {name: lines_of(v) for name, v in self.vertices.items()})

    def source(
        self,
        name: str,
        definition: SourceDefinition,
        *,
        rate: Rate | float | None = None,
        parallelism: int | None = None,
        aliases: Sequence[str] = (),
    ) -> Stream:
        """Adds a source; returns its stream. `rate` limits the rows per second. Its slots are its partitions.

        If the source has another name in stored state, give the old name in `aliases`.
        """
        check_name(name)
        if not isinstance(definition, SourceDefinition):
            raise UserError(
                f"source {name!r}: {definition!r} is not a source; use one of seep.sources, such as memory(…)"
            )
        schema, time = definition.schema, definition.time
        check_columns(name, schema)
        if time is not None:
            check_time(name, schema, time, definition.time_remedy)
        if parallelism is not None:
            check_options(name, {"parallelism": parallelism}, VertexOptions)
        check_aliases(name, aliases)
        if aliases and not definition.may_be_renamed:
            raise UserError(
                f"source {name!r}: rows of Spark are stored by its name, so it takes no aliases; keep the name"
            )
        self.add(SourceVertex(name, definition, None if rate is None else as_rate(name, rate), parallelism, aliases))
        return Stream(self, (name,), Input(schema, (), time), clock_of(schema, time))

    def compile(
        self,
        *,
        parallelism: Mapping[str, int] | None = None,
        epoch_seconds: float = 0.05,
        rate: Rate | float | Mapping[str, Rate | float] | None = None,
        resume: Resume | None = None,
    ) -> Program:
        """Checks the whole query and makes the program that nodes run.

        `parallelism` (by operator) and `rate` (one for all sources, or by source) override what was declared. With
        `resume`, the run continues from a checkpoint.
        """
        from seep.query.compiler import Compiler

        return Compiler(self, parallelism or {}, epoch_seconds, rate, resume).program()

    def to_spark(self, spark: SparkSession, **options: Any) -> DataFrame:
        """Starts the query, and returns its output as a streaming DataFrame: see `launch` and `Run.to_spark`.

        It runs until its input or the program ends; to control the run, call these two functions instead.
        """
        run = launch(self, spark, **options)
        try:
            frame: DataFrame = run.to_spark(spark)
        except BaseException:
            run.stop()
            raise
        run.stop_when_over()
        return frame

    def to_batch_df(self, spark: SparkSession, **options: Any) -> DataFrame:
        """Runs the query to its end, and returns its output as a DataFrame: see `launch`, `Run.to_batch_df`."""
        with launch(self, spark, **options) as run:
            frame: DataFrame = run.to_batch_df(spark)
            return frame

    # -- for streams --------------------------------------------------------------------------------------------------

    def add(self, vertex: Vertex) -> None:
        """Adds an operator; raises UserError if its name is taken."""
        if vertex.name in self.vertices:
            raise UserError(f"query {self.name!r} already has an operator {vertex.name!r}; names must differ")
        if vertex.name == DEAD_LETTERS_SINK:
            raise UserError(
                f"the name {DEAD_LETTERS_SINK!r} is for the query's own sink; "
                "say seep.Query(…, dead_letters=…) where it writes to"
            )
        self.vertices[vertex.name] = vertex

    def add_operator(
        self,
        name: str,
        definition: Definition,
        streams: tuple[Stream, ...],
        options: CodeOptions | OperatorOptions,
        keeps_time: bool,
        runs_code: bool,
    ) -> Stream:
        """Adds an operator between sources and sinks; returns its output stream."""
        check_name(name)
        check_options(name, options, CodeOptions if runs_code else OperatorOptions)
        check_same_query(name, streams)
        check_keyed(name, definition, streams)
        clock = common_clock(name, streams)
        schema = definition.output(name, [stream.rows for stream in streams])
        check_columns(name, schema)
        self.add(OperatorVertex(name, definition, streams, schema, cast(CodeOptions, options), runs_code))
        rows = Input(schema, _keys_kept(streams[0], schema), _time_kept(streams[0], schema) if keeps_time else None)
        return Stream(self, (name,), rows, clock)


def _as_call(vertex: Vertex) -> str:
    inputs = [name for _, stream in streams_into(vertex) for name in stream.origins]
    return f"{vertex.name}({', '.join(inputs)})" if inputs else vertex.name


def _keys_kept(stream: Stream, schema: pa.Schema) -> tuple[str, ...]:
    """Returns the key of an operator's output: that of its input, if all its columns are still there."""
    has_all = all(key in schema.names and can_be_key(schema.field(key).type) for key in stream.keys)
    return stream.keys if has_all else ()


def _time_kept(stream: Stream, schema: pa.Schema) -> str | None:
    """Returns the event time column of an operator's output: that of its input, if it is still of the same kind."""
    time = stream.time
    if time is None or time not in schema.names or not is_event_time(schema.field(time).type):
        return None
    return time if clock_of(schema, time) == stream.clock else None
