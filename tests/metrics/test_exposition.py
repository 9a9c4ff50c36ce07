"""The exposition: Prometheus' own parsers read from the page what the definitions say."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from prometheus_client import REGISTRY
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parsed_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parsed_text

from seep.metrics.definitions import METRICS
from seep.metrics.exposition import Exposition, MetricsPage
from seep.metrics.metric import MetricType
from seep.record.facts import Facts
from seep.record.histogram import DurationCounts
from tests.metrics.kit import series_of
from tests.metrics.test_definitions import busy, whole

OPEN = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"
Parser = Callable[[str], Iterable[Any]]


def page(facts: Facts | None, accept: str = "") -> MetricsPage:
    return Exposition("r1", "words", lambda: facts).page(accept)


def read(accept: str, parser: Parser) -> list[Any]:
    return list(parser(page(whole(busy()).facts, accept).body.decode()))


@pytest.mark.parametrize(("accept", "parser"), [("", parsed_text), (OPEN, parsed_open_metrics)])
def test_all_series_are_on_the_page_with_their_values(accept: str, parser: Parser) -> None:
    present = whole(busy())
    labels = {metric.name: metric.labels for metric in METRICS}
    told = {
        (each.name, tuple(each.labels[label] for label in labels[each.name])): each.value
        for family in read(accept, parser)
        for each in family.samples
        if each.name in labels
    }
    wanted = {series: value for series, value in series_of(present).items() if not isinstance(value, DurationCounts)}
    assert told == wanted


@pytest.mark.parametrize(("accept", "parser"), [("", parsed_text), (OPEN, parsed_open_metrics)])
def test_types_and_help_texts_are_on_the_page(accept: str, parser: Parser) -> None:
    families = {family.name: family for family in read(accept, parser)}
    present = {name for name, _ in series_of(whole(busy()))}
    for metric in METRICS:
        if metric.name in present:
            family = families[metric.name.removesuffix("_total")]
            assert (family.type, family.documentation) == (metric.type, metric.help)
    assert len(families) == len(present)


def test_a_histogram_is_cumulative_and_ends_with_all() -> None:
    [latency] = [each for each in read("", parsed_text) if each.name == "seep_run_latency_seconds"]
    buckets = [each.value for each in latency.samples if each.name.endswith("_bucket")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 3
    assert {each.name: each.value for each in latency.samples}["seep_run_latency_seconds_sum"] == pytest.approx(0.06)


def test_the_format_is_what_the_scraper_accepts() -> None:
    facts = busy().facts()
    assert page(facts, OPEN).content_type.startswith("application/openmetrics-text")
    assert page(facts, OPEN).body.endswith(b"# EOF\n")
    for accept in ("", "text/html", "application/openmetrics-tex", ";;;version=x"):
        assert page(facts, accept).content_type.startswith("text/plain; version=0.0.4")


def test_the_page_of_a_moment_is_made_once_and_a_new_moment_has_a_new_one() -> None:
    script = busy()
    now = script.facts()
    exposition = Exposition("r1", "words", lambda: now, clock=lambda: 0.0)
    first, other = exposition.page(""), exposition.page(OPEN)
    assert exposition.page("") is first
    assert exposition.page(OPEN) is other
    script.work(next(iter(script.placement)), 5)
    now = script.facts()
    assert exposition.page("") != first
    assert exposition.page(OPEN) != other


def test_pages_take_a_fraction_of_the_time_however_often_they_are_asked_for() -> None:
    """A second passes whenever somebody looks at the clock, so that each page takes one to make."""
    seconds = itertools.count()
    exposition = Exposition("r1", "words", busy().facts, clock=lambda: float(next(seconds)))
    pages = [exposition.page("") for _ in range(200)]
    assert 5 <= len({id(page) for page in pages}) <= next(seconds) / 20


def test_before_the_first_sample_the_page_is_empty() -> None:
    assert page(None).body == b""


def test_nothing_is_put_into_the_registry_that_all_programs_share() -> None:
    before = set(REGISTRY._names_to_collectors)
    page(busy().facts())
    assert set(REGISTRY._names_to_collectors) == before


def test_hostile_names_of_operators_and_queries_are_escaped() -> None:
    name = 'a"} 1\nseep_run_info{run="x\\'
    body = Exposition("r1", name, busy().facts).page("").body.decode()
    [info] = [family for family in parsed_text(body) if family.name == "seep_run_info"]
    assert [each.labels["query"] for each in info.samples] == [name]


def test_every_type_of_metric_has_a_family() -> None:
    assert {family.type for family in read("", parsed_text)} == set(MetricType)
