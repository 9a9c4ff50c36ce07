"""Loading: which query `module:name` is, and what is said if it is none."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from primitives.errors import UserError
from seep.cli.commands import load_query

MODULE = """
import seep
query = seep.Query("mine")
number = 5
def make():
    return seep.Query("made")
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module of the user's in the working directory."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "my_queries.py"
    path.write_text(MODULE)
    yield path
    for name in [name for name in sys.modules if name not in before and name.startswith("my_")]:
        del sys.modules[name]


def test_a_query_is_found_in_a_module_of_the_working_directory() -> None:
    assert load_query("my_queries:query").name == "mine"


def test_a_query_is_found_in_a_file(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "my_file.py"
    place.parent.mkdir()
    place.write_text(MODULE)
    assert load_query("deep/my_file.py:query").name == "mine"


def test_a_function_is_called_for_its_query() -> None:
    assert load_query("my_queries:make").name == "made"


def test_what_the_module_defines_travels_by_value() -> None:
    from pyspark import cloudpickle

    load_query("my_queries:query")
    assert b"made" in cloudpickle.dumps(sys.modules["my_queries"].make)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("my_queries", "'my_queries' names no query; write module:query"),
        (":query", "':query' names no query"),
        ("my_queries:", "'my_queries:' names no query"),
        ("nowhere:query", "there is no module nowhere, neither installed nor in"),
        ("my_queries.deep:query", "there is no module my_queries.deep"),
        ("my_other.py:query", "there is no file my_other.py"),
        (
            "my_queries:missing",
            "'missing' in my_queries is not a query, or a function that returns one; its queries are query",
        ),
        ("my_queries:number", "'number' in my_queries is not a query"),
        ("json:loads_", "it has no queries"),
    ],
)
def test_what_is_no_query_is_refused(target: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        load_query(target)


def test_a_module_that_needs_what_is_not_there_says_so(tmp_path: Path) -> None:
    (tmp_path / "my_needy.py").write_text("import not_installed_anywhere")
    with pytest.raises(UserError, match="module my_needy needs not_installed_anywhere, which is not installed"):
        load_query("my_needy:query")
