"""The query shapes that the simulator runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from primitives.graph import Edge, Kind, Operator, QueryGraph
from seep.simulator.operators import Delay, Join, Keyed, Map, Route, Rows, Source, Sum, make_data


@dataclass(frozen=True, slots=True)
class Shape:
    """A query: who feeds whom, and what each operator does."""

    name: str
    logic: Mapping[str, type[Keyed] | Kind]
    edges: tuple[Edge, ...]

    def graph(self, rng: random.Random) -> QueryGraph:
        operators = [Operator(name, _kind(logic), rng.choice((1, 2, 2, 3))) for name, logic in self.logic.items()]
        return QueryGraph(operators, self.edges)


def _kind(logic: type[Keyed] | Kind) -> Kind:
    if isinstance(logic, Kind):
        return logic
    return Kind.STATELESS if logic in (Map, Route) else Kind.STATEFUL


def _chain(*names: str) -> tuple[Edge, ...]:
    return tuple(Edge(a, b) for a, b in pairwise(names))


SHAPES = (
    Shape(
        "chain",
        {"src": Kind.SOURCE, "map": Map, "sum": Sum, "out": Kind.SINK},
        _chain("src", "map", "sum", "out"),
    ),
    Shape(
        "stages",
        {"src": Kind.SOURCE, "sum": Sum, "map": Map, "delay": Delay, "map2": Map, "sum2": Sum, "out": Kind.SINK},
        _chain("src", "sum", "map", "delay", "map2", "sum2", "out"),
    ),
    Shape(
        "diamond",
        {"src": Kind.SOURCE, "route": Route, "sum": Sum, "map": Map, "join": Join, "out": Kind.SINK},
        (
            Edge("src", "route"),
            Edge("route", "sum"),
            Edge("route", "map"),
            Edge("sum", "join", 0),
            Edge("map", "join", 1),
            Edge("join", "out"),
        ),
    ),
    Shape(
        "two inputs",
        {"left": Kind.SOURCE, "right": Kind.SOURCE, "map": Map, "join": Join, "out": Kind.SINK},
        (Edge("left", "join", 0), Edge("right", "map"), Edge("map", "join", 1), Edge("join", "out")),
    ),
    Shape(
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


class Query:
    """A shape with its data: makes the logic of every instance, and of the reference run."""

    def __init__(self, shape: Shape, rng: random.Random, rows: int) -> None:
        self.shape = shape
        self.graph = shape.graph(rng)
        sources = self.graph.of_kind(Kind.SOURCE)
        self.data: dict[str, dict[int, Rows]] = {
            s: make_data(rng, 1 << self.graph.operators[s].slot_bits, rows, 9) for s in sources
        }
        self.parallelism = {o: rng.randint(1, min(3, 1 << spec.slot_bits)) for o, spec in self.graph.operators.items()}

    def logic(self, operator: str) -> Keyed:
        made = self.shape.logic[operator]
        assert isinstance(made, type)
        return made(self.graph, operator)

    def source(self, operator: str, bite: Callable[[], int]) -> Source:
        return Source(self.graph, operator, self.data[operator], bite)
