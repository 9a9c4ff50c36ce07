"""A server on 127.0.0.1 for tests: an ASGI application behind uvicorn, on a thread, and raw requests to it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn

from seep.dashboard.connections import BoundedConnection
from tests.waiting import eventually


@dataclass(frozen=True)
class Served:
    """Where an application is served."""

    port: int
    server: uvicorn.Server
    scheme: str = "http"

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self.server.server_state.connections)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=30, trust_env=False, **options)

    def connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def told(self, raw: bytes) -> bytes:
        """Sends bytes as they are; returns all that comes until the server closes the connection."""
        with self.connected() as connection:
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


@contextmanager
def served(app: Any, **options: Any) -> Iterator[Served]:
    config = uvicorn.Config(
        app, port=0, log_config=None, access_log=False, proxy_headers=False, lifespan="off", http=BoundedConnection,
        ws="none", timeout_graceful_shutdown=1, **options,
    )  # fmt: skip
    server = uvicorn.Server(config)
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])), daemon=True)
    thread.start()
    try:
        assert eventually(lambda: server.started)
        yield Served(listening.getsockname()[1], server, "https" if config.is_ssl else "http")
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()
