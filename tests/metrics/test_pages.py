"""The page, the dashboard and the alerts name metrics and labels that there are; what is generated is current."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from seep.metrics.definitions import METRICS
from tests.documents import blocks, text
from tests.metrics.promql import problems
from tools import grafana
from tools import metrics as tool

ALERTS = tool.ROOT / "deploy" / "grafana" / "alerts.yaml"
DASHBOARD: dict[str, Any] = json.loads(text(tool.DASHBOARD))
RULES: list[dict[str, Any]] = [rule for group in yaml.safe_load(text(ALERTS))["groups"] for rule in group["rules"]]
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
IN_PANELS = [
    pytest.param(target["expr"], id=f"{panel['title']}, {target['refId']}")
    for panel in PANELS
    for target in panel.get("targets", ())
]
MARKS = [pytest.param(mark["expr"], id=mark["name"]) for mark in DASHBOARD["annotations"]["list"]]
ALERTED = [pytest.param(rule["expr"], id=rule["alert"]) for rule in RULES]
ASKED = [block.text.strip() for block in blocks(tool.PAGE) if block.language == "promql"]


def test_the_page_and_the_dashboard_are_current() -> None:
    """If not: python -m tools.metrics."""
    assert text(tool.PAGE) == tool.page()
    assert text(tool.DASHBOARD) == grafana.dashboard()


def test_the_page_has_every_metric_once_and_no_other() -> None:
    rows = re.findall(r"^\| `(seep_\w+)` \|", text(tool.PAGE), re.MULTILINE)
    assert sorted(rows) == sorted(metric.name for metric in METRICS)


@pytest.mark.parametrize("expression", [*IN_PANELS, *MARKS, *ALERTED, *ASKED])
def test_an_expression_names_what_there_is(expression: str) -> None:
    assert problems(expression) == []


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("up == 0", "it has no metric of ours"),
        ("seep_rows_total > 0", "there is no metric seep_rows_total"),
        ("seep_run_latency_seconds > 1", "there is no metric seep_run_latency_seconds"),
        ("seep_run_phase_bucket > 1", "there is no metric seep_run_phase_bucket"),
        ('seep_run_phase{phases="failed"}', "seep_run_phase has no label phases"),
        ('seep_run_phase{phase="dead"}', "phase of seep_run_phase is never dead"),
        ("sum by (node) (seep_operator_instances)", "node is no label of its metrics"),
        ("rate(seep_operator_instances[1m])", "rate is for counters, and seep_operator_instances is a gauge"),
        ("deriv(seep_nodes_lost_total[1m])", "deriv is for gauges, and seep_nodes_lost_total is none"),
        ("rate(seep_nodes_lost_total)", "seep_nodes_lost_total is a range where none belongs, or the other way round"),
    ],
)
def test_a_wrong_expression_is_noticed(expression: str, problem: str) -> None:
    assert problems(expression) == [problem]


def test_all_questions_have_an_answer_and_there_are_enough() -> None:
    assert [*tool.QUESTIONS.values()] == ASKED
    assert len(ASKED) > 15
    assert len(RULES) > 10
    assert len(IN_PANELS) > 40


def test_an_alert_says_what_is_wrong_and_how_urgent_it_is() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(names) == len(set(names))
    assert {rule["labels"]["severity"] for rule in RULES} == {"page", "ticket"}
    assert [name for name in names if not re.fullmatch(r"Seep([A-Z][a-z]+)+", name)] == []
    assert [rule["alert"] for rule in RULES if not rule["annotations"]["summary"].endswith(".")] == []


def test_the_labels_in_the_text_of_an_alert_are_those_of_its_expression() -> None:
    for rule in RULES:
        for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
            assert label == "instance" or problems(f"sum by ({label}) ({rule['expr']})") == []


def test_every_panel_of_the_dashboard_reads_the_chosen_driver_and_source_alone() -> None:
    expressions = [each.values[0] for each in (*IN_PANELS, *MARKS)]
    assert [each for each in expressions if each.count("seep_") != each.count(grafana.CHOSEN)] == []
    sources = re.findall(r'"uid": "([^"]+)"', text(tool.DASHBOARD))
    assert set(sources) == {"${datasource}", "seep"}


def test_panels_have_a_title_and_do_not_overlap() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert all(panel["title"] for panel in PANELS)
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in PANELS):
        cells = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert taken.isdisjoint(cells)
        assert max(x for x, _ in cells) < 24
        taken |= cells


@pytest.mark.acceptance
def test_the_rules_and_queries_are_right_by_the_tool_of_prometheus(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    asked = [{"record": f"asked:{number}", "expr": query} for number, query in enumerate(ASKED)]
    chosen = [
        {
            "record": f"panel:{number}",
            "expr": each.values[0].replace("$__rate_interval", "1m").replace("$__range", "1h"),
        }
        for number, each in enumerate((*IN_PANELS, *MARKS))
    ]
    rules = tmp_path / "asked.yaml"
    rules.write_text(yaml.safe_dump({"groups": [{"name": "asked", "rules": [*asked, *chosen]}]}))
    for path in (ALERTS, rules):
        done = subprocess.run([promtool, "check", "rules", str(path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
