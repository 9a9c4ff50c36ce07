"""The query shapes that the simulator runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from primitives.emission import Batches
from primitives.graph import Edge, Kind, OperatorSpec, QueryGraph
from primitives.outbox import Outbox
from seep.protocol.logic import Logic, SourceLogic
from seep.protocol.view import Incarnation
from seep.simulator.operators import Delay, Keyed, Route, RowBatches, RowJoin, RowMap, Rows, RowSource, Sum, make_data


@dataclass(frozen=True, slots=True)
class QueryShape:
    """A query: its edges, and its operators."""

    name: str
    logic: Mapping[str, type[Keyed] | Kind]
    edges: tuple[Edge, ...]

    def graph(self, rng: random.Random) -> QueryGraph:
        operators = [
            OperatorSpec(name, _kind(logic), rng.choice((1, 2, 2, 3)), keeps_extra=logic is RowMap)
            for name, logic in self.logic.items()
        ]
        return QueryGraph(operators, self.edges)


def _kind(logic: type[Keyed] | Kind) -> Kind:
    if isinstance(logic, Kind):
        return logic
    return Kind.STATELESS if logic in (RowMap, Route) else Kind.STATEFUL


def _chain(*names: str) -> tuple[Edge, ...]:
    return tuple(Edge(a, b) for a, b in pairwise(names))


SHAPES = (
    QueryShape(
        "chain",
        {"src": Kind.SOURCE, "map": RowMap, "sum": Sum, "out": Kind.SINK},
        _chain("src", "map", "sum", "out"),
    ),
    QueryShape(
        "stages",
        {"src": Kind.SOURCE, "sum": Sum, "map": RowMap, "delay": Delay, "map2": RowMap, "sum2": Sum, "out": Kind.SINK},
        _chain("src", "sum", "map", "delay", "map2", "sum2", "out"),
    ),
    QueryShape(
        "diamond",
        {"src": Kind.SOURCE, "route": Route, "sum": Sum, "map": RowMap, "join": RowJoin, "out": Kind.SINK},
        (
            Edge("src", "route"),
            Edge("route", "sum"),
            Edge("route", "map"),
            Edge("sum", "join", 0),
            Edge("map", "join", 1),
            Edge("join", "out"),
        ),
    ),
    QueryShape(
        "two inputs",
        {"left": Kind.SOURCE, "right": Kind.SOURCE, "map": RowMap, "join": RowJoin, "out": Kind.SINK},
        (Edge("left", "join", 0), Edge("right", "map"), Edge("map", "join", 1), Edge("join", "out")),
    ),
    QueryShape(
        "fan out",
        {
            "src": Kind.SOURCE,
            "route": Route,
            "sum": Sum,
            "delay": Delay,
            "a": Kind.SINK,
            "b": Kind.SINK,
            "c": Kind.SINK,
        },
        (
            Edge("src", "route"),
            Edge("route", "sum"),
            Edge("route", "delay"),
            Edge("route", "a"),
            Edge("sum", "b"),
            Edge("delay", "c"),
            Edge("sum", "c"),
        ),
    ),
)


class Medium(Protocol):
    """The types of batches and state in a run: plain tuples and dictionaries, or Arrow and the real containers."""

    def batches(self, graph: QueryGraph) -> Batches[Any]: ...

    def logic(self, graph: QueryGraph, operator: str, kind: type[Keyed]) -> Logic[Any]:
        """Returns an operator that behaves like the plain one of that kind."""
        ...

    def source(self, plain: RowSource) -> SourceLogic[Any]:
        """Returns a source that reads the same rows as the plain one."""
        ...

    def rows(self, batch: Any) -> Rows: ...

    def outbox(self, me: Incarnation) -> Outbox[Any]: ...


class Plain:
    """Tuples and dictionaries: fast, for thousands of schedules."""

    def batches(self, graph: QueryGraph) -> RowBatches:
        return RowBatches(graph)

    def logic(self, graph: QueryGraph, operator: str, kind: type[Keyed]) -> Keyed:
        return kind(graph, operator)

    def source(self, plain: RowSource) -> RowSource:
        return plain

    def rows(self, batch: Rows) -> Rows:
        return batch

    def outbox(self, me: Incarnation) -> Outbox[Any]:  # noqa: ARG002  (all are alike)
        return Outbox()


class SimulatedQuery:
    """A shape with its data: makes the logic of every instance, and the plain one of the reference run."""

    def __init__(self, shape: QueryShape, rng: random.Random, rows: int, medium: Medium | None = None) -> None:
        self.shape = shape
        self.medium = medium or Plain()
        self.graph = shape.graph(rng)
        sources = self.graph.of_kind(Kind.SOURCE)
        self.data: dict[str, dict[int, Rows]] = {
            s: make_data(rng, 1 << self.graph.operators[s].slot_bits, rows, 9) for s in sources
        }
        self.parallelism = {o: rng.randint(1, min(3, 1 << spec.slot_bits)) for o, spec in self.graph.operators.items()}

    def plain_logic(self, operator: str) -> Keyed:
        return self._kind(operator)(self.graph, operator)

    def logic(self, operator: str) -> Logic[Any]:
        return self.medium.logic(self.graph, operator, self._kind(operator))

    def source(self, operator: str, bite: Callable[[], int]) -> SourceLogic[Any]:
        return self.medium.source(RowSource(self.graph, operator, self.data[operator], bite))

    def _kind(self, operator: str) -> type[Keyed]:
        kind = self.shape.logic[operator]
        assert isinstance(kind, type)
        return kind
