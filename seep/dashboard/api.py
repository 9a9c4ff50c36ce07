"""The REST API: a route for each request of the table, beside the stream, the login and the page; made with FastAPI."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Body, FastAPI, Query, Request, Response, Security
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from primitives.errors import EnvironmentFault, SeepError, UserError
from seep.dashboard.access import Access, Role
from seep.dashboard.answers import ANSWERS, ErrorAnswer
from seep.dashboard.encoding import json_bytes
from seep.dashboard.feed import StatusFeed
from seep.dashboard.guard import AccessGuard, Log, visitor_of
from seep.dashboard.login import login_routes
from seep.dashboard.page import page_routes
from seep.dashboard.requests import REQUESTS, Answering, DescribeRun, RunIsOver, RunRequest, wrong_fields
from seep.logs.versions import own_version
from seep.threads.pool import WorkerPool

#: All paths of the API begin with this.
ROOT = "/api/v1"
#: The most requests that are answered at a time: of those that read, and of those that act.
READING, ACTING = 16, 4
#: Seconds within which a viewer must take a picture.
_PATIENCE = 30.0

_DESCRIPTION = """
What a run tells of itself, and what it does for its operators. Send a token in the header `Authorization: Bearer …`:
that of viewers for all that reads, that of operators also for all that acts. The seconds of events and of the time
series are counted from the beginning of the run.
"""
#: The answers that any request may get.
_ERRORS: Mapping[int | str, str] = {
    400: "The request or one of its fields is wrong.",
    401: "There is no token, or it is wrong.",
    403: "The visitor may only read.",
    409: "The run is over, so it cannot act.",
    413: "The request is too large.",
    421: "The dashboard is not reached by this name.",
    429: "There were too many wrong tokens.",
    503: "The run cannot do this now.",
    "4XX": "Any other mistake of the request.",  # instead of what FastAPI describes
}


class Api:
    """The routes for one run; `close` ends their threads."""

    def __init__(self, answering: Answering, access: Access, log: Log) -> None:
        self._answering, self._access, self._log = answering, access, log
        self.feed = StatusFeed(answering, log)
        self._pools = {
            Role.VIEWER: WorkerPool("seep dashboard reading", READING),
            Role.OPERATOR: WorkerPool("seep dashboard acting", ACTING),
        }
        self.app = _application()
        for kind in REQUESTS.values():
            if kind.path is not None:
                self._add(kind, kind.path)
        self.app.add_api_route(f"{ROOT}/stream", self._stream, **_STREAM)
        self.app.router.routes.extend([*login_routes(access, log), *page_routes()])

    def guarded(self, hosts: Iterable[str]) -> AccessGuard:
        """Returns the application behind the guard; `hosts` are the names by which it is reached."""
        return AccessGuard(self.app, self._access, hosts, self._log)

    def close(self) -> None:
        """Ends the threads; what is being answered is still finished."""
        for pool in self._pools.values():
            pool.close()

    def _add(self, kind: type[RunRequest], path: str) -> None:
        self.app.add_api_route(
            ROOT + path,
            self._endpoint(kind),
            methods=[kind.method],
            name=kind.do,
            operation_id=kind.do,
            summary=_summary(kind),
            description=f"For {kind.role}s.",
            response_model=None,
            responses={200: {"model": ANSWERS[kind.do]}, **_errors(kind)},
        )

    def _endpoint(self, kind: type[RunRequest]) -> Callable[..., Any]:
        async def answer(request: Request, asked: RunRequest) -> Response:
            return await self._answer(request, asked)

        place = Query() if kind.method == "GET" else Body()
        answer.__annotations__ = {"request": Request, "asked": Annotated[kind, place], "return": Response}
        return answer

    async def _answer(self, request: Request, asked: RunRequest) -> Response:
        visitor = visitor_of(request.scope)
        if visitor.role < asked.role:
            raise HTTPException(HTTPStatus.FORBIDDEN, f"{asked.do!r} is for operators, and you are a {visitor.role}")
        work = partial(self._answered, asked)
        found = await asyncio.wrap_future(self._pools[asked.role].submit(work))
        if isinstance(asked, DescribeRun):
            found = _described(found, visitor.role, visitor.csrf)
        return Response(found, media_type="application/json")

    def _answered(self, asked: RunRequest) -> Any:
        """Answers a request on a thread of a pool: encoding takes time, too."""
        answer = self._answering.answer(asked.body())
        return answer if isinstance(asked, DescribeRun) else json_bytes(answer)

    async def _stream(self) -> Response:
        return _FeedResponse(self.feed)


#: Spans of FastAPI have the addresses of requests, and so the codes of logins.
_NO_TELEMETRY: Any = dict.fromkeys(("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False)


#: For the description alone: the guard has looked at the token already.
_TOKEN = HTTPBearer(auto_error=False, bearerFormat="token", description="That of operators, or that of viewers.")


def _application() -> FastAPI:
    app = FastAPI(
        title="A run of seep",
        version=own_version(),
        description=_DESCRIPTION.strip(),
        openapi_url=f"{ROOT}/openapi.json",
        docs_url=None,  # these pages load scripts from another host
        redoc_url=None,
        telemetry=_NO_TELEMETRY,
        dependencies=[Security(_TOKEN)],
    )
    for kind in (RequestValidationError, SeepError, HTTPException):
        app.add_exception_handler(kind, _refusal)
    app.add_exception_handler(Exception, _bug)
    return app


def _described(answer: Mapping[str, Any], role: str, csrf: str | None) -> bytes:
    """Adds to the description of the run what concerns the visitor."""
    return json_bytes({**answer, "role": role} | ({"csrf": csrf} if csrf is not None else {}))


# -- errors ------------------------------------------------------------------------------------------------------------


async def _refusal(_: Request, reason: Exception) -> Response:
    status, words, headers = _refused(reason)
    return Response(json_bytes({"error": words}), status, headers, "application/json")


async def _bug(_: Request, __: Exception) -> Response:
    """Answers a request on which seep has failed; the guard logs why."""
    words = json_bytes({"error": "an error in seep; the run's log has it"})
    return Response(words, HTTPStatus.INTERNAL_SERVER_ERROR, media_type="application/json")


def _refused(reason: Exception) -> tuple[int, str, Mapping[str, str] | None]:
    match reason:
        case RequestValidationError():
            return HTTPStatus.BAD_REQUEST, wrong_fields(_below_the_request(reason.errors())), None
        case HTTPException(status_code=HTTPStatus.NOT_FOUND):
            return HTTPStatus.NOT_FOUND, f"there is nothing here; {ROOT}/openapi.json tells what there is", None
        case HTTPException(status_code=HTTPStatus.METHOD_NOT_ALLOWED):
            return HTTPStatus.METHOD_NOT_ALLOWED, "what is here needs another method", reason.headers
        case HTTPException():
            return reason.status_code, reason.detail, reason.headers
        case RunIsOver():
            return HTTPStatus.CONFLICT, str(reason), None
        case UserError():
            return HTTPStatus.BAD_REQUEST, str(reason), None
        case EnvironmentFault():
            return HTTPStatus.SERVICE_UNAVAILABLE, str(reason), None
    raise reason  # a bug, for the guard to log


def _below_the_request(errors: Sequence[Any]) -> list[Any]:
    """Returns the errors with paths of fields that do not begin with the part of the request."""
    return [each | {"loc": each["loc"][1:]} for each in errors]


# -- description -------------------------------------------------------------------------------------------------------


def _summary(kind: type[RunRequest]) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0]


def _errors(kind: type[RunRequest]) -> dict[int | str, dict[str, Any]]:
    """Returns the errors that a request may get; only an acting one can be refused for the role or a run's end."""
    without = set() if kind.role is Role.OPERATOR else {409}
    told = {status: text for status, text in _ERRORS.items() if status not in without}
    return {status: {"model": ErrorAnswer, "description": text} for status, text in told.items()}


_STREAM: dict[str, Any] = {
    "operation_id": "stream",
    "summary": "The status of every second as server-sent events, until the run is over.",
    "description": "For viewers. An event `status` has the answer of `status` with the newest `sample` of the series, "
    "and `after`, the number of the event before the first of `new`: who knows of fewer has missed some. The last "
    "event is `over`, or `lost` with an `error` if the run cannot be reached any more.",
    "response_model": None,
    "responses": {
        200: {"description": "Server-sent events.", "content": {"text/event-stream": {"schema": {"type": "string"}}}},
        **_errors(DescribeRun),
    },
}


# -- the stream --------------------------------------------------------------------------------------------------------


class _FeedResponse(Response):
    """Sends pictures to one viewer until the run is over, the viewer leaves, or it does not take what is sent."""

    media_type = "text/event-stream"

    def __init__(self, feed: StatusFeed) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._feed = feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        viewer = self._feed.join()
        tasks = [asyncio.ensure_future(each) for each in (self._send(viewer.pictures(), send), _gone(receive))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._feed.leave(viewer)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, pictures: Any, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for picture in pictures:
            async with asyncio.timeout(_PATIENCE):
                await send({"type": "http.response.body", "body": picture, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
