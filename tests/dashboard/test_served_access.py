"""Access to the dashboard's own server, of a run that would answer anything and notes what it is asked to do."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seep.channels.security import Security
from seep.dashboard.access import Access, Role
from seep.dashboard.page import FOLDER
from seep.dashboard.requests import REQUESTS, RunRequest
from seep.dashboard.server import DashboardServer, PemFiles
from seep.dashboard.settings import DashboardSettings
from tests.dashboard.test_guard import check_headers

SERVED = [kind for kind in REQUESTS.values() if kind.path is not None]
ACTING = [kind for kind in SERVED if kind.role is Role.OPERATOR]
#: Fields that make any of the requests a good one.
FIELDS: dict[str, Any] = {"operator": "counter", "to": 2, "node": "n1", "migration": 0, "sql": "SELECT 1"}
#: What somebody would like to have run or shown by whoever looks at it.
HOSTILE = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "</script><!--",
    "\r\nSet-Cookie: evil=1\r\n\r\n<html>",
    "\x00\x07\x1b[31m\x7f\x85\u2028\u2029",
    "\u202egnp.exe\u202c\u2066",
    "\ud800 alone \udfff",
    "{{7*7}}${7*7}%s%n",
    "😀" * 3,
)


class Noting:
    """Answers whatever it is asked, with what a test gives it."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, Any]] = []
        self.answers: dict[str, Any] = {}

    def answer(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append(dict(body))
        return self.answers.get(body["do"], {})


class Opened:
    """A server with its run, and clients for it."""

    def __init__(self, server: DashboardServer, run: Noting, access: Access) -> None:
        self.server, self.run, self.access = server, run, access

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.server.url, timeout=60, trust_env=False, **options)

    def program(self, role: Role) -> httpx.Client:
        token = {Role.OPERATOR: self.access.operator_token, Role.VIEWER: self.access.viewer_token}[role]
        return self.client(headers={"authorization": f"Bearer {token}"})

    def browser(self, role: Role) -> httpx.Client:
        session = self.access.open_session(role)
        return self.client(cookies={f"seep-{self.server.port}": session.cookie})


@contextmanager
def opened(tls: PemFiles | None = None, **settings: Any) -> Iterator[Opened]:
    run, access = Noting(), Access()
    server = DashboardServer(DashboardSettings(port=0, **settings), run, access, tls)
    try:
        yield Opened(server, run, access)
    finally:
        server.close()


@pytest.fixture(scope="module")
def site() -> Iterator[Opened]:
    with opened() as site:
        yield site


@pytest.fixture(autouse=True)
def nothing_asked(site: Opened) -> None:
    site.run.asked.clear()
    site.run.answers.clear()


def sent(client: httpx.Client, kind: type[RunRequest], method: str | None = None, **headers: str) -> httpx.Response:
    """Sends a good request of a kind."""
    fields = {name: FIELDS[name] for name, field in kind.model_fields.items() if field.is_required()}
    method, path = method or kind.method, f"/api/v1{kind.path}"
    if method in ("GET", "HEAD"):
        return client.request(method, path, params=fields, headers=headers)
    return client.request(method, path, json=fields, headers=headers)


def named(kind: type[RunRequest]) -> str:
    return kind.do


def test_there_are_acting_requests_and_they_are_the_known_ones() -> None:
    assert {kind.do for kind in ACTING} == {
        "scale", "migrate", "balance", "drain", "savepoint", "checkpoint", "finish", "stop"
    }  # fmt: skip
    assert {kind.method for kind in ACTING} == {"POST"}


@pytest.mark.parametrize("kind", SERVED, ids=named)
def test_an_operator_may_ask_for_all(site: Opened, kind: type[RunRequest]) -> None:
    with site.program(Role.OPERATOR) as client:
        assert sent(client, kind).status_code == 200
    assert [asked["do"] for asked in site.run.asked] == [kind.do]


@pytest.mark.parametrize("kind", SERVED, ids=named)
def test_a_viewer_may_ask_for_all_that_reads_and_nothing_that_acts(site: Opened, kind: type[RunRequest]) -> None:
    with site.program(Role.VIEWER) as client:
        answer = sent(client, kind)
    reads = kind not in ACTING
    assert answer.status_code == (200 if reads else 403)
    assert [asked["do"] for asked in site.run.asked] == [kind.do] * reads
    if not reads:
        assert "operator" in answer.json()["error"]


