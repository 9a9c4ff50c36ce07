"""A finished run answers from its report what can be read, and refuses the rest in words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from primitives.errors import UserError
from seep.control.migration import MigrationProgress, MigrationState
from seep.dashboard.finished import FinishedRun
from seep.dashboard.requests import ACTING, RunIsOver
from seep.record.status import Status


def point(at: float, rows_in: int, **more: Any) -> dict[str, Any]:
    counter = {"node": "n2", "utilisation": 0.5, "rows_in": rows_in, "state_bytes": 100, "outbox_bytes": 10}
    return {
        "at": at,
        "rows": 2 * rows_in,
        "rows_per_second": 50.0,
        "nodes": 3,
        "instances": {"counter[1]#2": counter},
    } | more


MIGRATED = MigrationProgress("counter", "fluid", MigrationState.DONE, 2, 2, 128, 0, 4096, 0, 7, 1.5)
REPORT: dict[str, Any] = {
    "query": "orders",
    "summary": {"rows": 400, "epochs": 9, "failure": None},
    "migrations": [MIGRATED.to_json() | {"opened": 1.0}] * 150,
    "spans": [{"name": "scaling"}],
    "events": [{"kind": "node joined", "at": float(at)} for at in range(700)] + [{"kind": "finished", "at": 700.0}],
    "series": [point(0.0, 0), point(1.0, 100), point(3.0, 200, edges={"a->counter": 7.5})],
    "graph": {"operators": {"a": "source", "counter": "stateful"}, "edges": [["a", "counter"]]},
    "slots": {"counter": {"slots": 256, "starts": [0, 128], "owners": [0, 1]}},
}  # fmt: skip
RUN = FinishedRun(REPORT, "orders.json")


def answer(do: str, **fields: Any) -> Any:
    return json.loads(json.dumps(RUN.answer({"do": do, **fields})))


def test_it_says_that_it_is_not_live_and_takes_no_action() -> None:
    told = answer("run")
    assert (told["id"], told["query"], told["is_live"], told["phase"]) == ("orders.json", "orders", False, "finished")
    assert (told["acts"], told["stateful"], told["edges"]) == ([], ["counter"], [["a", "counter"]])


def test_its_status_is_that_of_the_last_sample_with_rates_since_the_one_before() -> None:
    told = answer("status", sample=True)
    status = Status.from_json(told["status"])
    assert (status.at, status.rows_read, status.committed, dict(status.edges)) == (3.0, 400, 9, {"a->counter": 7.5})
    (counter,) = status.instances
    assert (counter.operator, counter.index, counter.rows_in_per_second) == ("counter", 1, 50.0)
    assert [each.name for each in status.operators] == ["counter"]
    assert told["sample"] == REPORT["series"][-1]


def test_events_after_a_number_are_the_newest_of_them() -> None:
    told = answer("status", after=690)
    assert (told["number"], len(told["new"]), told["new"][-1]["kind"]) == (700, 10, "finished")
    assert len(answer("status", after=-1)["new"]) == 500
    assert answer("status")["new"] == []
    assert len(answer("status")["events"]) == 20


def test_the_report_is_given_in_the_parts_and_with_the_points_that_are_asked_for() -> None:
    assert answer("report") == REPORT
    assert answer("report", only=["summary", "spans"]) == {key: REPORT[key] for key in ("summary", "spans")}
    assert [each["at"] for each in answer("report", only=["series"], points=2)["series"]] == [0.0, 3.0]


def test_slots_migrations_and_the_story_are_those_of_the_report() -> None:
    assert answer("slots", operator="counter")["starts"] == [0, 128]
    assert len(answer("migrations")["migrations"]) == 100
    assert answer("story")["events"] == REPORT["events"]


@pytest.mark.parametrize("do", ACTING)
def test_it_refuses_to_act(do: str) -> None:
    given = {"scale": {"to": 1}, "migrate": {"to": 1}, "drain": {"node": "n1"}}.get(do, {})
    operator = {"operator": "counter"} if do in ("scale", "migrate", "balance") else {}
    with pytest.raises(RunIsOver, match=f"finished.*{do}"):
        RUN.answer({"do": do, **operator, **given})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"do": "slots", "operator": "a"}, "'a' is no operator with slots in this report; those are counter"),
        ({"do": "logs"}, "shown from its report, which has nothing for 'logs'"),
        ({"do": "state", "operator": "counter"}, "nothing for 'state'"),
    ],
)
def test_what_a_report_does_not_have_is_refused_in_words(body: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        RUN.answer(body)


def test_a_report_of_a_failed_run_and_one_without_samples_are_shown_too() -> None:
    failed = FinishedRun(
        {"summary": {"failure": {"kind": "user", "text": "boom"}}, "events": [{"kind": "failed"}]}, "x"
    )
    told: Any = failed.answer({"do": "status", "sample": True})
    assert (told["phase"], told["failure"], told["wrong"]) == ("failed", "boom", ["the run has failed: boom"])
    assert (told["sample"], Status.from_json(told["status"]).instances) == (None, ())
    assert failed.answer({"do": "run"})["operators"] == {}
