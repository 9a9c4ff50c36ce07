"""The client of a dashboard: sends requests to a run over HTTP, from any machine, with a token."""

from __future__ import annotations

import io
import ipaddress
import json
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlencode, urlsplit

from primitives.errors import EnvironmentFault, UserError
from seep.dashboard.requests import REQUESTS
from seep.logs.line import visible
from seep.running.run_client import time_limit

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

#: Where the API begins.
_API = "/api/v1"
#: The most seconds until there is a connection, and the most bytes of an answer.
_CONNECTED_WITHIN, _LARGEST = 10.0, 128 << 20
#: Bytes that are read at once, and the most characters of a server's sentence that are shown.
_PIECE, _LONGEST = 1 << 16, 2000


@dataclass(frozen=True, slots=True)
class DashboardAddress:
    """The address of a dashboard, and what a client needs to be let in."""

    url: str
    token: str | None = field(default=None, repr=False)
    ca: Path | None = None  #: certificates to trust instead of those of the system
    insecure_http: bool = False  #: whether the token may be sent without encryption to another machine

    @property
    def parts(self) -> SplitResult:
        """The parts of the address; raises UserError if it is not one of a dashboard."""
        try:
            parts = urlsplit(self.url)
            is_whole = bool(parts.hostname) and (parts.port is None or parts.port > 0)
        except ValueError as reason:
            raise UserError(f"--url {visible(self.url)!r} is no address: {reason}; {_EXAMPLE}") from None
        if parts.scheme not in ("http", "https") or not is_whole:
            raise UserError(f"--url {visible(self.url)!r} is no address of a dashboard; {_EXAMPLE}")
        if parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc:
            raise UserError(
                f"--url must be the address alone, {parts.scheme}://{_host(parts)}, without a path, code or password; "
                "the token comes from --token-file or the environment variable SEEP_TOKEN"
            )
        return parts

    def check(self) -> None:
        """Raises UserError if a token would be sent unprotected, or the options do not fit each other."""
        parts = self.parts
        is_plain = parts.scheme == "http"
        if is_plain and self.ca is not None:
            raise UserError("--ca has the certificates of an address https://…; the given --url is without TLS")
        if is_plain and self.token and not self.insecure_http and not _is_loopback(parts.hostname or ""):
            raise UserError(
                f"the token is not sent to {_host(parts)} over HTTP, where others can read it: use https:// (a run "
                "with --tls), a tunnel to this machine, or --insecure-http if the network between is safe"
            )


_EXAMPLE = "write such as https://driver.example:8443"


def _host(parts: SplitResult) -> str:
    return visible(parts.netloc.rpartition("@")[2])