@pytest.mark.parametrize("kind", SERVED, ids=named)
def test_nobody_else_is_answered(site: Opened, kind: type[RunRequest]) -> None:
    with site.client() as client:
        assert sent(client, kind).status_code == 401
        assert sent(client, kind, authorization="Basic x").status_code == 401
        assert sent(client, kind, host="evil.example").status_code == 421
    assert site.run.asked == []


@pytest.mark.parametrize("kind", ACTING, ids=named)
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_nothing_acts_by_any_method_but_post(site: Opened, kind: type[RunRequest], method: str) -> None:
    with site.program(Role.OPERATOR) as client:
        answer = sent(client, kind, method)
        assert answer.status_code == 405
        check_headers(answer)
        sent(client, kind, method, **{"x-http-method-override": "POST", "x-method-override": "POST"})
        client.request(method, f"/api/v1{kind.path}", params={"_method": "POST", **FIELDS})
    assert site.run.asked == []


@pytest.mark.parametrize("kind", [kind for kind in SERVED if kind.method == "POST"], ids=named)
def test_a_browser_s_post_needs_the_value_that_only_the_page_can_read(site: Opened, kind: type[RunRequest]) -> None:
    with site.browser(Role.OPERATOR) as client:
        assert sent(client, kind).status_code == 403
        assert sent(client, kind, **{"x-seep-csrf": "1"}).status_code == 403
        assert site.run.asked == []
        csrf = client.get("/api/v1/run").json()["csrf"]
        assert sent(client, kind, **{"x-seep-csrf": csrf, "origin": "https://evil.example"}).status_code == 403
        assert sent(client, kind, **{"x-seep-csrf": csrf, "origin": site.server.url}).status_code == 200
    assert [asked["do"] for asked in site.run.asked] == ["run", kind.do]


def test_the_answer_about_the_run_says_who_asks(site: Opened) -> None:
    for role in Role:
        with site.program(role) as client:
            assert client.get("/api/v1/run").json() == {"role": role}  # a program has no use for csrf
        with site.browser(role) as client:
            described = client.get("/api/v1/run").json()
            assert (described["role"], len(described["csrf"])) == (role, 43)


def test_a_link_of_the_server_logs_in(site: Opened) -> None:
    with site.client(follow_redirects=True) as client:
        assert client.get(site.server.login_url()).url.path == "/"
        assert client.get("/api/v1/run").json()["role"] == "operator"


def test_every_file_of_the_page_is_for_visitors_only_but_the_looks_of_the_login(site: Opened) -> None:
    files = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file())
    assert len(files) > 5
    with site.client() as nobody, site.browser(Role.VIEWER) as viewer:
        for path in ("/", "/api/v1/openapi.json", "/api/v1/stream", *(f"/static/{name}" for name in files)):
            expected = {"/": 303, "/static/style.css": 200}.get(path, 401)
            assert nobody.get(path).status_code == expected, path
            if path != "/api/v1/stream":
                answer = viewer.get(path)
                assert answer.status_code == 200, path
                check_headers(answer, cached=path.startswith("/static/") or path == "/")


@pytest.mark.parametrize(
    "path",
    ["/static/../access.py", "/static/%2e%2e/access.py", "/static/..%2faccess.py", "/static//etc/passwd", "/static/",
     "/static/%00", "/docs", "/redoc", "/openapi.json", "/static/views/../../access.py", "/api/v1/look",
     "/api/v1/dashboard"],
)  # fmt: skip
def test_nothing_but_the_page_and_the_requests_is_served(site: Opened, path: str) -> None:
    with site.program(Role.OPERATOR) as client:
        answer = client.send(client.build_request("GET", httpx.URL(site.server.url + path)))
        assert answer.status_code == 404
        check_headers(answer)
    assert site.run.asked == []


