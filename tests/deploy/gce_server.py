"""A Compute API on loopback, for Google's own client: it keeps rules, templates and VMs, and its operations take time.

Time is counted in requests: an operation is done so many requests after it was asked for. Whatever a cloud does to its
users can be ordered: refusals, operations that fail, answers that get lost, and silence from some request on.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]

_PATH = re.compile(
    r"/compute/v1/projects/(?P<project>[^/]+)/(?:zones/(?P<zone>[^/]+)|global)"
    r"(?:/(?P<collection>\w+)(?:/(?P<name>[^/]+)(?:/(?P<verb>\w+))?)?)?"
)
_TERM = re.compile(r"\(?labels\.([\w-]+)\s*=\s*([\w-]+)\)?")
_COLLECTIONS = ("instances", "instanceTemplates", "firewalls")


class Refused(Exception):
    """Answered with an error, as the API writes one."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"code": status, "message": message, "errors": [{"reason": reason, "message": message}]}}


class Dropped(Exception):
    """Not answered at all: the connection is closed."""


@dataclass(frozen=True)
class Request:
    """A request, taken apart."""

    method: str
    path: str
    query: dict[str, str]
    body: Json
    project: str
    zone: str | None
    collection: str | None
    name: str | None
    verb: str | None

    @classmethod
    def read(cls, method: str, target: str, body: Json) -> Request:
        url = urlsplit(target)
        match = _PATH.fullmatch(url.path)
        assert match, f"{method} {target} is no part of this server"
        query = {key: last for key, (*_, last) in parse_qs(url.query).items()}
        return cls(method, url.path.removeprefix("/compute/v1/"), query, body, **match.groupdict())

    @property
    def asked(self) -> str:
        """Method and path."""
        return f"{self.method} {self.path}"


@dataclass
class Order:
    """What is to happen to requests that match, and to how many of them."""

    pattern: re.Pattern[str]
    times: float
    refusal: Refused | None = None  #: answered at once, and nothing is done
    error: Json | None = None  #: the operation begins, and fails
    is_lost: bool = False  #: done, but the answer gets lost


