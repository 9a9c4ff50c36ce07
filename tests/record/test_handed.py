"""What was handed over, from the meters of the nodes to the figures of a run."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from primitives.graph import InstanceId
from seep.node.meter import Meter
from seep.protocol.view import Incarnation
from seep.record.facts import Handover
from seep.record.reports import HandedPart
from tests.record.kit import COUNTER, Recorded, figures

FIRST = Incarnation(COUNTER, 0)


def test_a_meter_tells_each_handover_once() -> None:
    meter = Meter()
    meter.handed.append(HandedPart(7, 100, 0, 3))
    assert meter.figures(FIRST, "running", 7).handed == (HandedPart(7, 100, 0, 3),)
    assert meter.figures(FIRST, "running", 7).handed == ()


@given(st.lists(st.builds(HandedPart, st.integers(1, 3), *[st.integers(0, 99)] * 3), max_size=12), st.integers(1, 3))
def test_parts_of_a_handover_add_up_however_they_are_reported(parts: list[HandedPart], nodes: int) -> None:
    it = Recorded()
    for at, part in enumerate(parts):
        it.take(f"n{at % nodes}", float(at), figures(index=at % nodes, handed=(part,)))
    for epoch in {part.epoch for part in parts}:
        sums = [sum(counts) for counts in zip(*(part[1:] for part in parts if part.epoch == epoch), strict=True)]
        assert it.record.handed["counter", epoch] == Handover(*sums)


def test_what_was_handed_out_of_the_record_does_not_change() -> None:
    it = Recorded()
    it.take("n1", 1.0, figures(handed=(HandedPart(7, 100),)))
    before = it.record.handed
    it.take("n1", 2.0, figures(handed=(HandedPart(7, 50),)))
    assert before["counter", 7] == Handover(100)
    assert it.record.handed["counter", 7] == Handover(150)


def test_what_an_instance_has_reported_up_to_is_known() -> None:
    it = Recorded()
    assert InstanceId("counter", 0) not in it.record.reported
    it.take("n1", 1.0, figures(epoch=41))
    assert it.record.reported == {COUNTER: 41}