def test_a_client_that_sends_no_request_does_not_keep_its_connection(
    site: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seep.dashboard.connections.HEAD_SECONDS", 0.1)
    with socket.create_connection(("127.0.0.1", site.server.port), timeout=30) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        assert connection.recv(100) == b""


# -- hostile texts --------------------------------------------------------------------------------------------------


def checked_json(answer: httpx.Response) -> Any:
    """The content of an answer that no browser takes for anything but data."""
    check_headers(answer)
    assert answer.headers["content-type"] == "application/json"
    assert "evil" not in answer.headers.get("set-cookie", "")
    return json.loads(answer.content.decode("utf-8"))


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_and_rows_are_data_and_nothing_else(site: Opened, text: str) -> None:
    letter = {"operator": text, "instance": f"{text}[0]", "at": 1.0, "function": text, "error": text, "row": text}
    site.run.answers = {
        "run": {"operators": {text: text}, "edges": [[text, text]]},
        "dead-letters": {"letters": [letter], "totals": {text: 1}},
    }
    shown = text.encode("utf-8", "backslashreplace").decode()
    with site.program(Role.VIEWER) as client:
        described = checked_json(client.get("/api/v1/run"))
        assert {described["edges"][0][0], *described["operators"]} <= {text, shown}
        told = checked_json(client.get("/api/v1/dead-letters"))
        assert {*told["letters"][0].values()} - {1.0} <= {text, shown, f"{text}[0]", f"{shown}[0]"}


@given(st.one_of(st.sampled_from(HOSTILE), st.text(min_size=1, max_size=200)))
def test_hostile_fields_come_to_the_run_as_they_are_or_are_refused_in_words(site: Opened, text: str) -> None:
    site.run.asked.clear()
    with site.program(Role.OPERATOR) as client:
        encoded = json.dumps({"operator": text, "to": 2}).encode()
        scaled = client.post("/api/v1/scale", content=encoded, headers={"content-type": "application/json"})
    told = checked_json(scaled)
    if scaled.status_code == 200:
        assert site.run.asked == [{"do": "scale", "operator": text, "to": 2}]
    else:
        assert (scaled.status_code, site.run.asked) == (400, [])
        assert "operator" in told["error"]


@pytest.mark.parametrize("text", [each for each in HOSTILE if "\ud800" not in each])
def test_hostile_parameters_split_no_header_and_are_not_echoed_as_a_page(site: Opened, text: str) -> None:
    with site.program(Role.VIEWER) as client:
        for path in ("/api/v1/state", "/api/v1/dead-letters", "/api/v1/nothing", "/static/x"):
            answer = client.get(path, params={"operator": text, text: text})
            if answer.status_code != 200:
                assert list(checked_json(answer)) == ["error"]


# -- TLS ------------------------------------------------------------------------------------------------------------


def test_with_the_certificate_of_a_run_the_page_and_the_cookie_need_tls(tmp_path: Path) -> None:
    security = Security.with_tls("127.0.0.1")
    assert security.certificate is not None
    assert security.key is not None
    (tmp_path / "run.pem").write_bytes(security.certificate)
    trusting = ssl.create_default_context(cafile=str(tmp_path / "run.pem"))
    with opened(PemFiles(security.certificate, security.key)) as site:
        assert site.server.url.startswith("https://127.0.0.1:")
        with site.client(verify=trusting) as client:
            answer = client.get(site.server.login_url())
            assert answer.status_code == 303
            assert "Secure" in answer.headers["set-cookie"].split("; ")
            assert client.get("/").status_code == 200
            check_headers(client.get("/api/v1/nothing"))
        with site.client() as suspicious, pytest.raises(httpx.ConnectError, match="certificate verify failed"):
            suspicious.get("/")
        with httpx.Client(trust_env=False) as plain, pytest.raises(httpx.RemoteProtocolError):
            plain.get(site.server.url.replace("https", "http"))


# -- who can listen in ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("host", "is_told"), [("0.0.0.0", True), ("127.0.0.1", False), ("127.0.0.7", False)])
def test_a_server_that_others_reach_without_tls_says_so(
    host: str, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(host=host) as site:
        assert (site.server.warning is not None) == is_told
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told == ([site.server.warning] if is_told else [])
    assert all("without TLS" in each and "use run.tls" in each for each in told)


def test_with_tls_there_is_nothing_to_say() -> None:
    security = Security.with_tls("127.0.0.1")
    assert security.certificate is not None
    assert security.key is not None
    with opened(PemFiles(security.certificate, security.key), host="0.0.0.0") as site:
        assert site.server.warning is None
