"""The status: what nodes report, put together by instance, operator, edge and node."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import numpy as np
import pytest

from primitives.errors import EnvironmentFault
from primitives.graph import InstanceId
from seep.protocol.messages import MAX_WATERMARK
from seep.protocol.view import Incarnation
from seep.record.reports import BulkTransfer, InstanceFigures, MalformedReport, Resources, SlotRows
from seep.record.status import InstanceStatus, OpenDecision, OperatorStatus, Status
from seep.rows.position import MIN_WATERMARK
from tests.record.kit import Recorded, figures, launched, node

HEAVY = SlotRows.of(np.array([3, 5]), epochs=1)


def status_of(it: Recorded) -> Status:
    return it.record.status(launched())


def operators(it: Recorded) -> dict[str, OperatorStatus]:
    return {each.name: each for each in status_of(it).operators}


def instances(it: Recorded) -> dict[str, InstanceStatus]:
    return {each.name: each for each in status_of(it).instances}


def test_rates_of_instances_operators_and_edges_are_those_between_two_reports() -> None:
    it = Recorded()
    edge = {"map->counter:0": 0}
    it.take("n1", 1.0, figures("map"), figures("map", index=1))
    it.take("n2", 1.0, figures())
    assert instances(it)["map[0]#0"].rows_in_per_second == 0.0, "one report is no rate"
    first, second = (figures("map", index=i, rows_in=100 * (i + 1), rows_out=50, edges={**edge}) for i in (0, 1))
    it.take("n1", 3.0, replace(first, edges={"map->counter:0": 40}), replace(second, edges={"map->counter:0": 60}))
    assert instances(it)["map[1]#0"].rows_in_per_second == 100.0
    assert operators(it)["map"].rows_in_per_second == 150.0
    assert operators(it)["map"].rows_out_per_second == 50.0
    assert status_of(it).edges == {"map->counter:0": 50.0}
    it.record.drop("n1")
    assert status_of(it).edges == {}


def test_an_operator_is_as_far_as_its_slowest_instance_and_as_full_as_its_fullest() -> None:
    it = Recorded()
    it.take("n1", 1.0, figures(epoch=7), figures(index=1, epoch=9))
    few, many = figures(epoch=8, cpu=0.1, age=0.2, state_bytes=10), figures(index=1, epoch=9, cpu=0.3, state_bytes=5)
    it.take("n1", 2.0, few, many, cpu=0.4)
    counter = operators(it)["counter"]
    assert (counter.instances, counter.epoch, counter.age, counter.state_bytes) == (2, 8, 0.2, 15)
    assert counter.utilisation == pytest.approx(0.3)


def test_a_watermark_is_behind_the_highest_of_the_sources() -> None:
    it = Recorded()
    it.take("n1", 1.0, figures("numbers", watermark=900), figures("numbers", index=1, watermark=1_000))
    it.take("n2", 1.0, figures(watermark=250), figures("map"))
    assert instances(it)["counter[0]#0"].watermark_behind == 750
    assert instances(it)["map[0]#0"].watermark_behind is None, "it has put out nothing yet"
    assert operators(it)["numbers"].watermark_behind == 100
    it.take("n1", 2.0, figures("numbers", watermark=MAX_WATERMARK))
    it.take("n2", 2.0, figures(watermark=1_000))
    assert operators(it)["numbers"].watermark_behind == 0, "it has ended"
    assert operators(it)["counter"].watermark_behind == 0


def test_without_event_times_nothing_is_behind() -> None:
    it = Recorded()
    it.take("n1", 1.0, figures("numbers", watermark=MIN_WATERMARK), figures(watermark=MIN_WATERMARK))
    assert {each.watermark_behind for each in status_of(it).instances} == {None}


def test_a_node_is_told_of_with_what_its_process_uses() -> None:
    it = Recorded()
    it.take("n1", 1.0, figures(), cpu=1.0, resources=Resources(rss=100, read=0, written=10, received=0, sent=0))
    (host,) = status_of(it).hosts
    assert (host.rss, host.cpu, host.written) == (100, 0.0, 0.0)
    used = Resources(rss=120, read=40, written=30, received=8, sent=4)
    it.take("n1", 3.0, figures(state_bytes=7, outbox_bytes=1), cpu=2.0, cores=4.0, resources=used)
    (host,) = status_of(it).hosts
    assert (host.cpu, host.cores, host.rss, host.state_bytes) == (0.5, 4.0, 120, 8)
    assert (host.read, host.written, host.received, host.sent) == (20.0, 10.0, 4.0, 2.0)


def test_a_status_is_told_by_the_query_that_runs() -> None:
    it = Recorded()
    status = it.record.status(launched(nodes=6), vms={"warm": 1}, balanced={"map", "counter"})
    assert (status.nodes, status.idle_nodes) == (6, 2)
    assert (status.vms, status.balanced) == ({"warm": 1}, ("counter", "map"))


def test_a_status_is_plain_data_with_every_field() -> None:
    it = Recorded()
    it.take("n1", 1.0, figures())
    assert status_of(it).to_json().keys() == {each.name for each in fields(Status)}


def test_samples_are_kept_in_order_and_share_what_has_not_changed() -> None:
    it = Recorded()
    for at in (1.0, 1.5, 2.0):
        it.take("n1", at, figures(rows_in=int(at * 10)))
        it.record.sample(status_of(it))
    first, second, third = it.record.samples
    assert [first.at, second.at, third.at] == [1.0, 1.5, 2.0]
    assert first.hosted is second.hosted is third.hosted
    assert third.to_json()["instances"]["counter[0]#0"]["rows_in"] == 20


# -- reports that make no sense ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (figures("joined"), "there is no operator 'joined'"),
        (figures(slots=replace(HEAVY, first=15)), "slots 15 to 16, and there are 16"),
        (figures(slots=replace(HEAVY, first=-1)), "slots -1 to 0"),
        (figures(slots=replace(HEAVY, type="uint63")), "its rows by slot cannot be read"),
        (figures(slots=replace(HEAVY, type="uint64")), "its rows by slot cannot be read"),
        (figures(slots=replace(HEAVY, heaviest=(16, "a", 1.0))), "its heaviest key is in slot 16"),
        (figures(slots=replace(HEAVY, epochs=0)), "it has rows of no epoch"),
        (figures(latencies=(0.1, -0.5)), "a latency of -0.5 s"),
        (figures(latencies=(float("inf"),)), "a latency that is not finite"),
    ],
)
def test_a_report_that_makes_no_sense_is_refused_as_a_whole(told: InstanceFigures, why: str) -> None:
    it = Recorded()
    good = figures("map", counters={"late": 2})
    with pytest.raises(MalformedReport, match=why):
        it.record.take("n1", node(1.0, good, told))
    assert status_of(it).instances == ()
    assert it.record.counters == ({}, True)
    with pytest.raises(MalformedReport, match=why):
        it.record.left("n1", told)
    it.take("n1", 2.0, good)
    assert it.record.counters == ({"late": 2}, True), "it costs only itself"


def test_what_is_no_report_at_all_is_refused() -> None:
    it = Recorded()
    with pytest.raises(EnvironmentFault, match="a report is a NodeReport, and not a dict"):
        it.record.take("n1", {"at": 1.0})
    with pytest.raises(MalformedReport, match="not by a str"):
        it.record.left("n1", "counter[0]")
    with pytest.raises(MalformedReport, match="0 cores"):
        it.record.take("n1", node(1.0, cores=0))


def test_an_instance_that_was_lost_is_not_told_of_any_more() -> None:
    it = Recorded()
    it.take("n1", 1.0, figures(state_bytes=9))
    assert it.record.state_bytes == {InstanceId("counter", 0): 9}
    it.record.lost(Incarnation(InstanceId("counter", 0), 0), 4)
    assert it.record.state_bytes == it.record.reported == {}


def test_sinks_take_so_many_rows_per_second_together() -> None:
    it = Recorded()
    for at in (1.0, 3.0):
        it.take("n1", at, figures("out", rows_in=round(100 * at)), figures("map", rows_in=round(500 * at)))
    assert status_of(it).rows_out_per_second == 100.0


def test_the_time_since_the_last_commit_is_known_also_before_the_first() -> None:
    it = Recorded()
    it.clock.now = 4.0
    assert status_of(it).since_commit == 4.0
    it.record.committed(1)
    it.clock.now = 4.5
    assert status_of(it).since_commit == 0.5
    assert status_of(it).window == launched().window


def test_a_node_is_used_or_idle_or_leaving_or_lost() -> None:
    it = Recorded()
    query = launched(nodes=6)
    hosts = {seat.node for seat in query.placement.values()}
    idle, leaving = sorted(query.nodes - hosts)[:2]
    for name in (*sorted(hosts), idle, leaving, "n9"):
        it.take(name, 1.0)
    states = {each.name: each.state for each in it.record.status(replace(query, leaving=frozenset({leaving}))).hosts}
    assert states == dict.fromkeys(hosts, "used") | {idle: "idle", leaving: "leaving", "n9": "lost"}


def test_the_json_of_a_status_has_the_names_of_all_figures() -> None:
    it = Recorded()
    it.take("n1", 1.0, figures(), transfers=(BulkTransfer("n2", "backup", 7),))
    decision = OpenDecision("drain", "n1", 0.5, True, "asked for")
    data = json.loads(json.dumps(it.record.status(launched(), decisions=[decision]).to_json()))
    assert data["decisions"] == [
        {"kind": "drain", "subject": "n1", "since": 0.5, "by_hand": True, "why": "asked for"},
    ]
    assert data["hosts"][0]["transfers"] == [{"peer": "n2", "kind": "backup", "nbytes": 7}]
    assert data["instances"][0]["name"] == "counter[0]#0"
