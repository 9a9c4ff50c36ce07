"""An OpenTelemetry collector for tests: a server on loopback that decodes what it gets, and answers as a test says."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.parser import text_string_to_metric_families

#: Series -> value; a series is its name by Prometheus, and its labels in the order of their names.
Scraped = dict[tuple[str, tuple[tuple[str, str], ...]], float]

_REQUESTS = {"/v1/metrics": ExportMetricsServiceRequest, "/v1/traces": ExportTraceServiceRequest}
#: Unit of OpenTelemetry -> the end of the name that Prometheus gives to a metric with it.
_ENDINGS = {"s": "_seconds", "By": "_bytes", "1": "_ratio", "": ""}


@dataclass
class Collecting:
    """What a collector got, and how it is to answer."""

    url: str = ""
    status: dict[str, int] = field(default_factory=dict)  #: by path; 200 if nothing is said
    rejected: int = 0  #: in each answer, whatever its status
    body: bytes | None = None  #: of each answer, if not empty
    held: threading.Event = field(default_factory=threading.Event)  #: answers wait for it
    asked: threading.Event = field(default_factory=threading.Event)  #: there was a request
    headers: list[dict[str, str]] = field(default_factory=list)
    got: list[tuple[str, Any]] = field(
        default_factory=list
    )  #: path and message of each request that was answered by 200

    def __post_init__(self) -> None:
        self.held.set()

    def of(self, path: str) -> list[Any]:
        return [message for at, message in self.got if at == path]

    @property
    def metrics(self) -> list[Any]:
        """The metrics of each push."""
        return [list(_metrics(message)) for message in self.of("/v1/metrics")]

    @property
    def spans(self) -> list[Any]:
        """All spans that were pushed, in order."""
        return [
            span
            for message in self.of("/v1/traces")
            for resource in message.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def answer(self) -> bytes:
        if self.body is not None:
            return self.body
        told = ExportMetricsServiceResponse()
        if self.rejected:
            told.partial_success.rejected_data_points = self.rejected
            told.partial_success.error_message = "too old"
        return told.SerializeToString()


def _metrics(message: Any) -> Iterator[Any]:
    for resource in message.resource_metrics:
        for scope in resource.scope_metrics:
            yield from scope.metrics


@contextmanager
def collector(port: int = 0) -> Iterator[Collecting]:
    """Serves on a port of loopback, or on any free one."""
    collecting = Collecting()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            collecting.headers.append({name.lower(): value for name, value in self.headers.items()})
            collecting.asked.set()
            assert collecting.held.wait(120)
            if self.headers.get("Content-Encoding") == "gzip":
                content = gzip.decompress(content)
            status = collecting.status.get(self.path, 200)
            if status == 200:
                collecting.got.append((self.path, _REQUESTS[self.path].FromString(content)))
            answer = collecting.answer()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Location", collecting.url)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """A client that went away is none."""

    with Server(("127.0.0.1", port), Handler) as server:
        collecting.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield collecting
        finally:
            collecting.held.set()
            server.shutdown()
            thread.join()


def scraped(text: str) -> Scraped:
    """The series of a page for Prometheus."""
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    return {(each.name, tuple(sorted(each.labels.items()))): each.value for each in samples}


def as_scraped(metrics: Iterable[Any]) -> Scraped:
    """Pushed metrics as Prometheus translates them, by its rules for OTLP."""
    return dict(series for metric in metrics for series in _series(metric))


def _series(metric: Any) -> Iterator[tuple[tuple[str, tuple[tuple[str, str], ...]], float]]:
    name = metric.name.replace(".", "_") + _ENDINGS[metric.unit]
    kind = metric.WhichOneof("data")
    for point in getattr(metric, kind).data_points:
        labels = tuple(sorted((each.key, each.value.string_value) for each in point.attributes))
        if kind == "histogram":
            bounds = [*map(str, point.explicit_bounds), "+Inf"]
            for bound, up_to in zip(bounds, accumulate(point.bucket_counts), strict=True):
                yield (f"{name}_bucket", tuple(sorted([*labels, ("le", bound)]))), up_to
            yield (f"{name}_count", labels), point.count
            yield (f"{name}_sum", labels), point.sum
        else:
            ending = "_total" if kind == "sum" else ""
            yield (name + ending, labels), getattr(point, point.WhichOneof("value"))
