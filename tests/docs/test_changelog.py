"""The changelog: fragments that are well named, areas, and the section of a version that is made of them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tools import changelog

FRAGMENTS = sorted(path for path in (changelog.ROOT / "changelog.d").iterdir() if path.name != "README.md")
#: An entry is a sentence on one line, of so many characters at most.
LONGEST = 300


def problem_of(name: str, text: str) -> str | None:
    """What is wrong with a fragment."""
    found = re.fullmatch(r"\+[a-z0-9]+(?:-[a-z0-9]+)*\.([a-z-]+)\.md", name)
    if found is None:
        return "a fragment is called +words.AREA.md, in small letters with hyphens"
    if found[1] not in changelog.areas().values():
        return f"there is no area {found[1]}; there are {', '.join(changelog.areas().values())}"
    return _problem_of_text(text)


def _problem_of_text(text: str) -> str | None:
    line = text.removesuffix("\n")
    if "\n" in line or not line.endswith(".") or not re.match(r"[A-Z`]|\[|seep ", line):
        return "its text is one sentence on one line, with a full stop"
    return f"its text has more than {LONGEST} characters" if len(line) > LONGEST else None


@pytest.mark.parametrize("path", FRAGMENTS, ids=lambda path: path.name)
def test_every_fragment_is_well_named_and_one_sentence(path: Path) -> None:
    assert problem_of(path.name, path.read_text(encoding="utf-8")) is None


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("117.state.md", "It works.\n", "is called"),
        ("+Words.state.md", "It works.\n", "is called"),
        ("+words.feature.md", "It works.\n", "there is no area feature"),
        ("+words.state.md", "it works\n", "one sentence"),
        ("+words.state.md", "It works.\nIt is fast.\n", "one sentence"),
        ("+words.state.md", f"It {'really ' * 50}works.\n", "more than 300"),
    ],
)
def test_a_fragment_that_is_not_well_named_is_noticed(name: str, text: str, problem: str) -> None:
    assert problem in str(problem_of(name, text))


def test_every_area_is_explained_to_those_who_write_fragments() -> None:
    page = (changelog.ROOT / "changelog.d" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE) == [*changelog.areas().values()]


def test_every_entry_of_the_changelog_stands_under_an_area_and_is_one_sentence() -> None:
    text = (changelog.ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for section in re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]:
        found = changelog.entries(section)
        assert set(found) <= set(changelog.areas())
        lines = [line for line in section.splitlines() if line and not line.startswith("### ")]
        assert lines == [line for entries in found.values() for line in entries]
        assert [line for line in lines if _problem_of_text(line.removeprefix("- "))] == []


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with the settings of ours, and its own changelog."""
    shutil.copy(changelog.ROOT / "pyproject.toml", tmp_path)
    fragments = tmp_path / "changelog.d"
    fragments.mkdir()
    (fragments / "README.md").write_text("How to write one.\n")
    (fragments / "+colder.state.md").write_text("State is colder.\n")
    (fragments / "+warmer.cli.md").write_text("Commands are warmer.\n")
    marker = "<!-- towncrier release notes start -->\n"
    earlier = "## 0.1.0 (2026-01-01)\n\n### State and storage\n\n- There is state.\n"
    unreleased = "## Unreleased\n\n### Spark\n\n- Spark is used.\n\n### State and storage\n\n- State is stored.\n\n"
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n{marker}\n{unreleased}{earlier}")
    return tmp_path


def test_a_version_takes_in_its_fragments_and_what_was_unreleased_by_area(project: Path) -> None:
    changelog.build(project, "0.2.0", "2026-02-03")
    assert (project / "CHANGELOG.md").read_text() == (
        "# Changelog\n\n<!-- towncrier release notes start -->\n\n"
        "## 0.2.0 (2026-02-03)\n\n"
        "### Spark\n\n- Spark is used.\n\n"
        "### State and storage\n\n- State is colder.\n- State is stored.\n\n"
        "### Command line and settings\n\n- Commands are warmer.\n\n"
        "## 0.1.0 (2026-01-01)\n\n### State and storage\n\n- There is state.\n"
    )
    assert [path.name for path in (project / "changelog.d").iterdir()] == ["README.md"]


def test_the_next_version_stands_above_the_one_before(project: Path) -> None:
    changelog.build(project, "0.2.0", "2026-02-03")
    (project / "changelog.d" / "+more.docs.md").write_text("There is more.\n")
    changelog.build(project, "0.3.0", "2026-03-03")
    text = (project / "CHANGELOG.md").read_text()
    assert re.findall(r"^## (\S+)", text, re.MULTILINE) == ["0.3.0", "0.2.0", "0.1.0"]
    assert changelog.entries(text.partition("## 0.2.0")[0]) == {"Documentation": ["- There is more."]}
