"""Decisions: one file for each, with a number of its own, and an index that is current."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import decisions


def test_every_decision_has_a_number_of_its_own_and_its_file_is_named_by_it() -> None:
    found = decisions.decisions()
    assert len(found) > 100
    assert [each.number for each in found] == [*range(1, len(found) + 1)]
    assert [
        each.name for each in found if not re.fullmatch(rf"{each.number:04d}-[a-z0-9]+(-[a-z0-9]+)*\.md", each.name)
    ] == []


def test_the_index_of_decisions_is_current() -> None:
    """If not: python -m tools.decisions."""
    assert decisions.INDEX.read_text(encoding="utf-8") == decisions.index(decisions.decisions())


def test_the_template_begins_as_every_decision_does() -> None:
    template = (decisions.FOLDER / "template.md").read_text(encoding="utf-8")
    assert re.match(r"# NUMBER\. .+\n\nDate: YYYY-MM-DD\n\n", template)


def test_a_decision_that_begins_in_another_way_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "0001-first.md").write_text("## 1. First\n", encoding="utf-8")
    monkeypatch.setattr(decisions, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match=r"0001-first\.md does not begin with"):
        decisions.decisions()


def test_two_decisions_of_one_number_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("0001-first.md", "0001-other.md"):
        (tmp_path / name).write_text("# 1. First\n\nDate: 2026-11-20\n\nText.\n", encoding="utf-8")
    monkeypatch.setattr(decisions, "FOLDER", tmp_path)
    with pytest.raises(AssertionError):
        test_every_decision_has_a_number_of_its_own_and_its_file_is_named_by_it()
