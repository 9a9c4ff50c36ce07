"""What policies are shown: rates, utilisation and backlog, made of what nodes report of themselves."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import seep
from policies.observation import Change
from primitives.event import Event
from seep.protocol.events import Rebound
from seep.record.comparison import compared
from seep.record.events import InstanceRecovered
from seep.record.observer import Observer, RunSnapshot, SourceDemand
from seep.record.recoveries import RecoveryChanges
from seep.rows.position import Position
from tests.record.kit import COUNTER, MAP, Recorded, figures, launched, node
from tests.runtime.test_share import Machine


def test_utilisation_is_what_the_process_used_of_its_share() -> None:
    before = node(10.0, figures(cpu=1.0), cpu=2.0, cores=0.2)
    after = node(15.0, figures(cpu=1.5, rows_in=1000, busy=2.5), cpu=2.8, cores=0.2)
    (report,) = compared("n1", before, after)
    assert report.utilisation == pytest.approx(0.8 / (0.2 * 5))
    assert (report.rows_in, report.busy) == (200.0, 0.5)


def test_instances_of_one_node_share_what_it_used_by_what_their_threads_used() -> None:
    before = node(0.0, figures("counter"), figures("map"))
    after = node(1.0, figures("counter", cpu=0.3), figures("map", cpu=0.1), cpu=0.8)
    used = {report.instance: report.utilisation for report in compared("n1", before, after)}
    assert used == {COUNTER: pytest.approx(0.6), MAP: pytest.approx(0.2)}


def test_work_that_is_still_paid_for_counts_though_no_thread_runs() -> None:
    before, after = node(0.0, figures(), cpu=1.0, cores=0.1), node(1.0, figures(), cpu=1.1, cores=0.1)
    (report,) = compared("n1", before, after)
    assert report.utilisation == pytest.approx(1.0)


def test_time_that_others_had_the_cores_counts_as_used() -> None:
    before, after = node(0.0, figures()), node(1.0, figures(cpu=0.4, stolen=0.5), cpu=0.4)
    (report,) = compared("n1", before, after)
    assert report.utilisation == pytest.approx(0.8)


def test_a_small_share_could_be_had_though_others_were_busy() -> None:
    before = node(0.0, figures(), cores=0.2)
    (report,) = compared("n1", before, node(1.0, figures(cpu=0.1, stolen=0.5), cpu=0.1, cores=0.2))
    assert report.utilisation == pytest.approx(0.5)


def test_credit_that_is_used_up_reads_as_all_of_the_share_and_not_as_many_times_as_much() -> None:
    machine = Machine()
    share = machine.share(0.1, credit=5.0)
    reports = []
    for seconds in (1.0, 1.0, 0.05):  # two seconds of hard work on credit, and a quiet one
        reports.append(node(machine.now, figures(cpu=machine.used), cpu=share.paid(), cores=share.cores))
        machine.work(seconds)
        machine.sleep(1.0 - seconds)
    reports.append(node(machine.now, figures(cpu=machine.used), cpu=share.paid(), cores=share.cores))
    used = [next(compared("n1", before, now)).utilisation for before, now in pairwise(reports)]
    assert used == [pytest.approx(1.0), pytest.approx(1.0), pytest.approx(0.5)]


def test_credit_hides_no_bottleneck_whose_work_comes_in_bursts() -> None:
    machine = Machine()
    share = machine.share(0.1, credit=5.0)
    before = node(machine.now, figures(cpu=machine.used), cpu=share.paid(), cores=share.cores)
    for _ in range(10):  # half as much again as the share gives, but hardly any of it can be saved up between bursts
        machine.work(0.03)
        share.pace()
        machine.sleep(0.17)
    now = node(machine.now, figures(cpu=machine.used), cpu=share.paid(), cores=share.cores)
    assert next(compared("n1", before, now)).utilisation == pytest.approx(1.0)


@given(st.floats(0, 9), st.floats(0, 9), st.floats(0, 9), st.floats(0.05, 4.0))
def test_utilisation_is_between_nothing_and_all(cpu: float, of_process: float, stolen: float, cores: float) -> None:
    before = node(0.0, figures(), cores=cores)
    after = node(1.0, figures(cpu=cpu, stolen=stolen), cpu=cpu + of_process, cores=cores)
    (report,) = compared("n1", before, after)
    assert 0.0 <= report.utilisation <= 1.0


def test_another_incarnation_is_not_compared_with_the_one_before() -> None:
    before, after = node(0.0, figures(incarnation=0, cpu=9.0)), node(1.0, figures(incarnation=1, cpu=0.1))
    assert list(compared("n1", before, after)) == []


def test_memory_is_state_and_buffers_over_the_budget() -> None:
    told = figures(state_bytes=300, outbox_bytes=100), figures("map", outbox_bytes=100)
    reports = compared("n1", node(0.0, *told), node(1.0, *told, memory=1000))
    assert [report.memory for report in reports] == [0.5, 0.5]


def test_the_status_and_the_observation_say_the_same() -> None:
    it = Recorded()
    it.take("n1", 0.0, figures(), cores=0.5)
    it.take("n1", 2.0, figures(cpu=0.4), cpu=0.5, cores=0.5)
    (status,) = it.record.status(launched()).instances
    assert status.utilisation == pytest.approx(0.5)


def test_latencies_are_told_since_when_one_likes() -> None:
    it = Recorded()
    for at, latency in [(1.0, 0.1), (2.0, 0.2), (9.0, 0.9)]:
        it.take("n1", at, figures("out", latencies=(latency,)))
    assert it.record.latencies.since(1.5).tolist() == [0.2, 0.9]
    it.clock.now = 10.0
    assert it.record.status(launched()).latency["max"] == 0.9
    it.clock.now = 100.0
    assert it.record.status(launched()).latency["max"] == 0.9, "the last ones, rather than none"


# -- sources ----------------------------------------------------------------------------------------------------------


def demands(program: Any) -> dict[str, SourceDemand]:
    return {
        name: SourceDemand(setting.rate, definition.partitions, definition.by_time)
        for name, (definition, setting) in program.sources.items()
    }


def program(rate: seep.Rate | None) -> dict[str, SourceDemand]:
    query = seep.Query("q")
    schema = pa.schema([("n", pa.int64())])
    source = query.source("numbers", seep.sources.generator(lambda *_: {}, schema, partitions=2))
    source.sink("out", seep.sinks.collect())
    return demands(query.compile(rate=rate))


def sight(at: float, passed: int, start: float = 1000.0) -> RunSnapshot:
    positions = {partition: Position(passed, passed, start=start) for partition in (0, 1)}
    return RunSnapshot(at, 1000.0 + at, {}, {}, {"numbers": positions}, (0.1, 0.3), 4, 2)


def test_the_offered_rate_is_what_is_due_and_what_is_not_read_of_it_is_behind() -> None:
    observer = Observer(program(seep.Rate(1000)))
    assert observer.observe(sight(5.0, 2000)) is None, "one sight is no interval"
    observation = observer.observe(sight(10.0, 3000))
    assert observation is not None
    assert observation.offered == {"numbers": pytest.approx(1000.0)}
    assert observation.behind == {"numbers": pytest.approx(10_000 - 6_000)}
    assert observation.latency["max"] == 0.3
    assert (observation.seconds, observation.epochs_in_flight, observation.warm_nodes) == (5.0, 4, 2)


def test_of_files_that_are_read_one_after_the_other_the_whole_rate_is_due_until_all_have_ended(tmp_path: Path) -> None:
    for file in range(2):
        pq.write_table(pa.table({"at": range(10_000)}), tmp_path / f"{file}.parquet")
    query = seep.Query("q")
    query.source("numbers", seep.sources.parquet(tmp_path, time="at")).sink("out", seep.sinks.collect())
    observer = Observer(demands(query.compile(rate=seep.Rate(1000))))
    first, second = Position([10_000], 10_000, ended=True, start=1000.0), Position([0], start=1000.0)
    observer.observe(RunSnapshot(10.0, 1010.0, {}, {}, {"numbers": {0: first, 1: second}}, (), 4, 2))
    read = {0: first, 1: second._replace(rows=3_000)}
    observation = observer.observe(RunSnapshot(15.0, 1015.0, {}, {}, {"numbers": read}, (), 4, 2))
    assert observation is not None
    assert observation.offered == {"numbers": pytest.approx(1000.0)}
    assert observation.behind == {"numbers": pytest.approx(2_000)}


def test_without_a_rate_a_source_offers_what_it_reads_and_is_never_behind() -> None:
    observer = Observer(program(None))
    observer.observe(sight(5.0, 2000))
    observation = observer.observe(sight(10.0, 3000))
    assert observation is not None
    assert observation.offered == {"numbers": pytest.approx(400.0)}
    assert observation.behind == {"numbers": 0.0}


# -- recoveries -------------------------------------------------------------------------------------------------------


def changes(events: list[Event]) -> list[Change]:
    recoveries = RecoveryChanges()
    for event in events:
        recoveries.hear(event)
    return list(recoveries)


def rebound(at: float) -> Event:
    return Rebound(subject=COUNTER, to="n2", at=at)


def recovered(at: float) -> Event:
    return InstanceRecovered(subject=COUNTER, seconds=1.5, detected=0.5, restored=0.5, replayed=0.5, at=at)


def test_a_recovery_is_a_change_from_the_rebind_until_it_is_over() -> None:
    events = [rebound(3.0), recovered(4.5)]
    assert changes(events) == [Change("counter", 3.0, 1, 1, 4.5)]


def test_a_recovery_that_was_begun_twice_counts_from_the_first_time() -> None:
    events = [rebound(3.0), rebound(3.5)]
    assert changes(events) == [Change("counter", 3.0, 1, 1)]
