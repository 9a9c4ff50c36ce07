"""A real browser in front of the guard: it logs in by form and by links, and pages of other servers get nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from seep.dashboard.access import Access
from seep.dashboard.guard import AccessGuard, visitor_of
from seep.dashboard.login import login_routes
from tests.dashboard.browsing import chromium
from tests.dashboard.served import Served, served

ACCESS = Access()
DONE: list[str] = []


async def _page(request: Request) -> Response:
    visitor = visitor_of(request.scope)
    return HTMLResponse(
        f'<!doctype html><title>run</title><p id="role">{visitor.role}</p><p id="csrf">{visitor.csrf}</p>'
    )


async def _act(request: Request) -> Response:
    DONE.append(visitor_of(request.scope).role)
    return JSONResponse({})


async def _foreign(request: Request) -> Response:
    """A page of another server, with what the test wants in it."""
    return HTMLResponse(request.query_params["html"])


@pytest.fixture(scope="module")
def site() -> Iterator[Served]:
    routes = [*login_routes(ACCESS), Route("/", _page), Route("/api/v1/act", _act, methods=["GET", "POST"])]
    with served(AccessGuard(Starlette(routes=routes), ACCESS, [])) as site:
        yield site


@pytest.fixture(scope="module")
def other() -> Iterator[Served]:
    with served(Starlette(routes=[Route("/", _foreign)])) as other:
        yield other


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    DONE.clear()
    context = browser.new_context()
    context.set_default_timeout(60_000)
    yield context.new_page()
    context.close()


def logged_in(page: Page, site: Served) -> None:
    page.goto(f"{site.url}/login?code={ACCESS.login_code()}")
    assert page.inner_text("#role") == "operator"


def foreign(page: Page, other: Served, html: str, host: str = "localhost") -> None:
    """Opens a page of another server: another site by the name localhost, the same site by the address."""
    page.goto(f"http://{host}:{other.port}/?{_query(html)}")


def _query(html: str) -> str:
    return urlencode({"html": f"<!doctype html><title>other</title>{html}"})


def test_the_form_logs_in_with_a_token_and_works_without_script(browser: Browser, site: Served) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(site.url)
    assert page.url == f"{site.url}/login"
    page.fill("#token", "no token of this run")
    page.click("button")
    assert page.inner_text("[role=alert]") == "This is not a token of this run."
    page.fill("#token", ACCESS.viewer_token)
    page.press("#token", "Enter")
    page.wait_for_url(f"{site.url}/")
    assert page.inner_text("#role") == "viewer"
    context.close()


def test_a_link_from_another_site_logs_in_though_its_request_has_no_cookie(
    page: Page, site: Served, other: Served
) -> None:
    foreign(page, other, f'<a href="{site.url}/login?code={ACCESS.login_code()}">to the run</a>')
    page.click("a")
    page.wait_for_selector("#role")
    assert page.inner_text("#role") == "operator"


def test_a_link_to_the_page_works_from_another_site_for_who_is_logged_in(
    page: Page, site: Served, other: Served
) -> None:
    logged_in(page, site)
    foreign(page, other, f'<a href="{site.url}/">to the run</a>')
    page.click("a")
    page.wait_for_selector("#role")


def test_who_is_not_logged_in_and_comes_from_another_site_is_asked_for_a_token(
    page: Page, site: Served, other: Served
) -> None:
    foreign(page, other, f'<a href="{site.url}/">to the run</a>')
    page.click("a")
    page.wait_for_selector("#token")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_form_of_another_server_does_nothing(page: Page, site: Served, other: Served, host: str) -> None:
    """By the address it is of the same site, so that it even has the cookie."""
    logged_in(page, site)
    foreign(page, other, f'<form method="post" action="{site.url}/api/v1/act"><button>x</button></form>', host)
    with page.expect_navigation() as navigation:
        page.click("button")
    assert navigation.value.status in (401, 403)
    assert DONE == []


_FETCH = """async ([url, options]) => {
  try { const answer = await fetch(url, options); return `${answer.status} ${await answer.text()}`; }
  catch (error) { return `${error.name}`; }
}"""


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_script_of_another_server_reads_nothing_and_does_nothing(
    page: Page, site: Served, other: Served, host: str
) -> None:
    logged_in(page, site)
    csrf = page.inner_text("#csrf")
    foreign(page, other, "<p>", host)
    for path, options in (
        ("/", {}),
        ("/api/v1/act", {"method": "POST"}),
        ("/api/v1/act", {"method": "POST", "headers": {"X-Seep-Csrf": csrf}}),
        ("/api/v1/act", {"headers": {"Authorization": f"Bearer {ACCESS.operator_token}"}, "method": "POST"}),
    ):
        told = page.evaluate(_FETCH, [site.url + path, {"credentials": "include", **options}])
        assert told == "TypeError", path  # the browser tells the page nothing
    opaque = page.evaluate(
        _FETCH, [f"{site.url}/api/v1/act", {"credentials": "include", "mode": "no-cors", "method": "POST"}]
    )
    assert opaque in ("0 ", "TypeError")
    assert DONE == []


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_no_other_page_can_show_it_in_a_frame(page: Page, site: Served, other: Served, host: str) -> None:
    logged_in(page, site)
    foreign(page, other, f'<iframe src="{site.url}/"></iframe>', host)
    frame = next(each for each in page.frames if each != page.main_frame)
    frame.wait_for_load_state()
    assert frame.query_selector("#role") is None


def test_the_page_s_own_script_cannot_read_the_cookie(page: Page, site: Served) -> None:
    logged_in(page, site)
    assert page.evaluate("document.cookie") == ""
    assert len(page.context.cookies()) == 1
