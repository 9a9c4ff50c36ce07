"""Every thread that seep and vmpool start has a name that says what it is, and a row in docs/runtime.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: What starts a thread, and the place of its name among the arguments where it is not given by keyword.
STARTS = dict.fromkeys(("Thread", "InheritableThread", "Timer")) | {
    "Worker": 0,
    "WorkerPool": 0,
    "EventLoop": 0,
    "ThreadPoolExecutor": 1,
}


def calls(source: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(source):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in STARTS:
                yield name, node


def name_of(kind: str, call: ast.Call) -> ast.expr | None:
    """The name that the thread is given: by keyword, or at its place."""
    place = STARTS[kind]
    by_keyword = [each.value for each in call.keywords if each.arg in ("name", "thread_name_prefix")]
    at_place = call.args[place : place + 1] if place is not None else []
    return next(iter(by_keyword + at_place), None)


def template(name: ast.expr | None) -> str:
    """What is filled in later is an ellipsis; "?" where nothing is said, or only who calls knows."""
    match name:
        case ast.Constant(str(text)):
            return text
        case ast.JoinedStr(values):
            return "".join(template(value) if isinstance(value, ast.Constant) else "…" for value in values)
    return "?"


def started() -> dict[str, set[str]]:
    """Name of a thread -> the modules that start one."""
    found: dict[str, set[str]] = {}
    for path in sorted([*ROOT.glob("seep/**/*.py"), *ROOT.glob("vmpool/**/*.py")]):
        for kind, call in calls(ast.parse(path.read_text(encoding="utf-8"))):
            found.setdefault(template(name_of(kind, call)), set()).add(path.relative_to(ROOT).as_posix())
    return found


def rows() -> list[tuple[str, str]]:
    """Name and purpose of each row of the table of threads, which leaves out what all names begin with."""
    page = (ROOT / "docs" / "runtime.md").read_text(encoding="utf-8")
    section = page.split("## Threads\n")[1].split("\n## ")[0]
    found = re.findall(r"^\| `([^`]+)` \|[^|]*\| ([^|]*\S) \|$", section, re.MULTILINE)
    return [(f"seep {name}", purpose) for name, purpose in found]


def test_every_thread_is_in_the_table_with_its_purpose_and_no_other() -> None:
    named = started().keys() - {"?"}
    assert named
    assert sorted(name for name, _ in rows()) == sorted(named)
    assert all(purpose for _, purpose in rows())


def test_every_name_begins_with_that_of_the_project() -> None:
    assert [name for name in started() if not name.startswith("seep ") and name != "?"] == []


def test_only_what_others_give_a_name_to_starts_threads_without_one() -> None:
    assert started()["?"] == {"seep/threads/event_loop.py", "seep/threads/pool.py", "seep/threads/worker.py"}
