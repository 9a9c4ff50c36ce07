"""The story of real runs: a scale-out and a loss as `seep story` tells them, and what a failure of seep leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from primitives.errors import InternalError
from primitives.graph import InstanceId
from seep.cli.app import app
from seep.protocol.messages import Committed
from seep.protocol.view import Incarnation
from seep.record.causes.story import story
from seep.running.run import Run
from seep.spark.session import Host
from tests.runtime.counting import awaited, committed, counting, idle, recovered, start, wait_until


def told(run: Run) -> str:
    return "\n".join(story([event.to_json() for event in run.events]))


def test_a_scale_out_and_a_kill_are_told_with_their_causes(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEEP_HOME", str(tmp_path))
    with start(host, counting(), spare=2) as run:
        committed(run, 20)
        run.scale("counter", 2)
        awaited(run, lambda: bool(run.events.of("move complete")))
        committed(run, 30)
        idle(run)
        lost = run.placement["counter[1]"]
        run.kill("counter[1]")
        recovered(run)
        words = told(run)
        assert "decision 1: scaled counter 1 → 2 because" in words
        for step in ("sealed by view", "is open", "counter[1] has", "of state from counter[0] in", "safe: both sides"):
            assert step in words
        assert f"lost node {lost} with counter[1]" in words
        assert "counter[1] recovered in" in words
        machines = run.manager_process.machine_story()
        assert any(line.startswith("→ MoveSlots(") for line in machines["steward"])
        assert any("accepted, plan" in line for line in machines["steward"])
        live = CliRunner().invoke(app, ["story", run.id, "--instance", "counter[1]", "--messages"])
        assert live.exit_code == 0, live.output
        assert f"lost node {lost} with counter[1]" in live.stdout
        assert "counter[1]#1 took (←) and answered (→):" in live.stdout
        assert "← Data(" in live.stdout
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run.report()), encoding="utf-8")
    again = CliRunner().invoke(app, ["story", str(path), "--decision", "1"])
    assert again.stdout.startswith("decision 1: scaled counter 1 → 2 because")


def test_a_failure_of_seep_leaves_in_the_report_what_machines_did_last(host: Host) -> None:
    with start(host, counting()) as run:
        committed(run, 5)
        node, manager = run.placement["counter[0]"], run.manager_process
        no_letter_for_nodes = Committed(Incarnation(InstanceId("out", 0), 0), 1)
        manager.put_on_loop(lambda: manager.peers.post(node, 0, no_letter_for_nodes))
        wait_until(lambda: run.failure is not None)
        report = run.report()
    assert isinstance(run.failure, InternalError)
    assert "no use for a letter of manager" in str(run.failure)
    assert "The report has under 'story' what the machines did last" in str(run.failure)
    assert report["story"].keys() == {"manager", "steward", f"node {node}"}
    assert any("Committed(out[0]#0, 1" in line for line in report["story"][f"node {node}"])
    assert any(line.startswith("← ") for line in report["story"]["manager"])
