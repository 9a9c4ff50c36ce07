"""The measurements of migration measure what they say; how fast anything is, is no matter here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark import SparkContext

from benchmarks import filled, keys, migration, pauses, replica_recovery, rescaling, slot_overhead
from primitives.graph import InstanceId
from seep.protocol.messages import MAX_WATERMARK
from seep.protocol.view import Incarnation
from seep.spark.session import Host, open_session

SINK = Incarnation(InstanceId("sink", 0), 0)


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with open_session(SparkContext._active_spark_context, name="tests") as host:
        yield host


def noted(directory: Path, commits: list[tuple[float, float]], monkeypatch: pytest.MonkeyPatch) -> filled.Commits:
    """What a sink notes of commits at some times, with all rows that were due up to others; in seconds."""
    clock = filled.Clock(directory)
    for epoch, (at, due) in enumerate(commits, 1):
        monkeypatch.setattr(filled.time, "time_ns", lambda at=at: int(at * 1e9))
        clock.commit(SINK, epoch, [], int(due * 1e6) if due < 1e6 else MAX_WATERMARK)
    clock.close()
    return filled.Commits.read(directory)


def test_rows_are_as_late_as_the_commit_of_the_epoch_that_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = noted(tmp_path, [(10.5, 10.0), (11.5, 11.0), (13.0, 12.0), (14.0, 1e9)], monkeypatch)
    late = found.latencies((10.25, 99.0))
    assert len(late) == 1750
    assert late[0] == pytest.approx(1250)
    assert late.max() == pytest.approx(13_000 - 11_001, abs=1.1)
    assert late[-1] == pytest.approx(1000, abs=1.1)


def test_the_largest_gap_is_one_that_touches_the_span(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = noted(tmp_path, [(at, at) for at in (1.0, 4.0, 4.5, 5.5, 5.75, 9.0)], monkeypatch)
    assert found.largest_gap((4.75, 5.6)) == pytest.approx(1000)
    assert found.largest_gap((4.75, 6.0)) == pytest.approx(3250)


@pytest.mark.parametrize("count", [1_000_000, 4_000_000, 10_000_000])
def test_keys_in_turn_fill_every_number_of_keys_that_is_measured(count: int) -> None:
    drawn = np.concatenate([keys.InTurn(count)(0, first, 500_000)["key"] for first in range(0, count, 500_000)])
    assert np.bincount(drawn, minlength=count).max() == 1


@pytest.mark.parametrize("moves", [True, False], ids=["that moves", "that cannot move"])
def test_a_count_knows_all_keys_before_it_is_looked_at(host: Host, moves: bool) -> None:
    load = filled.Load(keys=5_000, rate=10_000.0, slot_bits=8 if moves else 1, moves=moves)
    with filled.filled(host.context, load) as query:
        assert query.rows() >= 0
        late = query.latencies(query.watch(0.5))
        assert late.min() > 0
        assert not query.run.report()["summary"]["failure"]


def test_what_cannot_move_counts_all_the_same() -> None:
    count, rows = filled.Unmovable(), [{"key": [7, 9, 7]}, {"key": [9, 8]}]
    last = [count.process([pa.record_batch(batch)]) for batch in rows][-1]  # type: ignore[arg-type]
    assert dict(zip(last["key"].to_pylist(), last["n"].to_pylist(), strict=True)) == {9: 2, 8: 1}


@pytest.mark.acceptance
def test_a_rescaling_that_was_measured_has_gone_there_and_back(host: Host) -> None:
    measured = rescaling.measure(host.context, 5_000, times=1)
    assert 0 < measured["rescale_gap_ms"] <= measured["rescale_gap_worst_ms"]
    assert measured["rescale_gap_ms"] == max(measured["rescale_out_gap_ms"], measured["rescale_in_gap_ms"])


def test_recoveries_are_compared_with_those_of_the_same_kind_of_state() -> None:
    found = {"replica_1x_s": 0.5, "replica_16x_s": 1.0, "storage_16x_s": 20.0, "replica_on_disk_16x_s": 3.0}
    assert replica_recovery.ratios(found) == {
        "replica_recovery_16x_over_1x": 2.0,
        "replica_over_storage_recovery": 0.05,
    }


def test_slots_are_compared_with_what_cannot_move() -> None:
    found = slot_overhead.figures(
        {"p50": 10.0, "p99": 20.0, "max": 30.0, "cpu": 4.0}, {12: {"p50": 11.0, "p99": 25.0, "max": 50.0, "cpu": 5.0}}
    )
    assert found["slots_2e12_p99_ratio"] == 1.25
    assert found["slots_2e12_p50_ratio"] == 1.1
    assert found["slots_2e12_cpu_ratio"] == 1.25


def test_every_target_has_the_name_of_something_that_is_measured() -> None:
    sizes = migration.Sizes(pauses=(1_000_000, 10_000_000), bits=(12, 16, 20))
    strategies = pauses.ratios(
        {"unprepared_max_ms": 1.0, "batched_max_ms": 1.0, "fluid_max_ms": 1.0, "steady_p99_ms": 1.0}
    )
    known = {f"{name}_{size}" for name in strategies for size in ("1m", "10m")} | {"rescale_gap_ms"}
    ways = {f"{way}_{times}x_s": 1.0 for way in replica_recovery.WAYS for times in replica_recovery.TIMES}
    latencies = {"p50": 1.0, "p99": 1.0, "max": 1.0, "cpu": 1.0}
    known |= (
        replica_recovery.ratios(ways).keys()
        | slot_overhead.figures(latencies, dict.fromkeys(sizes.bits, latencies)).keys()
    )
    assert migration.targets(sizes).keys() <= known
