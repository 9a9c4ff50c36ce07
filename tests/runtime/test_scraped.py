"""Metrics of real runs, scraped as Prometheus does it: over HTTP, while the run scales and loses a node."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families as parsed

import seep
from primitives.errors import UserError
from seep.running.run import Run
from seep.spark.session import Host
from tests.runtime.counting import RATE, committed, counting, expected, found, start, wait_until
from tests.waiting import eventually

Scraped = dict[tuple[str, tuple[str, ...]], float]

#: What the names of counters begin with whose series do not vanish.
COUNTED = ("seep_operator_", "seep_source_", "seep_run_events", "seep_recoveries_total", "seep_run_epochs_")


def scrape(run: Run) -> Scraped:
    """Series -> value; a series is its name, and the values of its labels in the order of their names."""
    assert run.metrics_url is not None
    with urlopen(run.metrics_url, timeout=30) as answer:
        body = answer.read().decode()
    samples = [each for family in parsed(body) for each in family.samples]
    return {(each.name, tuple(value for _, value in sorted(each.labels.items()))): each.value for each in samples}


def counters(scraped: Scraped) -> Scraped:
    names = {name for name, _ in scraped if name.startswith(COUNTED) and name.endswith("_total")}
    return {series: value for series, value in scraped.items() if series[0] in names}


def instances(scraped: Scraped, operator: str) -> set[str]:
    """Their indexes."""
    return {of[0] for name, of in scraped if name == "seep_instance_info" and of[2] == operator}


def told_at_the_end(scraped: Scraped) -> dict[str, Any]:
    return {
        "phase": [of for name, of in scraped if name == "seep_run_phase" and scraped[name, of]],
        "rows": scraped["seep_source_rows_read_total", ("numbers",)],
        "rows of map": scraped["seep_operator_rows_in_total", ("map",)],
        "epochs": scraped["seep_run_epochs_committed_total", ()],
        "latencies": scraped["seep_run_latency_seconds_count", ()],
        "events": {of[0]: n for (name, of), n in scraped.items() if name == "seep_run_events_total" and n},
    }


def known_at_the_end(run: Run) -> dict[str, Any]:
    """The same by the report of the run; the node of `map` was not lost, so its rows are exact."""
    report = run.report()
    return {
        "phase": [(run.phase,)],
        "rows": run.rows_read,
        "rows of map": report["summary"]["rows"],
        "epochs": report["summary"]["epochs"],
        "latencies": sum(count for _, count in report["latencies"]["histogram"]),
        "events": {kind.lower().replace(" ", "_"): n for kind, n in report["totals"]["events"].items()},
    }


def test_what_is_scraped_of_a_run_that_scales_and_heals_is_what_its_record_has(host: Host) -> None:
    with start(host, counting(partitions=2), rate=seep.Rate(RATE), spare=3, metrics=0) as run:
        committed(run, 20)
        wait_until(lambda: scrape(run).get(("seep_run_phase", ("running",))) == 1)
        before = scrape(run)
        assert instances(before, "counter") == {"0"}
        assert before["seep_run_info", ("counting", run.id)] == 1
        run.scale("counter", 2)
        wait_until(lambda: bool(run.events.of("scaled out")))
        run.kill("counter[0]")
        wait_until(lambda: bool(run.events.of("recovered")))
        wait_until(lambda: scrape(run).get(("seep_recoveries_total", ("recovered",)), 0) >= 1)
        after = scrape(run)
        placed = {name.partition("[")[2].rstrip("]") for name in run.placement if name.startswith("counter[")}
        assert instances(after, "counter") == placed
        assert after["seep_scalings_total", ("scaled_out",)] == 1
        assert after["seep_scaling_duration_seconds_count", ()] == 1
        assert after["seep_nodes_lost_total", ()] == len(run.events.of("node lost"))
        assert {of[0] for name, of in after if name == "seep_node_cores"} <= set(run.nodes)
        went_back = [series for series, value in counters(before).items() if after[series] < value]
        assert went_back == []
        run.finish()
        assert run.wait(120)
        wait_until(lambda: told_at_the_end(scrape(run)) == known_at_the_end(run), why=lambda: str(scrape(run)))
        assert {each.kind for each in run.events} >= {"finished", "scaled out", "node lost", "recovered"}
        assert found(run) == expected(run)
        url = run.metrics_url
    with pytest.raises(URLError):
        urlopen(str(url), timeout=5)


def test_a_run_without_metrics_opens_nothing_and_imports_nothing(tmp_path: Path) -> None:
    """In a process of its own, where nobody else has imported the library."""
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, threading, seep\n"
        "from tests.runtime.counting import counting\n"
        "if __name__ == '__main__':\n"
        "    with seep.launch(counting(rows=1000), epoch=0.02) as run:\n"
        "        assert run.wait(120)\n"
        "        assert run.metrics_url is None\n"
        "        print('prometheus_client' in sys.modules, 'seep metrics' in str(threading.enumerate()))\n"
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
    assert done.stdout.split() == ["False", "False"], done.stderr


def test_without_the_library_a_run_that_is_to_have_metrics_does_not_begin(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UserError, match=r"pip install 'seep-streaming\[metrics\]'"):
        seep.launch(counting(rows=1000), host.context, metrics=True)


@contextmanager
def prometheus(url: str, folder: Path) -> Iterator[str]:
    """A server that scrapes the page and has our alerts; yields its address."""
    server = shutil.which("prometheus")
    if server is None:
        pytest.skip("no Prometheus is installed: apt-get install prometheus")
    host = url.removeprefix("http://").removesuffix("/metrics")
    alerts = Path(__file__).parents[2] / "deploy" / "grafana" / "alerts.yaml"
    jobs = [{"job_name": "seep", "scrape_interval": "1s", "static_configs": [{"targets": [host]}]}]
    settings = {"scrape_configs": jobs, "rule_files": [str(alerts)], "global": {"evaluation_interval": "1s"}}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = [f"--web.listen-address={address}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [server, f"--config.file={folder / 'prometheus.yml'}", *options], stdout=log, stderr=log
        )
        try:
            yield address
        finally:
            process.kill()
            process.wait(30)


def asked(address: str, path: str) -> Any:
    try:
        with urlopen(f"http://{address}/api/v1/{path}", timeout=10) as answer:
            return yaml.safe_load(answer.read())["data"]
    except OSError:
        return None


def rules(address: str) -> list[dict[str, Any]]:
    return [rule for group in asked(address, "rules")["groups"] for rule in group["rules"]]


@pytest.mark.acceptance
def test_a_real_prometheus_scrapes_a_run_and_answers_the_questions_of_the_page(host: Host, tmp_path: Path) -> None:
    from tools.metrics import QUESTIONS

    with start(host, counting(partitions=2), rate=seep.Rate(RATE), metrics=0) as run:
        committed(run, 20)
        assert run.metrics_url is not None
        with prometheus(run.metrics_url, tmp_path) as address:
            rows = f"query?query={quote('rate(seep_source_rows_read_total[5s])')}"
            assert eventually(lambda: bool((asked(address, rows) or {}).get("result")))
            [target] = asked(address, "targets")["activeTargets"]
            assert (target["health"], target["lastError"]) == ("up", "")
            answers = {of: asked(address, f"query?query={quote(query)}") for of, query in QUESTIONS.items()}
            assert [of for of, answer in answers.items() if answer is None] == []
            [running] = answers["Does it run, and did it fail?"]["result"]
            assert running["metric"]["phase"] == "running"
            assert eventually(lambda: {rule["health"] for rule in rules(address)} == {"ok"})
            assert len(rules(address)) > 10
            assert {rule["state"] for rule in rules(address)} <= {"inactive", "pending"}
        run.finish()
        assert run.wait(120)
