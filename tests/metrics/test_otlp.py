"""What is pushed to a collector is what the record has; a collector that does not take it holds up nothing."""

from __future__ import annotations

import logging
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from primitives.errors import UserError
from primitives.event import Event
from primitives.graph import InstanceId
from seep.logs.line import LogLine
from seep.logs.redaction import HIDDEN, Redactor, header_secrets
from seep.logs.run_log import LogContext, RunLog
from seep.metrics.definitions import METRICS
from seep.metrics.exposition import Exposition
from seep.metrics.metric import MetricType
from seep.metrics.otlp.collector import Collector
from seep.metrics.otlp.data import metrics_data, resource_of
from seep.metrics.otlp.headers import check_otlp, read_headers
from seep.metrics.otlp.names import otlp_name
from seep.metrics.otlp.push import OtlpPush
from seep.metrics.settings import MetricsSettings, OtlpSettings, metrics_settings
from seep.protocol.events import MoveAnnounced, MoveComplete, MoveEffective, MoveSealed, NodeLost, Rebound
from seep.record.causes.spans import Span
from seep.record.events import BalancingCalledOff, InstanceRecovered, ScaledOut, ScalingOut
from seep.record.record import Record
from tests.metrics.collecting import Collecting, as_scraped, collector, scraped
from tests.metrics.kit import Script
from tests.metrics.test_definitions import busy, whole
from tests.waiting import eventually

COUNTER = InstanceId("counter", 0)


@pytest.fixture
def server() -> Iterator[Collecting]:
    with collector() as serving:
        yield serving


@dataclass
class Pushing:
    """A push of a scripted run, with its log."""

    url: str
    headers: dict[str, str] = field(default_factory=dict)
    timeout: float = 10.0
    script: Script = field(default_factory=busy)
    lines: list[LogLine] = field(default_factory=list)

    def __post_init__(self) -> None:
        log = RunLog(
            "seep.metrics", LogContext(self.lines.append, redact=Redactor(header_secrets(self.headers.values())))
        )
        settings = OtlpSettings(url=self.url, interval=0.1, timeout=self.timeout)
        self.push = OtlpPush(settings, self.headers, "r1", "words", self.record, log)

    @property
    def record(self) -> Record:
        return self.script.it.record

    def once(self) -> None:
        """Pushes, and waits until that has ended."""
        before = self.attempts()
        self.push._due = 0.0
        self.push.show(self.script.facts())
        assert eventually(lambda: self.attempts() > before and not self.push._is_pushing, 30.0)

    def attempts(self) -> int:
        """The number of pushes of metrics so far, whatever came of them."""
        pushes = self.script.facts().status.totals.pushes.get("metrics")  # type: ignore[union-attr]
        return pushes.delivered + pushes.failed if pushes else 0

    def counted(self, what: str) -> tuple[int, int, int]:
        return tuple(self.script.facts().status.totals.pushes[what])  # type: ignore[union-attr,return-value]

    def said(self) -> list[tuple[str, str]]:
        return [(logging.getLevelName(line.level), line.message.partition(" to http")[0]) for line in self.lines]


@pytest.fixture
def pushing(server: Collecting) -> Iterator[Pushing]:
    made = Pushing(server.url)
    yield made
    made.push.close(made.script.facts())


# -- metrics --------------------------------------------------------------------------------------------------------


def test_pushed_metrics_are_those_of_the_page_under_the_names_that_prometheus_gives_them(
    server: Collecting, pushing: Pushing
) -> None:
    present = whole(pushing.script)
    pushing.push.show(present.facts)
    assert eventually(lambda: bool(server.metrics))
    page = Exposition("r1", "words", lambda: present.facts).page("").body.decode()
    assert as_scraped(server.metrics[0]) == scraped(page)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_pushed_name_has_neither_its_unit_nor_its_type(metric: Any) -> None:
    name = otlp_name(metric)
    assert re.fullmatch(r"seep(\.[a-z]+)+(_[a-z]+)*", name)
    assert not name.endswith("_total")
    assert not metric.unit or not name.endswith(metric.unit)


