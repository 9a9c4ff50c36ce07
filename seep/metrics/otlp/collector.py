"""The collector: takes metrics and spans over HTTP, through the exporters of the OpenTelemetry SDK.

Whether it has taken them is decided here, by the answer. The exporters would tell of each failure by log lines, and
wait to try again, which the next push does anyway.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import requests
import urllib3
from google.protobuf.message import DecodeError
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.sdk.trace import ReadableSpan

#: The name of the threads that push.
_THREAD = "seep otlp"
#: Answers after which the same may be sent again, by the protocol.
_PASSING = (429, 502, 503, 504)
#: The most bytes that are read of an answer, and the longest text of it that is told.
_LONGEST, _TOLD = 1 << 16, 200


class Pushed(StrEnum):
    """What is pushed."""

    METRICS = "metrics"
    TRACES = "traces"


@dataclass(frozen=True, slots=True)
class NotTaken:
    """Why a collector has not taken a push, or not whole."""

    reason: str
    is_final: bool  #: whether it would not take the same later either


class _Ended(Exception):
    """Tells an exporter that there is nothing to try again."""


class _Session(requests.Session):
    """Connections to a collector; remembers why the last request has failed."""

    def __init__(self) -> None:
        super().__init__()
        self.headers["Accept-Encoding"] = "identity"
        self.refusal: NotTaken | None = None

    def request(self, method: Any, url: Any, **options: Any) -> requests.Response:  # type: ignore[override]
        self.refusal = None
        try:
            answer = super().request(method, url, **{**options, "stream": True, "allow_redirects": False})
            with answer:
                body = answer.raw.read(_LONGEST, decode_content=False)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as reason:
            self.refusal = NotTaken(_in_words(reason), is_final=False)
        else:
            self.refusal = _refusal(answer, body)
        if self.refusal is not None:
            raise _Ended(self.refusal.reason)
        return answer


class Collector:
    """Sends to a collector, and returns when it has answered, or the time is over. For one thread."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float) -> None:
        """Headers of the environment are sent besides, and its certificates used, as for each exporter of the SDK."""
        for exporter in (OTLPMetricExporter, OTLPSpanExporter):
            logging.getLogger(exporter.__module__).addFilter(_is_of_others)
        self._sessions = {what: _Session() for what in Pushed}
        self.urls = {what: f"{url.rstrip('/')}/v1/{what}" for what in Pushed}
        self._metrics = OTLPMetricExporter(**self._options(Pushed.METRICS, headers, timeout))
        self._spans = OTLPSpanExporter(**self._options(Pushed.TRACES, headers, timeout))

    def _options(self, what: Pushed, headers: Mapping[str, str], timeout: float) -> dict[str, Any]:
        given = {"headers": dict(headers), "timeout": timeout, "session": self._sessions[what]}
        return {"endpoint": self.urls[what], **given}

    def metrics(self, data: MetricsData) -> NotTaken | None:
        """Sends metrics; returns why they were not taken, or None if they were."""
        return self._outcome(Pushed.METRICS, self._metrics.export(data))

    def spans(self, spans: Sequence[ReadableSpan]) -> NotTaken | None:
        """Sends spans, in the same way."""
        return self._outcome(Pushed.TRACES, self._spans.export(spans))

    def _outcome(self, what: Pushed, result: Any) -> NotTaken | None:
        if result.name == "SUCCESS":
            return None
        return self._sessions[what].refusal or NotTaken("they cannot be encoded, or are too large", is_final=True)

    def close(self) -> None:
        """Closes the connections; what is being sent ends by its time."""
        self._metrics.shutdown()
        self._spans.shutdown()  # type: ignore[no-untyped-call]


def _is_of_others(record: logging.LogRecord) -> bool:
    return record.threadName != _THREAD


def _refusal(answer: requests.Response, body: bytes) -> NotTaken | None:
    if not 200 <= answer.status_code < 300:
        return NotTaken(f"{answer.status_code} {answer.reason}"[:_TOLD], answer.status_code not in _PASSING)
    rejected, why = _rejected(answer, body)
    return NotTaken(f"{rejected} of them were rejected: {why[:_TOLD]}", is_final=True) if rejected else None


def _rejected(answer: requests.Response, body: bytes) -> tuple[int, str]:
    """Reads how much was rejected, and why; both kinds of answers have the same form."""
    if "protobuf" not in answer.headers.get("Content-Type", ""):
        return 0, ""
    try:
        told = ExportMetricsServiceResponse.FromString(body).partial_success
    except DecodeError:
        return 0, ""
    return told.rejected_data_points, told.error_message


def _in_words(reason: BaseException) -> str:
    """Returns the root of a failure, in a few words."""
    if isinstance(reason, requests.Timeout | urllib3.exceptions.TimeoutError):
        return "it does not answer in time"
    while reason.__context__ is not None:
        reason = reason.__context__
    said = reason.strerror if isinstance(reason, OSError) else None
    return (said or str(reason) or type(reason).__name__)[:_TOLD]
