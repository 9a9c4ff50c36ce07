"""The pages on status and versions say what is there."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.documents import ROOT, text

STATUS, VERSIONS = ROOT / "docs" / "status.md", ROOT / "docs" / "versioning.md"
#: Pages that are about no feature: they explain, or are for those who work on seep.
EXPLAINING = {
    "README.md",
    "architecture.md",
    "control.md",
    "linear-road-data.md",
    "linear-road-query.md",
    "primitives.md",
    "production.md",
    "protocol.md",
    "status.md",
    "versioning.md",
    "vocabulary.md",
}


def rows() -> list[list[str]]:
    """The cells of each row: feature, state, since, tested by."""
    lines = [line for line in text(STATUS).splitlines() if line.startswith("| ")]
    return [
        cells
        for line in lines
        if len(cells := [cell.strip() for cell in line.strip("|").split(" | ")]) == 4 and cells[0] != "feature"
    ]


def test_every_feature_has_a_state_and_a_version_since_which_it_is_there() -> None:
    assert len(rows()) > 40
    assert {state for _, state, _, _ in rows()} == {"stable", "usable", "experimental"}
    assert [feature for feature, _, since, _ in rows() if not re.fullmatch(r"\d+\.\d+\.\d+", since)] == []


def test_every_feature_that_can_be_relied_on_names_tests_that_are_there() -> None:
    named = {feature: re.findall(r"\]\(\.\./(tests/[\w/]+\.py)\)", tests) for feature, _, _, tests in rows()}
    assert [path for paths in named.values() for path in paths if not (ROOT / path).is_file()] == []
    assert [feature for feature, state, _, _ in rows() if state != "experimental" and not named[feature]] == []


def test_every_test_is_named_as_its_file() -> None:
    linked = re.findall(r"\[`(\w+)`\]\(\.\./tests/[\w/]*?(\w+)\.py\)", text(STATUS))
    assert len(linked) > 80
    assert [name for name, file in linked if name != file] == []


def test_every_page_about_a_feature_is_in_the_table() -> None:
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - EXPLAINING
    linked = {page for feature, *_ in rows() for page in re.findall(r"\]\(([\w-]+\.md)", feature)}
    assert sorted(pages - linked) == []


@pytest.mark.parametrize("module", ["seep", "seep.sources", "seep.sinks", "seep.testing"])
def test_the_public_names_on_the_page_are_those_of_the_package(module: str) -> None:
    [listed] = re.findall(rf"^\| `{re.escape(module)}` \| (.+) \|$", text(VERSIONS), re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", listed)) == sorted(public_names(module))


def public_names(module: str) -> set[str]:
    """`__all__`, or else what its first lines import under its own name."""
    found = import_module(module)
    if hasattr(found, "__all__"):
        return set(found.__all__)
    source = text(Path(str(found.__file__)))
    return {alias for name, alias in re.findall(r"import (\w+) as (\w+)", source) if alias in dir(found) and name}


def test_no_module_takes_the_place_of_a_public_name() -> None:
    """Importing a package `seep.runs` would make a module of `seep.runs`, which is a function."""
    packages = {
        path.stem for path in (ROOT / "seep").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert packages & public_names("seep") == {"sinks", "sources", "testing"}
