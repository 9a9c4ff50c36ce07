"""Login and logout over real HTTP: links that log in once, tokens, cookies and their attributes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from http.cookies import SimpleCookie

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from seep.dashboard.access import CODE_SECONDS, SESSION_SECONDS, Access, Role
from seep.dashboard.guard import AccessGuard, visitor_of
from seep.dashboard.login import login_routes
from tests.dashboard.served import Served, served
from tests.dashboard.test_access import Clock

CLOCK = Clock()
ACCESS = Access("operator-" + "o" * 32, "viewer-" + "v" * 32, clock=CLOCK)


async def _page(request: Request) -> Response:
    return JSONResponse({"role": visitor_of(request.scope).role, "csrf": visitor_of(request.scope).csrf})


async def _stream(_: Request) -> Response:
    async def parts() -> object:
        while True:
            yield b"data: x\n\n"
            await asyncio.sleep(0.01)

    return StreamingResponse(parts(), media_type="text/event-stream")


def application() -> AccessGuard:
    routes = [
        *login_routes(ACCESS),
        Route("/", _page),
        Route("/stream", _stream),
        Route("/static/style.css", lambda _: PlainTextResponse("body {}", media_type="text/css")),
    ]
    return AccessGuard(Starlette(routes=routes), ACCESS, [])


@pytest.fixture(scope="module")
def site() -> Iterator[Served]:
    with served(application()) as site:
        yield site


@pytest.fixture
def browser(site: Served) -> Iterator[httpx.Client]:
    """Keeps cookies and follows redirects, as a browser does."""
    CLOCK.now += 3600  # whatever wrong tokens other tests have sent
    with site.client(follow_redirects=True, headers={"origin": site.url}) as client:
        yield client


def role(browser: httpx.Client) -> str | None:
    """The role for which the browser is logged in."""
    answer = browser.get("/")
    return answer.json()["role"] if answer.headers["content-type"] == "application/json" else None


@pytest.mark.parametrize("wanted", Role)
def test_a_link_logs_a_browser_in_and_leads_to_the_page(browser: httpx.Client, wanted: Role) -> None:
    answer = browser.get("/login", params={"code": ACCESS.login_code(wanted)})
    assert [each.status_code for each in answer.history] == [303]
    assert answer.url.path == "/"
    assert answer.json()["role"] == wanted
    assert answer.url.query == b""


def test_a_link_is_good_once_and_says_so_then(browser: httpx.Client, site: Served) -> None:
    link = {"code": ACCESS.login_code()}
    assert browser.get("/login", params=link).json()["role"] == "operator"
    with site.client(follow_redirects=True) as another:
        answer = another.get("/login", params=link)
        assert answer.status_code == 401
        assert "This link has been used, or is older than five minutes" in answer.text
        assert role(another) is None
    assert browser.get("/login", params=link).json()["role"] == "operator"  # it is logged in, and need not be again


@pytest.mark.parametrize("code", ["", "x", "x" * 10_000, "\x00\ud800".encode("utf-8", "surrogatepass"), "../../"])
def test_what_is_no_code_logs_nobody_in(browser: httpx.Client, code: str) -> None:
    assert browser.get("/login", params={"code": code}).status_code == 401
    assert role(browser) is None


def test_an_old_link_logs_nobody_in(browser: httpx.Client) -> None:
    code = ACCESS.login_code()
    CLOCK.now += CODE_SECONDS
    assert browser.get("/login", params={"code": code}).status_code == 401
    assert role(browser) is None


def test_who_only_looks_at_a_link_does_not_use_it(browser: httpx.Client) -> None:
    link = {"code": ACCESS.login_code()}
    assert browser.head("/login", params=link).status_code == 200
    assert not browser.cookies
    assert browser.get("/login", params=link).json()["role"] == "operator"


@pytest.mark.parametrize("role_of_token", Role)
def test_the_page_asks_for_a_token_and_takes_it(browser: httpx.Client, role_of_token: Role) -> None:
    asked = browser.get("/")
    assert asked.url.path == "/login"
    assert '<input id="token" name="token" type="password"' in asked.text
    assert "<script" not in asked.text
    token = dict(zip(Role, reversed(ACCESS.secrets), strict=True))[role_of_token]
    answer = browser.post("/login", data={"token": f"  {token}\n"})
    assert (answer.url.path, answer.json()["role"]) == ("/", role_of_token)


def test_a_program_may_log_in_by_json(browser: httpx.Client) -> None:
    answer = browser.post("/login", json={"token": ACCESS.viewer_token})
    assert (answer.status_code, answer.json(), role(browser)) == (200, {"role": "viewer"}, "viewer")


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        ('{"token": "wrong"}', "application/json; charset=utf-8", 401),
        ('{"token": 5}', "application/json", 400),
        ("{}", "application/json", 400),
        ("[" * 60_000, "application/json", 400),
        ("[]", "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        ('{"token": "\\ud800"}', "application/json", 401),
        ("token=wrong", "application/x-www-form-urlencoded", 401),
        ("token=%FF%00%ud800", "application/x-www-form-urlencoded", 401),
        ("token=a&token=b", "application/x-www-form-urlencoded", 400),
        ("a=1&b=2&c=3&d=4&e=5&token=f", "application/x-www-form-urlencoded", 400),
        (b"token=\xff\xfe", "application/x-www-form-urlencoded", 400),
        ("", "", 400),
    ],
)
def test_a_wrong_login_is_told_and_sets_no_cookie(browser: httpx.Client, content: str, kind: str, status: int) -> None:
    answer = browser.post("/login", content=content, headers={"content-type": kind})
    assert answer.status_code == status
    assert "set-cookie" not in answer.headers
    if kind.startswith("application/json"):
        assert list(answer.json()) == ["error"]
    else:
        assert 'role="alert">' in answer.text
        assert "wrong" not in answer.text
    assert role(browser) is None


def cookie_set_by(answer: httpx.Response) -> SimpleCookie:
    return SimpleCookie(answer.headers["set-cookie"])


def test_no_script_and_no_other_site_gets_the_cookie(browser: httpx.Client, site: Served) -> None:
    answer = browser.get("/login", params={"code": ACCESS.login_code()}, follow_redirects=False)
    ((name, morsel),) = cookie_set_by(answer).items()
    assert name == f"seep-{site.port}"
    assert morsel["httponly"] is True
    assert morsel["samesite"].lower() == "strict"
    assert (morsel["path"], morsel["domain"]) == ("/", "")
    assert int(morsel["max-age"]) == SESSION_SECONDS
    assert not morsel["secure"]  # this server has no TLS; with it, see below
    assert re.fullmatch(r"[\w-]{43}", morsel.value)


def test_with_tls_the_cookie_goes_over_tls_only() -> None:
    sent = []

    async def send(message: dict) -> None:
        sent.append(message)

    async def receive() -> dict:
        return {"type": "http.request", "body": b""}

    scope = {
        "type": "http", "method": "GET", "path": "/login", "scheme": "https", "server": ("127.0.0.1", 8443),
        "client": ("127.0.0.1", 1), "query_string": f"code={ACCESS.login_code()}".encode(),
        "headers": [(b"host", b"localhost:8443")],
    }  # fmt: skip
    asyncio.run(application()(scope, receive, send))
    cookie = next(value.decode() for name, value in sent[0]["headers"] if name == b"set-cookie")
    assert cookie.startswith("seep-8443=")
    assert "Secure" in cookie.split("; ")


def test_a_login_ends_the_session_before_it(browser: httpx.Client) -> None:
    browser.get("/login", params={"code": ACCESS.login_code(Role.VIEWER)})
    (before,) = browser.cookies.values()
    browser.get("/login", params={"code": ACCESS.login_code()})
    (after,) = browser.cookies.values()
    assert before != after
    assert ACCESS.visitor_with(before) is None
    assert ACCESS.visitor_with(after).role is Role.OPERATOR


def test_a_session_ends_by_itself(browser: httpx.Client) -> None:
    browser.get("/login", params={"code": ACCESS.login_code()})
    assert role(browser) == "operator"
    CLOCK.now += SESSION_SECONDS
    assert role(browser) is None


def test_logging_out_ends_the_session_and_takes_the_cookie_away(browser: httpx.Client) -> None:
    csrf = browser.get("/login", params={"code": ACCESS.login_code()}).json()["csrf"]
    (cookie,) = browser.cookies.values()
    assert browser.post("/logout").status_code == 403
    assert role(browser) == "operator"
    assert browser.post("/logout", headers={"x-seep-csrf": csrf}).json() == {}
    assert not browser.cookies
    assert ACCESS.visitor_with(cookie) is None
    assert role(browser) is None


def test_logging_in_and_out_is_no_action_by_get(browser: httpx.Client) -> None:
    browser.get("/login", params={"code": ACCESS.login_code()})
    assert browser.get("/logout").status_code == 405
    assert browser.get("/login", params={"token": ACCESS.operator_token}).status_code == 200
    assert role(browser) == "operator"


def test_an_answer_that_goes_on_ends_when_its_browser_logs_out(
    browser: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    csrf = browser.get("/login", params={"code": ACCESS.login_code()}).json()["csrf"]
    with browser.stream("GET", "/stream") as answer:
        parts = answer.iter_raw()
        assert next(parts).startswith(b"data: x")
        browser.post("/logout", headers={"x-seep-csrf": csrf})
        for _ in parts:
            pass  # comes to an end
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_an_answer_that_goes_on_to_a_program_does_not_depend_on_sessions(browser: httpx.Client) -> None:
    with browser.stream("GET", "/stream", headers={"authorization": f"Bearer {ACCESS.viewer_token}"}) as answer:
        parts = answer.iter_raw()
        assert [next(parts)[:7] for _ in range(5)] == [b"data: x"] * 5


def test_who_comes_by_a_link_of_another_site_is_sent_on_by_the_server_s_own_page(browser: httpx.Client) -> None:
    """Only a request that begins at a page of this server has the cookie; the page that begins it has no script."""
    answer = browser.get("/login", headers={"sec-fetch-site": "cross-site"})
    assert '<meta http-equiv="refresh" content="0;url=/">' in answer.text
    assert 'name="token"' not in answer.text
    assert 'name="token"' in browser.get("/login", headers={"sec-fetch-site": "same-origin"}).text
