"""The query graph: in flow order, whole, and refused with a name when it is wrong."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.errors import UserError
from primitives.graph import Edge, InstanceId, Kind, OperatorSpec, QueryGraph
from tests.strategies import graphs

SOURCE, MAP, SINK = OperatorSpec("in", Kind.SOURCE), OperatorSpec("map", Kind.STATELESS), OperatorSpec("out", Kind.SINK)
READ, END = OperatorSpec("read", Kind.SOURCE), OperatorSpec("end", Kind.SINK)


def test_operators_are_ordered_from_sources_to_sinks_however_they_are_given() -> None:
    graph = QueryGraph([SINK, MAP, SOURCE], [Edge("map", "out"), Edge("in", "map")])
    assert graph.order == ("in", "map", "out")


@given(graphs())
def test_every_edge_leads_forward_in_the_flow_order(graph: QueryGraph) -> None:
    place = {operator: i for i, operator in enumerate(graph.order)}
    assert sorted(graph.order) == sorted(graph.operators)
    assert all(place[edge.upstream] < place[edge.downstream] for edge in graph.edges)


@given(graphs())
def test_every_edge_is_an_output_of_one_operator_and_an_input_of_another(graph: QueryGraph) -> None:
    inputs = [edge for operator in graph.order for edge in graph.inputs[operator]]
    outputs = [edge for operator in graph.order for edge in graph.outputs[operator]]
    assert sorted(inputs) == sorted(outputs) == sorted(graph.edges)
    assert all(edge.downstream == operator for operator, edges in graph.inputs.items() for edge in edges)
    assert all(edge.upstream == operator for operator, edges in graph.outputs.items() for edge in edges)


@given(graphs())
def test_upstream_and_downstream_name_each_neighbour_once(graph: QueryGraph) -> None:
    for operator in graph.order:
        assert sorted(graph.upstream[operator]) == sorted({e.upstream for e in graph.edges if e.downstream == operator})
        assert sorted(graph.downstream[operator]) == sorted(
            {e.downstream for e in graph.edges if e.upstream == operator}
        )


@given(graphs())
def test_every_operator_is_of_one_kind(graph: QueryGraph) -> None:
    by_kind = {kind: graph.of_kind(kind) for kind in Kind}
    assert sorted(o for operators in by_kind.values() for o in operators) == sorted(graph.order)
    assert all(graph.kind(o) is kind for kind, operators in by_kind.items() for o in operators)


@given(graphs())
def test_a_graph_survives_a_round_trip_through_json(graph: QueryGraph) -> None:
    copy = QueryGraph.from_json(json.loads(json.dumps(graph.to_json())))
    assert copy == graph
    assert hash(copy) == hash(graph)


def test_graphs_differ_in_their_operators_and_in_their_edges() -> None:
    graph = QueryGraph([SOURCE, SINK], [Edge("in", "out")])
    assert graph != QueryGraph([SOURCE, OperatorSpec("out", Kind.SINK, slot_bits=1)], [Edge("in", "out")])
    assert graph != QueryGraph([SOURCE, SINK], [Edge("in", "out", 1)])


def test_two_streams_between_the_same_operators_have_a_port_each() -> None:
    graph = QueryGraph([SOURCE, SINK], [Edge("in", "out", 0), Edge("in", "out", 1)])
    assert graph.upstream["out"] == ("in",)
    assert [edge.port for edge in graph.inputs["out"]] == [0, 1]


def test_instances_and_edges_are_written_as_in_messages() -> None:
    assert str(InstanceId("counter", 2)) == "counter[2]"
    assert str(Edge("words", "counter", 1)) == "words->counter:1"


@pytest.mark.parametrize(
    ("operators", "edges", "complaint"),
    [
        ([SOURCE, SINK, OperatorSpec("in", Kind.SINK)], [Edge("in", "out")], "used twice: in"),
        ([SOURCE, SINK], [Edge("in", "outt")], "in->outt:0 names the operator 'outt', which the query does not have"),
        ([SOURCE, SINK], [Edge("in", "out"), Edge("in", "out")], "the same edge is given twice"),
        ([SOURCE, SINK], [Edge("in", "out"), Edge("out", "in")], "has a cycle"),
        ([SOURCE, READ, SINK], [Edge("in", "read"), Edge("read", "out")], "'read' has an input"),
        ([SOURCE, MAP, SINK], [Edge("in", "out"), Edge("map", "out")], "stateless 'map' has no input"),
        ([SOURCE, SINK, MAP], [Edge("in", "map"), Edge("in", "out")], "stateless 'map' has no output"),
        ([SOURCE, SINK, END], [Edge("in", "out"), Edge("out", "end")], "sink 'out' has an output"),
        ([SOURCE, SINK], [], "source 'in' has no output"),
    ],
)  # fmt: skip
def test_a_wrong_graph_is_refused_by_name(operators: list[OperatorSpec], edges: list[Edge], complaint: str) -> None:
    with pytest.raises(UserError) as refusal:
        QueryGraph(operators, edges)
    assert complaint in str(refusal.value)


def test_a_cycle_is_told_by_the_operators_on_it() -> None:
    a, b = OperatorSpec("a", Kind.STATEFUL), OperatorSpec("b", Kind.STATEFUL)
    edges = [Edge("in", "a"), Edge("a", "b"), Edge("b", "a"), Edge("b", "out")]
    with pytest.raises(UserError, match=r"\((a -> b|b -> a)\)"):
        QueryGraph([SOURCE, a, b, SINK], edges)


@given(st.integers(-5, 30).filter(lambda bits: not 0 <= bits <= 20))
def test_an_operator_has_2_to_the_power_of_0_to_20_slots(slot_bits: int) -> None:
    with pytest.raises(UserError, match=f"'sum': slot_bits is {slot_bits}"):
        OperatorSpec("sum", Kind.STATEFUL, slot_bits)


def test_a_graph_that_was_sent_comes_in_order_and_needs_nobody_to_sort_it(monkeypatch: pytest.MonkeyPatch) -> None:
    backwards = QueryGraph([OperatorSpec("out", Kind.SINK), OperatorSpec("words", Kind.SOURCE)], [Edge("words", "out")])
    assert backwards.order == ("words", "out")
    monkeypatch.setitem(sys.modules, "networkx", None)
    assert QueryGraph.from_json(backwards.to_json()).order == backwards.order
