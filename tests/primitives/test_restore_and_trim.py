"""Restore, replay and trim: what comes back, what is sent again, and what may be forgotten."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.checkpoint import Checkpoint
from primitives.errors import InternalError
from primitives.graph import Edge, InstanceId, Kind, OperatorSpec, QueryGraph
from primitives.outbox import Outbox
from primitives.restore import replay_buffer_state, restore_state
from primitives.slots import SlotSet
from primitives.topology import Arrival, Assignment, Topology, Version
from primitives.trim import safe_to_trim, trim
from tests.strategies import AnyState, ArrowState, PlainState, few, topologies

SUM, SUM1, OUT = InstanceId("sum", 0), InstanceId("sum", 1), InstanceId("out", 0)
ALL = SlotSet.full(2)

#: Safe epochs of at most 12 instances, in the order of `all_instances`.
safe_epochs = st.lists(st.integers(0, 12), min_size=30, max_size=30)


def outbox_of(*epochs: int) -> Outbox[str]:
    outbox = Outbox[str]()
    for epoch in epochs:
        outbox.append(epoch, f"output {epoch}")
    return outbox


class Receiver:
    """Processes the epochs that it pulls, each once and in order."""

    def __init__(self) -> None:
        self.processed: list[int] = []

    def pull(self, outbox: Outbox[str], most: int = 100) -> None:
        for epoch, _ in islice(iter(lambda: outbox.pull("receiver"), None), most):
            if not self.processed or epoch > self.processed[-1]:
                self.processed.append(epoch)


# -- restore ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [PlainState, ArrowState])
def test_a_restored_instance_knows_its_epoch_and_takes_its_next_checkpoint_as_a_delta(make: type[AnyState]) -> None:
    original, restored, outbox = make(2), make(2), Outbox[str]()
    original.put(1, 10)
    checkpoint = Checkpoint(SUM, 0, 0, 8, None, ALL, tuple(original.snapshot(ALL)), ((7, "a"), (8, "b")), 6)  # type: ignore[arg-type]
    assert restore_state(checkpoint, restored, outbox) == 8
    assert restored.marks == (8,)
    assert (outbox.trimmed, outbox.entries()) == (6, [(7, "a"), (8, "b")])
    restored.put(2, 20)
    changes = make(2)
    changes.restore(restored.snapshot(ALL, since=8))
    assert changes.content() == {2: 20}


def test_a_delta_alone_is_not_restored() -> None:
    delta = Checkpoint(SUM, 0, 1, 8, 5, ALL, (), (), 0)
    with pytest.raises(InternalError, match=r"checkpoint 8 of sum\[0\] is a delta of 5; merge them first"):
        restore_state(delta, PlainState(2), Outbox[str]())


# -- replay -----------------------------------------------------------------------------------------------------------


@given(pulled=st.integers(0, 6), first=st.integers(1, 7), times=st.integers(1, 3), again=st.integers(0, 6))
def test_replaying_twice_has_the_effect_of_replaying_once(pulled: int, first: int, times: int, again: int) -> None:
    outbox, receiver = outbox_of(1, 2, 3, 4, 5, 6), Receiver()
    replay_buffer_state(outbox, "receiver", 1)
    receiver.pull(outbox, pulled)
    for _ in range(times):
        replay_buffer_state(outbox, "receiver", min(first, pulled + 1))
        receiver.pull(outbox, again)
    receiver.pull(outbox)
    assert receiver.processed == [1, 2, 3, 4, 5, 6]


def test_a_replay_for_one_receiver_does_not_disturb_another() -> None:
    outbox = outbox_of(1, 2)
    for receiver in ("a", "b"):
        replay_buffer_state(outbox, receiver, 1)
        outbox.pull(receiver)
    replay_buffer_state(outbox, "a", 1)
    assert (outbox.pull("a"), outbox.pull("b")) == ((1, "output 1"), (2, "output 2"))


# -- trim -------------------------------------------------------------------------------------------------------------


def test_trim_drops_the_head_of_the_buffer_and_says_how_much() -> None:
    outbox = outbox_of(1, 2, 3)
    assert trim(outbox, 2) == 2
    assert outbox.entries() == [(3, "output 3")]
    assert trim(outbox, 2) == 0


@few
@given(topology=topologies, safe=safe_epochs, trimmed=st.integers(0, 5), limit=st.integers(0, 12), data=st.data())
def test_nothing_is_trimmed_above_the_safe_epoch_of_a_receiver_and_everything_up_to_it(
    topology: Topology, safe: list[int], trimmed: int, limit: int, data: st.DataObject
) -> None:
    everyone = topology.all_instances()
    by_instance = dict(zip(everyone, safe, strict=False))
    sender = data.draw(st.sampled_from(everyone))
    epoch = safe_to_trim(topology, sender, trimmed, limit, by_instance.__getitem__)

    def all_are_safe(at: int) -> bool:
        return all(by_instance[receiver] >= at for receiver in topology.receivers(sender, at))

    assert trimmed <= epoch <= max(limit, trimmed)
    assert all(all_are_safe(at) for at in range(trimmed + 1, epoch + 1))
    assert epoch >= limit or not all_are_safe(epoch + 1)


GRAPH = QueryGraph(
    [OperatorSpec("in", Kind.SOURCE, 1), OperatorSpec("sum", Kind.STATEFUL, 1), OperatorSpec("out", Kind.SINK, 1)],
    [Edge("in", "sum"), Edge("sum", "out")],
)


def test_the_epoch_of_a_handover_is_kept_until_the_new_owner_is_safe_beyond_it() -> None:
    topology = Topology.initial(GRAPH).amended("sum", Version(5, Assignment([0, 1])))
    assert safe_to_trim(topology, SUM, 0, 9, {OUT: 9, SUM1: 4}.__getitem__) == 4
    assert safe_to_trim(topology, SUM, 0, 9, {OUT: 9, SUM1: 5}.__getitem__) == 9


def test_a_new_owner_whose_state_came_from_a_backup_is_not_waited_for() -> None:
    topology = Topology.initial(GRAPH).amended("sum", Version(5, Assignment([0, 1]), Arrival.BACKUP))
    assert safe_to_trim(topology, SUM, 0, 9, {OUT: 9, SUM1: 4}.__getitem__) == 9


def test_receivers_are_those_of_the_epoch_in_question() -> None:
    topology = Topology.initial(GRAPH, {"sum": 2}).amended("sum", Version(5, Assignment([0, 0])))
    source = InstanceId("in", 0)
    assert safe_to_trim(topology, source, 0, 9, {SUM: 9, SUM1: 3}.__getitem__) == 3
    assert safe_to_trim(topology, source, 0, 9, {SUM: 9, SUM1: 4}.__getitem__) == 9
