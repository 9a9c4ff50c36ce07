"""The compiler: makes a checked program from the declared operators."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import pyarrow as pa

from formats.renaming import check_aliases
from primitives.errors import UserError
from primitives.graph import Edge, Kind, OperatorSpec, QueryGraph
from seep.operators.definition import Definition, OperatorSetting
from seep.operators.errors import DEAD_LETTERS
from seep.query.checks import can_be_key, check_travels
from seep.query.program import Program, Resume
from seep.query.query import Query
from seep.query.stream import Stream
from seep.query.vertex import (
    DEAD_LETTERS_SINK,
    OperatorVertex,
    SinkVertex,
    SourceVertex,
    Vertex,
    aliases_of,
    as_rate,
    streams_into,
)
from seep.rows.rate import Rate
from seep.sinks import collect
from seep.sinks.definition import SinkDefinition
from seep.sources.definition import SourceDefinition, SourceSetting


class Compiler:
    """Compiles one query, once."""

    def __init__(
        self,
        query: Query,
        parallelism: Mapping[str, int],
        epoch_seconds: float,
        rate: Rate | float | Mapping[str, Rate | float] | None,
        resume: Resume | None = None,
    ) -> None:
        self._query = query
        self._aliases = {name: found for name, v in query.vertices.items() if (found := aliases_of(v))}
        self._resume = None if resume is None else resume.renamed(self._aliases)
        self._parallelism = parallelism
        self._epoch_seconds = epoch_seconds
        vertices = query.vertices.values()
        self._sources = [v for v in vertices if isinstance(v, SourceVertex)]
        self._rates = rate if isinstance(rate, Mapping) else {v.name: rate for v in self._sources if rate is not None}
        self._operators = [v for v in vertices if isinstance(v, OperatorVertex)]
        self._sinks = [v for v in vertices if isinstance(v, SinkVertex)]
        self._failing = [v for v in self._operators if self._keeps_letters(v)]

    def program(self) -> Program:
        """Makes the program; raises UserError if anything is wrong with the query."""
        self._check_ends()
        self._check_arguments()
        check_aliases("operator", self._aliases, list(self._query.vertices))
        program = Program(
            name=self._query.name,
            graph=self._graph,
            schemas=self._schemas,
            keys=self._keys,
            operators={v.name: (v.definition, self._setting(v)) for v in self._operators},
            sources={v.name: (v.definition, self._source_setting(v)) for v in self._sources},
            sinks=self._sink_definitions,
            parallelism={name: self._instances(name) for name in self._graph.order},
            resume=self._resume,
            aliases=self._aliases,
        )
        _check_definitions(program)
        return program

    # -- the graph --------------------------------------------------------------------------------------------------

    @cached_property
    def _streams(self) -> dict[Edge, Stream]:
        """Returns the stream of each edge, without dead letters."""
        return {
            Edge(origin, vertex.name, port): stream
            for vertex in self._query.vertices.values()
            for port, stream in streams_into(vertex)
            for origin in stream.origins
        }

    @cached_property
    def _letter_edges(self) -> dict[str, Edge]:
        return {vertex.name: Edge(vertex.name, DEAD_LETTERS_SINK) for vertex in self._failing}

    @cached_property
    def _schemas(self) -> dict[Edge, pa.Schema]:
        declared = {edge: stream.schema for edge, stream in self._streams.items()}
        return declared | dict.fromkeys(self._letter_edges.values(), DEAD_LETTERS)

    @property
    def _keys(self) -> dict[Edge, tuple[str, ...]]:
        keys = {edge: self._routed_by(edge, stream) for edge, stream in self._streams.items()}
        return keys | dict.fromkeys(self._letter_edges.values(), ())

    @cached_property
    def _graph(self) -> QueryGraph:
        operators = [
            OperatorSpec(v.name, _kind(v), self._slot_bits(v), getattr(v.definition, "keeps_extra", False))
            for v in self._query.vertices.values()
        ]
        if self._failing:
            operators.append(OperatorSpec(DEAD_LETTERS_SINK, Kind.SINK, self._query.slot_bits))
        return QueryGraph(operators, [*self._streams, *self._letter_edges.values()])

    def _slot_bits(self, vertex: Vertex) -> int:
        if isinstance(vertex, SourceVertex):
            return _bits_for(vertex.definition.partitions)
        return vertex.options.get("slot_bits", self._query.slot_bits)

    def _keeps_letters(self, vertex: OperatorVertex) -> bool:
        on_error = vertex.options.get("on_error", self._query.on_error)
        return vertex.runs_user_code and on_error == "dead-letters"

    def _routed_by(self, edge: Edge, stream: Stream) -> tuple[str, ...]:
        """Returns the key columns; without a key, all columns that can be hashed."""
        hashable = tuple(field.name for field in stream.schema if can_be_key(field.type))
        if not hashable and self._instances(edge.downstream) > 1:
            raise UserError(
                f"operator {edge.downstream!r} cannot have {self._instances(edge.downstream)} instances: no column of "
                f"the stream of {stream.name!r} can be hashed to spread its rows; add one, or set its parallelism to 1"
            )
        return stream.keys or (() if len(hashable) == len(stream.schema) else hashable)

    # -- settings of instances ----------------------------------------------------------------------------------------

    def _setting(self, vertex: OperatorVertex) -> OperatorSetting:
        return OperatorSetting(
            operator=vertex.name,
            slot_bits=self._slot_bits(vertex),
            inputs=tuple(stream.rows for stream in vertex.inputs),
            output=vertex.output,
            outputs=self._outputs(vertex.name),
            dead_letters=self._letter_edges.get(vertex.name),
            epoch_seconds=self._epoch_seconds,
        )

    def _source_setting(self, vertex: SourceVertex) -> SourceSetting:
        return SourceSetting(
            operator=vertex.name,
            slot_bits=self._slot_bits(vertex),
            outputs=self._outputs(vertex.name),
            epoch_seconds=self._epoch_seconds,
            rate=as_rate(vertex.name, self._rates[vertex.name]) if vertex.name in self._rates else vertex.rate,
        )

    def _outputs(self, name: str) -> tuple[Edge, ...]:
        return tuple(edge for edge in self._streams if edge.upstream == name)

    @cached_property
    def _sink_definitions(self) -> dict[str, tuple[SinkDefinition, pa.Schema]]:
        found = {vertex.name: (self._resumed(vertex), vertex.inputs[0].schema) for vertex in self._sinks}
        if self._failing:
            found[DEAD_LETTERS_SINK] = (self._query.dead_letters or collect(), DEAD_LETTERS)
        return found

    def _resumed(self, vertex: SinkVertex) -> SinkDefinition:
        """Returns the sink for this run; if the run before had it too, it continues from its note."""
        if self._resume is None or self._resume.sinks.get(vertex.name) is None:
            return vertex.definition
        return vertex.definition.resumed(self._resume.beginning.epoch, self._resume.sinks[vertex.name])

    def _instances(self, name: str) -> int:
        """Returns the caller's number, or the declared one, or the query's default, limited to the number of slots."""
        most = 1 << self._graph.operators[name].slot_bits
        given = self._parallelism.get(name, self._declared_parallelism.get(name))
        if given is None:
            return min(self._query.parallelism, most)
        if not isinstance(given, int) or not 1 <= given <= most:
            raise UserError(
                f"operator {name!r}: parallelism is {given!r}; choose 1 to {most}, as it has {most} slots "
                + ("(its partitions)" if self._graph.kind(name) is Kind.SOURCE else "(or give it more slot_bits)")
            )
        return given

    @cached_property
    def _declared_parallelism(self) -> dict[str, int]:
        declared = {v.name: v.parallelism for v in self._sources}
        declared |= {v.name: v.options.get("parallelism") for v in self._operators}
        declared |= {v.name: v.options.get("parallelism") for v in self._sinks}
        return {name: instances for name, instances in declared.items() if instances is not None}

    # -- checks -------------------------------------------------------------------------------------------------------

    def _check_ends(self) -> None:
        """Raises unless there are sources and sinks, and every stream is read."""
        name = self._query.name
        if not self._sources:
            raise UserError(f"query {name!r} has no source; begin with query.source(name, …)")
        if not self._sinks:
            raise UserError(f"query {name!r} has no sink; end a stream with stream.sink(name, …)")
        read = {edge.upstream for edge in self._streams}
        for name in (*(v.name for v in self._sources), *(v.name for v in self._operators)):
            if name not in read:
                raise UserError(f"nothing reads the stream of {name!r}; end it with .sink(name, …), or leave it out")

    def _check_arguments(self) -> None:
        if self._epoch_seconds <= 0:
            raise UserError(f"epochs last {self._epoch_seconds} seconds; choose a number above 0, such as 0.05")
        for name in self._parallelism:
            if name not in self._graph.operators:
                raise UserError(
                    f"parallelism is given for {name!r}, which query {self._query.name!r} does not have; "
                    f"it has {', '.join(self._graph.order)}"
                )
        sources = [vertex.name for vertex in self._sources]
        for name in self._rates:
            if name not in sources:
                raise UserError(
                    f"a rate is given for {name!r}, which is not a source; the sources are {', '.join(sources)}"
                )


def _check_definitions(program: Program) -> None:
    """Checks that outside data exists, and that everything can be sent to nodes; last, because these are slow."""
    for name, (source, _) in program.sources.items():
        source.check(name)
    for name, (sink, schema) in program.sinks.items():
        sink.check(name, schema)
    for parts in (program.sources, program.operators, program.sinks):
        for name, (definition, _) in parts.items():
            check_travels(name, definition)


def _kind(vertex: Vertex) -> Kind:
    definition: SourceDefinition | Definition | SinkDefinition = vertex.definition
    if isinstance(definition, Definition):
        return definition.kind
    return Kind.SOURCE if isinstance(definition, SourceDefinition) else Kind.SINK


def _bits_for(partitions: int) -> int:
    """Returns the smallest number of bits that gives every partition a slot.

    >>> [_bits_for(partitions) for partitions in (1, 2, 3, 4, 5)]
    [0, 1, 2, 2, 3]
    """
    return (partitions - 1).bit_length()
