"""The traces of a real run: a scale-out, a migration and a loss, phase by phase, in its report."""

from __future__ import annotations

from typing import Any

from seep.spark.session import Host
from tests.runtime.counting import awaited, committed, counting, idle, recovered, start


def test_a_scale_out_a_migration_and_a_loss_are_in_the_report_with_their_phases(host: Host) -> None:
    with start(host, counting(), spare=3) as run:
        committed(run, 20)
        run.scale("counter", 2)
        awaited(run, lambda: bool(run.events.of("move complete")))
        committed(run, 30)
        run.migrate("counter", 3, "batched", batch=64).wait(60.0)
        idle(run)
        lost = run.placement["counter[1]"]
        run.kill("counter[1]")
        recovered(run)
        run.finish()
        run.wait(60.0)
    spans = run.report()["spans"]
    _check_nested(spans)
    (scaling,), (migration,), (recovery,) = (_roots(spans, name) for name in ("scaling", "migration", "recovery"))
    assert (scaling["attributes"]["before"], scaling["attributes"]["after"], scaling["status"]) == (1, 2, "ok")
    (plan,) = _below(spans, scaling, "plan")
    assert {"sealed", "effective", "safe", "transfer"} <= {span["name"] for span in _below(spans, plan)}
    assert sum(span["attributes"]["bytes"] for span in _below(spans, plan, "transfer")) > 0
    assert len(_below(spans, migration, "plan")) == migration["attributes"]["steps"] > 1
    assert recovery["attributes"]["node"] == lost
    (event,) = (each for each in run.events.of("recovered") if each.instance == "counter[1]")
    (instance,) = (each for each in _below(spans, recovery) if each["attributes"]["instance"] == "counter[1]")
    assert [span["name"] for span in _below(spans, instance)] == ["detected", "restored", "replayed"]
    assert event.seconds is not None
    assert abs(instance["end"] - instance["start"] - event.seconds) < 0.1  # both are from the kill to the commit


def _roots(spans: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [span for span in spans if span["name"] == name and "parent" not in span]


def _below(spans: list[dict[str, Any]], parent: dict[str, Any], name: str | None = None) -> list[dict[str, Any]]:
    return [span for span in spans if span.get("parent") == parent["id"] and name in (None, span["name"])]


def _check_nested(spans: list[dict[str, Any]]) -> None:
    known = {span["id"]: span for span in spans}
    assert len(known) == len(spans)
    for span in spans:
        assert "end" in span, f"{span} is open at the end of the run"
        parent = known.get(span.get("parent", ""), span)
        assert parent["start"] <= span["start"] <= span["end"] <= parent["end"]
