"""The measurements of the runtime measure what they say; how fast anything is, is no matter here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark import SparkContext

import seep
from benchmarks import keys, latency, notes, throughput
from primitives.graph import InstanceId
from seep.protocol.view import Incarnation
from seep.spark.session import Host, open_session

SINK = Incarnation(InstanceId("sink", 0), 0)
#: One key for each row.
COLUMNS = {"at random": keys.at_random, "in turn": keys.in_turn, "drifting": keys.Drifting(1e6)}


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with open_session(SparkContext._active_spark_context, name="tests") as host:
        yield host


def test_latencies_of_a_real_run_are_positive_and_in_order(host: Host) -> None:
    measured = latency.measure(host.context, 0.5, epoch_ms=20, rate=10_000)
    assert 0 < measured["latency_20ms_p50_ms"] <= measured["latency_20ms_p99_ms"] <= measured["latency_20ms_max_ms"]


@pytest.mark.parametrize("columns", COLUMNS.values(), ids=COLUMNS)
def test_keys_depend_on_the_position_alone(columns: keys.Columns) -> None:
    whole = columns(0, 5_000, 10_000)["key"]
    parts = [columns(0, 5_000, 1), columns(0, 5_001, 3_999), columns(0, 9_000, 6_000)]
    assert np.array_equal(np.concatenate([part["key"] for part in parts]), whole)
    assert whole.min() >= 0
    assert whole.max() < keys.KEYS


def test_keys_in_turn_are_all_there_once_from_any_position_on() -> None:
    assert len(np.unique(keys.in_turn(0, 12_345, keys.KEYS)["key"])) == keys.KEYS


def test_a_tenth_of_all_keys_drifts_by_in_any_second() -> None:
    rate = 4 * keys.KEYS
    changed = np.unique(keys.Drifting(rate)(0, 7 * rate + rate // 3, rate)["key"])
    assert len(changed) == pytest.approx(keys.KEYS / 10, rel=0.02)


def test_counts_are_those_of_all_positions_however_they_are_cut() -> None:
    expected = np.bincount(keys.at_random(0, 0, 10_000)["key"], minlength=keys.KEYS)
    assert np.array_equal(keys.counts(keys.at_random, 10_000, block=999), expected)


def test_wrong_counts_are_refused() -> None:
    right = pa.table({"key": [2, 0], "n": [5, 1]})
    throughput.check(right, np.array([1, 0, 5]))
    for wrong in ({"key": [2], "n": [5]}, {"key": [2, 0], "n": [5, 2]}, {"key": [2, 0, 0], "n": [5, 1, 0]}):
        with pytest.raises(seep.InternalError, match="are wrong"):
            throughput.check(pa.table(wrong), np.array([1, 0, 5]))


def noted(directory: Path, *commits: tuple[float, list[float]], monkeypatch: pytest.MonkeyPatch) -> notes.Noted:
    """What is noted of commits, each at a time and of rows due at some times, all in seconds."""
    store = notes.Notes(directory)
    for epoch, (at, dues) in enumerate(commits, 1):
        monkeypatch.setattr(notes.time, "time_ns", lambda at=at: int(at * 1e9))
        rows = pa.record_batch({"due": pa.array([int(due * 1e6) for due in dues], pa.int64())})
        store.commit(SINK, epoch, [rows] if dues else [], 0)
    store.close()
    return notes.Noted.read(directory)


def test_latencies_leave_out_the_rows_due_in_the_warm_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = noted(tmp_path, (10.5, [10.0, 10.4]), (11.5, []), (13.0, [12.0, 12.75]), monkeypatch=monkeypatch)
    assert found.latencies(warm_up=2.0).tolist() == [1.0, 0.25]
    assert found.latencies(warm_up=0.0).tolist() == [0.5, 0.1, 1.0, 0.25]


def test_the_longest_pause_is_one_that_touches_the_given_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = [1.0, 4.0, 4.5, 5.5, 5.75, 9.0]
    found = noted(tmp_path, *[(at, []) for at in times], monkeypatch=monkeypatch)
    assert found.longest_pause(4.75, 5.6) == 1.0
    assert found.longest_pause(4.75, 6.0) == 3.25
