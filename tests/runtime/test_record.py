"""The record of real runs: what nodes tell of themselves, and what is refused of it."""

from __future__ import annotations

import sys

import pytest

import seep
from primitives.graph import InstanceId
from seep.channels.letters import InstanceLeft, NodeReady
from seep.protocol.view import Incarnation
from seep.record.events import RefusedMessage
from seep.record.reports import InstanceFigures, NodeReport
from seep.spark.session import Host
from tests.runtime.counting import RATE, awaited, committed, counting, start
from tests.runtime.driver_kit import managing, register
from tests.waiting import eventually


def test_a_report_that_makes_no_sense_is_told_and_costs_only_itself() -> None:
    unknown = InstanceFigures(identity=Incarnation(InstanceId("joined", 0), 0), phase="running", epoch=1, counted=2)
    with managing() as process:
        name = register(process)
        process.on_letter(name, 0, NodeReady(name))
        process.on_heartbeat(name, NodeReport(at=1.0, cpu=0.0, cores=1.0, instances=(unknown,)))
        process.on_heartbeat(name, {"at": 1.0})
        process.on_letter(name, 0, InstanceLeft(unknown))
        assert eventually(lambda: len(process.events.of("refused message")) == 3)
        told = process.events.of("refused message")
        assert all(isinstance(event, RefusedMessage) and event.sender == name for event in told)
        assert "there is no operator 'joined'" in told[0].detail
        assert "a report is a NodeReport, and not a dict" in told[1].detail
        assert process.failure is None
        assert not process.ended.is_set()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_the_status_of_a_run_has_its_operators_edges_and_nodes(host: Host) -> None:
    with start(host, counting(), rate=seep.Rate(RATE)) as run:
        committed(run, 40)
        edges = {str(edge) for edge in run.program.graph.edges} - {"counter->out:0"}  # that has rows at the end only
        awaited(run, lambda: edges <= {edge for edge, rate in run.status().edges.items() if rate > 0})
        awaited(run, lambda: {each.name for each in run.status().hosts} == set(run.nodes))
        hosting = set(run.placement.values())
        awaited(run, lambda: hosting <= {each.name for each in run.status().hosts if each.cpu > 0})
        status = run.status()
        assert {each.name for each in status.operators} == set(run.program.graph.order)
        assert all(each.rss > 10 << 20 for each in status.hosts if each.name in hosting)
        sources = [each for each in status.operators if each.name in run.program.sources]
        assert all(each.rows_out_per_second > 0 for each in sources)
        series = run.report()["series"]
        assert series
        assert series[-1]["instances"]
