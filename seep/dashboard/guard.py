"""The guard: stands before all of the dashboard's server, and lets only requests through that are allowed to be made.

It checks where a request is addressed to, who sends it, from which page, how long it is and how long it takes; and it
gives every answer the headers that make browsers careful. It never shows or logs what a visitor has sent as a secret.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from functools import partial
from http import HTTPStatus
from typing import Any

from primitives.errors import InternalError
from seep.dashboard.access import Access, Role, TooManyWrongTokens, Visitor, same_secret
from seep.logs.run_log import ROOT

#: The most bytes of a request's body, and the seconds that it may take to arrive.
LONGEST_BODY, BODY_SECONDS = 64 * 1024, 10.0
#: The header with which the page proves that it is the page, and not one of another server.
CSRF_HEADER = "x-seep-csrf"
#: The logger of the dashboard, where it is served without a run.
LOGGER = f"{ROOT}.dashboard"
#: Paths that anybody may have: the page for the login, and what it looks like.
OPEN_PATHS = frozenset({"/login", "/static/style.css"})

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
#: What every answer says, whatever the server behind the guard says.
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
#: What an answer says if the server has said nothing about it.
_DEFAULTS = {"referrer-policy": "no-referrer", "cache-control": "no-store"}

_SAFE = frozenset({"GET", "HEAD"})
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(:[0-9]{1,5})?")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Log = logging.Logger | logging.LoggerAdapter[logging.Logger]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class _Refused(Exception):
    """A request that is not let through: the status, and a sentence that says why."""

    def __init__(self, status: HTTPStatus, why: str, **headers: str) -> None:
        super().__init__(why)
        self.status, self.headers = status, headers


class AccessGuard:
    """ASGI middleware that lets a request through to `app` if it is allowed, with its visitor in the scope."""

    def __init__(
        self,
        app: AsgiApp,
        access: Access,
        hosts: Iterable[str],
        log: Log | None = None,
    ) -> None:
        """`hosts` are the addresses and names by which the dashboard is reached, beside those of this machine."""
        self._app, self._access, self._hosts = app, access, HostNames(hosts)
        self._log = log or logging.getLogger(LOGGER)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "lifespan":
                await self._app(scope, receive, send)
            case "http":
                await self._guarded(scope, receive, _GuardedAnswer(send))
            case "websocket":
                await send({"type": "websocket.close", "code": 1008})

    async def _guarded(self, scope: Scope, receive: Receive, answer: _GuardedAnswer) -> None:
        try:
            visitor = self._checked(scope)
            body = await _body(scope, receive)
        except _Refused as refused:
            await answer.refuse(refused)
            return
        state = {**scope.get("state", {}), "visitor": visitor}
        answer.is_wanted = partial(self._is_still, visitor, scope)
        try:
            await self._app({**scope, "state": state}, _replayed(body, receive), answer)
        except Exception:
            if answer.is_cut:
                return
            self._log.exception("a request to the dashboard failed: %s %s", scope["method"], _plain(scope["path"]))
            if not answer.has_begun:  # else the server ends the connection
                await answer.refuse(_Refused(HTTPStatus.INTERNAL_SERVER_ERROR, "an error in seep; see the run's log"))

    def _checked(self, scope: Scope) -> Visitor | None:
        """Returns who sends this request; None for anybody. Raises _Refused if it must not be answered."""
        host = self._checked_host(scope)
        visitor = self._visitor(scope)
        if scope["method"] not in _SAFE:
            _check_origin(scope, host)
            _check_csrf(scope, visitor)
        if visitor is None and scope["path"] not in OPEN_PATHS:
            raise _login_needed(scope)
        return visitor

    def _checked_host(self, scope: Scope) -> str:
        hosts = list(_headers(scope, "host"))
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            raise _Refused(
                HTTPStatus.MISDIRECTED_REQUEST,
                "the dashboard is not known by the name in the request's Host header; if it is reached by that name, "
                "add the name to the setting dashboard.hosts",
            )
        return hosts[0]

    def _is_still(self, visitor: Visitor | None, scope: Scope) -> bool:
        """Whether an answer may go on: not one to a browser that has logged out, or whose session is over."""
        return visitor is None or visitor.csrf is None or self._with_cookie(scope) == visitor

    def _visitor(self, scope: Scope) -> Visitor | None:
        authorization = list(_headers(scope, "authorization"))
        return self._with_token(scope, authorization) if authorization else self._with_cookie(scope)

    def _with_token(self, scope: Scope, authorization: list[str]) -> Visitor:
        scheme, _, token = authorization[0].partition(" ")
        if len(authorization) == 1 and scheme.lower() == "bearer":
            role = self._role(scope, token.strip())
            if role is not None:
                return Visitor(role)
        raise _token_needed("the token in the Authorization header is not one of this run")

    def _role(self, scope: Scope, token: str) -> Role | None:
        try:
            return admit(self._access, token, scope, self._log)
        except TooManyWrongTokens as reason:
            raise _Refused(HTTPStatus.TOO_MANY_REQUESTS, str(reason), **{"retry-after": reason.seconds}) from None

    def _with_cookie(self, scope: Scope) -> Visitor | None:
        found = (self._access.visitor_with(cookie) for cookie in cookies_of(scope))
        return next((visitor for visitor in found if visitor is not None), None)


class HostNames:
    """The addresses and names by which a server is known, and those of this machine; ports do not count.

    Of a server that listens on all addresses, every address is one: only a name can be made to lead elsewhere.

    >>> known = HostNames(["seep.example.org"])
    >>> [host in known for host in ("SEEP.example.org:8443", "localhost", "[::1]:80", "127.0.0.1:80", "evil.example")]
    [True, True, True, True, False]
    >>> "192.0.2.7:80" in known, "192.0.2.7:80" in HostNames(["0.0.0.0"])
    (False, True)
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {_host_name(name) for name in ("localhost", "127.0.0.1", "::1", *names)}
        self._is_any_address = not self._names.isdisjoint({"0.0.0.0", "::"})

    def __contains__(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        name = _host_name(match["name"]) if match else ""
        return name in self._names or (self._is_any_address and _is_address(name))


def visitor_of(scope: Scope) -> Visitor:
    """Returns who sends the request that the guard let through."""
    visitor = scope.get("state", {}).get("visitor")
    if not isinstance(visitor, Visitor):
        raise InternalError(f"nobody has checked who asks for {scope.get('path')!r}: the guard must be in front")
    return visitor


def admit(access: Access, token: str, scope: Scope, log: Log) -> Role | None:
    """Returns the role for a token that came with a request; logs a wrong one. Raises TooManyWrongTokens."""
    role = access.admit(token, address_of(scope))
    if role is None:
        log.warning("a wrong token for the dashboard came from %s", address_of(scope))
    return role


def cookie_name(scope: Scope) -> str:
    """Returns the name of the session's cookie; it has the port in it, because cookies are sent to all ports."""
    _, port = scope.get("server") or (None, None)
    return f"seep-{port or 0}"


def cookies_of(scope: Scope) -> Iterator[str]:
    """Yields the values of the session's cookie in a request: one, unless another server has set some of the name."""
    wanted = cookie_name(scope)
    for header in _headers(scope, "cookie"):
        for part in header.split(";"):
            name, _, value = part.strip().partition("=")
            if name == wanted:
                yield value


def address_of(scope: Scope) -> str:
    """Returns where a request comes from; for IPv6 the network of its sender, who has all addresses in it.

    >>> address_of({"client": ("2001:db8::7:8", 50000)}), address_of({"client": ("127.0.0.1", 50000)})
    ('2001:db8::/64', '127.0.0.1')
    """
    host = (scope.get("client") or ("unknown", 0))[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return str(host)
    return str(address if address.version == 4 else ipaddress.ip_network((int(address), 64), strict=False))


# -- checks ---------------------------------------------------------------------------------------------------------


def _check_origin(scope: Scope, host: str) -> None:
    """Raises _Refused if a browser says that a page of another server has made this request."""
    for origin in _headers(scope, "origin"):
        scheme, _, where = origin.lower().partition("://")
        if where != host.lower() or scheme not in (("https",) if scope.get("scheme") == "https" else ("http", "https")):
            raise _Refused(HTTPStatus.FORBIDDEN, "the request comes from a page of another server (Origin)")
    if any(site.lower() not in ("same-origin", "none") for site in _headers(scope, "sec-fetch-site")):
        raise _Refused(HTTPStatus.FORBIDDEN, "the request comes from a page of another server (Sec-Fetch-Site)")


def _check_csrf(scope: Scope, visitor: Visitor | None) -> None:
    """Raises _Refused for a browser whose page has not proved that it is the dashboard's; a login needs no proof."""
    if visitor is None or visitor.csrf is None or scope["path"] == "/login":
        return
    given = list(_headers(scope, CSRF_HEADER))
    if len(given) != 1 or not same_secret(given[0], visitor.csrf):
        raise _Refused(
            HTTPStatus.FORBIDDEN,
            f"the header {CSRF_HEADER} is missing or wrong; it must be the field csrf of GET /api/v1/run",
        )


def _login_needed(scope: Scope) -> _Refused:
    if scope["path"] == "/" and scope["method"] in _SAFE:
        return _Refused(HTTPStatus.SEE_OTHER, "log in first", location="/login")
    return _token_needed("log in, or send a token of this run as Authorization: Bearer TOKEN")


def _token_needed(why: str) -> _Refused:
    return _Refused(HTTPStatus.UNAUTHORIZED, why, **{"www-authenticate": 'Bearer realm="seep"'})


# -- bodies ---------------------------------------------------------------------------------------------------------


async def _body(scope: Scope, receive: Receive) -> bytes:
    """Reads the whole body. Raises _Refused if it is too long, is too slow, or never ends."""
    lengths = list(_headers(scope, "content-length"))
    if any(not length.isdecimal() or int(length[:20]) > LONGEST_BODY for length in lengths):
        raise _too_large()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await _read(receive)
    except TimeoutError:
        raise _Refused(
            HTTPStatus.REQUEST_TIMEOUT, f"the request was not complete after {BODY_SECONDS:.0f} s", connection="close"
        ) from None


async def _read(receive: Receive) -> bytes:
    body, is_whole = b"", False
    while not is_whole:
        message = await receive()
        if message["type"] != "http.request":
            raise _Refused(HTTPStatus.BAD_REQUEST, "the connection ended before the request did", connection="close")
        body += message.get("body", b"")
        if len(body) > LONGEST_BODY:
            raise _too_large()
        is_whole = not message.get("more_body", False)
    return body


def _too_large() -> _Refused:
    why = f"the body of a request may have {LONGEST_BODY:,} bytes"
    return _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why, connection="close")


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Returns a `receive` that gives the body that was read, and then what comes after it."""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def next_message() -> Message:
        return next(messages, None) or await receive()

    return next_message


# -- answers --------------------------------------------------------------------------------------------------------


class _GuardedAnswer:
    """Sends an answer, with the headers that every answer has, as long as it is wanted."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = False
        self.is_cut = False  #: it has ended because it is not wanted any more
        self.is_wanted: Callable[[], bool] = lambda: True  #: asked when a part of an answer is not the last

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            message = {**message, "headers": list(_with_our_own(message.get("headers", ())))}
        elif message.get("more_body") and not self.is_wanted():
            self.is_cut = True
            await self._send({"type": "http.response.body", "body": b""})
            raise ConnectionAbortedError("the session of this visitor is over")
        await self._send(message)

    async def refuse(self, refused: _Refused) -> None:
        body = json.dumps({"error": str(refused)}).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), **refused.headers}
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self({"type": "http.response.start", "status": int(refused.status), "headers": encoded})
        await self({"type": "http.response.body", "body": body})


def _with_our_own(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    given = [(name, value) for name, value in headers if name.decode("latin-1").lower() not in _HEADERS]
    names = {name.decode("latin-1").lower() for name, _ in given}
    yield from given
    for name, value in (*_HEADERS.items(), *_DEFAULTS.items()):
        if name not in names:
            yield name.encode(), value.encode()


def _headers(scope: Scope, wanted: str) -> Iterator[str]:
    """Yields the values of all headers of this name, which is in lower case."""
    for name, value in scope["headers"]:
        if name.decode("latin-1").lower() == wanted:
            yield value.decode("latin-1").strip()


def _plain(path: str) -> str:
    return ascii(path)[:200]


def _host_name(name: str) -> str:
    bare = name.removeprefix("[").removesuffix("]").lower()
    return str(ipaddress.ip_address(bare)) if _is_address(bare) else bare


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
