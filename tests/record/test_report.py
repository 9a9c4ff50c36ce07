"""Reports: what samples and events of a run come to."""

from __future__ import annotations

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from primitives.errors import EnvironmentFault, InternalError, UserError
from primitives.event import Event
from primitives.graph import InstanceId
from seep.record.commits import Commits
from seep.record.events import InstanceRecovered, NodeKilled, RunFailed, RunFinished, ScaledOut
from seep.record.report import make_report
from seep.record.samples import Sample, sample_of
from seep.record.status import InstanceStatus, OperatorStatus, Status, operator_status


def sample(at: float, *, ticked: int = 0, committed: int = 0) -> Sample:
    figures = {"outbox_bytes": 40, "state_bytes": 30, "counters": {}, "unsent": 4}
    instance = InstanceStatus("counter[0]#1", "counter", "n1", "running", committed, 10, 6, 0.5, 0.25, 2, **figures)  # type: ignore[arg-type]
    operators = (operator_status("counter", (instance,), None), OperatorStatus("out", 1, 0, 0, 0, 0, 0, 0, 0, 7))
    flow = {"edges": {"counter->out:0": 90.0}, "rows_out_per_second": 80.0, "window": 16, "since_commit": 0.2}
    rows = int(at * 100)
    given = (at, ticked, committed, rows, 100.0, {"p50": 0.01}, (instance,), 3, 1)
    return sample_of(Status(*given, operators=operators, **flow))  # type: ignore[arg-type]


def report_of(*samples: Sample, events: tuple[Event, ...] = (), failure: UserError | None = None) -> dict[str, object]:
    return make_report("q", events, samples, rows=1000, latency={"p50": 0.01}, largest_gap=0.3, failure=failure)


def test_the_summary_counts_from_the_first_sample_to_the_end_of_the_run() -> None:
    finished = RunFinished(at=11.0)
    report = report_of(sample(1.0), sample(6.0, committed=90), sample(31.0, committed=90), events=(finished,))
    assert report["summary"] == {
        "rows": 1000,
        "seconds": 10.0,
        "rows_per_second": 100.0,
        "epochs": 90,
        "latency": {"p50": 0.01},
        "largest_gap": 0.3,
        "recoveries": [],
        "scalings": [],
        "vm_seconds": 0,
        "vms": {},
        "counters": {},
        "counters_exact": False,
        "failure": None,
    }


def test_a_run_that_ends_before_the_second_sample_has_its_length() -> None:
    summary = report_of(sample(1.0), events=(RunFinished(at=1.25),))["summary"]
    assert (summary["seconds"], summary["rows_per_second"]) == (0.25, 4000.0)  # type: ignore[index]


def test_a_point_of_the_series_says_how_things_were() -> None:
    report = report_of(sample(2.0, ticked=9, committed=7))
    assert report["series"] == [
        {
            "at": 2.0,
            "rows": 200,
            "rows_per_second": 100.0,
            "offered": 0.0,
            "latency": {"p50": 0.01},
            "epochs_in_flight": 2,
            "nodes": 3,
            "idle_nodes": 1,
            "vms": {},
            "imbalance": {},
            "rows_out_per_second": 80.0,
            "edges": {"counter->out:0": 90.0},
            "window": 16,
            "since_commit": 0.2,
            "watermark_behind": 7,
            "instances": {
                "counter[0]#1": {
                    "node": "n1",
                    "utilisation": 0.25,
                    "rows_in": 10,
                    "state_bytes": 30,
                    "outbox_bytes": 40,
                    "rows_out": 6,
                    "waiting": 2,
                    "unsent": 4,
                }
            },
        }
    ]


def test_samples_after_the_end_are_left_out_of_the_series() -> None:
    report = report_of(sample(1.0), sample(5.0), events=(RunFailed(at=3.0),))
    assert [point["at"] for point in report["series"]] == [1.0]  # type: ignore[attr-defined]


def test_a_scaling_is_told_with_its_figures_and_the_vms_with_what_they_cost() -> None:
    figures = {"before": 1, "after": 2, "latency_peak": 0.6}
    scaled = ScaledOut(
        operator="counter", before=1, after=2, seconds=1.5, waited=0.1, latency_peak=0.6, why="asked for", at=7.0
    )
    report = make_report(
        "q", [scaled], [sample(0.0)], rows=1, latency={}, largest_gap=0.0, vm_seconds={"vm-1": 20.0, "vm-2": 1.5}
    )
    assert report["summary"]["scalings"] == [{"operator": "counter", "at": 7.0, "seconds": 1.5, **figures}]
    assert report["summary"]["vm_seconds"] == 21.5


def test_a_recovery_is_told_with_its_parts() -> None:
    recovered = InstanceRecovered(
        subject=InstanceId("counter", 0), seconds=0.41, detected=0.061, restored=0.24, replayed=0.109, at=5.41
    )
    summary = report_of(sample(0.0), events=(NodeKilled(node="n1", at=5.0), recovered))["summary"]
    assert summary["recoveries"] == [  # type: ignore[index]
        {"instance": "counter[0]", "at": 5.41, "seconds": 0.41, "detected": 0.061, "restored": 0.24, "replayed": 0.109}
    ]


def test_a_failure_is_told_with_whose_it_is() -> None:
    for failure, kind in (
        (UserError("x"), "user"),
        (EnvironmentFault("x"), "environment"),
        (InternalError("x"), "internal"),
    ):
        summary = make_report("q", (), (), rows=0, latency={}, largest_gap=0.0, failure=failure)["summary"]
        assert summary["failure"] == {"kind": kind, "text": "x"}


def test_a_report_is_plain_data_even_of_a_run_that_hardly_began() -> None:
    empty = make_report("q", (), (), rows=0, latency={}, largest_gap=0.0)
    full = report_of(sample(1.0), events=(NodeKilled(node="n1", hosted=(InstanceId("counter", 0),), at=1.0),))
    for report in (empty, full):
        assert json.loads(json.dumps(report)) == report


@given(st.lists(st.tuples(st.integers(1, 9), st.floats(0, 100)), min_size=1))
def test_the_largest_gap_is_between_commits_that_get_on(steps: list[tuple[int, float]]) -> None:
    notes = [(epoch, sum(pause for _, pause in steps[: n + 1])) for n, (epoch, _) in enumerate(steps)]
    commits, firsts, highest = Commits(), [], 0
    for epoch, at in notes:
        commits.note(epoch, at)
        if epoch > highest:
            highest = epoch
            firsts.append(at)
    assert commits.largest_gap == max((b - a for a, b in itertools.pairwise(firsts)), default=0.0)
