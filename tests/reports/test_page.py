"""A report as a page: everything that is drawn lies where it belongs, and nothing is missing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from seep.cli.app import app
from seep.reports.chart import Chart, Mark, axis
from seep.reports.page import page


def instance(utilisation: float) -> dict[str, Any]:
    return {"node": "n1", "utilisation": utilisation, "rows_in": 1, "state_bytes": 1, "outbox_bytes": 1}


def sample(at: float, rows: float, instances: dict[str, float], latency: dict[str, float]) -> dict[str, Any]:
    return {
        "at": at,
        "rows_per_second": rows,
        "offered": 2 * rows,
        "latency": latency,
        "nodes": 3,
        "vms": {"used": 2, "warm": 1},
        "instances": {name: instance(used) for name, used in instances.items()},
    }


def report() -> dict[str, Any]:
    times = {"p50": 0.02, "p95": 0.03, "p99": 0.05, "max": 1.5}
    summary: dict[str, Any] = {"rows": 900, "seconds": 10.0, "rows_per_second": 90.0, "epochs": 200, "latency": times}
    summary |= {"largest_gap": 0.4, "recoveries": [], "scalings": [], "vms": {"vm-1": 10.0}, "vm_seconds": 10.0}
    return {
        "query": "words & more",
        "summary": summary | {"counters": {}, "failure": None},
        "events": [
            {"kind": "node joined", "at": -1.0, "node": "n1"},
            {"kind": "killed", "at": 4.0, "node": "n1", "detail": "with counter[0] <at once>"},
            {"kind": "recovered", "at": 4.5, "instance": "counter[0]", "seconds": 0.5},
            {"kind": "scaled out", "at": 6.0, "operator": "counter", "detail": "1 → 2"},
        ],
        "series": [
            sample(0.5, 0.0, {}, {}),
            sample(3.0, 50.0, {"words[0]#0": 0.2, "counter[0]#0": 0.9}, times),
            sample(8.0, 120.0, {"words[0]#0": 0.2, "counter[0]#1": 0.4, "counter[1]#0": 0.7}, times),
        ],
    }


def drawings(html: str) -> dict[str, ElementTree.Element]:
    """By title; each is well-formed by itself."""
    found = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    return {each.attrib["aria-label"]: each for each in map(ElementTree.fromstring, found)}


def lines(drawing: ElementTree.Element) -> dict[str, list[tuple[float, float]]]:
    return {str(each.findtext("title")): list(places(each)) for each in drawing.iter("polyline")}


def places(line: ElementTree.Element) -> Iterator[tuple[float, float]]:
    for point in line.attrib["points"].split():
        x, y = point.split(",")
        yield float(x), float(y)


def test_a_page_has_a_drawing_for_each_thing_that_changes_and_a_table_of_what_happened() -> None:
    html = page(report(), ["all answers are right"])
    drawn = drawings(html)
    assert list(drawn) == [
        "Rows per second",
        "Latency, from due to committed",
        "Instances",
        "CPU share that the busiest instance uses",
        "VMs",
    ]
    assert list(lines(drawn["Rows per second"])) == ["read", "due"]
    assert list(lines(drawn["Instances"])) == ["counter"], "the number of the others has not changed"
    assert list(lines(drawn["VMs"])) == ["used", "warm"]
    assert "<h1>words &amp; more: a run of 10.0 s</h1>" in html
    assert "<p>all answers are right</p>" in html
    assert "with counter[0] &lt;at once&gt;" in html
    assert "node joined" not in html
    assert "http" not in html.replace("http-equiv", "")


def test_higher_values_are_drawn_higher_and_later_ones_further_right() -> None:
    points = lines(drawings(page(report()))["Rows per second"])["read"]
    assert points == sorted(points)
    assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)


def test_what_happened_is_marked_at_its_time_in_every_drawing() -> None:
    for drawing in drawings(page(report())).values():
        marks = [group for group in drawing.iter("g") if group.find("line") is not None]
        assert [str(mark.findtext("title")).split(" s: ")[0] for mark in marks] == ["4.0", "4.5", "6.0"]
        at = [float(line.attrib["x1"]) for mark in marks for line in mark.iter("line")]
        assert at == sorted(at)


def test_lines_that_are_the_same_are_drawn_once_with_all_their_names() -> None:
    same = [(0.0, 1.0), (5.0, 2.0)]
    drawing = ElementTree.fromstring(Chart("t", {"a": same, "b": [(0.0, 3.0)], "c": list(same)}, str).svg())
    assert list(lines(drawing)) == ["a, c", "b"]
    assert [text.text for text in drawing.iter("text")][-3:] == ["a", "c", "b"]
    drawn, legend = look_of(drawing.iter("polyline")), look_of(drawing.iter("line"))
    assert legend == [drawn[0], drawn[0], drawn[1]]


def look_of(elements: Iterator[ElementTree.Element]) -> list[tuple[str | None, str | None]]:
    """Colours and dashes of what is drawn as a line."""
    lines = [each for each in elements if each.attrib["class"] == "line"]
    return [(each.get("stroke"), each.get("stroke-dasharray")) for each in lines]


@given(st.integers(1, 40))
def test_no_two_lines_look_alike_and_the_legend_names_as_many_as_have_room(count: int) -> None:
    drawing = ElementTree.fromstring(Chart("t", {f"line {n}": [(0.0, n)] for n in range(count)}, str).svg())
    looks = look_of(drawing.iter("polyline"))
    assert len(set(looks)) == count
    names = [each for each in drawing.iter("text") if each.attrib["text-anchor"] == "start"]
    left = count - sum(str(each.text).startswith("line") for each in names)
    assert left == 0 or names[-1].text == f"and {left} more"
    height = float(drawing.attrib["viewBox"].split()[3])
    assert all(float(each.attrib["y"]) <= height for each in names)


@given(
    st.lists(st.tuples(st.floats(0, 60), st.floats(0, 1e12)), max_size=20),
    st.booleans(),
    st.booleans(),
)
def test_nothing_is_drawn_outside(points: list[tuple[float, float]], log: bool, steps: bool) -> None:
    chart = Chart("t", {"line": sorted(points)}, str, [Mark(99.0, "red", "late")], log=log, steps=steps, seconds=60.0)
    drawing = ElementTree.fromstring(chart.svg())
    _, _, width, height = map(float, drawing.attrib["viewBox"].split())
    for found in lines(drawing).values():
        assert all(0 <= x <= width and 0 <= y <= height for x, y in found)


@given(st.lists(st.floats(1e-6, 1e12), min_size=1), st.booleans())
def test_an_axis_has_some_round_numbers_and_all_values_on_it(values: list[float], log: bool) -> None:
    found = axis(values, 0.0, 1.0, log=log)
    assert found.low <= min(values)
    assert max(values) <= found.high
    assert 2 <= len(found.ticks()) <= 20
    assert all(found.low * (1 - 1e-6) <= tick <= found.high * (1 + 1e-6) for tick in found.ticks())


def test_a_report_is_drawn_beside_itself(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(report()))
    answer = CliRunner().invoke(app, ["report", "plot", str(tmp_path / "run.json")])
    assert answer.exit_code == 0, answer.output
    assert (tmp_path / "run.html").read_text() == page(report())


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "there is no report"), ("{", "because it is not JSON"), ("{}", "is not a report of a run")],
)
def test_what_is_no_report_is_refused(content: str | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    if content is not None:
        path.write_text(content)
    answer = CliRunner().invoke(app, ["report", "plot", str(path)])
    assert answer.exit_code == 1
    assert words in " ".join(answer.output.split())
