"""What was handed over, from the meters of the nodes to the figures of a run."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from primitives.graph import InstanceId
from seep.runtime.meter import Handed, Meter
from seep.runtime.metrics import Metrics


def report(meter: Meter, index: int = 0, epoch: int = 0) -> dict[str, Any]:
    """What a node with one instance of `counter` reports."""
    instance = {
        "operator": "counter",
        "index": index,
        "incarnation": 0,
        "phase": "running",
        "epoch": epoch,
        "counted": epoch + 1,
    }
    queues = {"waiting": 0, "outbox_bytes": 0, "unsent": 0}
    return {"at": 1.0, "cpu": 0.0, "cores": None, "memory": None, "instances": [meter.to_json() | instance | queues]}


def test_a_meter_tells_each_handover_once() -> None:
    meter = Meter()
    meter.handed.append(Handed(7, 100, 0, 3))
    assert meter.to_json()["handed"] == [[7, 100, 0, 3]]
    assert meter.to_json()["handed"] == []


@given(st.lists(st.builds(Handed, st.integers(1, 3), *[st.integers(0, 99)] * 3), max_size=12), st.integers(1, 3))
def test_parts_of_a_handover_add_up_however_they_are_reported(parts: list[Handed], nodes: int) -> None:
    metrics = Metrics(frozenset())
    for at, part in enumerate(parts):
        meter = Meter()
        meter.handed.append(part)
        metrics.take(f"n{at % nodes}", report(meter, index=at % nodes), now=float(at))
    for epoch in (1, 2, 3):
        sums = [sum(counts) for counts in zip(*(part[1:] for part in parts if part.epoch == epoch), strict=True)]
        assert metrics.handed("counter", epoch) == Handed(epoch, *sums)


def test_what_an_instance_has_reported_up_to_is_known() -> None:
    metrics = Metrics(frozenset())
    assert metrics.reported(InstanceId("counter", 0)) == 0
    metrics.take("n1", report(Meter(), epoch=41), now=1.0)
    assert metrics.reported(InstanceId("counter", 0)) == 41
