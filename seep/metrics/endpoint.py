"""The endpoint: serves the metrics of a run over HTTP, on one thread, without a word to the driver's event loop.

A scraper can hold up nothing but its own answer: the present facts are an immutable value, there are at most a few
connections, each has one answer, and a deadline for all of it.
"""

from __future__ import annotations

import asyncio
import socket
from importlib.util import find_spec
from typing import NamedTuple

from primitives.errors import EnvironmentFault, UserError, install_command
from seep.metrics.settings import MetricsSettings
from seep.record.facts import Facts
from seep.threads.worker import Worker

PATH = "/metrics"
#: The most connections at a time; a further one is closed at once.
CONNECTIONS = 8
#: Seconds that a connection may take, from its opening to the end of the answer.
PATIENCE = 5.0
#: The most bytes of a request.
_LONGEST = 8192
#: The most bytes of an answer that the operating system buffers for a connection.
_BUFFERED = 1 << 16
#: Seconds until it listens again, when a connection could not be taken.
_PAUSE = 1.0

_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 500: "Internal Server Error"}
_PLAIN = "text/plain; charset=utf-8"


class _Answer(NamedTuple):
    """An answer to a request."""

    status: int
    content_type: str
    body: bytes

    def encoded(self, with_body: bool) -> bytes:
        head = (
            f"HTTP/1.1 {self.status} {_REASONS[self.status]}\r\nContent-Type: {self.content_type}\r\n"
            f"Content-Length: {len(self.body)}\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + (self.body if with_body else b"")


class MetricsEndpoint:
    """Serves what it was shown last, from its opening until it is closed."""

    def __init__(self, settings: MetricsSettings, run: str, query: str) -> None:
        """Raises UserError without the extra `metrics`, and EnvironmentFault if the port cannot be had."""
        check_metrics(settings)
        from seep.metrics.exposition import Exposition

        self._facts: Facts | None = None  #: replaced as a whole, by another thread
        self._exposition = Exposition(run, query, lambda: self._facts)
        self._socket = listening("metrics", settings.host, settings.port or 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFERED)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._open: dict[socket.socket, asyncio.Task[None]] = {}
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._is_closed = False
        self._worker = Worker("seep metrics")
        self._worker.put(self._serve)

    @property
    def url(self) -> str:
        host, port = self.address
        return f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}"

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._open)

    def show(self, facts: Facts) -> None:
        """Serves these facts from now on; for any thread."""
        self._facts = facts

    def close(self) -> None:
        """Closes the port and all connections, and ends the thread."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.call_soon_threadsafe(self._over.set)
        self._worker.close()

    # -- on the thread of the endpoint --------------------------------------------------------------------------------

    def _serve(self) -> None:
        with self._socket, asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve_until_over())

    async def _serve_until_over(self) -> None:
        self._listen()
        await self._over.wait()
        self._loop.remove_reader(self._socket)
        for connection, task in list(self._open.items()):
            task.cancel()
            connection.close()  # the task does so only if it has begun

    def _listen(self) -> None:
        if not self._over.is_set():
            self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except BlockingIOError:
            return
        except OSError:  # such as too many open files: it stays there, so the loop would not rest
            self._loop.remove_reader(self._socket)
            self._loop.call_later(_PAUSE, self._listen)
            return
        if len(self._open) >= CONNECTIONS:
            connection.close()
            return
        connection.setblocking(False)
        self._open[connection] = self._loop.create_task(self._serve_one(connection))

    async def _serve_one(self, connection: socket.socket) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                request, *headers = (await self._request(connection)).decode("latin-1").split("\r\n")
                method, target, _ = request.split(" ")
                answer = self._answer(method, target, headers)
                await self._loop.sock_sendall(connection, answer.encoded(with_body=method != "HEAD"))
        except (OSError, ValueError):  # also TimeoutError: it is the scraper's loss
            pass
        finally:
            self._open.pop(connection, None)
            connection.close()

    async def _request(self, connection: socket.socket) -> bytes:
        """Reads a request up to the end of its headers."""
        read = b""
        while b"\r\n\r\n" not in read:
            part = await self._loop.sock_recv(connection, _LONGEST)
            if not part or len(read) > _LONGEST:
                raise ValueError("this is no request, or too long a one")
            read += part
        return read.partition(b"\r\n\r\n")[0]

    def _answer(self, method: str, target: str, headers: list[str]) -> _Answer:
        if method not in ("GET", "HEAD"):
            return _Answer(405, _PLAIN, b"metrics can only be read, by GET\n")
        if target.partition("?")[0] != PATH:
            return _Answer(404, _PLAIN, f"there are metrics at {PATH}, and nothing else\n".encode())
        try:
            return _Answer(200, *self._exposition.page(_accept(headers)))
        except Exception as reason:  # the scraper is told; the run goes on
            return _Answer(500, _PLAIN, f"the metrics cannot be read: {reason!r:.500}\n".encode())


def check_metrics(settings: MetricsSettings) -> None:
    """Raises UserError if metrics are asked for, and the library for them is not installed."""
    if settings.port is not None and find_spec("prometheus_client") is None:
        raise UserError(f"metrics need prometheus-client, which is not installed: {install_command('metrics')}")


def listening(what: str, host: str, port: int) -> socket.socket:
    """Returns a socket that listens; raises EnvironmentFault, which says what cannot be served, if it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        opened = socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as reason:
        raise EnvironmentFault(
            f"{what} cannot be served at {host}, port {port}: {reason}; choose an address of this machine, and another "
            "port, or 0 for any free one"
        ) from reason
    opened.setblocking(False)
    return opened


def _accept(headers: list[str]) -> str:
    parted = (header.partition(":") for header in headers)
    return ",".join(value.lower() for name, _, value in parted if name.strip().lower() == "accept")