def test_types_units_times_and_descriptions_are_those_of_the_definitions() -> None:
    present = whole(busy())
    data = metrics_data(present, 1000.0, resource_of("r1", "words"))
    [scope] = data.resource_metrics[0].scope_metrics
    told = {each.name: each for each in scope.metrics}
    by_name = {otlp_name(metric): metric for metric in METRICS}
    assert scope.scope.name == "seep"
    for name, each in told.items():
        metric = by_name[name]
        assert each.description == metric.help
        assert type(each.data).__name__ == {"counter": "Sum", "gauge": "Gauge", "histogram": "Histogram"}[metric.type]
        for point in each.data.data_points:
            assert point.time_unix_nano == 1000 * 10**9 + round(present.status.at * 1e6) * 1000
            assert point.start_time_unix_nano == 1000 * 10**9
            assert set(point.attributes or ()) == set(metric.labels)
    assert told["seep.run.latency"].unit == "s"
    assert told["seep.operator.handed_over"].unit == "By"
    counters = [told[name] for name, metric in by_name.items() if metric.type is MetricType.COUNTER and name in told]
    assert {each.data.is_monotonic for each in counters} == {True}


def test_a_histogram_has_the_very_counts_of_the_record(server: Collecting, pushing: Pushing) -> None:
    pushing.once()
    counts = pushing.record.status(pushing.script.facts().query).totals.latency
    [latency] = [each for each in server.metrics[0] if each.name == "seep.run.latency"]
    [point] = latency.histogram.data_points
    assert (point.count, point.sum) == (counts.number, pytest.approx(counts.total))
    assert sum(point.bucket_counts) == counts.number > 0
    assert {name for name in ("min", "max") if point.HasField(name)} == set()


