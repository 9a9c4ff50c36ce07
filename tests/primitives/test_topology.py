"""The topology: at every epoch each slot has one owner, the past can be amended, and what follows from that."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.errors import InternalError, UserError
from primitives.graph import Edge, InstanceId, Kind, OperatorSpec, QueryGraph
from primitives.slots import SlotSet
from primitives.topology import Arrival, Assignment, Topology, Version, edges_between
from tests.strategies import LAST_EPOCH, assignments, disjoint_parts, epochs, few, topologies

GRAPH = QueryGraph(
    [OperatorSpec("in", Kind.SOURCE, 1), OperatorSpec("map", Kind.STATELESS, 2), OperatorSpec("sum", Kind.STATEFUL, 2),
     OperatorSpec("out", Kind.SINK, 2)],
    [Edge("in", "map"), Edge("map", "sum"), Edge("sum", "out")],
)  # fmt: skip
SUM0, SUM1, SUM2 = (InstanceId("sum", i) for i in range(3))


def amended(topology: Topology, first: int, owners: list[int], arrival: Arrival = Arrival.HANDOVER) -> Topology:
    return topology.amended("sum", Version(first, Assignment(owners), arrival))


# -- assignments ------------------------------------------------------------------------------------------------------


@given(assignments(3))
def test_the_parts_of_an_assignment_are_disjoint_and_cover_all_slots(assignment: Assignment) -> None:
    owners = {slot: index for index, slots in assignment.parts.items() for slot in slots}
    assert sum(map(len, assignment.parts.values())) == 8
    assert tuple(owners[slot] for slot in range(8)) == assignment.table


@given(st.integers(0, 4), st.data())
def test_the_first_assignment_gives_each_instance_one_run_of_slots(slot_bits: int, data: st.DataObject) -> None:
    parallelism = data.draw(st.integers(1, 1 << slot_bits))
    assignment = Assignment.contiguous(parallelism, slot_bits)
    assert assignment.table == tuple(slot * parallelism >> slot_bits for slot in range(1 << slot_bits))
    assert [len(slots.runs()) for slots in assignment.parts.values()] == [1] * parallelism


@given(assignments(3), disjoint_parts(3, parts=4))
def test_moving_slots_changes_the_owner_of_these_and_of_no_others(
    before: Assignment, moves: dict[int, SlotSet]
) -> None:
    after = before.moved(moves)
    for slot in range(8):
        takers = [index for index, slots in moves.items() if slot in slots]
        assert after.table[slot] == (takers[0] if takers else before.table[slot])


@given(assignments(2))
def test_an_assignment_survives_a_round_trip_through_json(assignment: Assignment) -> None:
    copy = Assignment.from_json(json.loads(json.dumps(assignment.to_json())))
    assert (copy, hash(copy)) == (assignment, hash(assignment))


def test_an_assignment_knows_when_there_is_nothing_to_split() -> None:
    assert Assignment([3, 3]).sole_owner == 3
    assert Assignment([3, 4]).sole_owner is None


def test_an_instance_without_slots_has_an_empty_set_of_them() -> None:
    assert Assignment([0, 0]).slots_of(1) == SlotSet.empty()


def test_an_assignment_never_changes() -> None:
    owners = np.array([0, 1], np.int32)
    assignment = Assignment(owners)
    owners[0] = 7
    assert assignment.table == (0, 1)
    with pytest.raises(ValueError, match="read-only"):
        assignment.owners[0] = 7


@pytest.mark.parametrize("owners", [[], [0, 0, 0], [[0, 1], [1, 0]]])
def test_an_assignment_covers_a_power_of_two_of_slots(owners: list[int]) -> None:
    with pytest.raises(InternalError, match="an owner for each of"):
        Assignment(owners)


def test_a_slot_without_owner_is_refused_by_its_number() -> None:
    with pytest.raises(InternalError, match="slot 2 has no owner"):
        Assignment([0, 1, -1, 0])


def test_slots_that_are_missing_in_json_are_noticed() -> None:
    with pytest.raises(InternalError, match="slot 1 has no owner"):
        Assignment.from_json({"slot_bits": 1, "parts": {"0": [[0, 0]]}})


def test_a_slot_that_does_not_exist_cannot_be_moved() -> None:
    with pytest.raises(UserError, match="slot 4 does not exist; the operator has slots 0 to 3"):
        Assignment([0, 0, 0, 0]).moved({1: SlotSet([1, 4])})


# -- the history ------------------------------------------------------------------------------------------------------


def test_a_query_starts_with_contiguous_slots_and_one_instance_where_nothing_else_is_said() -> None:
    topology = Topology.initial(GRAPH, {"sum": 2})
    assert topology.at("sum", 1) == Assignment([0, 0, 1, 1])
    assert topology.at("map", 1).sole_owner == 0
    assert [str(i) for i in topology.all_instances()] == ["in[0]", "map[0]", "sum[0]", "sum[1]", "out[0]"]


@few
@given(topologies, epochs)
def test_at_every_epoch_every_slot_has_one_owner(topology: Topology, epoch: int) -> None:
    for operator in topology.graph.order:
        owned = [topology.slots(i, epoch) for i in topology.all_instances() if i.operator == operator]
        everything = SlotSet.full(topology.graph.operators[operator].slot_bits)
        assert sorted(slot for slots in owned for slot in slots) == list(everything)


@few
@given(topologies, epochs)
def test_the_owners_of_slots_are_the_instances_of_an_epoch(topology: Topology, epoch: int) -> None:
    for instance in topology.all_instances():
        owns = bool(topology.slots(instance, epoch))
        assert topology.owns(instance, epoch) == owns
        assert (instance in topology.instances(instance.operator, epoch)) == owns


@few
@given(topologies, epochs)
def test_a_version_holds_from_its_first_epoch_to_that_of_the_next(topology: Topology, epoch: int) -> None:
    for operator, history in topology.history.items():
        begun = [version for version in history if version.first <= epoch]
        assert topology.version_at(operator, epoch) is (begun[-1] if begun else history[0])


@few
@given(topologies, st.integers(1, 5), st.data())
def test_an_amendment_changes_one_operator_from_its_epoch_on_and_nothing_else(
    before: Topology, gap: int, data: st.DataObject
) -> None:
    operator = data.draw(st.sampled_from(before.graph.order))
    first = before.history[operator][-1].first + gap
    assignment = data.draw(assignments(before.graph.operators[operator].slot_bits))
    after = before.amended(operator, Version(first, assignment))
    for each, epoch in product(before.graph.order, range(LAST_EPOCH)):
        amends = each == operator and epoch >= first
        assert after.at(each, epoch) == (assignment if amends else before.at(each, epoch))


@pytest.mark.parametrize("first", [3, 4])
def test_an_amendment_cannot_come_before_another_version(first: int) -> None:
    topology = amended(Topology.initial(GRAPH), 4, [0, 0, 1, 1])
    with pytest.raises(InternalError, match=f"'sum' has a version from epoch 4 on; one from {first} comes too late"):
        amended(topology, first, [1, 1, 1, 1])


def test_other_operators_can_be_amended_from_an_earlier_epoch() -> None:
    topology = amended(Topology.initial(GRAPH), 4, [0, 0, 1, 1])
    topology = topology.amended("map", Version(2, Assignment([0, 1, 1, 1])))
    assert [str(i) for i in topology.senders(SUM0, 2)] == ["map[0]", "map[1]"]


@few
@given(topologies)
def test_a_topology_survives_a_round_trip_through_json(topology: Topology) -> None:
    copy = Topology.from_json(json.loads(json.dumps(topology.to_json())))
    assert (copy, hash(copy)) == (topology, hash(topology))


def test_topologies_differ_in_epochs_owners_and_ways_of_arrival() -> None:
    start = Topology.initial(GRAPH)
    moved = amended(start, 4, [0, 0, 1, 1])
    assert moved == amended(start, 4, [0, 0, 1, 1])
    others = [
        start,
        amended(start, 5, [0, 0, 1, 1]),
        amended(start, 4, [0, 1, 1, 1]),
        amended(start, 4, [0, 0, 1, 1], Arrival.BACKUP),
    ]
    assert [other for other in others if other == moved] == []


@pytest.mark.parametrize("parallelism", [0, 5])
def test_there_are_no_more_instances_than_slots_and_at_least_one(parallelism: int) -> None:
    with pytest.raises(UserError, match=f"'sum' cannot have {parallelism} instances: it has 4 slots"):
        Topology.initial(GRAPH, {"sum": parallelism})


def test_parallelism_of_an_unknown_operator_is_refused() -> None:
    with pytest.raises(UserError, match="does not have: summ"):
        Topology.initial(GRAPH, {"summ": 2})


@pytest.mark.parametrize(
    ("history", "complaint"),
    [
        ((), "'sum' has no version"),
        ((Version(1, Assignment([0, 1])),), "has 2\\^2 slots, but 2\\^1 in its version from epoch 1 on"),
        ((Version(2, Assignment([0] * 4)), Version(2, Assignment([1] * 4))), "do not follow each other: \\[2, 2\\]"),
    ],
)
def test_a_history_that_breaks_the_invariants_cannot_be_made(history: tuple[Version, ...], complaint: str) -> None:
    rest = Topology.initial(GRAPH).history
    with pytest.raises(InternalError, match=complaint):
        Topology(GRAPH, {**rest, "sum": history})


# -- senders and receivers --------------------------------------------------------------------------------------------


@few
@given(topologies, epochs)
def test_an_instance_sends_to_exactly_those_that_wait_for_it(topology: Topology, epoch: int) -> None:
    owners = [i for i in topology.all_instances() if topology.owns(i, epoch)]
    waited_for = {(s, r) for r in owners for s in (*topology.senders(r, epoch), *topology.arrivals(r, epoch))}
    sent_to = {(s, r) for s in topology.all_instances() for r in topology.receivers(s, epoch)}
    assert sent_to == waited_for


@few
@given(topologies, epochs)
def test_the_senders_of_an_epoch_are_all_instances_of_the_upstream_operators(topology: Topology, epoch: int) -> None:
    for instance in topology.all_instances():
        upstream = topology.graph.upstream[instance.operator]
        everyone = [i for i in topology.all_instances() if i.operator in upstream and topology.owns(i, epoch)]
        assert sorted(topology.senders(instance, epoch)) == sorted(everyone)


def test_the_new_owner_of_slots_is_a_receiver_of_the_old_one_at_the_epoch_of_the_handover_only() -> None:
    topology = amended(Topology.initial(GRAPH), 4, [0, 0, 1, 1])
    assert [SUM1 in topology.receivers(SUM0, epoch) for epoch in (3, 4, 5)] == [False, True, False]


def test_the_streams_between_two_operators_are_told_by_port() -> None:
    operators = [OperatorSpec("in", Kind.SOURCE), OperatorSpec("map", Kind.STATELESS), OperatorSpec("out", Kind.SINK)]
    edges = [Edge("in", "out", 0), Edge("map", "out", 1), Edge("in", "out", 2), Edge("in", "map")]
    graph = QueryGraph(operators, edges)
    assert [edge.port for edge in edges_between(graph, "in", "out")] == [0, 2]
    assert edges_between(graph, "map", "in") == ()


# -- slots that change hands ------------------------------------------------------------------------------------------


@few
@given(topologies, st.integers(1, LAST_EPOCH))
def test_what_arrives_and_departs_is_what_changes_hands(topology: Topology, epoch: int) -> None:
    for operator in topology.graph.order:
        version = topology.version_at(operator, epoch)
        amends = version.first == epoch and version is not topology.history[operator][0]
        keeps_state = topology.graph.kind(operator) in (Kind.STATEFUL, Kind.SOURCE)
        expected: dict[tuple[InstanceId, InstanceId], set[int]] = {}
        if amends and keeps_state and version.arrival is Arrival.HANDOVER:
            owners = zip(topology.at(operator, epoch - 1).table, version.assignment.table, strict=True)
            for slot, (old, new) in enumerate(owners):
                if old != new:
                    expected.setdefault((InstanceId(operator, old), InstanceId(operator, new)), set()).add(slot)
        everyone = [i for i in topology.all_instances() if i.operator == operator]
        arriving = {(o, i): set(slots) for i in everyone for o, slots in topology.arrivals(i, epoch).items()}
        departing = {(i, t): set(slots) for i in everyone for t, slots in topology.departures(i, epoch).items()}
        assert arriving == departing == expected


def test_slots_of_a_version_made_from_a_backup_do_not_arrive_by_handover() -> None:
    topology = amended(Topology.initial(GRAPH), 4, [0, 0, 1, 1], Arrival.BACKUP)
    assert topology.arrivals(SUM1, 4) == topology.departures(SUM0, 4) == {}


def test_slots_of_a_stateless_operator_change_hands_without_a_handover() -> None:
    topology = Topology.initial(GRAPH).amended("map", Version(4, Assignment([0, 0, 1, 1])))
    assert topology.departures(InstanceId("map", 0), 4) == {}


# -- lives of instances -----------------------------------------------------------------------------------------------


@few
@given(topologies)
def test_an_instance_ends_with_the_last_epoch_at_which_it_owns_slots(topology: Topology) -> None:
    horizon = max(version.first for history in topology.history.values() for version in history) + 1
    for instance in topology.all_instances():
        owning = [epoch for epoch in range(1, horizon + 1) if topology.owns(instance, epoch)]
        assert topology.last_epoch(instance) == (None if owning[-1] == horizon else owning[-1])


def test_the_boundaries_of_an_operator_are_where_its_later_versions_begin() -> None:
    topology = amended(amended(Topology.initial(GRAPH), 4, [0, 0, 1, 1]), 6, [0, 0, 1, 2])
    assert topology.boundaries("sum") == (4, 6)
    assert topology.boundaries("sum", after=4) == (6,)
    assert topology.boundaries("map") == ()


def test_all_instances_of_the_history_are_known_also_those_that_own_nothing_any_more() -> None:
    topology = amended(amended(Topology.initial(GRAPH), 4, [1, 1, 1, 1]), 6, [2, 2, 2, 2])
    assert [i for i in topology.all_instances() if i.operator == "sum"] == [SUM0, SUM1, SUM2]


@few
@given(topologies, st.integers(1, LAST_EPOCH))
def test_forgetting_the_past_changes_no_answer_about_later_epochs(topology: Topology, before: int) -> None:
    shorter = topology.forgotten(before)
    for operator, epoch in product(topology.graph.order, range(before, LAST_EPOCH + 2)):
        assert shorter.at(operator, epoch) == topology.at(operator, epoch)
    for instance, epoch in product(topology.all_instances(), range(before + 1, LAST_EPOCH + 2)):
        assert shorter.arrivals(instance, epoch) == topology.arrivals(instance, epoch)


def test_what_is_forgotten_are_the_versions_that_ended_before() -> None:
    topology = amended(amended(Topology.initial(GRAPH), 4, [0, 0, 1, 1]), 6, [0, 0, 1, 2])
    assert [version.first for version in topology.forgotten(5).history["sum"]] == [4, 6]
    assert topology.forgotten(3) == topology
