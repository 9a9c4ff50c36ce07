"""The guard over real HTTP: whom it lets through to an application that would do anything for anybody."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from primitives.errors import InternalError
from seep.dashboard.access import WRONG_OF_ONE, Access, BrowserSession, Role
from seep.dashboard.guard import (
    BODY_SECONDS,
    LONGEST_BODY,
    POLICY,
    AccessGuard,
    HostNames,
    address_of,
    cookie_name,
    cookies_of,
    visitor_of,
)
from seep.dashboard.login import login_routes
from tests.dashboard.served import Served, read_all, served
from tests.waiting import eventually

UNSAFE = ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "XYZ")


class Deeds:
    """An application behind the guard that notes whatever reaches it."""

    def __init__(self) -> None:
        self.done: list[tuple[str, Role, int]] = []
        self.access = Access("operator-" + "o" * 32, "viewer-" + "v" * 32)
        routes = [
            *login_routes(self.access),
            Route("/api/v1/fails", self._fail),
            Route("/static/style.css", lambda _: PlainTextResponse("body {}", media_type="text/css")),
            Route("/careless", self._be_careless),
        ]
        inner = Starlette(routes=routes)
        self.app = AccessGuard(self._any_method(inner), self.access, ["seep.example.org"])

    def _any_method(self, inner: Starlette) -> object:
        async def app(scope: dict, receive: object, send: object) -> None:
            if scope["path"] == "/api/v1/deed":
                request = Request(scope, receive)
                self.done.append((scope["method"], visitor_of(scope).role, len(await request.body())))
                await JSONResponse({"role": visitor_of(scope).role})(scope, receive, send)
            else:
                await inner(scope, receive, send)

        return app

    async def _fail(self, _: Request) -> Response:
        raise ValueError("it failed with s3cr3t")

    async def _be_careless(self, _: Request) -> Response:
        return PlainTextResponse("x", headers={"Content-Security-Policy": "default-src *", "X-Frame-Options": "ALLOW"})

    def session(self, role: Role = Role.OPERATOR) -> BrowserSession:
        return self.access.open_session(role)


@pytest.fixture(scope="module")
def deeds() -> Deeds:
    return Deeds()


@pytest.fixture(scope="module")
def site(deeds: Deeds) -> Iterator[Served]:
    with served(deeds.app) as site:
        yield site


@pytest.fixture
def page(site: Served, deeds: Deeds) -> Iterator[httpx.Client]:
    """A browser that is logged in as an operator, and sends what a page sends."""
    session = deeds.session()
    cookies = {f"seep-{site.port}": session.cookie}
    with site.client(cookies=cookies, headers={"x-seep-csrf": session.visitor.csrf, "origin": site.url}) as client:
        deeds.done.clear()
        yield client


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


# -- who ------------------------------------------------------------------------------------------------------------


def test_a_program_is_known_by_its_token(site: Served, deeds: Deeds) -> None:
    with site.client() as client:
        for token, role in zip(deeds.access.secrets, ("operator", "viewer"), strict=True):
            assert client.get("/api/v1/deed", headers=bearer(token)).json() == {"role": role}
            assert client.post("/api/v1/deed", headers=bearer(token)).json() == {"role": role}  # it needs no CSRF value


@pytest.mark.parametrize("path", ["/api/v1/deed", "/static/main.js", "/login/", "/login/../api/v1/deed", "/x"])
def test_nobody_else_gets_anything_but_the_login(site: Served, deeds: Deeds, path: str) -> None:
    deeds.done.clear()
    with site.client() as client:
        for method in ("GET", "HEAD", *UNSAFE):
            answer = client.request(method, path)
            assert answer.status_code == 401, (method, path)
            assert answer.headers["www-authenticate"] == 'Bearer realm="seep"'
        assert client.get(path).json() == {
            "error": "log in, or send a token of this run as Authorization: Bearer TOKEN"
        }
        answer = client.get("/")
        assert (answer.status_code, answer.headers["location"]) == (303, "/login")
        assert client.get("/login").status_code == client.get("/static/style.css").status_code == 200
    assert deeds.done == []


@pytest.mark.parametrize(
    "authorization",
    ["Bearer", "Bearer x", "Basic dXNlcjpwYXNz", "Digest x", "{token}", "Bearer {token}x", "Token {token}"],
)
def test_a_wrong_authorization_is_refused_also_beside_a_good_cookie(
    page: httpx.Client, deeds: Deeds, authorization: str
) -> None:
    deeds.access._wrong.__init__(deeds.access._wrong._clock)
    answer = page.get("/api/v1/deed", headers={"authorization": authorization.format(token=deeds.access.viewer_token)})
    assert (answer.status_code, deeds.done) == (401, [])


def test_two_tokens_in_one_request_are_refused(site: Served, deeds: Deeds) -> None:
    deeds.done.clear()
    token = deeds.access.viewer_token
    head = f"GET /api/v1/deed HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n"
    assert b" 200 OK" in site.told(f"{head}\r\n".encode())
    assert b" 401 " in site.told(f"{head}Authorization: Bearer {token}\r\n\r\n".encode())
    assert len(deeds.done) == 1


# -- cookies and other pages ----------------------------------------------------------------------------------------


def test_the_page_itself_may_act(page: httpx.Client, deeds: Deeds) -> None:
    assert page.post("/api/v1/deed", content=b"12345").status_code == 200
    assert deeds.done == [("POST", Role.OPERATOR, 5)]


@pytest.mark.parametrize("method", UNSAFE)
def test_every_unsafe_method_needs_the_csrf_value_of_its_own_session(
    page: httpx.Client, deeds: Deeds, method: str
) -> None:
    other = deeds.session()
    good = page.headers.pop("x-seep-csrf")
    for wrong in (None, "", "1", good[:-1], good.swapcase(), other.visitor.csrf, other.cookie):
        headers = {} if wrong is None else {"x-seep-csrf": wrong}
        answer = page.request(method, "/api/v1/deed", headers=headers)
        assert answer.status_code == 403
        assert "x-seep-csrf is missing or wrong" in answer.json()["error"]
    assert deeds.done == []
    page.request(method, "/api/v1/deed", headers={"x-seep-csrf": good})
    assert [done[0] for done in deeds.done] == [method]


@pytest.mark.parametrize(
    "origin",
    ["null", "", "https://evil.example", "http://127.0.0.1", "http://127.0.0.1:1", "http://localhost:{port}",
     "http://127.0.0.1:{port}.evil.example", "http://evil.example:{port}", "file://", "127.0.0.1:{port}",
     "ftp://127.0.0.1:{port}", "http://127.0.0.1:{port}/", "http://user@127.0.0.1:{port}"],
)  # fmt: skip
def test_a_page_of_another_origin_cannot_act(page: httpx.Client, site: Served, deeds: Deeds, origin: str) -> None:
    for path in ("/api/v1/deed", "/login", "/logout"):
        answer = page.post(path, headers={"origin": origin.format(port=site.port)})
        assert answer.status_code == 403
        assert "a page of another server" in answer.json()["error"]
    assert deeds.done == []


@pytest.mark.parametrize(("where", "status"), [("cross-site", 403), ("same-site", 403), ("same-origin", 200)])
def test_what_a_browser_says_of_the_asking_page_counts_too(page: httpx.Client, where: str, status: int) -> None:
    del page.headers["origin"]
    assert page.post("/api/v1/deed", headers={"sec-fetch-site": where}).status_code == status


@pytest.mark.parametrize("method", [b"get", b"Post", b"GETX"])
def test_a_method_that_is_not_exactly_get_or_head_is_unsafe(site: Served, deeds: Deeds, method: bytes) -> None:
    deeds.done.clear()
    cookie = f"seep-{site.port}={deeds.session().cookie}".encode()
    rest = b" /api/v1/deed HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nCookie: " + cookie + b"\r\n\r\n"
    assert b" 200 OK" in site.told(b"GET" + rest)
    assert b" 403 " in site.told(method + rest)
    assert [done[0] for done in deeds.done] == ["GET"]


def test_cookies_of_other_names_or_sessions_that_are_over_open_nothing(site: Served, deeds: Deeds) -> None:
    session = deeds.session()
    name = f"seep-{site.port}"
    with site.client() as client:
        for cookie in (
            f"seep-1={session.cookie}",
            f"{name}=",
            f"{name}",
            f"{name}={session.visitor.csrf}",
            f"x{name}={session.cookie}",
        ):
            assert client.get("/api/v1/deed", headers={"cookie": cookie}).status_code == 401
        several = f"a=b; {name}=set-by-another-server; {name}={session.cookie}; c"
        assert client.get("/api/v1/deed", headers={"cookie": several}).status_code == 200
        deeds.access.close_session(session.cookie)
        assert client.get("/api/v1/deed", headers={"cookie": several}).status_code == 401


# -- hosts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost:80", "LOCALHOST", "[::1]:8443", "[0:0:0:0:0:0:0:1]", "seep.example.org:1"]
)
def test_the_names_of_the_server_are_hosts(site: Served, deeds: Deeds, host: str) -> None:
    with site.client(headers=bearer(deeds.access.viewer_token)) as client:
        assert client.get("/api/v1/deed", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.", "localhost:80:80", "localhost:x", "user@localhost", "",
     "192.0.2.7", "[::2]", "::1", "localhost, evil.example", "localhost/", "2130706433", "127.1", "0x7f000001"],
)  # fmt: skip
def test_a_name_that_was_made_to_lead_here_is_no_host_even_with_a_token(site: Served, deeds: Deeds, host: str) -> None:
    """A page of another server can have its own name lead to 127.0.0.1; the request still has that name."""
    deeds.done.clear()
    with site.client(headers=bearer(deeds.access.operator_token)) as client:
        for path in ("/api/v1/deed", "/login", "/", "/static/style.css"):
            answer = client.get(path, headers={"host": host})
            assert answer.status_code == 421
            assert "dashboard.hosts" in answer.json()["error"]
    assert deeds.done == []


def test_a_request_has_one_host(site: Served) -> None:
    for hosts in (b"", b"Host: localhost\r\nHost: evil.example\r\n", b"Host: localhost\r\nHost: localhost\r\n"):
        answer = site.told(b"GET /login HTTP/1.1\r\n" + hosts + b"Connection: close\r\n\r\n")
        assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 421 "))
    assert site.told(b"GET /login HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 421 ")
    assert site.told(b"GET http://evil.example/login HTTP/1.1\r\nHost: evil.example\r\n\r\n").startswith(
        b"HTTP/1.1 421 "
    )


@given(st.text())
def test_no_text_but_a_name_that_is_known_is_a_host(text: str) -> None:
    known = HostNames(["seep.example.org"])
    assert (text in known) == (text.lower() in {"seep.example.org", "localhost", "127.0.0.1", "[::1]"})


@given(st.ip_addresses(), st.sampled_from(["", ":80", ":65535"]))
def test_of_a_server_that_listens_everywhere_every_address_is_a_host_and_no_other_name(
    address: object, port: str
) -> None:
    host = (f"[{address}]" if ":" in str(address) else str(address)) + port
    for everywhere in ("0.0.0.0", "::", "[::]"):
        assert host in HostNames([everywhere])
        assert f"evil.example{port}" not in HostNames([everywhere])
        assert f"{address}.evil.example{port}" not in HostNames([everywhere])


# -- headers of answers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/api/v1/deed", 200), ("GET", "/nothing", 404), ("POST", "/static/style.css", 405),
     ("GET", "/login", 200), ("GET", "/static/style.css", 200), ("GET", "/api/v1/fails", 500),
     ("GET", "/careless", 200), ("HEAD", "/login", 200)],
)  # fmt: skip
def test_every_answer_has_the_headers_that_make_browsers_careful(
    page: httpx.Client, method: str, path: str, status: int
) -> None:
    answer = page.request(method, path)
    assert answer.status_code == status
    check_headers(answer)


def check_headers(answer: httpx.Response, *, cached: bool = False) -> None:
    assert answer.headers.get_list("content-security-policy") == [POLICY]
    assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
    assert answer.headers.get_list("x-frame-options") == ["DENY"]
    assert answer.headers["referrer-policy"] in ("no-referrer", "same-origin")
    assert answer.headers["cache-control"] == ("no-cache" if cached else "no-store")
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in answer.headers


def test_refusals_have_them_too_and_say_why_in_json(site: Served) -> None:
    with site.client() as client:
        for options in ({}, {"headers": {"host": "evil.example"}}, {"content": b"x" * (LONGEST_BODY + 1)}):
            answer = client.post("/login" if "content" in options else "/api/v1/deed", **options)
            check_headers(answer)
            assert answer.headers["content-type"] == "application/json"
            assert list(answer.json()) == ["error"]


def test_the_policy_permits_no_other_server_and_no_script_within_a_page() -> None:
    parts = dict(part.strip().split(" ", 1) for part in POLICY.split(";"))
    assert parts.pop("default-src") == parts.pop("base-uri") == parts.pop("frame-ancestors") == "'none'"
    assert parts.pop("img-src") == "'self' data:"
    assert set(parts.values()) == {"'self'"}


def test_an_error_of_the_server_is_logged_and_its_text_is_not_sent(
    page: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        answer = page.get("/api/v1/fails")
    assert answer.status_code == 500
    assert "s3cr3t" not in answer.text
    assert eventually(lambda: "ValueError: it failed with s3cr3t" in caplog.text)
    assert "uvicorn" not in {record.name.partition(".")[0] for record in caplog.records}  # it would not redact


# -- long and slow requests -----------------------------------------------------------------------------------------


def test_the_longest_body_comes_through_and_a_longer_one_does_not(page: httpx.Client, deeds: Deeds) -> None:
    def chunks(size: int) -> Iterator[bytes]:
        for start in range(0, size, 1000):
            yield b"x" * min(1000, size - start)

    assert page.post("/api/v1/deed", content=b"x" * LONGEST_BODY).status_code == 200
    assert page.post("/api/v1/deed", content=chunks(LONGEST_BODY)).status_code == 200
    assert [done[2] for done in deeds.done] == [LONGEST_BODY] * 2
    for body in (b"x" * (LONGEST_BODY + 1), chunks(LONGEST_BODY + 1)):
        answer = page.post("/api/v1/deed", content=body)
        assert (answer.status_code, answer.json()) == (413, {"error": "the body of a request may have 65,536 bytes"})
    assert len(deeds.done) == 2


@pytest.mark.parametrize("length", [b"99999999999999999999999", b"65537"])
def test_a_body_that_is_only_announced_to_be_long_is_refused_before_it_comes(
    site: Served, deeds: Deeds, length: bytes
) -> None:
    with site.connected() as connection:
        token = deeds.access.operator_token.encode()
        head = b"POST /api/v1/deed HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token
        connection.sendall(head + b"\r\nContent-Length: " + length + b"\r\n\r\n")
        assert read_all(connection).startswith((b"HTTP/1.1 413 ", b"HTTP/1.1 400 "))


def test_a_body_that_does_not_come_is_not_waited_for_beyond_the_deadline(
    site: Served, deeds: Deeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    deeds.done.clear()
    monkeypatch.setattr("seep.dashboard.guard.BODY_SECONDS", BODY_SECONDS / 100)
    token = deeds.access.operator_token
    head = f"POST /api/v1/deed HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    for rest in ("Content-Length: 10\r\n\r\n12345", "Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n"):
        with site.connected() as connection:
            connection.sendall((head + rest).encode())
            assert read_all(connection).startswith(b"HTTP/1.1 408 ")
    assert deeds.done == []


def test_a_body_that_breaks_off_does_nothing(site: Served, deeds: Deeds) -> None:
    deeds.done.clear()
    token = deeds.access.operator_token
    head = f"POST /api/v1/deed HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    for rest in ("Content-Length: 10\r\n\r\n12345", "Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n"):
        assert b" 200 " not in site.told((head + rest).encode())
    assert deeds.done == []


@pytest.mark.parametrize(
    "second",
    [b"\x00\x01\x02\xff" * 50, b"GET /api/v1/deed\r\n\r\n",
     b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
     b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
     b"GET /login HTTP/1.1\r\nHost: localhost\r\n Folded: x\r\nA\x00B: c\r\n\r\n"],
)  # fmt: skip
def test_nonsense_after_a_good_request_does_nothing_and_the_server_goes_on(
    site: Served, deeds: Deeds, second: bytes
) -> None:
    deeds.done.clear()
    token = deeds.access.viewer_token.encode()
    first = b"GET /api/v1/deed HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token + b"\r\n\r\n"
    answers = site.told(first + second)
    assert answers.startswith(b"HTTP/1.1 200 OK")
    assert answers.count(b"HTTP/1.1 2") == 1
    assert len(deeds.done) == 1
    with site.client() as client:
        assert client.get("/login").status_code == 200


def test_a_smuggled_request_has_no_part_in_the_rights_of_the_one_before_it(site: Served, deeds: Deeds) -> None:
    deeds.done.clear()
    token = deeds.access.operator_token.encode()
    first = b"GET /api/v1/deed HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token + b"\r\n\r\n"
    second = b"POST /api/v1/deed HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answers = site.told(first + second)
    assert (answers.count(b"HTTP/1.1 200 "), answers.count(b"HTTP/1.1 401 ")) == (1, 1)
    assert [done[0] for done in deeds.done] == ["GET"]


# -- wrong tokens ---------------------------------------------------------------------------------------------------


def test_tokens_cannot_be_tried_for_ever_and_are_never_logged(caplog: pytest.LogCaptureFixture) -> None:
    deeds = Deeds()
    session = deeds.session()
    with served(deeds.app) as site, site.client() as client, caplog.at_level(logging.DEBUG, "seep"):
        tried = [client.get("/api/v1/deed", headers=bearer(f"guessed-{number}")) for number in range(20)]
        assert [answer.status_code for answer in tried] == [401] * WRONG_OF_ONE + [429] * (20 - WRONG_OF_ONE)
        assert 1 <= int(tried[-1].headers["retry-after"]) <= 60
        by_form = client.post("/login", data={"token": deeds.access.operator_token})
        by_json = client.post("/login", json={"token": deeds.access.operator_token})
        assert by_form.status_code == by_json.status_code == 429
        assert "set-cookie" not in by_form.headers
        assert "too many wrong tokens" in by_json.json()["error"]
        assert client.get("/api/v1/deed", headers={"cookie": f"seep-{site.port}={session.cookie}"}).status_code == 200
    assert caplog.text.count("a wrong token for the dashboard came from 127.0.0.1") == WRONG_OF_ONE
    told = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("seep"))
    assert not any(secret in told for secret in ("guessed", session.cookie, *deeds.access.secrets))


# -- small parts ----------------------------------------------------------------------------------------------------


def test_without_the_guard_nobody_is_a_visitor() -> None:
    with pytest.raises(InternalError, match="the guard must be in front"):
        visitor_of({"type": "http", "path": "/", "state": {}})


def test_the_cookie_is_named_for_the_port_of_the_server() -> None:
    scope = {"server": ("127.0.0.1", 8042), "headers": [(b"Cookie", b"a=1; seep-8042=x; seep-80=y")]}
    assert (cookie_name(scope), list(cookies_of(scope))) == ("seep-8042", ["x"])
    assert cookie_name({"server": ("/run/socket", None)}) == cookie_name({}) == "seep-0"


@given(st.ip_addresses(v=6))
def test_all_addresses_that_one_sender_has_count_as_one(address: object) -> None:
    neighbour = type(address)(int(address) ^ 0xFFFF)
    assert address_of({"client": (str(address), 1)}) == address_of({"client": (str(neighbour), 2)})


def test_a_web_socket_is_refused(deeds: Deeds) -> None:
    sent = []

    async def send(message: dict) -> None:
        sent.append(message)

    coroutine = deeds.app({"type": "websocket", "path": "/"}, None, send)
    with pytest.raises(StopIteration):
        coroutine.send(None)
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_a_connection_that_sends_half_a_request_and_ends_is_forgotten(site: Served) -> None:
    with site.connected() as connection:
        connection.sendall(b"GET /login HT")
        connection.shutdown(socket.SHUT_WR)
    with site.client() as client:
        assert client.get("/login").status_code == 200
