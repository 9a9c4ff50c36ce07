"""The query graph: operators and the edges between them, checked when it is built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from primitives.errors import UserError
from primitives.slots import DEFAULT_SLOT_BITS, MAX_SLOT_BITS


class Kind(StrEnum):
    """The kind of an operator, which tells whether it has state and how it is recovered."""

    SOURCE = "source"  #: reads from outside; recovered from the source log
    STATELESS = "stateless"  #: has no state; recovered by replay alone
    STATEFUL = "stateful"  #: has state per key; recovered from its backup
    SINK = "sink"  #: writes outside; recovered from what it has committed


class InstanceId(NamedTuple):
    """One partitioned physical copy of an operator, written `counter[2]`."""

    operator: str
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody misses here

    def __str__(self) -> str:
        return f"{self.operator}[{self.index}]"


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """A vertex of the query graph; its keyed state is divided into 2^slot_bits slots for the query's life."""

    name: str
    kind: Kind
    slot_bits: int = DEFAULT_SLOT_BITS
    keeps_extra: bool = False  #: stateless, but each of its instances adds something to a cut

    def __post_init__(self) -> None:
        if not 0 <= self.slot_bits <= MAX_SLOT_BITS:
            raise UserError(f"operator {self.name!r}: slot_bits is {self.slot_bits}; choose 0 to {MAX_SLOT_BITS}")


class Edge(NamedTuple):
    """A stream from one operator to an input port of another."""

    upstream: str
    downstream: str
    port: int = 0

    def __str__(self) -> str:
        return f"{self.upstream}->{self.downstream}:{self.port}"


class QueryGraph:
    """An acyclic graph of operators, from sources to sinks.

    >>> graph = QueryGraph(
    ...     [
    ...         OperatorSpec("words", Kind.SOURCE),
    ...         OperatorSpec("counter", Kind.STATEFUL),
    ...         OperatorSpec("out", Kind.SINK),
    ...     ],
    ...     [Edge("words", "counter"), Edge("counter", "out")],
    ... )
    >>> graph.order
    ('words', 'counter', 'out')
    """

    def __init__(self, operators: Iterable[OperatorSpec], edges: Iterable[Edge]) -> None:
        listed = list(operators)
        self.operators: Mapping[str, OperatorSpec] = MappingProxyType({o.name: o for o in listed})
        self.edges: tuple[Edge, ...] = tuple(edges)
        _check_names(listed, self.edges)
        self.order: tuple[str, ...] = _flow_order(self)
        self.inputs: Mapping[str, tuple[Edge, ...]] = {
            o: tuple(e for e in self.edges if e.downstream == o) for o in self.order
        }
        self.outputs: Mapping[str, tuple[Edge, ...]] = {
            o: tuple(e for e in self.edges if e.upstream == o) for o in self.order
        }
        for operator in listed:
            _check_ends(operator, self.inputs[operator.name], self.outputs[operator.name])

    def kind(self, operator: str) -> Kind:
        return self.operators[operator].kind

    @cached_property
    def upstream(self) -> Mapping[str, tuple[str, ...]]:
        """The distinct operators that feed each operator."""
        return {o: tuple(dict.fromkeys(e.upstream for e in self.inputs[o])) for o in self.order}

    @cached_property
    def downstream(self) -> Mapping[str, tuple[str, ...]]:
        """The distinct operators that each operator feeds."""
        return {o: tuple(dict.fromkeys(e.downstream for e in self.outputs[o])) for o in self.order}

    def of_kind(self, kind: Kind) -> tuple[str, ...]:
        return tuple(o for o in self.order if self.operators[o].kind is kind)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QueryGraph) and self.operators == other.operators and self.edges == other.edges

    def __hash__(self) -> int:
        return hash((self.order, self.edges))

    def to_json(self) -> dict[str, object]:
        return {
            "operators": [asdict(self.operators[name]) for name in self.order],
            "edges": [list(edge) for edge in self.edges],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, list]) -> QueryGraph:  # type: ignore[type-arg]
        operators = [OperatorSpec(**(given | {"kind": Kind(given["kind"])})) for given in data["operators"]]
        return cls(operators, [Edge(*edge) for edge in data["edges"]])


def _check_names(operators: list[OperatorSpec], edges: tuple[Edge, ...]) -> None:
    names = [o.name for o in operators]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise UserError(f"operator names must differ; used twice: {', '.join(sorted(twice))}")
    for edge in edges:
        for name in (edge.upstream, edge.downstream):
            if name not in names:
                raise UserError(f"edge {edge} names the operator {name!r}, which the query does not have")
    if len(set(edges)) != len(edges):
        raise UserError("the same edge is given twice; use another port for a second stream between two operators")


def _flow_order(graph: QueryGraph) -> tuple[str, ...]:
    """Returns the operators from sources to sinks; in the listed order, if every edge leads forward in it."""
    listed = {name: place for place, name in enumerate(graph.operators)}
    if all(listed[edge.upstream] < listed[edge.downstream] for edge in graph.edges):
        return tuple(listed)
    return _sorted_by_flow(graph)


def _sorted_by_flow(graph: QueryGraph) -> tuple[str, ...]:
    import networkx as nx  # the import takes 0.3 s; nodes get their graph in order and do not need it

    flow: nx.DiGraph[str] = nx.DiGraph()
    flow.add_nodes_from(graph.operators)
    flow.add_edges_from((e.upstream, e.downstream) for e in graph.edges)
    try:
        return tuple(nx.topological_sort(flow))
    except nx.NetworkXUnfeasible:
        cycle = " -> ".join(edge[0] for edge in nx.find_cycle(flow))
        raise UserError(f"the query graph has a cycle ({cycle}); a stream may not feed its own origin") from None


def _check_ends(operator: OperatorSpec, inputs: tuple[Edge, ...], outputs: tuple[Edge, ...]) -> None:
    if operator.kind is Kind.SOURCE and inputs:
        raise UserError(f"source {operator.name!r} has an input ({inputs[0]}); only other kinds read from operators")
    if operator.kind is not Kind.SOURCE and not inputs:
        raise UserError(f"{operator.kind} {operator.name!r} has no input; connect it to an upstream operator")
    if operator.kind is Kind.SINK and outputs:
        raise UserError(f"sink {operator.name!r} has an output ({outputs[0]}); a sink ends a stream")
    if operator.kind is not Kind.SINK and not outputs:
        raise UserError(
            f"{operator.kind} {operator.name!r} has no output; connect it to a downstream operator or a sink"
        )
