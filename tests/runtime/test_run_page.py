"""The reference page of `Run` has every name that the code has, and no event that it has not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import seep
from seep.runtime.events import Happening
from seep.runtime.metrics import InstanceStatus, Status

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/run.md").read_text()

#: Functions that hand a kind of event on, and which of their arguments it is.
HANDS_ON = {"_close": 1, "_signal": 0, "_note": 0, "_tell": 1, "_end": 1, "_conclude": 0}
#: Tables of kinds.
TABLES = {"_KINDS", "_WITHOUT_A_MOVE"}


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


def test_every_field_of_an_event_is_on_the_page() -> None:
    assert [each.name for each in fields(Happening) if f"`{each.name}`" not in section("## Events")] == []


def test_the_page_has_all_kinds_of_event_that_the_code_tells_and_no_others() -> None:
    told = in_tables(section("## Events"))
    assert len(told) == len(set(told))
    assert set(told) == kinds()


def kinds() -> set[str]:
    sources = [path for package in ("seep", "vmpool") for path in (ROOT / package).rglob("*.py")]
    return {kind for path in sources if "simulator" not in path.parts for kind in kinds_in(ast.parse(path.read_text()))}


def kinds_in(tree: ast.Module) -> Iterator[str]:
    """Literals where an event is made or handed on, of a letter that tells of one, and of a table of kinds."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func, arguments) if arguments and (place := place_of(func)) is not None:
                yield from words(arguments[place]) if len(arguments) > place else ()
            case ast.Dict([ast.Constant("event")], [ast.List([first, *_])]):
                yield from words(first)
            case ast.Assign([ast.Name(name)], ast.Dict(_, values)) if name in TABLES:
                yield from (word for value in values for word in words(value))


def place_of(function: ast.expr) -> int | None:
    """Which argument is a kind of event, if any is."""
    name = ast.unparse(function)
    if name.endswith("events.add") or name in ("Event", "Note"):
        return 0
    return HANDS_ON.get(name.removeprefix("self."))


def words(expression: ast.expr) -> Iterator[str]:
    if isinstance(expression, ast.IfExp):
        yield from words(expression.body)
        yield from words(expression.orelse)
    elif isinstance(expression, ast.Constant) and isinstance(expression.value, str):
        yield expression.value
