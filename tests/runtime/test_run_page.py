"""The reference page of `Run` has every name that the code has, and no event that it has not."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import seep
from primitives.event import COMMON, event_kinds
from seep.record.status import InstanceStatus, Status

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/run.md").read_text()

#: Where the events are that runs tell of.
EVENTS = {"seep.protocol.events", "seep.record.events", "vmpool.events"}


def section(title: str) -> str:
    """The text below a heading, up to the next one of the same rank."""
    _, _, rest = PAGE.partition(f"\n{title}\n")
    assert rest, f"the page has no {title!r}"
    return re.split(rf"\n{title.split()[0]} ", rest)[0]


def in_tables(text: str) -> list[str]:
    """What is in code marks in the first column of a section's tables."""
    rows = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([^`]*)`", row)]


def test_every_public_name_of_a_run_is_on_the_page_and_no_other() -> None:
    told = {re.match(r"run\.(\w+)", name)[1] for name in in_tables(PAGE) if name.startswith("run.")}  # type: ignore[index]
    public = {name for name in dir(seep.Run) if not name.startswith("_")}
    assert told == public | {name for name in seep.Run.__annotations__ if not name.startswith("_")}


@pytest.mark.parametrize("kind", [Status, InstanceStatus])
def test_every_field_of_a_status_is_on_the_page(kind: Any) -> None:
    assert [each.name for each in fields(kind) if f"`{each.name}`" not in section("### Status")] == []


def test_all_that_an_event_can_be_asked_for_is_on_the_page() -> None:
    assert [
        name for name in ("kind", "at", "text()", "to_json()", *COMMON) if f"`{name}`" not in section("## Events")
    ] == []


def test_the_page_has_all_kinds_of_event_that_there_are_and_no_others() -> None:
    told = in_tables(section("## Events"))
    assert len(told) == len(set(told))
    assert set(told) == {kind for kind, cls in event_kinds().items() if cls.__module__ in EVENTS}
