"""Who may use the dashboard of a real run, and what hostile rows, keys and errors in it can do: nothing."""

from __future__ import annotations

import json
import logging
import ssl
from http.cookies import SimpleCookie
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import seep
from seep.cli.app import app
from seep.dashboard.settings import DashboardSettings
from seep.logs.redaction import HIDDEN
from seep.logs.settings import LogSettings
from seep.rows.rate import Rate
from seep.running.run import Run
from seep.spark.session import Host
from tests.dashboard.test_guard import check_headers
from tests.runtime.counting import committed, counting, start, wait_until

OPERATOR, VIEWER = "operator-of-this-run-0123456789", "viewer-of-this-run-0123456789"
#: A key that would be a program on a page, a header in an answer, and something else on a terminal.
KEY = "<img src=x onerror=alert(1)>\"'&\u202ekcab\u2066\r\nSet-Cookie: evil=1\x1b[31m"
ROW = "</script><script>alert(2)</script>\u2028\x00"
ERROR = "<b>no</b> \ud800 lone"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEP_HOME", str(tmp_path / "home"))


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DashboardSettings:
    """The token of operators comes from the environment, that of viewers from a file."""
    monkeypatch.setenv("SEEP_TOKEN", OPERATOR)
    path = tmp_path / "viewers.token"
    path.touch(0o600)
    path.write_text(f"{VIEWER}\n")
    return DashboardSettings(port=0, viewer_token_file=path)


def client(run: Run, token: str, **options: Any) -> httpx.Client:
    url = httpx.URL(run.dashboard_url or "").join("/api/v1/")
    headers = {"authorization": f"Bearer {token}"}
    return httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False, **options)


def data(api: httpx.Client, path: str, **fields: Any) -> Any:
    """The answer of a request, which no browser takes for anything but data."""
    answer = api.get(path, params=fields)
    assert answer.status_code == 200, answer.text
    check_headers(answer)
    assert answer.headers["content-type"] == "application/json"
    assert "set-cookie" not in answer.headers
    return json.loads(answer.content.decode("utf-8"))


def test_no_token_of_a_run_is_in_its_log_lines_events_or_report(
    host: Host, settings: DashboardSettings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "seep")
    with start(host, counting(), rate=Rate(1000), dashboard=settings, log=LogSettings(level="debug")) as run:
        committed(run, 3)
        log = run._logs.named("seep.dashboard")
        log.warning("somebody has written down %s and %s", OPERATOR, VIEWER)
        link = run.dashboard_url or ""
        log.warning("and %s", link)
        with client(run, VIEWER) as viewer, client(run, "wrong-" + OPERATOR) as nobody, client(run, OPERATOR) as api:
            assert nobody.get("run").status_code == 401
            assert viewer.post(f"{VIEWER}/{OPERATOR}", json={"x": OPERATOR}).status_code == 404
            refused = viewer.post("scale", json={"operator": OPERATOR, "to": 2})
            assert refused.status_code == 403
            wrong = api.post("drain", json={"node": VIEWER})
            assert wrong.status_code == 400
            told = [data(api, path) for path in ("run", "status", "report", "story", "migrations")]
        shown = CliRunner().invoke(app, ["logs", run.id, "--level", "debug"]).stdout
        lines = [record.getMessage() for record in caplog.records if record.name.startswith("seep")]
        report = json.dumps(run.report()) + repr(run) + repr(run.options)
    assert f"somebody has written down {HIDDEN} and {HIDDEN}" in shown
    assert f"/login?code={HIDDEN}" in shown
    assert "a wrong token for the dashboard came from 127.0.0.1" in shown
    for text in (shown, report, json.dumps(told), "\n".join(lines), caplog.text):
        assert not [secret for secret in (OPERATOR, VIEWER, link.partition("code=")[2]) if secret in text]


def test_hostile_rows_keys_and_errors_are_data(host: Host, settings: DashboardSettings) -> None:
    def failing(batch: pa.RecordBatch) -> Any:
        if ROW in batch["text"].to_pylist():
            raise ValueError(ERROR)
        return batch

    def texts(_: int, first: int, count: int) -> Any:
        return {"text": [(KEY, ROW, "good")[number % 3] for number in range(first, first + count)]}

    query = seep.Query("hostile", on_error="dead-letters", dead_letters=seep.sinks.collect())
    source = query.source("texts", seep.sources.generator(texts, pa.schema([("text", pa.string())])))
    source.map("failing", failing).key_by("text").aggregate("counter", n=seep.count()).sink("out", seep.sinks.collect())
    with start(host, query, rate=Rate(100), dashboard=settings) as run, client(run, OPERATOR) as api:
        wait_until(lambda: data(api, "dead-letters")["letters"])
        letter = data(api, "dead-letters")["letters"][-1]
        assert json.loads(letter["row"]) == {"text": ROW}
        assert ERROR.replace("\ud800", "\\ud800") in letter["error"]
        wait_until(lambda: data(api, "state", operator="counter")["rows"])
        assert data(api, "state", operator="counter", key=KEY)["rows"][0]["text"] == KEY
        sql = api.post("sql", json={"operator": "counter", "sql": f"SELECT '{KEY.replace(chr(39), chr(39) * 2)}' AS x"})
        assert sql.status_code == 200, sql.text
        check_headers(sql)
        assert sql.json()["rows"] == [[KEY]]
        for path in ("status", "report", "story", "logs", "migrations"):
            data(api, path)
        for path, fields in (
            ("state", {"operator": KEY}),
            ("slots", {"operator": KEY}),
            ("dead-letters", {"x" + KEY: 1}),
        ):
            refused = api.get(path, params=fields)
            assert (refused.status_code, list(refused.json())) == (400, ["error"])
            check_headers(refused)
        with api.stream("GET", "stream") as stream:
            lines = stream.iter_lines()
            assert stream.status_code == 200
            told = list(islice(lines, 10))
    fields = {line.partition(":")[0] for line in told if line}
    assert fields <= {"event", "data", ""}, "no text of the run has begun a line of its own"


def test_with_tls_the_link_of_a_run_sets_a_cookie_that_goes_over_tls_only(
    host: Host, settings: DashboardSettings
) -> None:
    with start(host, counting(), rate=Rate(1000), dashboard=settings, tls=True) as run:
        committed(run, 3)
        context = ssl.create_default_context(cadata=(run._security.certificate or b"").decode())
        context.check_hostname = False  # it was made for this run, and not for a host
        with httpx.Client(verify=context, trust_env=False, timeout=60) as browser:
            answer = browser.get(run.dashboard_url or "")
            ((name, cookie),) = SimpleCookie(answer.headers["set-cookie"]).items()
            assert name == f"seep-{answer.url.port}"
            assert (cookie["secure"], cookie["httponly"], cookie["samesite"].lower()) == (True, True, "strict")
            page = answer.url.join("/api/v1/run")
            assert page.scheme == "https"
            assert browser.get(page).json()["role"] == "operator"
        assert run.dashboard_warning is None


def test_a_run_that_others_reach_without_tls_warns_in_its_log(host: Host) -> None:
    with start(host, counting(rows=100), dashboard=DashboardSettings(port=0, host="0.0.0.0")) as run:
        run.wait(120.0)
        shown = CliRunner().invoke(app, ["logs", run.id, "--level", "warning"]).stdout
        warning = run.dashboard_warning
    assert "reached from other machines without TLS" in (warning or "")
    assert f"WARNING seep.dashboard run={run.id}: {warning}" in shown
