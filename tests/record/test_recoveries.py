import pytest

from primitives.graph import InstanceId
from seep.protocol.events import Rebound, Retired
from seep.record.events import InstanceRecovered
from seep.record.recoveries import Recoveries, RecoveryChanges

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


def test_the_recoveries_of_a_long_run_are_bounded_and_none_seems_to_go_on_for_ever() -> None:
    recoveries = RecoveryChanges()
    for number in range(20_000):
        instance = InstanceId("counter", number % 7)
        recoveries.hear(Rebound(subject=instance, to="n1", at=number + 0.25))
        parts = {"seconds": 0.25, "detected": 0.1, "restored": 0.1, "replayed": 0.05}
        recoveries.hear(InstanceRecovered(subject=instance, at=number + 0.5, **parts))
    found = list(recoveries)
    assert len(found) < 1000
    assert found[-1].done == 19_999.5
    assert all(change.done is not None for change in found)


def test_a_recovery_of_an_instance_that_retires_meanwhile_is_forgotten() -> None:
    recoveries = RecoveryChanges()
    recoveries.hear(Rebound(subject=COUNTER, to="n1", at=1.0))
    recoveries.hear(Retired(subject=COUNTER, at=2.0))
    assert list(recoveries) == []


def test_nodes_that_were_killed_when_they_were_gone_already_are_forgotten() -> None:
    recoveries = Recoveries()
    for number in range(5_000):
        recoveries.killed(f"n{number}", float(number))
    assert len(recoveries._killed) <= 1_000
