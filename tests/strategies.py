"""Hypothesis strategies that tests share: slots, assignments, query graphs, histories, and operators with state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st

from primitives.checkpoint import ProcessingState
from primitives.graph import Edge, Kind, OperatorSpec, QueryGraph
from primitives.slots import SlotSet
from primitives.state.processing import Containers
from primitives.state.values import Values
from primitives.topology import Arrival, Assignment, Topology, Version
from seep.simulator.cells import Cells, slot_of_key

#: Epochs and slots stay few, so that what is drawn at random meets.
LAST_EPOCH = 30


def slot_sets(slot_bits: int, min_size: int = 0) -> st.SearchStrategy[SlotSet]:
    return st.sets(st.integers(0, (1 << slot_bits) - 1), min_size=min_size).map(SlotSet)


def assignments(slot_bits: int, instances: int = 4) -> st.SearchStrategy[Assignment]:
    """Any owner for each slot; some of the instances may own nothing."""
    slots = 1 << slot_bits
    return st.lists(st.integers(0, instances - 1), min_size=slots, max_size=slots).map(Assignment)


def disjoint_parts(slot_bits: int, parts: int) -> st.SearchStrategy[dict[int, SlotSet]]:
    """Slots for each of some parts; a slot may be in none of them, and a part may be empty."""
    slots = 1 << slot_bits
    takers = st.lists(st.integers(-1, parts - 1), min_size=slots, max_size=slots)
    return takers.map(
        lambda taken: {part: SlotSet(s for s in range(slots) if taken[s] == part) for part in range(parts)}
    )


# -- graphs and topologies --------------------------------------------------------------------------------------------


@st.composite
def graphs(draw: st.DrawFn) -> QueryGraph:
    """Acyclic queries, some with several sources, several sinks, and two streams between the same two operators."""
    middle = draw(st.lists(st.sampled_from([Kind.STATELESS, Kind.STATEFUL]), max_size=3))
    kinds = [Kind.SOURCE] * draw(st.integers(1, 2)) + middle + [Kind.SINK] * draw(st.integers(1, 2))
    operators = [OperatorSpec(f"{kind}{i}", kind, draw(st.integers(0, 3))) for i, kind in enumerate(kinds)]
    inputs: dict[str, list[str]] = {}
    for place, operator in enumerate(operators):
        if operator.kind is not Kind.SOURCE:
            earlier = [o.name for o in operators[:place] if o.kind is not Kind.SINK]
            inputs[operator.name] = draw(st.lists(st.sampled_from(earlier), min_size=1, max_size=3))
    read = {upstream for names in inputs.values() for upstream in names}
    inputs[operators[-1].name] += [o.name for o in operators if o.kind is not Kind.SINK and o.name not in read]
    return QueryGraph(operators, [Edge(up, o, port) for o, names in inputs.items() for port, up in enumerate(names)])


def _query(*edges: Edge) -> QueryGraph:
    kinds = {"in": Kind.SOURCE, "read": Kind.SOURCE, "map": Kind.STATELESS, "out": Kind.SINK, "log": Kind.SINK}
    names = dict.fromkeys(name for edge in edges for name in edge[:2])
    return QueryGraph([OperatorSpec(name, kinds.get(name, Kind.STATEFUL), 2) for name in names], edges)


#: A chain, a diamond with two streams between the same operators, and two sources with two sinks.
QUERIES = (
    _query(Edge("in", "map"), Edge("map", "sum"), Edge("sum", "out")),
    _query(
        Edge("in", "map"), Edge("in", "join", 0), Edge("map", "join", 1), Edge("map", "join", 2), Edge("join", "out")
    ),
    _query(
        Edge("in", "join", 0), Edge("read", "join", 1), Edge("join", "out"), Edge("join", "log"), Edge("read", "log", 1)
    ),
)


def _topologies_of(graph: QueryGraph) -> st.SearchStrategy[Topology]:
    starts = st.fixed_dictionaries({operator: st.integers(1, 3) for operator in graph.order})
    later = st.tuples(st.sampled_from(graph.order), st.integers(1, 5), assignments(2), st.sampled_from(Arrival))
    return st.builds(_amended, starts.map(lambda start: Topology.initial(graph, start)), st.lists(later, max_size=5))


def _amended(topology: Topology, changes: list[tuple[str, int, Assignment, Arrival]]) -> Topology:
    for operator, gap, assignment, arrival in changes:
        first = topology.history[operator][-1].first + gap
        topology = topology.amended(operator, Version(first, assignment, arrival))
    return topology


#: Histories as they come about: an initial topology, amended at random, also from epochs that are past.
topologies = st.one_of([_topologies_of(graph) for graph in QUERIES])

epochs = st.integers(0, LAST_EPOCH)

#: For properties of whole histories, whose examples are large.
few = settings(max_examples=40)


# -- operators with state ---------------------------------------------------------------------------------------------


class PlainState(Cells):
    """Processing state in the simulator's light container."""

    def __init__(self, slot_bits: int) -> None:
        super().__init__("seen", slot_bits)

    def content(self) -> dict[int, int]:
        return {key: self.get(key) for key in self.keys_in(SlotSet.full(self.slot_bits))}


class ArrowState(Containers):
    """The same in a real container, as Arrow chunks."""

    def __init__(self, slot_bits: int) -> None:
        self._values = Values("seen", {"key": pa.int64()}, slot_bits=slot_bits, value=pa.int64())
        super().__init__(self._values)

    def put(self, key: int, value: int) -> None:
        self._values[key] = value

    def delete(self, key: int) -> None:
        self._values.pop(key, None)

    def content(self) -> dict[int, int]:
        return cast(dict[int, int], dict(self._values.scan()))


class AnyState(ProcessingState, Protocol):
    """Either of them."""

    def __init__(self, slot_bits: int) -> None: ...

    def put(self, key: int, value: int) -> None: ...

    def delete(self, key: int) -> None: ...

    def content(self) -> dict[int, int]: ...


#: Writes to a state, in order: a key and its new value, or None to delete it.
Writes = list[tuple[int, int | None]]

writes: st.SearchStrategy[Writes] = st.lists(st.tuples(st.integers(0, 11), st.none() | st.integers(0, 9)), max_size=8)


def write(state: AnyState, content: Writes, slots: SlotSet, slot_bits: int) -> None:
    """Carries out those of the writes whose keys are in `slots`."""
    for key, value in content:
        if slot_of_key(key, slot_bits) in slots:
            if value is None:
                state.delete(key)
            else:
                state.put(key, value)


def content_in(content: Mapping[int, int], slots: SlotSet, slot_bits: int) -> dict[int, int]:
    """The part of a content whose keys are in `slots`."""
    return {key: value for key, value in content.items() if slot_of_key(key, slot_bits) in slots}
