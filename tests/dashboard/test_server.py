"""The dashboard's server over real sockets: its page, its errors, viewers of the stream, and its end."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import httpx
import pytest

from primitives.errors import EnvironmentFault, InternalError, UserError
from seep.channels.sockets import is_refused
from seep.dashboard.access import Access
from seep.dashboard.api import ACTING, READING
from seep.dashboard.feed import VIEWERS, Viewer
from seep.dashboard.requests import request_of
from seep.dashboard.server import DashboardServer
from seep.dashboard.settings import DashboardSettings
from tests.dashboard.streams import watching
from tests.waiting import eventually

ACCESS = Access()


class Scripted:
    """Answers as a run that is told what to do."""

    def __init__(self) -> None:
        self.phase, self.number, self.padding = "running", 0, ""
        self.asked: list[Mapping[str, Any]] = []
        self.raises: dict[str, Exception] = {}
        self.may_answer = threading.Event()
        self.may_answer.set()

    def answer(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        request = request_of(body)
        self.asked.append(body)
        assert self.may_answer.wait(30.0)
        if request.do in self.raises:
            raise self.raises[request.do]
        if request.do == "status":
            self.number += 1
            events = {"wrong": [], "events": [], "new": [], "number": self.number}
            return {"phase": self.phase, "failure": "", "status": {"padding": self.padding}, **events}
        return {"asked": request.do}

    @property
    def statuses(self) -> int:
        return sum(body["do"] == "status" for body in self.asked)


@pytest.fixture
def run() -> Scripted:
    return Scripted()


@pytest.fixture
def server(run: Scripted) -> Iterator[DashboardServer]:
    before = set(threading.enumerate())
    made = DashboardServer(DashboardSettings(port=0), run, ACCESS)
    yield made
    run.may_answer.set()
    made.close()
    assert is_refused("127.0.0.1", made.port)
    assert eventually(lambda: not {each.name for each in set(threading.enumerate()) - before if "seep" in each.name})


@pytest.fixture
def api(server: DashboardServer) -> Iterator[httpx.Client]:
    with client(server) as made:
        yield made


def client(server: DashboardServer, token: str = ACCESS.operator_token) -> httpx.Client:
    limits = httpx.Limits(max_connections=100)
    url = f"{server.url}/api/v1/"
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=30, limits=limits)


# -- requests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (UserError("no such operator"), 400),
        (EnvironmentFault("the run does not answer"), 503),
        (InternalError("a rule was broken"), 500),
        (ZeroDivisionError("a bug"), 500),
    ],
)
def test_what_a_run_raises_is_an_answer_with_a_sentence(
    run: Scripted, api: httpx.Client, reason: Exception, status: int
) -> None:
    run.raises["slots"] = reason
    answer = api.get("slots", params={"operator": "counter"})
    assert answer.status_code == status
    assert answer.json().keys() == {"error"}
    assert "division" not in answer.text


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("GET", "/api/v1/nothing", 404, "openapi.json"),
        ("POST", "/api/v1/run", 405, "another method"),
        ("GET", "/api/v1/scale", 405, "another method"),
        ("GET", "/static/../server.py", 404, "nothing here"),
        ("GET", "/static/%2e%2e/server.py", 404, "nothing here"),
        ("GET", "/api/v1/status?wait=99", 400, "wait: "),
        ("GET", "/api/v1/status?until=3", 400, "until: "),
        ("GET", "/api/v1/status?after=x", 400, "after: "),
        ("POST", "/api/v1/scale", 400, "the whole: "),
    ],
)
def test_a_wrong_request_is_refused_with_a_sentence_that_names_what_is_wrong(
    server: DashboardServer, method: str, path: str, status: int, words: str
) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:  # a client would make the path another one
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ACCESS.operator_token}\r\n"
        connection.sendall(f"{head}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    assert answer.startswith(f"HTTP/1.1 {status} ")
    assert words in json.loads(answer.partition("\r\n\r\n")[2])["error"]


def test_numbers_in_a_query_are_read_and_those_in_json_must_be_numbers(run: Scripted, api: httpx.Client) -> None:
    assert api.get("status", params={"after": "5", "wait": "0.5", "sample": "true"}).status_code == 200
    assert run.asked == [{"do": "status", "after": 5, "wait": 0.5, "sample": True}]
    assert api.get("state", params={"operator": "counter", "key": ["a", "b"]}).status_code == 200
    assert run.asked[-1] == {"do": "state", "operator": "counter", "key": ["a", "b"]}
    assert api.post("scale", json={"operator": "counter", "to": "3"}).status_code == 400
    assert len(run.asked) == 2, "the run has not seen what was wrong"


def test_the_page_is_served_with_tags_by_which_it_is_sent_once(server: DashboardServer, api: httpx.Client) -> None:
    first = api.get(f"{server.url}/")
    assert (first.status_code, first.headers["content-type"]) == (200, "text/html; charset=utf-8")
    again = api.get(f"{server.url}/", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    script = api.get(f"{server.url}/static/main.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert script.headers["content-security-policy"].startswith("default-src 'none'")


def test_requests_that_wait_in_the_run_leave_room_for_those_that_act_and_are_bounded(
    run: Scripted, server: DashboardServer
) -> None:
    run.may_answer.clear()
    with ThreadPoolExecutor(READING + ACTING) as callers, client(server) as api:
        reading = [callers.submit(api.get, "run") for _ in range(READING)]
        assert eventually(lambda: len(run.asked) == READING)
        refused = api.get("run")
        assert (refused.status_code, "busy" in refused.json()["error"]) == (503, True)
        acting = callers.submit(api.post, "finish", json={})
        assert eventually(lambda: run.asked[-1] == {"do": "finish"})
        run.may_answer.set()
        assert [each.result(30).status_code for each in (*reading, acting)] == [200] * (READING + 1)
        assert api.get("run").status_code == 200


# -- viewers -----------------------------------------------------------------------------------------------------------


def test_several_viewers_see_the_same_pictures_and_the_run_is_asked_once_for_all(
    run: Scripted, server: DashboardServer
) -> None:
    with ExitStack() as stack:
        views = [stack.enter_context(watching(stack.enter_context(client(server)))) for _ in range(3)]
        assert eventually(lambda: server.feed.viewers == 3)
        seen = [[next(view)[1]["number"] for _ in range(3)] for view in views]
        asked = run.statuses
        assert asked <= max(map(max, seen)) + 1
        assert set(seen[0]) & set(seen[1]) & set(seen[2]), "each picture is for all of them"
        run.phase = "finished"
        rest = [list(view) for view in views]
    for view in rest:
        assert [name for name, _ in view][-2:] == ["status", "over"]
        assert view[-2][1]["phase"] == "finished"
    assert eventually(lambda: server.feed.viewers == 0)


def test_each_picture_has_the_number_of_the_event_before_its_events(run: Scripted, api: httpx.Client) -> None:
    with watching(api) as view:
        pictures = [next(view)[1] for _ in range(3)]
    assert [(each["after"], each["number"]) for each in pictures] == [(1, 1), (1, 2), (2, 3)]
    assert run.asked[:2] == [{"do": "status", "sample": True}, {"do": "status", "sample": True, "after": 1}]


def test_nothing_is_asked_while_nobody_looks_and_a_later_viewer_sees_the_run_again(
    run: Scripted, server: DashboardServer
) -> None:
    assert run.asked == []
    for _ in range(2):
        with client(server) as api, watching(api) as view:
            next(view)
        assert eventually(lambda: server.feed.viewers == 0)
        assert eventually(lambda: not server.feed._is_asking)
    asked = run.statuses
    assert not eventually(lambda: run.statuses > asked, seconds=1.5)


def test_viewers_of_a_run_that_is_over_see_its_last_picture_and_the_end(run: Scripted, api: httpx.Client) -> None:
    run.phase = "failed"
    for _ in range(2):
        with watching(api) as view:
            assert [name for name, _ in view] == ["status", "over"]


@pytest.mark.parametrize("reason", [EnvironmentFault("the run has gone"), ZeroDivisionError("a bug")])
def test_when_the_run_does_not_answer_viewers_are_told(run: Scripted, api: httpx.Client, reason: Exception) -> None:
    run.raises["status"] = reason
    with watching(api) as view:
        told = list(view)
    assert [name for name, _ in told] == ["lost", "over"]
    assert told[0][1]["error"] in ("the run has gone", "an error in seep; the run's log has it")


def test_more_viewers_than_the_most_are_refused_until_one_leaves(server: DashboardServer) -> None:
    with ExitStack() as stack:
        views = [stack.enter_context(client(server)) for _ in range(VIEWERS)]
        opened = [stack.enter_context(watching(view)) for view in views]
        for each in opened:
            next(each)
        with client(server) as further:
            refused = further.get("stream")
            assert (refused.status_code, "viewers already" in refused.json()["error"]) == (503, True)
            views[0].close()
            assert eventually(lambda: server.feed.viewers < VIEWERS)
            with watching(further) as view:
                assert next(view)[0] == "status"


def test_a_viewer_that_does_not_read_costs_two_pictures_and_holds_up_nobody(
    run: Scripted, server: DashboardServer
) -> None:
    run.padding = "x" * 20_000_000  # more than the operating system takes for a connection
    with socket.create_connection(("127.0.0.1", server.port)) as stuck, client(server) as api:
        head = f"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ACCESS.viewer_token}\r\n\r\n"
        stuck.sendall(head.encode())
        assert eventually(lambda: server.feed.viewers == 1)
        with watching(api) as view:
            numbers = [next(view)[1]["number"] for _ in range(4)]
        assert all(len(viewer._waiting) <= 2 for viewer in server.feed._viewers)
        assert numbers == sorted(numbers)


def test_a_viewer_keeps_the_newest_pictures_and_never_loses_the_end() -> None:
    async def seen() -> list[bytes]:
        viewer = Viewer()
        for number in range(1000):
            viewer.show(b"%d" % number)
        viewer.show(b"over", is_last=True)
        await asyncio.sleep(0)
        return [picture async for picture in viewer.pictures()]

    assert asyncio.run(seen()) == [b"999", b"over"]


def test_closing_shows_viewers_the_last_picture_and_ends_requests_that_wait(run: Scripted) -> None:
    server = DashboardServer(DashboardSettings(port=0), run, ACCESS)
    with client(server) as api, watching(api) as view, ThreadPoolExecutor(1) as closing:
        number = next(view)[1]["number"]
        done = closing.submit(server.close)
        rest = list(view)
        done.result(20)
    assert [name for name, _ in rest][-1] == "over"
    assert rest[-2][1]["number"] > number
    assert is_refused("127.0.0.1", server.port)
    with pytest.raises(EnvironmentFault, match="closed"):
        asyncio.run(_join(server.feed.join))


async def _join(join: Callable[[], Viewer]) -> Viewer:
    return join()


# -- its opening -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "hosts", "expected"),
    [
        ("127.0.0.1", (), "http://127.0.0.1:"),
        ("0.0.0.0", ("seep.example.org",), "http://seep.example.org:"),
        ("0.0.0.0", (), "http://127.0.0.1:"),
        ("localhost", (), "http://localhost:"),
    ],
)
def test_the_link_has_an_address_by_which_browsers_reach_it(
    run: Scripted, host: str, hosts: tuple[str, ...], expected: str
) -> None:
    server = DashboardServer(DashboardSettings(port=0, host=host, hosts=hosts), run, ACCESS)
    try:
        assert server.url == f"{expected}{server.port}"
        assert server.login_url() != server.login_url(), "a code is for one login"
    finally:
        server.close()


def test_closing_ends_the_connection_of_a_viewer_that_does_not_read(run: Scripted) -> None:
    run.padding = "x" * 20_000_000  # more than the operating system takes for a connection
    server = DashboardServer(DashboardSettings(port=0), run, ACCESS)
    with socket.create_connection(("127.0.0.1", server.port), timeout=20.0) as stuck:
        head = f"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ACCESS.viewer_token}\r\n\r\n"
        stuck.sendall(head.encode())
        assert stuck.recv(1)
        server.close()
        with suppress(ConnectionResetError):
            while stuck.recv(1 << 20):
                pass
