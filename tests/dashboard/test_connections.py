"""Connections with clients that are slow, idle or many: each ends by a deadline, and the server serves the others."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from seep.dashboard.access import Access
from seep.dashboard.guard import AccessGuard
from seep.dashboard.login import login_routes
from tests.dashboard.served import Served, read_all, served
from tests.waiting import eventually

ACCESS = Access()
TOKEN = f"Authorization: Bearer {ACCESS.viewer_token}\r\n".encode()
GOOD = b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def _much(_: Request) -> Response:
    async def parts() -> object:
        while True:
            yield b"x" * 65536
            await asyncio.sleep(0)

    return StreamingResponse(parts())


@pytest.fixture(scope="module")
def site() -> Iterator[Served]:
    routes = [*login_routes(ACCESS), Route("/much", _much), Route("/", lambda _: PlainTextResponse("page"))]
    with served(AccessGuard(Starlette(routes=routes), ACCESS, [])) as site:
        yield site


@contextmanager
def soon(name: str) -> Iterator[None]:
    """Makes one of the deadlines short, for the connections that a test means and no others."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(f"seep.dashboard.connections.{name}", 0.1)
        yield


def works(site: Served) -> bool:
    with site.client() as client:
        return client.get("/login").status_code == 200


def ended(connection: socket.socket) -> bytes:
    """All that comes until the server ends the connection, in whichever way."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


@pytest.mark.parametrize(
    "sent", [b"", b"G", b"GET /login HTTP/1.1\r\nHost: localhost\r\n", b"GET / HTTP/1.1\r\nX: " + b"y" * 5000]
)
def test_a_client_that_does_not_finish_the_head_of_its_request_is_left(site: Served, sent: bytes) -> None:
    with soon("HEAD_SECONDS"), site.connected() as connection:
        connection.sendall(sent)
        assert ended(connection) == b""
    assert works(site)


def test_the_next_request_of_a_connection_has_the_same_time(site: Served) -> None:
    with site.connected() as connection:
        connection.sendall(GOOD)
        while b"</html>" not in connection.recv(65536):
            pass
        with soon("HEAD_SECONDS"):
            connection.sendall(GOOD[:20])
            assert ended(connection) == b""


def test_a_body_that_nobody_waits_for_does_not_hold_its_connection(site: Served) -> None:
    with site.connected() as connection:
        head = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head + b"1\r\nx\r\n")
        told = b""
        while not told.endswith(b"}"):
            told += connection.recv(65536)
        assert told.startswith(b"HTTP/1.1 401 ")
        with soon("HEAD_SECONDS"):
            connection.sendall(b"1\r\nx\r\n")
            assert ended(connection) == b""
    assert works(site)


def test_a_client_that_takes_nothing_of_its_answer_is_left(site: Served) -> None:
    """The server would write for ever; what the two ends buffer is much, but has an end."""
    with soon("TAKE_SECONDS"), site.connected() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(b"GET /much HTTP/1.1\r\nHost: localhost\r\n" + TOKEN + b"\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200 OK")
        assert eventually(lambda: site.connections == 0)
    assert works(site)


def test_there_are_only_so_many_connections(site: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seep.dashboard.connections.CONNECTIONS", 5)
    with ExitStack() as stack:
        first = [stack.enter_context(site.connected()) for _ in range(5)]
        for connection in first:
            connection.sendall(GOOD[:-2])
        assert all(ended(stack.enter_context(site.connected())) == b"" for _ in range(20))
        for connection in first:
            connection.sendall(b"Connection: close\r\n\r\n")
            assert read_all(connection).startswith(b"HTTP/1.1 200 ")
    assert works(site)


def test_a_connection_that_is_used_is_not_ended(site: Served) -> None:
    """Its first deadline is over before the second request comes."""
    with site.connected() as connection:
        for _ in range(20):
            connection.sendall(GOOD)
            told = b""
            while not told.endswith(b"</html>\n"):
                told += connection.recv(65536)
