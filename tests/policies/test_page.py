"""The page on scaling: its examples run, and its tables are what the code says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from formats.durations import seconds
from formats.settings import Section
from policies.scaling.cpu_threshold import CpuThresholdSettings
from policies.scaling.detector import Cause
from policies.scaling.latency import LatencySettings
from policies.scaling.registry import POLICIES
from policies.scaling.schedule import ScheduleSettings
from policies.scaling.settings import ScalingSettings
from policies.scaling.true_rate import TrueRateSettings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")

SECTIONS: dict[str, type[Section]] = {
    "cpu-threshold": CpuThresholdSettings,
    "true-rate": TrueRateSettings,
    "latency": LatencySettings,
    "schedule": ScheduleSettings,
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def rows(columns: int) -> list[list[str]]:
    """The rows of all tables with so many columns, without the ticks."""
    lines = [line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("|")]
    return [[cell.strip(" `") for cell in cells] for cells in lines if len(cells) == columns]


def test_the_examples_of_the_page_run() -> None:
    scope: dict[str, Any] = {"__name__": "page"}
    for block in blocks("python"):
        exec(compile(block, "docs/scaling.md", "exec"), scope)
    assert scope["decision"].operator == "counter"


def test_the_settings_of_the_page_are_accepted() -> None:
    found = [ScalingSettings(**yaml.safe_load(block)["scaling"]) for block in blocks("yaml")]
    assert [each.policy for each in found] == ["cpu-threshold", "my_policies:Backlog"]


@pytest.mark.parametrize("policy", SECTIONS)
def test_the_table_of_settings_says_what_each_policy_takes(policy: str) -> None:
    told = {name: (default, meaning) for owner, name, default, meaning in rows(4) if owner == policy}
    fields = SECTIONS[policy].model_fields
    assert {name: meaning for name, (_, meaning) in told.items()} == {n: f.description for n, f in fields.items()}
    for name, field in fields.items():
        assert _means(told[name][0], None if field.is_required() else field.default, field.is_required())


def _means(text: str, default: Any, required: bool) -> bool:
    """Whether what the page says of a default is it."""
    if required or default is None:
        return text == ("must be given" if required else "none")
    return text == default or seconds(text) == float(default)


def test_the_page_names_all_policies_causes_and_modules() -> None:
    firsts = {each.strip(" `") for cells in (*rows(2), *rows(3)) for each in cells[0].split(",")}
    home = ROOT / "policies"
    paths = [path for path in (*home.glob("*.py"), *home.glob("scaling/*.py")) if path.name != "__init__.py"]
    modules = {path.relative_to(home).as_posix() for path in paths}
    assert firsts >= {*POLICIES, *(cause.value for cause in Cause), *modules}
