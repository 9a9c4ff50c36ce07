"""The dashboard of real runs: watched and controlled over HTTP, with exact results, until run, threads and port end."""

from __future__ import annotations

import json
import logging
import socket
import ssl
from typing import Any

import httpx
import pytest

import seep
from primitives.errors import EnvironmentFault, UserError
from seep.channels.sockets import is_refused
from seep.dashboard.requests import ACTING, RunIsOver
from seep.dashboard.settings import DashboardSettings
from seep.rows.rate import Rate
from seep.running.remote_control import find
from seep.running.run import Run
from seep.spark.session import Host
from tests.dashboard.streams import watching
from tests.runtime.counting import committed, counting, expected, found, start, wait_until

OPERATOR, VIEWER = "an-operator-s-token-0123456789", "a-viewer-s-token-0123456789"


@pytest.fixture(autouse=True)
def tokens(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("SEEP_TOKEN", OPERATOR)
    monkeypatch.setenv("SEEP_VIEWER_TOKEN", VIEWER)
    monkeypatch.setenv("SEEP_HOME", str(tmp_path / "home"))


def client(run: Run, token: str = OPERATOR, **options: Any) -> httpx.Client:
    url = httpx.URL(run.dashboard_url or "").join("/api/v1/")
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60, **options)


def get(api: httpx.Client, path: str, **fields: Any) -> Any:
    answer = api.get(path, params=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def post(api: httpx.Client, path: str, **fields: Any) -> Any:
    answer = api.post(path, json=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def instances(data: Any, operator: str) -> int:
    return sum(each["operator"] == operator for each in data["status"]["instances"])


def test_a_run_is_watched_and_controlled_over_rest_with_an_exact_result(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "seep")
    with start(host, counting(), rate=Rate(2000), spare=1, dashboard=True) as run, client(run) as api:
        port = api.base_url.port
        committed(run, 10)
        told = get(api, "run")
        assert (told["id"], told["query"], told["phase"], told["role"]) == (run.id, "counting", "running", "operator")
        assert told["operators"] == {"numbers": "source", "map": "stateless", "counter": "stateful", "out": "sink"}
        assert told["stateful"] == ["counter"]
        assert "savepoint" not in told["acts"], "it has no storage"
        assert "csrf" not in told, "a program has a token, and needs none"
        with watching(api) as pictures, client(run) as acting:
            assert post(acting, "scale", operator="counter", to=2) == {}
            seen = [next(pictures)]
            while instances(seen[-1][1], "counter") < 2:
                seen.append(next(pictures))
            number = post(acting, "migrate", operator="counter", to=2, strategy="fluid", batch=8)
            wait_until(lambda: get(acting, "migration", **number)["state"] == "done")
            wait_until(lambda: {each["state"] for each in get(acting, "migrations")["migrations"]} == {"done"})
            slots = get(acting, "slots", operator="counter")
            assert (slots["slots"], set(slots["owners"])) == (256, {0, 1})
            story = get(acting, "status", after=-1)
            assert "scaled out" in {each["kind"] for each in story["new"]}
            assert story["number"] >= len(story["new"]) - 1
            assert post(acting, "checkpoint", operator="counter") == {}
            wrong = acting.post("drain", json={"node": "n99"})
            assert (wrong.status_code, "no live node 'n99'" in wrong.json()["error"]) == (400, True)
            assert post(acting, "finish") == {}
            seen += list(pictures)
        assert [name for name, _ in seen[-2:]] == ["status", "over"]
        assert seen[-2][1]["phase"] == "finished"
        pictures_seen = [data for name, data in seen if name == "status"]
        numbers = [(each["after"], each["number"], len(each["new"])) for each in pictures_seen]
        assert all(after + len_new == number for after, number, len_new in numbers[1:]), numbers
        assert all(each["sample"]["at"] >= 0 for each in pictures_seen if each["sample"])
        run.wait(120.0)
        refused = api.post("scale", json={"operator": "counter", "to": 1})
        assert (refused.status_code, "the run is over (finished)" in refused.json()["error"]) == (409, True)
        assert get(api, "run")["acts"] == []
        with pytest.raises(RunIsOver, match="finished"):
            find(run.id).tell("finish")
        parts = get(api, "report", only=["summary", "series"], points=4)
        assert set(parts) == {"summary", "series"}
        assert len(parts["series"]) == 4
        report, logs = get(api, "report"), get(api, "logs", level="debug")
        assert found(run) == expected(run)
    for secret in (OPERATOR, VIEWER):
        assert secret not in json.dumps(report) + json.dumps(logs) + caplog.text
    assert port is not None
    assert is_refused("127.0.0.1", port)
    assert run.report()["summary"]["rows"] > 0


def test_a_viewer_reads_and_cannot_act(host: Host) -> None:
    with start(host, counting(), rate=Rate(1000), dashboard=True) as run, client(run, VIEWER) as api:
        assert get(api, "run")["role"] == "viewer"
        committed(run, 3)
        refused = api.post("stop", json={})
        assert (refused.status_code, "for operators" in refused.json()["error"]) == (403, True)
        assert api.get("run", headers={"Authorization": "Bearer nobody-s-token-0123456789"}).status_code == 401
        assert run.phase == "running"


def test_stop_by_rest_ends_the_run_and_whoever_watches_sees_it(host: Host) -> None:
    with start(host, counting(), rate=Rate(1000), dashboard=True) as run, client(run) as api, client(run) as other:
        committed(run, 3)
        with watching(api) as pictures:
            next(pictures)
            assert post(other, "stop") == {}
            assert [name for name, _ in pictures][-1] == "over"
        run.wait(60.0)
        assert run.phase == "halted"


def test_without_being_asked_for_there_is_no_dashboard(host: Host) -> None:
    with start(host, counting(rows=10)) as run:
        assert run.dashboard_url is None
        run.wait(60.0)


def test_a_run_with_tls_serves_its_dashboard_with_the_same_certificate(host: Host) -> None:
    with start(host, counting(), rate=Rate(1000), dashboard=True, tls=True) as run:
        committed(run, 3)
        security = run._security
        assert (run.dashboard_url or "").startswith("https://127.0.0.1:")
        context = ssl.create_default_context(cadata=(security.certificate or b"").decode())
        context.check_hostname = False  # it was made for this run, and not for a host
        with client(run, verify=context) as api:
            assert get(api, "run")["id"] == run.id


def test_a_port_that_is_taken_is_an_error_that_names_it_and_nothing_is_left(host: Host) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(EnvironmentFault, match=f"the dashboard cannot be served at 127.0.0.1, port {port}"),
            start(host, counting(), dashboard=port),
        ):
            pass


def test_a_token_that_is_too_short_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEP_TOKEN", "short")
    with pytest.raises(UserError, match="SEEP_TOKEN has 5 characters"):
        seep.launch(counting(), dashboard=DashboardSettings(port=0))


#: Requests that a run refuses in words, though their fields may be as they are.
REFUSED = [
    ("scale", {"operator": "nobody", "to": 2}, "there is no operator 'nobody'"),
    ("scale", {"operator": "counter", "to": 257}, "cannot have 257 instances"),
    ("migrate", {"operator": "nobody", "to": 2}, "there is no operator 'nobody'"),
    ("migrate", {"operator": "counter", "to": 257}, "257"),
    ("migrate", {"operator": "counter", "to": 2, "strategy": "magic"}, "strategy"),
    ("migrate", {"operator": "counter", "to": 2, "gap": "soon"}, "soon"),
    ("migrate", {"operator": "counter", "to": 2, "at": "later"}, "later"),
    ("balance", {"operator": "nobody"}, "nobody"),
    ("balance", {"operator": "numbers"}, "numbers"),
    ("checkpoint", {"operator": "map"}, "'map' keeps no state; those that do: counter"),
    ("drain", {"node": "n99"}, "no live node 'n99'"),
    ("slots", {"operator": "numbers"}, "'numbers' is no operator with slots"),
    ("state", {"operator": "map"}, "map"),
    ("sql", {"operator": "map", "sql": "select 1"}, "map"),
    ("sql", {"operator": "counter", "sql": "drop table x"}, ""),
    ("dead-letters", {"operator": "nobody"}, "nobody"),
    ("logs", {"node": "n99"}, "no node 'n99'"),
    ("migration", {"migration": 99}, "no migration 99"),
]


def test_what_a_run_cannot_do_is_refused_in_words_and_it_goes_on(host: Host) -> None:
    with start(host, counting(), rate=Rate(1000), dashboard=True) as run, client(run) as api:
        committed(run, 3)
        for do, fields, words in REFUSED:
            method = "POST" if do in (*ACTING, "sql") else "GET"
            sent = {"json": fields} if method == "POST" else {"params": fields}
            answer = api.request(method, do, **sent)
            assert answer.status_code == 400, (do, fields, answer.status_code, answer.text)
            assert words in answer.json()["error"], (do, fields, answer.text)
        refused = api.post("savepoint", json={})
        assert (refused.status_code, "storage" in refused.json()["error"]) == (400, True), refused.text
        run.finish()
        run.wait(120.0)
        assert found(run) == expected(run)