def _is_loopback(host: str) -> bool:
    """Whether what is sent to a host stays on this machine.

    >>> [_is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "10.0.0.1", "127.0.0.1.example.com")]
    [True, True, True, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class DashboardClient:
    """Sends requests to the run of a dashboard. Each is a connection of its own; redirections are not followed."""

    def __init__(self, address: DashboardAddress) -> None:
        address.check()
        self._address, self._parts = address, address.parts
        self._context = _context(address.ca) if self._parts.scheme == "https" else None

    def __repr__(self) -> str:
        return f"DashboardClient({self._address.url!r})"

    @cached_property
    def run(self) -> Mapping[str, Any]:
        """What the run says of itself: its id, query, operators and the requests that it accepts."""
        found = self.tell("run")
        if not all(isinstance(found.get(name), str) for name in ("id", "query")):
            raise self._no_dashboard("its answer names no run")
        return found

    @property
    def id(self) -> str:
        return str(self.run["id"])

    @property
    def query(self) -> str:
        return str(self.run["query"])

    def tell(self, do: str, /, **fields: Any) -> Mapping[str, Any]:
        """Sends a request with its fields; returns the answer."""
        request = REQUESTS[do]
        given = {name: value for name, value in fields.items() if value is not None}
        path, body = f"{_API}{request.path}", None
        if request.method == "GET":
            path += f"?{urlencode(given, doseq=True)}" if given else ""
        else:
            body = json.dumps(given).encode()
        return self._answered(*self._exchange(request.method, path, body, time_limit(do, fields)))

    def has_ended(self) -> bool:
        """Whether nothing listens at its address any more."""
        try:
            self._connected(_CONNECTED_WITHIN).close()
        except ConnectionRefusedError:
            return True
        except (OSError, ValueError):
            return False
        return False

    # -- one exchange -------------------------------------------------------------------------------------------------

    def _exchange(self, method: str, path: str, body: bytes | None, seconds: float) -> tuple[HTTPResponse, bytes]:
        """Returns the response and its body, or raises an error that says why there is none in so many seconds."""
        deadline = time.monotonic() + seconds
        try:
            connection = self._connected(seconds)
            try:
                connection.response_class = partial(_TimedResponse, left=lambda: _left(deadline))  # type: ignore[assignment]
                connection.request(method, path, body, self._headers)
                with connection.getresponse() as response:
                    return response, self._read(response)
            finally:
                connection.close()
        except ssl.SSLCertVerificationError as reason:
            raise UserError(
                f"the certificate of {self._host} is not trusted: {reason.verify_message}; give the certificate of the "
                "run, or of its authority, with --ca FILE"
            ) from None
        except ssl.SSLError as reason:
            words = f"{self._host} and this client do not agree on TLS ({reason.reason or reason})"
            raise UserError(f"{words}; if it serves without TLS, write http://") from None
        except TimeoutError:
            raise EnvironmentFault(f"the dashboard at {self._host} did not answer within {seconds:g} s") from None
        except OSError as reason:
            raise EnvironmentFault(
                f"the dashboard at {self._host} cannot be reached: {reason.strerror or reason}"
            ) from None
        except (HTTPException, ValueError) as reason:
            raise self._no_dashboard(f"it does not answer in HTTP ({type(reason).__name__})") from None

    def _connected(self, seconds: float) -> HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        within = min(seconds, _CONNECTED_WITHIN)
        if self._context is None:
            connection = HTTPConnection(host, port, timeout=within)
        else:
            connection = HTTPSConnection(host, port, timeout=within, context=self._context)
        try:
            connection.connect()
        except BaseException:
            connection.close()
            raise
        connection.sock.settimeout(seconds)
        return connection

    @property
    def _headers(self) -> dict[str, str]:
        token = self._address.token
        common = {"Accept": "application/json", "Content-Type": "application/json"}
        return common | ({"Authorization": f"Bearer {token}"} if token else {})

    def _read(self, response: HTTPResponse) -> bytes:
        pieces, size = [], 0
        while piece := response.read(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > _LARGEST:
                raise EnvironmentFault(f"{self._host} answers with more than {_LARGEST:,} bytes; ask for less")
        if response.length:
            raise EnvironmentFault(f"the answer of {self._host} broke off; ask again")
        return b"".join(pieces)

    # -- what an answer says ------------------------------------------------------------------------------------------

    def _answered(self, response: HTTPResponse, body: bytes) -> Mapping[str, Any]:
        """Returns the answer in a response, or raises the error that it says."""
        if 300 <= response.status < 400:
            place = visible(response.headers.get("Location", "elsewhere"))
            raise UserError(
                f"{self._host} refers to {place}; the token is not sent there: give the address of the dashboard itself"
            )
        answer = _parsed(body)
        if answer is None:
            raise self._no_dashboard(f"its answer, {response.status}, is no JSON object")
        if response.status != 200:
            raise self._refusal(response.status, answer)
        return answer

    def _refusal(self, status: int, answer: Mapping[str, Any]) -> UserError | EnvironmentFault:
        sentence = answer.get("error")
        if not isinstance(sentence, str):
            return self._no_dashboard(f"it answers {status} without a reason")
        told = visible(sentence)[:_LONGEST]
        if status == 401:
            hint = "is the token right?" if self._address.token else "give a token, with --token-file or SEEP_TOKEN"
            return UserError(f"{self._host} does not let this client in: {told}; {hint}")
        kind = EnvironmentFault if status >= 500 else UserError
        return kind(f"{self._host}: {told}")

    def _no_dashboard(self, why: str) -> UserError:
        return UserError(f"at {self._host} there is no dashboard of seep: {why}")

    @property
    def _host(self) -> str:
        return _host(self._parts)


def _context(ca: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as reason:
        raise UserError(f"--ca {ca} has no certificates that can be read (PEM): {reason}") from None


def _parsed(body: bytes) -> Mapping[str, Any] | None:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class _TimedResponse(HTTPResponse):
    """A response that is read until a time, however slowly it comes: each read has only the seconds that are left."""

    def __init__(self, sock: Any, *arguments: Any, left: Callable[[], float], **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp = io.BufferedReader(_TimedReader(sock, self.fp.detach(), left))


class _TimedReader(io.RawIOBase):
    """Reads from a socket."""

    def __init__(self, sock: Any, raw: io.RawIOBase, left: Callable[[], float]) -> None:
        super().__init__()
        self._sock, self._raw, self._left = sock, raw, left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        self._sock.settimeout(self._left())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()