def test_the_resource_names_the_query_the_run_and_what_the_environment_adds(
    server: Collecting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    pushing = Pushing(server.url)
    pushing.once()
    [resource] = [each.resource for each in server.of("/v1/metrics")[0].resource_metrics]
    told = {each.key: each.value.string_value for each in resource.attributes}
    assert told["service.name"] == "words"
    assert told["service.instance.id"] == told["seep.run"] == "r1"
    assert told["deployment.environment.name"] == "test"
    pushing.push.close(pushing.script.facts())


def test_pushes_are_counted_in_the_metrics(server: Collecting, pushing: Pushing) -> None:
    assert "seep.pushes" not in {each.name for each in metrics_of(pushing)}
    pushing.once()
    server.status["/v1/metrics"] = 503
    pushing.once()
    server.status.clear()
    pushing.once()
    series, signal = as_scraped(server.metrics[-1]), (("signal", "metrics"),)
    assert (series["seep_pushes_total", signal], series["seep_push_failures_total", signal]) == (1, 1)
    assert pushing.counted("metrics") == (2, 1, 0)


def metrics_of(pushing: Pushing) -> list[Any]:
    data = metrics_data(whole(pushing.script), 0.0, resource_of("r1", "words"))
    return list(data.resource_metrics[0].scope_metrics[0].metrics)


# -- traces ---------------------------------------------------------------------------------------------------------


def tell(record: Record, *events: Event) -> None:
    for event in events:
        record.tell(event)


def scaling(plan: int = 1, at: float = 5.0) -> list[Event]:
    """The events of a scaling with one plan."""
    return [
        ScalingOut(operator="counter", before=1, after=2, why="CPU", at=at),
        MoveAnnounced(operator="counter", plan=plan, first=9, slots=8, view=3, instances=(COUNTER,), at=at + 1),
        MoveSealed(operator="counter", plan=plan, view=3, at=at + 2),
        MoveEffective(operator="counter", plan=plan, first=9, at=at + 3),
        ScaledOut(operator="counter", before=1, after=2, seconds=3.0, waited=0.0, latency_peak=0.1, at=at + 3.5),
        MoveComplete(operator="counter", plan=plan, at=at + 4),
    ]


RECOVERY = [
    NodeLost(node="n3", why="silent", hosted=(COUNTER,), at=20.0),
    Rebound(subject=COUNTER, lost="n3", to="n4", at=21.0),
    InstanceRecovered(subject=COUNTER, lost="n3", seconds=2.0, detected=0.5, restored=0.5, replayed=1.0, at=22.0),
]


def tree(spans: list[Any]) -> dict[str, set[str]]:
    """Name of a span -> names of its children; the root's parent is empty."""
    names = {span.span_id: span.name for span in spans}
    found: dict[str, set[str]] = {}
    for span in spans:
        found.setdefault(names.get(span.parent_span_id, ""), set()).add(span.name)
    return found


def test_a_reconfiguration_is_pushed_as_the_tree_of_spans_that_the_record_has(
    server: Collecting, pushing: Pushing
) -> None:
    tell(pushing.record, *scaling())
    pushing.once()
    [plan] = [span for span in server.spans if span.name == "plan"]
    trace = [span for span in server.spans if span.trace_id == plan.trace_id]
    assert tree(trace) == {"": {"scaling"}, "scaling": {"decided", "plan"}, "plan": {"sealed", "effective", "safe"}}
    for span in server.spans:
        same: Span = next(each for each in pushing.record.traces if each.id == span.span_id.hex())
        assert span.trace_id.hex() == same.trace
        assert span.parent_span_id.hex() == (same.parent or "")
        assert span.start_time_unix_nano == round((pushing.record.begun + same.start) * 1e6) * 1000
        assert span.end_time_unix_nano == round((pushing.record.begun + (same.end or 0)) * 1e6) * 1000
        assert {each.key for each in span.attributes} >= same.attributes.keys()


def test_a_failed_change_is_an_error_with_its_reason(server: Collecting, pushing: Pushing) -> None:
    tell(pushing.record, BalancingCalledOff(operator="counter", why="the run is over", at=4.0))
    pushing.once()
    [span] = [each for each in server.spans if each.name == "balance"]
    assert (span.status.code, span.status.message) == (2, "the run is over")


def test_a_trace_is_pushed_once_when_all_of_it_has_ended(server: Collecting, pushing: Pushing) -> None:
    *begun, over = scaling()
    tell(pushing.record, *begun)
    pushing.once()
    assert "plan" not in {span.name for span in server.spans}
    tell(pushing.record, over)
    pushing.once()
    tell(pushing.record, *RECOVERY)
    pushing.once()
    pushing.once()
    ids = [span.span_id for span in server.spans]
    assert len(ids) == len(set(ids))
    assert {span.span_id.hex() for span in server.spans} == {span.id for span in pushing.record.traces if span.end}
    assert {"scaling", "plan", "recovery"} <= {span.name for span in server.spans}


def test_traces_that_a_collector_could_not_take_are_pushed_when_it_can(server: Collecting, pushing: Pushing) -> None:
    pushing.once()
    server.status["/v1/traces"] = 503
    tell(pushing.record, *scaling())
    pushing.once()
    pushing.once()
    assert "plan" not in {span.name for span in server.spans}
    server.status.clear()
    pushing.once()
    assert [span.name for span in server.spans].count("plan") == 1
    assert pushing.counted("traces")[1:] == (2, 0)


def test_traces_that_a_collector_refuses_are_given_up_and_counted(server: Collecting, pushing: Pushing) -> None:
    pushing.once()
    server.status["/v1/traces"] = 400
    tell(pushing.record, *scaling())
    pushing.once()
    server.status.clear()
    pushing.once()
    assert "plan" not in {span.name for span in server.spans}
    assert pushing.counted("traces")[1:] == (1, 1)


def test_more_traces_than_the_record_keeps_are_counted_and_the_newest_are_pushed(
    server: Collecting, pushing: Pushing
) -> None:
    pushing.once()
    server.status["/v1/traces"] = 503
    changes = 700
    for number in range(changes):
        tell(pushing.record, *scaling(plan=number, at=30.0 + number))
    pushing.once()
    kept = {span.trace for span in pushing.record.traces}
    assert len(kept) < changes
    server.status.clear()
    pushing.once()
    assert kept <= {span.trace_id.hex() for span in server.spans}
    dropped = pushing.counted("traces")[2]
    assert changes - dropped <= len({span.trace_id for span in server.spans}) < changes
    assert max(len(message.resource_spans[0].scope_spans[0].spans) for message in server.of("/v1/traces")) < 600


# -- collectors that do not take it ---------------------------------------------------------------------------------


def test_one_warning_is_logged_when_pushes_begin_to_fail_and_one_line_when_they_succeed_again(
    server: Collecting, pushing: Pushing
) -> None:
    pushing.once()
    for status in (503, 401, 503):
        server.status["/v1/metrics"] = status
        pushing.once()
    server.status.clear()
    pushing.once()
    pushing.once()
    assert pushing.said() == [("WARNING", "metrics cannot be pushed"), ("INFO", "metrics are pushed")]
    assert "503 Service Unavailable" in pushing.lines[0].message
    assert pushing.counted("metrics")[1] == 3


@pytest.mark.parametrize(("status", "told"), [(404, "404 Not Found"), (302, "302 Found"), (500, "500 Internal")])
def test_an_answer_other_than_success_is_a_failure(
    server: Collecting, pushing: Pushing, status: int, told: str
) -> None:
    server.status["/v1/metrics"] = status
    pushing.once()
    assert told in pushing.lines[0].message
    assert (server.of("/v1/metrics"), pushing.counted("metrics")[:2]) == ([], (0, 1))


def test_a_push_that_is_taken_in_part_is_a_failure(server: Collecting, pushing: Pushing) -> None:
    server.rejected = 7
    pushing.once()
    assert "7 of them were rejected: too old" in pushing.lines[-1].message
    assert pushing.counted("metrics")[:2] == (0, 1)


def test_an_answer_that_is_nonsense_or_endless_is_not_kept(server: Collecting, pushing: Pushing) -> None:
    server.body = b"\xff" * (8 << 20)
    pushing.once()
    assert pushing.counted("metrics")[:2] == (1, 0)


def test_a_collector_that_is_down_fails_at_once_and_is_used_when_it_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    pushing = Pushing(f"http://127.0.0.1:{port}", timeout=60.0)
    pushing.once()
    assert "Connection refused" in pushing.lines[0].message
    with collector(port) as server:
        pushing.once()
        assert server.metrics
        pushing.push.close(pushing.script.facts())


def test_a_collector_that_does_not_answer_holds_up_one_push_and_nothing_else(server: Collecting) -> None:
    pushing = Pushing(server.url, timeout=60.0)
    server.held.clear()
    pushing.push.show(pushing.script.facts())
    assert server.asked.wait(60)
    for _ in range(1000):
        pushing.push.show(pushing.script.facts())
    assert pushing.push._worker.waiting == 0
    assert len(server.headers) == 1
    server.held.set()
    assert eventually(lambda: pushing.attempts() > 0)
    pushing.push.close(pushing.script.facts())


def test_a_collector_that_does_not_answer_holds_up_the_end_for_no_longer_than_a_push_may_take(
    server: Collecting,
) -> None:
    pushing = Pushing(server.url, timeout=0.3)
    server.held.clear()
    pushing.push.show(pushing.script.facts())
    assert server.asked.wait(60)
    pushing.push.close(pushing.script.facts())  # returns, although the answer never comes
    assert not server.held.is_set()
    assert eventually(lambda: "seep otlp" not in {thread.name for thread in threading.enumerate()})
    assert server.metrics == []


def test_the_time_over_is_told_in_words(server: Collecting) -> None:
    pushing = Pushing(server.url, timeout=0.2)
    server.held.clear()
    pushing.once()
    assert "it does not answer in time" in pushing.lines[0].message
    pushing.push.close(pushing.script.facts())


def test_the_last_push_has_the_last_facts(server: Collecting, pushing: Pushing) -> None:
    pushing.once()
    tell(pushing.record, *scaling())
    pushing.push.close(pushing.script.facts())
    events = ("seep_run_events_total", (("kind", "scaled_out"),))
    before, last = (as_scraped(metrics) for metrics in (server.metrics[0], server.metrics[-1]))
    assert last[events] == before[events] + 1
    assert "plan" in {span.name for span in server.spans}


def test_the_exporters_of_the_library_log_nothing_for_a_run_and_still_do_for_others(
    server: Collecting, pushing: Pushing, caplog: pytest.LogCaptureFixture
) -> None:
    server.status["/v1/metrics"] = 400
    pushing.once()
    assert {each.name for each in caplog.records} == {"seep.metrics"}
    outside = Collector(server.url, {}, 5.0)
    outside.metrics(metrics_data(whole(busy()), 0.0, resource_of("r", "q")))
    outside.close()
    assert "Failed to export" in caplog.text


# -- headers and settings -------------------------------------------------------------------------------------------


def test_headers_of_the_file_and_of_the_environment_are_sent_and_never_logged(
    server: Collecting, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=0123456789ab")
    file = tmp_path / "headers"
    file.write_text("# for the collector\nAuthorization: Bearer s3cr3t-t0ken\n\nX-Scope: a: b \n")
    headers = dict(read_headers(file))
    assert headers == {"Authorization": "Bearer s3cr3t-t0ken", "X-Scope": "a: b"}
    pushing = Pushing(server.url, headers)
    pushing.once()
    sent = server.headers[-1]
    assert (sent["authorization"], sent["x-scope"], sent["x-team"]) == ("Bearer s3cr3t-t0ken", "a: b", "0123456789ab")
    log = RunLog("seep.x", LogContext(pushing.lines.append, redact=Redactor.of(*header_secrets(headers.values()))))
    log.info("sent s3cr3t-t0ken and 0123456789ab")
    assert pushing.lines[-1].message == f"sent {HIDDEN} and {HIDDEN}"
    pushing.push.close(pushing.script.facts())


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"Authorization\n", "line 1 is no header"),
        (b"A: b\nB: \n", "line 2 is no header"),
        (b"A b: secret-word\n", "line 1 is no header"),
        (b"A: b\x00c\n", "line 1 is no header"),
        ("A: é\n".encode(), "not plain ASCII"),
        (b"A: b\n" * 20_000, "longer than"),
    ],
)
def test_a_file_that_has_no_headers_is_refused_without_its_content(tmp_path: Path, content: bytes, told: str) -> None:
    file = tmp_path / "headers"
    file.write_bytes(content)
    with pytest.raises(UserError, match=told) as refused:
        check_otlp(OtlpSettings(url="http://127.0.0.1:1", headers_file=file))
    assert str(file) in str(refused.value)
    assert "secret-word" not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"headers_file .*nowhere cannot be read: No such file"):
        check_otlp(OtlpSettings(url="http://127.0.0.1:1", headers_file=tmp_path / "nowhere"))


def test_no_file_is_read_unless_pushes_are_asked_for(tmp_path: Path) -> None:
    assert check_otlp(OtlpSettings(headers_file=tmp_path / "nowhere")) == {}


@pytest.mark.parametrize(
    "url", ["127.0.0.1:4318", "ftp://x", "http://me:secret@x", "http://x/?key=1", "http://", "http://x y"]
)
def test_an_address_that_is_none_or_has_a_secret_is_refused(url: str) -> None:
    with pytest.raises(UserError, match=r"option 'metrics': otlp\.url"):
        metrics_settings({"otlp": {"url": url}})


def test_the_settings_may_be_given_as_a_mapping() -> None:
    assert metrics_settings({"port": 0, "otlp": {"url": "https://x.example/otlp/"}}) == MetricsSettings(
        port=0, otlp=OtlpSettings(url="https://x.example/otlp/")
    )


def test_both_addresses_are_below_the_base() -> None:
    assert set(Collector("http://x:1/base/", {}, 1.0).urls.values()) == {
        "http://x:1/base/v1/metrics",
        "http://x:1/base/v1/traces",
    }
