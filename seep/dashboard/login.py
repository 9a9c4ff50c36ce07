"""Login and logout of browsers: by a link with a code that can be used once, or by a token; a page without script."""

from __future__ import annotations

import html
import json
import logging
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from seep.dashboard.access import SESSION_SECONDS, Access, BrowserSession, TooManyWrongTokens
from seep.dashboard.guard import LOGGER, Log, admit, cookie_name, cookies_of

_OLD_LINK = "This link has been used, or is older than five minutes. Ask for a new one, or log in with a token."
_WRONG = "This is not a token of this run."
#: A form's request says where it comes from, as the guard wants to know, only if pages may tell their own server.
_HEADERS = {"referrer-policy": "same-origin"}

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Log in to a run of seep</title>
<link rel="stylesheet" href="/static/style.css">
</head>
<body class="login">
<main>
<h1>Log in to a run of seep</h1>
<p role="alert">{message}</p>
<form method="post" action="/login">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button type="submit" class="button">Log in</button>
</form>
<p>Without a token: <code>seep dashboard RUN</code>, on the machine of the run, prints a link that logs you in.</p>
</main>
</body>
</html>
"""
#: Browsers send the cookie only for pages of this server, and so not for a link of another one, until this page asks.
_AGAIN = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/"><title>seep</title></head>
<body><p><a href="/">To the dashboard</a></p></body>
</html>
"""


def login_routes(access: Access, log: Log | None = None) -> list[Route]:
    """Returns the routes of the login, for a server behind the guard."""
    login = _Login(access, log or logging.getLogger(LOGGER))
    return [
        Route("/login", login.page, methods=["GET"]),
        Route("/login", login.with_token, methods=["POST"]),
        Route("/logout", login.log_out, methods=["POST"]),
    ]


class _Login:
    def __init__(self, access: Access, log: Log) -> None:
        self._access, self._log = access, log

    async def page(self, request: Request) -> Response:
        """Logs in with a code; without one, asks for a token."""
        code = request.query_params.get("code")
        if request.method != "GET":
            return _asked_for_token("")  # HEAD: whoever looks at a link does not use its code
        if code is not None:
            return self._with_code(request, code)
        if request.headers.get("sec-fetch-site") == "cross-site":
            return HTMLResponse(_AGAIN)
        return _asked_for_token("")

    def _with_code(self, request: Request, code: str) -> Response:
        opened = self._access.redeem(code)
        if opened is not None:
            return self._logged_in(request, opened, _to_the_page())
        if any(self._access.visitor_with(cookie) for cookie in cookies_of(request.scope)):
            return _to_the_page()
        return _asked_for_token(_OLD_LINK, HTTPStatus.UNAUTHORIZED)

    async def with_token(self, request: Request) -> Response:
        """Logs in with a token, of a form or of JSON."""
        is_json = request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"
        refused = _refused_in_json if is_json else _asked_for_token
        token = (_token_of_json if is_json else _token_of_form)(await request.body())
        if token is None:
            return refused("A login needs the field 'token', a text.", HTTPStatus.BAD_REQUEST)
        try:
            role = admit(self._access, token.strip(), request.scope, self._log)
        except TooManyWrongTokens as reason:
            return refused(f"There were {reason}.", HTTPStatus.TOO_MANY_REQUESTS, {"retry-after": reason.seconds})
        if role is None:
            return refused(_WRONG, HTTPStatus.UNAUTHORIZED)
        answer = JSONResponse({"role": role}) if is_json else _to_the_page()
        return self._logged_in(request, self._access.open_session(role), answer)

    async def log_out(self, request: Request) -> Response:
        """Ends the session of the browser that asks for it."""
        self._end_sessions(request)
        answer = JSONResponse({})
        answer.delete_cookie(cookie_name(request.scope), **_attributes(request))
        return answer

    def _logged_in(self, request: Request, opened: BrowserSession, answer: Response) -> Response:
        self._end_sessions(request)
        lasts = int(SESSION_SECONDS)
        answer.set_cookie(cookie_name(request.scope), opened.cookie, max_age=lasts, **_attributes(request))
        self._log.info("a browser at %s has logged in as %s", _client(request), opened.visitor.role)
        return answer

    def _end_sessions(self, request: Request) -> None:
        for cookie in cookies_of(request.scope):
            self._access.close_session(cookie)


def _attributes(request: Request) -> dict[str, Any]:
    return {"path": "/", "httponly": True, "samesite": "strict", "secure": request.scope.get("scheme") == "https"}


def _client(request: Request) -> str:
    return request.client.host if request.client else "an unknown address"


def _to_the_page() -> Response:
    return RedirectResponse("/", HTTPStatus.SEE_OTHER)


def _asked_for_token(message: str, status: int = HTTPStatus.OK, headers: dict[str, str] | None = None) -> Response:
    return HTMLResponse(_PAGE.format(message=html.escape(message)), status, {**_HEADERS, **(headers or {})})


def _refused_in_json(message: str, status: int, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": message}, status, headers)


def _token_of_json(body: bytes) -> str | None:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return None
    token = content.get("token") if isinstance(content, dict) else None
    return token if isinstance(token, str) else None


def _token_of_form(body: bytes) -> str | None:
    try:
        fields = parse_qs(body.decode(), max_num_fields=4)
    except ValueError:
        return None
    found = fields.get("token", [])
    return found[0] if len(found) == 1 else None
