"""Counters never go back: over recoveries, over fewer instances, and for a scraper that begins anew."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from seep.metrics.definitions import METRICS
from seep.metrics.metric import MetricType
from seep.record.histogram import DurationCounts
from tests.metrics.kit import Script, Series

COUNTERS = {metric.name for metric in METRICS if metric.type is not MetricType.GAUGE}

acts = st.lists(
    st.tuples(
        st.sampled_from(["work", "work", "work", "lose", "retire", "add"]), st.integers(0, 7), st.integers(0, 90)
    ),
    max_size=40,
)


def flat(value: float | DurationCounts) -> tuple[float, ...]:
    return (*value.up_to, value.number, value.total) if isinstance(value, DurationCounts) else (value,)


@dataclass
class Scraper:
    """Looks at counters again and again."""

    before: Series = field(default_factory=dict)
    gone: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)

    def look(self, now: Series) -> None:
        back = {
            series: (value, now[series])
            for series, value in self.before.items()
            if series in now and any(new < old for old, new in zip(flat(value), flat(now[series]), strict=True))
        }
        assert back == {}
        self.gone |= self.before.keys() - now.keys()
        assert self.gone & now.keys() == set(), "a series that has vanished does not come back"
        self.before = now


@given(acts=acts)
@settings(max_examples=60)
def test_no_counter_goes_back_over_losses_and_scale_ins(acts: list[tuple[str, int, int]]) -> None:
    script, scraper = Script(), Scraper()
    script.add()
    for act, number, rows in acts:
        there = sorted(script.placement)
        who = there[number % len(there)]
        match act:
            case "add":
                script.add()
            case "lose":
                script.lose(who)
            case "retire" if len(there) > 1:
                script.retire(who, rows)
            case _:
                script.work(who, rows, latencies=(rows / 100,))
        scraper.look(script.series(COUNTERS.__contains__))


def test_rows_of_a_lost_incarnation_and_of_a_retired_instance_stay_counted() -> None:
    script = Script()
    first, second = script.add(), script.add()
    script.work(first, 10)
    script.work(second, 100)
    script.lose(first)
    script.work(first, 4)
    script.retire(second, 1)
    found = script.series()
    assert found["seep_instance_rows_in_total", ("counter", "0")] == 14
    assert ("seep_instance_rows_in_total", ("counter", "1")) not in found
    assert found["seep_operator_rows_in_total", ("counter",)] == 115


def test_counters_are_those_of_the_record_whoever_looks_and_since_when() -> None:
    script = Script()
    who = script.add()
    script.work(who, 10)
    script.lose(who)
    seen = script.series()
    script.work(who, 0)
    assert (
        script.series(COUNTERS.__contains__).items()
        >= {
            series: value
            for series, value in seen.items()
            if series[0] in COUNTERS and series[0].startswith("seep_operator")
        }.items()
    ), "who begins to look now sees the same totals"


def test_a_counter_that_an_instance_takes_back_counts_once() -> None:
    script = Script()
    who = script.add()
    for late in (3, 1, 4):
        script.work(who, 1, counters={"late": late})
    assert script.series()["seep_operator_late_rows_total", ("counter",)] == 4


def test_what_a_record_remembers_does_not_grow_with_past_instances() -> None:
    script = Script()
    script.add()
    for _ in range(200):
        who = script.add()
        script.work(who, 1)
        script.lose(who)
        script.work(who, 1)
        script.retire(who, 1)
        script.present()
    totals = script.it.record._totals
    assert len(totals._reported) + len(totals._instances) <= 2
    assert script.series()["seep_operator_rows_in_total", ("counter",)] == 600
