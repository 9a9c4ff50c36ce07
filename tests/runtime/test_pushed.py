"""Metrics and traces of real runs, pushed to a collector while the run migrates state and loses a node."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

import seep
from primitives.errors import UserError
from seep.running.run import Run
from seep.spark.session import Host
from tests.metrics.collecting import Collecting, Scraped, as_scraped, collector, scraped
from tests.runtime.counting import RATE, committed, counting, expected, found, start, wait_until


def page(run: Run) -> Scraped:
    assert run.metrics_url is not None
    with urlopen(run.metrics_url, timeout=30) as answer:
        return settled(scraped(answer.read().decode()))


def settled(series: Scraped) -> Scraped:
    """Those that do not change any more when a run is over, whatever passes of time and of pushes."""
    passing = ("seep_push", "seep_run_uptime", "seep_pool_vm_seconds", "seep_node", "seep_instance", "seep_pool_vms")
    return {each: value for each, value in series.items() if not each[0].startswith(passing)}


def trees(server: Collecting) -> dict[str, dict[str, set[str]]]:
    """Name of a root -> name of a span below it -> names of its children; checks that times lie within parents."""
    spans = {span.span_id: span for span in server.spans}
    assert len(spans) == len(server.spans), "a span was pushed twice"
    found: dict[str, dict[str, set[str]]] = {}
    for span in spans.values():
        above = span
        while above.parent_span_id:
            parent = spans[above.parent_span_id]
            assert parent.trace_id == span.trace_id
            assert parent.start_time_unix_nano <= above.start_time_unix_nano
            assert above.end_time_unix_nano <= parent.end_time_unix_nano
            above = parent
        below = found.setdefault(above.name, {})
        if span.parent_span_id:
            below.setdefault(spans[span.parent_span_id].name, set()).add(span.name)
    return found


def test_a_collector_gets_the_metrics_of_the_page_and_the_whole_traces_of_what_happened(host: Host) -> None:
    with collector() as server:
        otlp = {"url": server.url, "interval": 0.2, "timeout": "20s"}
        with start(
            host, counting(partitions=2), rate=seep.Rate(RATE), spare=3, metrics={"port": 0, "otlp": otlp}
        ) as run:
            committed(run, 20)
            run.migrate("counter", 2).wait(120)
            run.kill("counter[0]")
            wait_until(lambda: bool(run.events.of("recovered")))
            wait_until(lambda: {"migration", "recovery"} <= trees(server).keys(), why=lambda: str(trees(server)))
            run.finish()
            assert run.wait(120)
            wait_until(lambda: settled(as_scraped(server.metrics[-1])) == page(run))
            assert found(run) == expected(run)
            ended = {each["id"] for each in run.report()["spans"] if "end" in each}
        assert {span.span_id.hex() for span in server.spans} >= ended
        last = as_scraped(server.metrics[-1])
    assert trees(server)["migration"]["migration"] >= {"plan"}
    assert trees(server)["migration"]["plan"] >= {"sealed", "effective", "transfer", "safe"}
    assert trees(server)["recovery"]["recovery"] == {"instance"}
    assert trees(server)["recovery"]["instance"] == {"detected", "restored", "replayed"}
    assert last["seep_run_phase", (("phase", "finished"),)] == 1
    assert last["seep_push_dropped_traces_total", ()] == 0


def test_a_run_whose_collector_never_answers_ends_with_exact_results(host: Host) -> None:
    with collector() as server:
        server.held.clear()
        otlp = {"url": server.url, "interval": 0.1, "timeout": 0.5}
        with start(host, counting(rows=20_000), metrics={"otlp": otlp}) as run:
            assert run.wait(120)
            assert found(run) == expected(run)
            run.stop()
            assert server.got == []
            server.held.set()


def test_a_run_without_pushes_imports_no_library_for_them(tmp_path: Path) -> None:
    """In a process of its own, where nobody else has imported it."""
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, seep\n"
        "import seep.cli\n"
        "seep.launch\n"
        "print(sorted(name for name in sys.modules if name.startswith(('opentelemetry', 'requests'))))\n"
    )
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("package", ["opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"])
def test_without_the_library_a_run_that_is_to_push_does_not_begin(
    host: Host, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    otlp: dict[str, Any] = {"url": "http://127.0.0.1:1"}
    with pytest.raises(UserError, match=r"pip install 'seep-streaming\[otlp\]'"):
        seep.launch(counting(rows=1000), host.context, metrics={"otlp": otlp})
