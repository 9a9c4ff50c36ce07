"""Partition and merge: parts are disjoint, cover, and put together again give the whole."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.checkpoint import Checkpoint, checkpoint_state
from primitives.emission import Emission
from primitives.errors import InternalError
from primitives.graph import Edge, InstanceId, Kind, OperatorSpec, QueryGraph
from primitives.merge import merge_state
from primitives.outbox import Outbox
from primitives.partition import partition_buffer_state, partition_processing_state, partition_routing_state
from primitives.slots import SlotSet
from primitives.topology import Arrival, Assignment, Topology, Version
from seep.simulator.cells import slot_of_key
from seep.simulator.operators import Row, RowBatches
from tests.strategies import (
    LAST_EPOCH,
    AnyState,
    ArrowState,
    PlainState,
    Writes,
    content_in,
    disjoint_parts,
    epochs,
    few,
    slot_sets,
    topologies,
    write,
    writes,
)

BITS = 2
ALL = SlotSet.full(BITS)
SUM0, SUM1, SUM2 = (InstanceId("sum", i) for i in range(3))
EDGE = Edge("sum", "out")

both = pytest.mark.parametrize("make", [PlainState, ArrowState])

#: The slots of three instances, of which the first is the one that is partitioned and keeps what nobody takes.
shares = disjoint_parts(BITS, parts=3).map(lambda parts: {InstanceId("sum", i): slots for i, slots in parts.items()})


def checkpoint_of(state: AnyState, slots: SlotSet = ALL) -> Checkpoint:
    """The checkpoint of sum[0] after epoch 4, of which the outputs of epochs 3 and 4 are still needed."""
    outbox: Outbox[Emission[str]] = Outbox(trimmed=2)
    outbox.restore((epoch, Emission({EDGE: f"epoch {epoch}"}, epoch)) for epoch in (3, 4))
    return checkpoint_state(state, outbox, owner=SUM0, incarnation=3, serial=7, epoch=4, slots=slots)


def content_of(checkpoint: Checkpoint, make: type[AnyState]) -> dict[int, int]:
    state = make(BITS)
    state.restore(checkpoint.state)
    return state.content()


# -- processing state -------------------------------------------------------------------------------------------------


@both
@given(content=writes, parts=shares, missing=slot_sets(BITS))
def test_the_parts_are_disjoint_cover_the_whole_and_hold_the_keys_of_their_slots(
    make: type[AnyState], content: Writes, parts: dict[InstanceId, SlotSet], missing: SlotSet
) -> None:
    state, slots = make(BITS), ALL - missing
    write(state, content, slots, BITS)
    cut = partition_processing_state(checkpoint_of(state, slots), parts)
    assert sorted(slot for part in cut.values() for slot in part.slots) == list(slots)
    assert all(cut[instance].slots == parts[instance] & slots for instance in (SUM1, SUM2))
    for instance, part in cut.items():
        assert (part.owner, part.base, part.epoch) == (instance, None, 4)
        assert content_of(part, make) == content_in(state.content(), part.slots, BITS)


@both
@given(content=writes, parts=shares, order=st.permutations([SUM0, SUM1, SUM2]))
def test_merging_the_parts_gives_the_whole(
    make: type[AnyState], content: Writes, parts: dict[InstanceId, SlotSet], order: list[InstanceId]
) -> None:
    state = make(BITS)
    write(state, content, ALL, BITS)
    whole = checkpoint_of(state)
    cut = partition_processing_state(whole, parts)
    merged = merge_state(SUM0, [cut[instance] for instance in order])
    assert replace(merged, state=()) == replace(whole, state=())
    assert content_of(merged, make) == state.content()


def test_the_old_owner_keeps_the_buffer_and_new_ones_start_without() -> None:
    whole = checkpoint_of(PlainState(BITS))
    cut = partition_processing_state(whole, {SUM0: SlotSet([0]), SUM1: SlotSet([1, 2, 3])})
    assert (cut[SUM0].buffer, cut[SUM0].trimmed) == (whole.buffer, 2)
    assert (cut[SUM1].buffer, cut[SUM1].trimmed) == ((), 4)


def test_what_no_part_takes_stays_with_the_old_owner() -> None:
    cut = partition_processing_state(checkpoint_of(PlainState(BITS)), {SUM0: SlotSet([0]), SUM1: SlotSet([1])})
    assert cut[SUM0].slots == SlotSet([0, 2, 3])


def test_a_part_comes_before_every_checkpoint_that_its_owner_will_take() -> None:
    cut = partition_processing_state(checkpoint_of(PlainState(BITS)), {SUM0: SlotSet([0]), SUM1: SlotSet([1])})
    first_of_its_own = replace(cut[SUM1], incarnation=0, serial=0)
    assert cut[SUM1].order < first_of_its_own.order


def test_the_old_owner_must_have_a_part_for_the_sake_of_its_buffer() -> None:
    with pytest.raises(InternalError, match=r"sum\[0\] is partitioned without a part for itself"):
        partition_processing_state(checkpoint_of(PlainState(BITS)), {SUM1: ALL})


def test_no_slot_can_be_given_to_two_new_instances() -> None:
    parts = {SUM0: SlotSet(), SUM1: SlotSet([1, 2]), SUM2: SlotSet([2, 3])}
    with pytest.raises(InternalError, match=r"slots SlotSet\(2\) of sum\[0\] are given to two new instances"):
        partition_processing_state(checkpoint_of(PlainState(BITS)), parts)


# -- merge ------------------------------------------------------------------------------------------------------------


def bare(owner: InstanceId, slots: SlotSet) -> Checkpoint:
    return Checkpoint(owner, 0, 0, 4, None, slots, (), (), 4)


def test_an_instance_can_take_over_all_parts_of_others() -> None:
    merged = merge_state(SUM2, [bare(SUM0, SlotSet([0])), bare(SUM1, SlotSet([1, 3]))])
    assert (merged.owner, merged.slots, merged.epoch) == (SUM2, SlotSet([0, 1, 3]), 4)


@pytest.mark.parametrize(
    ("second", "complaint"),
    [
        (replace(bare(SUM1, SlotSet([1])), epoch=5), r"checkpoint 5 of sum\[1\] cannot be merged: .* of epoch 4"),
        (replace(bare(SUM1, SlotSet([1])), base=2), r"checkpoint 4 of sum\[1\] cannot be merged: parts must be full"),
        (bare(SUM1, SlotSet([0, 1])), r"slots SlotSet\(0\) are in two of the parts that are merged into sum\[0\]"),
        (
            replace(bare(SUM1, SlotSet([1])), buffer=((4, Emission({}, 0)),)),
            r"sum\[1\] still has buffer state; let its receivers become safe before merging it into sum\[0\]",
        ),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(second: Checkpoint, complaint: str) -> None:
    with pytest.raises(InternalError, match=complaint):
        merge_state(SUM0, [bare(SUM0, SlotSet([0])), second])


# -- routing state ----------------------------------------------------------------------------------------------------

GRAPH = QueryGraph(
    [
        OperatorSpec("in", Kind.SOURCE, BITS),
        OperatorSpec("sum", Kind.STATEFUL, BITS),
        OperatorSpec("out", Kind.SINK, BITS),
    ],
    [Edge("in", "sum", 0), Edge("in", "sum", 1), Edge("sum", "out")],
)


@given(moves=disjoint_parts(BITS, parts=3), first=st.integers(2, LAST_EPOCH), arrival=st.sampled_from(Arrival))
def test_rows_of_given_slots_go_to_given_instances_from_the_epoch_on(
    moves: dict[int, SlotSet], first: int, arrival: Arrival
) -> None:
    before = Topology.initial(GRAPH, {"sum": 2})
    after = partition_routing_state(before, "sum", moves, first, arrival)
    assert after.at("sum", first - 1) == before.at("sum", 1)
    assert after.version_at("sum", first) == Version(first, before.at("sum", 1).moved(moves), arrival)
    assert before.boundaries("sum") == ()


# -- buffer state -----------------------------------------------------------------------------------------------------


@st.composite
def emissions(draw: st.DrawFn) -> tuple[Topology, InstanceId, Emission[tuple[Row, ...]]]:
    """What a sender of a random history put out in an epoch, with rows on some of its edges."""
    topology = draw(topologies)
    sender = draw(st.sampled_from([i for i in topology.all_instances() if topology.graph.outputs[i.operator]]))
    number = count()  # makes every row another one
    keys = st.lists(st.integers(0, 20), min_size=1, max_size=6)
    batches = {
        edge: tuple((key, next(number), 0) for key in draw(keys))
        for edge in topology.graph.outputs[sender.operator]
        if draw(st.booleans())
    }
    return topology, sender, Emission(batches, 0)


@few
@given(sent=emissions(), epoch=epochs)
def test_every_row_goes_to_the_owner_of_its_slot_at_its_epoch_and_to_nobody_else(
    sent: tuple[Topology, InstanceId, Emission[tuple[Row, ...]]], epoch: int
) -> None:
    topology, sender, emission = sent
    batches = RowBatches(topology.graph)
    arrived: Counter[tuple[Edge, Row]] = Counter()
    for operator in topology.graph.downstream[sender.operator]:
        for receiver in topology.instances(operator, epoch):
            share = partition_buffer_state(emission, topology, epoch, sender, receiver, batches)
            for port, rows in share.items():
                owned = topology.slots(receiver, epoch)
                assert all(
                    slot_of_key(key, topology.graph.operators[operator].slot_bits) in owned for key, _, _ in rows
                )
                arrived.update((Edge(sender.operator, operator, port), row) for row in rows)
    assert arrived == Counter((edge, row) for edge, rows in emission.outputs.items() for row in rows)


def test_the_share_of_a_receiver_is_told_by_port_and_ports_without_rows_are_absent() -> None:
    topology = Topology.initial(GRAPH).amended("sum", Version(5, Assignment([1, 1, 1, 1])))
    emission = Emission({Edge("in", "sum", 1): ((1, 1, 0),)}, 0)
    shares = {
        (receiver, epoch): partition_buffer_state(
            emission, topology, epoch, InstanceId("in", 0), receiver, RowBatches(GRAPH)
        )
        for receiver in (SUM0, SUM1)
        for epoch in (4, 5)
    }
    rows = {1: ((1, 1, 0),)}
    assert shares == {(SUM0, 4): rows, (SUM1, 4): {}, (SUM0, 5): {}, (SUM1, 5): rows}
