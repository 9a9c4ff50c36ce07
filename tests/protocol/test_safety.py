"""Safe epochs: nothing is trimmed that anyone may ask for, and everything else is, sooner or later."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.graph import Edge, InstanceId, Kind, OperatorSpec, QueryGraph
from primitives.topology import Arrival, Assignment, Topology, Version
from seep.protocol.manager.safety import SafeEpochs, Unneeded
from tests.protocol.staging import GRAPH, NUMBERS, OUT, PASS, SUM, SUM1
from tests.strategies import LAST_EPOCH, few, topologies

CHAIN = Topology.initial(GRAPH)
SCALED_OUT = CHAIN.amended("sum", Version(5, Assignment([0, 0, 1, 1])))
SCALED_IN = Topology.initial(GRAPH, {"sum": 2}).amended("sum", Version(5, Assignment([0, 0, 0, 0])))


def birth(topology: Topology, instance: InstanceId) -> int:
    """The last epoch before an instance owns anything."""
    return next(epoch for epoch in range(1, LAST_EPOCH + 2) if topology.owns(instance, epoch)) - 1


def started(topology: Topology, **kept: int) -> SafeEpochs:
    """All instances are born before the first epoch at which they own anything; then something is kept."""
    safe = SafeEpochs(topology.graph)
    for instance in topology.all_instances():
        safe.born(instance, birth(topology, instance))
    for name, epoch in kept.items():
        safe.kept(InstanceId(name.rstrip("01"), int(name[-1])), epoch)
    return safe


def settle(safe: SafeEpochs, topology: Topology, ticked: int = LAST_EPOCH) -> dict[InstanceId, int]:
    """Lets news travel upstream until there is none; returns where each outbox was last trimmed to."""
    return {instance: unneeded.epoch for instance, unneeded in settled(safe, topology, ticked).items()}


def settled(safe: SafeEpochs, topology: Topology, ticked: int = LAST_EPOCH) -> dict[InstanceId, Unneeded]:
    """The same, and where of its output alone."""
    found: dict[InstanceId, Unneeded] = {}
    while news := safe.advance(topology, topology.all_instances(), ticked):
        found |= news
    return found


def test_a_stateful_instance_is_safe_up_to_its_backup_and_a_sink_up_to_its_commit() -> None:
    safe = started(CHAIN, sum0=4, out0=6)
    assert (safe.of(SUM), safe.of(OUT)) == (4, 6)


def test_a_stateless_instance_and_a_source_are_safe_up_to_what_their_receivers_are_safe_up_to() -> None:
    safe = started(CHAIN, sum0=4, out0=6)
    settle(safe, CHAIN)
    assert (safe.of(PASS), safe.of(NUMBERS)) == (4, 4)


def test_a_stateful_instance_that_nobody_backs_up_is_safe_up_to_what_its_receivers_are_safe_up_to() -> None:
    safe = SafeEpochs(GRAPH, unkept={"sum"})
    for instance in CHAIN.all_instances():
        safe.born(instance, birth(CHAIN, instance))
    safe.kept(OUT, 6)
    assert settle(safe, CHAIN) == {SUM: 6, PASS: 6, NUMBERS: 6}
    assert safe.of(SUM) == 6


def test_an_outbox_is_trimmed_up_to_the_safe_epoch_of_its_receivers() -> None:
    assert settle(started(CHAIN, sum0=4, out0=6), CHAIN) == {SUM: 6, PASS: 4, NUMBERS: 4}


def test_nothing_is_trimmed_that_was_not_ticked_yet() -> None:
    assert settle(started(CHAIN, sum0=9, out0=9), CHAIN, ticked=5) == {SUM: 5, PASS: 5, NUMBERS: 5}


def test_without_news_there_is_nothing_to_trim() -> None:
    safe = started(CHAIN, out0=6)
    settle(safe, CHAIN)
    assert safe.advance(CHAIN, CHAIN.all_instances(), LAST_EPOCH) == {}
    safe.kept(OUT, 7)
    assert settle(safe, CHAIN) == {SUM: 7}


def test_an_epoch_that_is_safe_stays_so_even_if_an_older_one_is_reported_late() -> None:
    safe = started(CHAIN, sum0=6)
    safe.kept(SUM, 4)
    assert safe.of(SUM) == 6


def test_the_slowest_receiver_holds_the_outbox() -> None:
    topology = Topology.initial(GRAPH, {"sum": 2})
    assert settle(started(topology, sum0=7, sum1=3), topology)[PASS] == 3


def test_all_outputs_of_an_instance_are_waited_for() -> None:
    operators = [OperatorSpec("in", Kind.SOURCE, 1), OperatorSpec("a", Kind.SINK, 1), OperatorSpec("b", Kind.SINK, 1)]
    topology = Topology.initial(QueryGraph(operators, [Edge("in", "a"), Edge("in", "b")]))
    safe = started(topology)
    safe.kept(InstanceId("a", 0), 9)
    safe.kept(InstanceId("b", 0), 2)
    assert settle(safe, topology) == {InstanceId("in", 0): 2}


@few
@given(topology=topologies, kept=st.lists(st.integers(0, 12), min_size=30, max_size=30), ticked=st.integers(0, 12))
def test_nobody_trims_what_a_receiver_may_ask_for(topology: Topology, kept: list[int], ticked: int) -> None:
    safe = started(topology)
    for instance, epoch in zip(topology.all_instances(), kept, strict=False):
        if topology.graph.kind(instance.operator) in (Kind.STATEFUL, Kind.SINK):
            safe.kept(instance, epoch)
    found = settled(safe, topology, ticked)
    for sender in topology.all_instances():
        unneeded = found.get(sender, Unneeded(birth(topology, sender), birth(topology, sender)))
        for epoch in range(birth(topology, sender) + 1, unneeded.output + 1):
            for receiver in topology.receivers(sender, epoch):
                is_output = receiver.operator != sender.operator
                assert safe.of(receiver) >= epoch or (epoch > unneeded.epoch and not is_output)


def test_output_is_not_kept_for_a_new_owner_of_slots_that_only_needs_their_state() -> None:
    safe = started(SCALED_OUT, sum0=9, out0=9)
    assert settled(safe, SCALED_OUT)[SUM] == Unneeded(4, 9)
    safe.kept(SUM1, 6)
    assert settled(safe, SCALED_OUT)[SUM] == Unneeded(9, 9)


# -- plans ------------------------------------------------------------------------------------------------------------


def test_the_old_owner_keeps_departed_state_until_the_new_one_has_a_backup_of_its_own() -> None:
    safe = started(SCALED_OUT, sum0=9, out0=9)
    assert settle(safe, SCALED_OUT)[SUM] == 4
    safe.kept(SUM1, 5)
    assert settle(safe, SCALED_OUT)[SUM] == 9


def test_upstream_waits_for_a_new_instance_from_its_first_epoch_on() -> None:
    safe = started(SCALED_OUT, sum0=9)
    assert settle(safe, SCALED_OUT)[PASS] == 4


def test_an_emptied_instance_is_done_when_all_it_sent_is_safe_with_others() -> None:
    safe = started(SCALED_IN, sum0=4, out0=3)
    settle(safe, SCALED_IN)
    assert not safe.is_done(SCALED_IN, SUM1)
    safe.kept(OUT, 9)
    settle(safe, SCALED_IN)
    assert not safe.is_done(SCALED_IN, SUM1)  # the state of its slots is only here
    safe.kept(SUM, 5)
    settle(safe, SCALED_IN)
    assert safe.is_done(SCALED_IN, SUM1)


def test_an_emptied_sink_is_done_when_it_has_committed_its_last_epoch() -> None:
    topology = Topology.initial(GRAPH, {"out": 2}).amended("out", Version(5, Assignment([0, 0, 0, 0])))
    emptied = InstanceId("out", 1)
    assert not started(topology, out1=3).is_done(topology, emptied)
    assert started(topology, out1=4).is_done(topology, emptied)


def test_who_owns_slots_for_all_we_know_is_not_done() -> None:
    assert not started(CHAIN, out0=9, sum0=9).is_done(CHAIN, SUM)


def test_nothing_is_kept_for_a_retired_instance() -> None:
    safe = started(SCALED_IN, sum0=9, out0=9, sum1=4)
    safe.retire(SUM1)
    others = [instance for instance in SCALED_IN.all_instances() if instance != SUM1]
    assert SUM1 not in safe.known
    while safe.advance(SCALED_IN, others, LAST_EPOCH):
        pass
    assert safe.trimmed[PASS] == 9
    assert safe.of(SUM1) > LAST_EPOCH
    safe.forget(others)
    with pytest.raises(KeyError):
        safe.of(SUM1)


def test_a_pin_keeps_what_a_split_may_have_to_go_back_to() -> None:
    safe = started(CHAIN, sum0=4, out0=9)
    safe.pin(SUM)
    safe.kept(SUM, 8)
    assert safe.of(SUM) == 4
    assert settle(safe, CHAIN)[PASS] == 4
    safe.unpin(SUM)
    assert settle(safe, CHAIN)[PASS] == 8


def test_after_a_split_its_origin_is_as_safe_as_the_backup_that_was_cut() -> None:
    safe = started(CHAIN, sum0=4, out0=9)
    safe.pin(SUM)
    safe.kept(SUM, 8)
    split = CHAIN.amended("sum", Version(5, Assignment([0, 0, 1, 1]), Arrival.BACKUP))
    safe.born(SUM1, 4)
    safe.set_back(SUM, 4)
    safe.unpin(SUM)
    assert safe.of(SUM) == 4
    assert settle(safe, split)[PASS] == 4


def test_unpinning_what_was_not_pinned_does_nothing() -> None:
    safe = started(CHAIN, sum0=4)
    safe.unpin(SUM)
    assert safe.of(SUM) == 4
