"""A web server of this machine whose answers a test has written, in place of a dashboard."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

RUN = {"id": "ab12cd34", "query": "orders", "operators": {"source": "source", "counter": "stateful"}}


class Asked(NamedTuple):
    """A request as it has come."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Page(NamedTuple):
    """An answer of the server."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = {}  # noqa: RUF012


def answer(value: Any, status: int = 200) -> Page:
    return Page(json.dumps(value).encode(), status, {"Content-Type": "application/json"})


class Pages:
    """The pages of a server by their paths, and what it was asked for."""

    def __init__(self, server: ThreadingHTTPServer, scheme: str) -> None:
        self.address = f"127.0.0.1:{server.server_port}"
        self.url = f"{scheme}://{self.address}"
        self.asked: list[Asked] = []
        self.given: dict[str, Page | Callable[[], Page]] = {"/api/v1/run": answer(RUN)}
        self.otherwise = answer({"error": "there is no such path"}, 404)

    def of(self, asked: Asked) -> Page:
        self.asked.append(asked)
        page = self.given.get(asked.path.partition("?")[0], self.otherwise)
        return page if isinstance(page, Page) else page()


def _handler(pages: Callable[[], Pages]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            page = pages().of(Asked(self.command, self.path, dict(self.headers), body))
            self.send_response(page.status)
            for name, value in page.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(page.body)))
            self.end_headers()
            self.wfile.write(page.body)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None: ...

    return Handler


@contextmanager
def served(certificate: tuple[Path, Path] | None = None) -> Iterator[Pages]:
    """A running server, with TLS if it has a certificate and its key."""
    found: list[Pages] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(lambda: found[0]))
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    found.append(Pages(server, "https" if certificate else "http"))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield found[0]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
