"""The panels of `seep top`: what they say of a run, in a bounded number of rows, and the same as JSON."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from primitives.graph import InstanceId
from seep.cli.app import app
from seep.cli.display.panels import RunMoment, instance_table, node_table, panels, rows_for
from seep.cli.runs.top import as_data, ended
from seep.record.events import NodeKilled, ScalingOut
from seep.record.reports import BulkTransfer
from seep.record.slots.counts import HottestSlot
from seep.record.status import (
    CheckpointStatus,
    InstanceStatus,
    NodeStatus,
    OpenDecision,
    OperatorStatus,
    Status,
)

COUNTER = InstanceStatus(
    "counter[0]#1", "counter", "n2", "running", 40, 1_200_000, 0, 1.5, 0.84, 0, 3 << 20, 5 << 20, {"late": 12},
    rows_in_per_second=9_876.0, rows_out_per_second=1_234.0, unsent=7, watermark_behind=1_500,
)  # fmt: skip
STATUS = Status(
    12.3, 42, 40, 240_000, 20_013.4, {"p50": 0.031, "p95": 0.0525, "p99": 0.06, "max": 0.41}, (COUNTER,), 5, 1,
    offered=25_000.0,
    vms={"used": 3, "warm": 1},
    operators=(OperatorStatus("counter", 1, 40, 9_876.0, 1_234.0, 0.84, 0.021, 5 << 20, 3 << 20, 1_500,
                              HottestSlot(3, 0, 0.5, "be")),),
    hosts=(NodeStatus("n2", 0.75, 2.0, 200 << 20, 8 << 20, 0.0, 1024.0, 2048.0, 4096.0,
                      (BulkTransfer("n3", "backup", 9 << 20),), state="leaving"),),
    decisions=(OpenDecision("scaling", "counter", 10.0, False, "counter[0] is full"),
               OpenDecision("drain", "n2", 12.0, True, "")),
    checkpoints=(CheckpointStatus(1, 10, 9.0, 1 << 20, False), CheckpointStatus(2, 30, 4.0, 6 << 20, True)),
    vm_seconds=49.2,
    rows_out_per_second=1_234.0,
    window=16,
    since_commit=0.05,
)  # fmt: skip
EVENTS = (
    NodeKilled(node="n3", hosted=(InstanceId("counter", 0),), at=5.0).to_json(),
    ScalingOut(operator="counter", before=1, after=2, why="full", at=10.0).to_json(),
)
MOMENT = RunMoment("ab12cd34", "orders", "running", "", STATUS, ("1 full instance: counter[0]#1",), EVENTS)


def drawn(moment: RunMoment, most: int = 20, width: int = 140) -> list[str]:
    console = Console(record=True, width=width, height=50, file=io.StringIO())
    console.print(panels(moment, most))
    return [line.rstrip() for line in console.export_text().splitlines()]


def many(count: int) -> Status:
    instances = tuple(replace(COUNTER, name=f"counter[{at}]#0", utilisation=at / count) for at in range(count))
    return replace(STATUS, instances=instances)


def test_the_first_lines_say_whether_the_run_is_healthy() -> None:
    lines = drawn(MOMENT)
    assert lines[:4] == [
        "run ab12cd34 of orders: running, 12.3 s since it began",
        "! 1 full instance: counter[0]#1",
        "20,013 rows/s in (25,000 due); 1,234 rows/s out; latency p50 31.0 ms, p99 60.0 ms",
        "2 epochs in flight of at most 16; last commit 50.0 ms ago; watermark 1,500 behind; late 12",
    ]
    assert drawn(MOMENT._replace(wrong=()))[1] == "healthy: nothing is wrong"


def test_panels_come_in_the_order_of_their_importance_with_all_figures() -> None:
    text = "\n".join(drawn(MOMENT))
    titles = ["operators", "instances", "nodes", "open decisions", "checkpoints", "VMs", "newest events"]
    places = [text.index(f"\n{title}\n") for title in titles]
    assert places == sorted(places)
    cells = "|".join(" ".join(line.split()) for line in text.splitlines())
    for words in (
        "operator instances epoch rows/s in rows/s out busy latency behind outbox state",
        "counter 1 40 9,876 1,234 84% 21.0 ms 1,500 3.0 MiB 5.0 MiB",
        "instance node phase epoch rows/s in rows/s out busy unsent behind outbox state",
        "counter[0]#1 n2 running 40 9,876 1,234 84% 7 1,500 3.0 MiB 5.0 MiB",
        "node sends cores memory state read/s written/s received/s sent/s",
        "n2 leaving backup to n3 9.0 MiB 0.75 of 2 200.0 MiB 8.0 MiB 0 B 1.0 KiB 2.0 KiB 4.0 KiB",
        "scaling of counter for 2.30 s: counter[0] is full",
        "drain of n2 for 300 ms, by hand",
        "savepoint 2 at epoch 30 is the newest: 4.00 s old, 6.0 MiB",
        "3 used, 1 warm; 5 nodes (1 idle); 49 s of VMs so far",
        "newest events|10.00 s scaling out counter 1 → 2: full|5.00 s killed n3 with counter[0]",
    ):
        assert words in cells


def test_a_run_that_has_only_begun_is_shown_too() -> None:
    begun = Status(0.1, 0, 0, 0, 0.0, {}, (), 0, 0)
    text = "\n".join(drawn(RunMoment("ab", "orders", "running", "", begun, (), ())))
    assert "latency not known yet" in text
    assert "no watermark" in text
    assert "none was stored by this run" in text
    assert "open decisions\nnone" in text


def test_of_many_instances_the_busiest_are_shown_and_how_many_more_there_are() -> None:
    lines = drawn(MOMENT._replace(status=many(1000)), most=5)
    shown = [line.split()[0] for line in lines if line.startswith("counter[")]
    assert shown == [f"counter[{at}]#0" for at in (999, 998, 997, 996, 995)]
    assert "and 995 more" in lines
    assert len(lines) < 50


def test_few_instances_stay_in_the_order_of_their_names() -> None:
    lines = drawn(MOMENT._replace(status=many(5)), most=5)
    assert [line.split()[0] for line in lines if line.startswith("counter[")] == [f"counter[{at}]#0" for at in range(5)]
    assert not [line for line in lines if line.startswith("and ")]


def test_no_more_rows_are_made_than_are_shown() -> None:
    table = instance_table(many(1000), 7)
    assert table.renderables[0].row_count == 7  # type: ignore[attr-defined]
    nodes = tuple(replace(STATUS.hosts[0], name=f"n{at}", cpu=float(at)) for at in range(100))
    assert node_table(replace(STATUS, hosts=nodes), 3).renderables[0].row_count == 3  # type: ignore[attr-defined]


def test_lists_of_sentences_and_decisions_are_bounded() -> None:
    decisions = tuple(OpenDecision("drain", f"n{at}", 1.0, True, "") for at in range(100))
    moment = MOMENT._replace(wrong=tuple(map(str, range(30))), status=replace(STATUS, decisions=decisions))
    lines = drawn(moment)
    assert "! and 22 more" in lines
    assert "and 92 more" in lines
    assert len(lines) < 60


@pytest.mark.parametrize("height", [24, 40, 60, 100])
def test_everything_but_lists_fits_on_the_screen_beside_the_lists(height: int) -> None:
    assert 3 <= rows_for(height) <= height // 3


def test_names_and_reasons_are_no_markup() -> None:
    hostile = replace(COUNTER, name="[red]x[/]#0")
    moment = MOMENT._replace(query="[bold]", wrong=("[blink]",), status=replace(STATUS, instances=(hostile,)))
    text = "\n".join(drawn(moment))
    assert "of [bold]: running" in text
    assert "! [blink]" in text
    assert "[red]x[/]#0" in text


def test_a_moment_is_one_json_object_with_the_names_of_all_figures() -> None:
    data = json.loads(json.dumps(as_data(MOMENT)))
    assert (data["id"], data["query"], data["phase"], data["healthy"]) == ("ab12cd34", "orders", "running", False)
    assert data["wrong"] == ["1 full instance: counter[0]#1"]
    assert data["status"]["decisions"][0]["why"] == "counter[0] is full"
    assert data["status"]["checkpoints"][1] == {
        "id": 2, "epoch": 30, "age": 4.0, "bytes": 6 << 20, "is_savepoint": True
    }  # fmt: skip
    assert data["status"]["hosts"][0]["transfers"] == [{"peer": "n3", "kind": "backup", "nbytes": 9 << 20}]
    assert data["status"]["operators"][0]["hottest"]["key"] == "be"
    assert data["status"]["instances"][0]["counters"] == {"late": 12}
    assert [each["kind"] for each in data["events"]] == ["killed", "scaling out"]


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ("finished", "run ab12cd34 of orders is finished: all input is processed and committed"),
        ("halted", "run ab12cd34 of orders was stopped before the end of its input"),
        ("failed", "run ab12cd34 of orders has failed: boom"),
        ("stopped", "run ab12cd34 of orders was stopped"),
        ("ended", "run ab12cd34 of orders has ended; how is not known, because its driver is gone"),
    ],
)
def test_the_end_of_a_run_is_said_in_words(phase: str, words: str) -> None:
    assert ended(MOMENT._replace(phase=phase, failure="boom")) == words


def test_a_run_that_is_not_there_is_an_error_with_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEP_HOME", "/no/such/place")
    result = CliRunner().invoke(app, ["top", "orders"])
    assert result.exit_code == 1
    assert "no run is called 'orders'; running now: none" in result.output


def test_an_interval_that_would_load_the_run_is_refused() -> None:
    result = CliRunner().invoke(app, ["top", "orders", "--interval", "0.01"])
    assert result.exit_code == 2
    assert "'--interval': Input should be greater than or equal to 0.2" in result.output


def test_a_status_comes_whole_through_json() -> None:
    assert Status.from_json(json.loads(json.dumps(STATUS.to_json()))) == STATUS