@dataclass
class GceServer:
    """One project with one zone; a context manager that serves it."""

    project: str = "streams-1"
    zone: str = "europe-west1-b"
    requests_per_operation: int = 3
    page: int = 2  #: items of a list in one answer
    state: str | None = "ready"  #: what start-up scripts say in the end
    looks: int = 2  #: how often one must ask until they say it
    silent_from: float = float("inf")  #: number of the first request that is not answered, nor any later
    things: dict[str, dict[str, Json]] = field(default_factory=lambda: {name: {} for name in _COLLECTIONS})
    requests: list[str] = field(default_factory=list)  #: method and path of all that came

    def __enter__(self) -> GceServer:
        self._lock = threading.RLock()
        self._ids = itertools.count(1000)
        self._orders: list[Order] = []
        self._operations: dict[str, Json] = {}
        self._known: dict[str, Json] = {}
        self._pending: list[tuple[int, Callable[[], None]]] = []
        self._looked: dict[str, int] = {}
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def names(self) -> set[str]:
        """All that is there, as `collection/name`."""
        return {f"{collection}/{name}" for collection, things in self.things.items() for name in things}

    def changes(self) -> list[str]:
        """The requests that wanted to change something."""
        return [each for each in self.requests if not each.startswith("GET") and not each.endswith("/wait")]

    def refuse(self, pattern: str, status: int, reason: str, message: str, times: float = float("inf")) -> None:
        """Answers requests such as `POST .*/instances` with an error."""
        self._orders.append(Order(re.compile(pattern), times, refusal=Refused(status, reason, message)))

    def fail(self, pattern: str, code: str, message: str, times: float = float("inf")) -> None:
        """Lets the operations of such requests begin, and fail."""
        self._orders.append(Order(re.compile(pattern), times, error={"code": code, "message": message}))

    def lose(self, pattern: str, times: float = 1) -> None:
        """Does what is asked, and closes the connection without an answer."""
        self._orders.append(Order(re.compile(pattern), times, is_lost=True))

    def obey(self) -> None:
        """Forgets all orders, and answers again."""
        self._orders.clear()
        self.silent_from = float("inf")

    def settle(self) -> None:
        """Lets all operations come to their end."""
        for _, effect in self._pending:
            effect()
        self._pending.clear()

    def answer(self, method: str, target: str, body: Json) -> Json:
        """The answer to one request; Refused, or Dropped."""
        with self._lock:
            request = Request.read(method, target, body)
            self.requests.append(request.asked)
            self._pass_time()
            if len(self.requests) > self.silent_from:
                raise Dropped
            order = self._order_for(request)
            if order.refusal:
                raise order.refusal
            found = self._route(request, order.error)
            if order.is_lost:
                raise Dropped
            return found

    def _pass_time(self) -> None:
        due = [effect for at, effect in self._pending if at <= len(self.requests)]
        self._pending = [(at, effect) for at, effect in self._pending if at > len(self.requests)]
        for effect in due:
            effect()

    def _order_for(self, request: Request) -> Order:
        matching = (each for each in self._orders if each.times > 0 and each.pattern.fullmatch(request.asked))
        order = next(matching, Order(re.compile(""), 1))
        order.times -= 1
        return order

    def _route(self, request: Request, error: Json | None) -> Json:
        if request.project != self.project or request.zone not in (None, self.zone):
            raise _missing(request)
        if request.collection is None:
            return {"name": self.zone, "status": "UP"}
        if request.collection == "operations":
            return self._operations[request.name or ""]
        return self._look(request) if request.method == "GET" else self._change_once(request, error)

    def _look(self, request: Request) -> Json:
        if request.name is None:
            return self._list(request)
        thing = self._thing(request)
        return self._guest_attributes(thing, request) if request.verb == "getGuestAttributes" else thing

    def _list(self, request: Request) -> Json:
        """A page of what the filter lets through."""
        terms = _TERM.findall(request.query.get("filter", ""))
        everything = sorted(self.things[str(request.collection)].items())
        things = [each for _, each in everything if all(each["labels"].get(key) == value for key, value in terms)]
        first = int(request.query.get("pageToken", 0))
        more = {"nextPageToken": str(first + self.page)} if first + self.page < len(things) else {}
        return {"items": things[first : first + self.page]} | more

    def _guest_attributes(self, instance: Json, request: Request) -> Json:
        name = instance["name"]
        self._looked[name] = self._looked.get(name, 0) + 1
        if instance["status"] != "RUNNING" or self._looked[name] <= self.looks or self.state is None:
            raise _missing(request)
        namespace, key = request.query["queryPath"].split("/")
        return {"queryValue": {"items": [{"namespace": namespace, "key": key, "value": self.state}]}}

    def _change_once(self, request: Request, error: Json | None) -> Json:
        """As documented: the same request id again is the same change, and its operation is the answer."""
        id = request.query["requestId"]
        if id not in self._known:
            self._known[id] = self._change(request, error)
        return self._known[id]

    def _change(self, request: Request, error: Json | None) -> Json:
        if request.name is None:
            return self._insert(request, error)
        thing, things = self._thing(request), self.things[str(request.collection)]
        if request.method == "DELETE":
            thing["status"] = "STOPPING"
            return self._begin(thing, lambda: things.pop(thing["name"], None), _to(thing, "RUNNING"), error)
        assert request.verb == "start", f"{request.asked} is no part of this server"
        return self._begin(thing, _to(thing, "RUNNING"), _to(thing, "TERMINATED"), error)

    def _insert(self, request: Request, error: Json | None) -> Json:
        things, name = self.things[str(request.collection)], request.body["name"]
        if name in things:
            raise Refused(409, "alreadyExists", f"The resource '{name}' already exists")
        body = self._from_template(request) if request.collection == "instances" else deepcopy(request.body)
        thing = things[name] = body | {"id": str(next(self._ids)), "status": "PROVISIONING"}
        return self._begin(thing, _to(thing, "RUNNING"), lambda: things.pop(name, None), error)

    def _from_template(self, request: Request) -> Json:
        """As documented: a field of the request replaces that of the template."""
        template = self.things["instanceTemplates"].get(request.query["sourceInstanceTemplate"].rpartition("/")[2])
        if template is None:
            raise _missing(request)
        number = next(self._ids) % 250
        instance: Json = deepcopy(template["properties"]) | request.body
        for interface in instance["networkInterfaces"]:
            interface["networkIP"] = f"10.132.0.{number}"
            for way in interface.get("accessConfigs", ()):
                way["natIP"] = f"203.0.113.{number}"
        return instance

    def _begin(self, thing: Json, effect: Callable[[], object], undo: Callable[[], object], error: Json | None) -> Json:
        """A new operation, which takes its effect, or is undone, when it ends."""
        name = f"operation-{next(self._ids)}"
        operation: Json = {"name": name, "status": "RUNNING", "targetId": thing["id"]}
        failure: Json = {"httpErrorStatusCode": 403, "httpErrorMessage": "FORBIDDEN", "error": {"errors": [error]}}

        def end() -> None:
            (undo if error else effect)()
            operation.update({"status": "DONE"} | (failure if error else {}))

        self._operations[name] = operation
        self._pending.append((len(self.requests) + self.requests_per_operation, end))
        return operation

    def _thing(self, request: Request) -> Json:
        thing = self.things[str(request.collection)].get(str(request.name))
        if thing is None:
            raise _missing(request)
        return thing


def _to(thing: Json, status: str) -> Callable[[], object]:
    return lambda: thing.update(status=status)


def _missing(request: Request) -> Refused:
    return Refused(404, "notFound", f"The resource '{request.path}' was not found")


def _handler(server: GceServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                self._say(200, server.answer(self.command, self.path, json.loads(body or b"{}")))
            except Refused as refusal:
                self._say(refusal.status, refusal.body)
            except Dropped:
                self.close_connection = True

        def _say(self, status: int, answer: Json) -> None:
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = _serve

        def log_message(self, format: str, *args: object) -> None:
            """Tests read `requests`."""

    return Handler
