import pytest

from primitives.graph import InstanceId
from seep.runtime.recovery import Recoveries

COUNTER, SPLITTER = InstanceId("counter", 0), InstanceId("splitter", 0)


def test_a_recovery_is_over_when_the_sinks_are_past_what_was_open_at_the_loss() -> None:
    recoveries = Recoveries()
    recoveries.killed("n2", 10.0)
    recoveries.lost("n2", (COUNTER,), {COUNTER}, ticked=100, now=10.1)
    assert recoveries.committed(95, 10.2) == []
    recoveries.restored(COUNTER, 10.3)
    assert recoveries.committed(99, 10.4) == []
    (over,) = recoveries.committed(100, 10.5)
    assert over.instances == (COUNTER,)
    parts = (over.detected, over.restored, over.replayed, over.total)
    assert parts == pytest.approx((0.1, 0.2, 0.2, 0.5))
    assert recoveries.committed(101, 10.6) == []


def test_without_stateful_instances_nothing_has_to_be_restored() -> None:
    recoveries = Recoveries()
    recoveries.lost("n1", (SPLITTER,), set(), ticked=5, now=1.0)
    (over,) = recoveries.committed(7, 1.5)
    assert (over.detected, over.restored, over.replayed) == pytest.approx((0.0, 0.0, 0.5))


def test_the_loss_of_an_idle_node_needs_no_recovery() -> None:
    recoveries = Recoveries()
    recoveries.lost("n9", (), set(), ticked=5, now=1.0)
    assert recoveries.committed(10, 2.0) == []
