"""What the command line and errors say is as it is stored; a change is stored on purpose, by `make snapshots`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from seep.cli.app import app
from tests.snapshots import errors, stored
from tests.snapshots.write import SNAPSHOTS


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_users_see_what_is_stored(name: str, tmp_path: Path) -> None:
    if different := stored.difference(name, SNAPSHOTS[name](tmp_path)):
        pytest.fail(different, pytrace=False)


def test_every_wrong_call_ends_in_an_error_of_seep() -> None:
    texts = stored.read("errors.txt")
    assert len(texts) > 180
    wrong = ("", errors.NONE)
    assert [each for each, text in texts.items() if text in wrong or text.startswith(errors.NOT_OURS)] == []


def test_no_error_of_a_user_is_called_an_internal_one() -> None:
    assert [title for title, text in stored.read("errors.txt").items() if text.startswith("[internal]")] == []


def test_every_command_has_its_help_stored() -> None:
    def below(command: Any, path: str) -> Iterator[str]:
        yield path
        for name, each in getattr(command, "commands", {}).items():
            yield from below(each, f"{path} {name}")

    assert sorted(below(get_command(app), "seep")) == sorted(stored.read("help.txt"))


def test_no_command_shows_a_trace() -> None:
    assert [line for line, text in stored.read("commands.txt").items() if "Traceback" in text] == []


@pytest.fixture
def one_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.setattr(stored, "HERE", tmp_path)
    stored.write("some.txt", {"first": "one\ntwo", "second": "three"})
    return lambda **sections: stored.difference("some.txt", sections)


def test_what_is_the_same_is_no_difference(one_snapshot: Callable[..., str]) -> None:
    assert one_snapshot(first="one\ntwo", second="three") == ""


def test_a_difference_names_its_section_and_the_command_to_run(one_snapshot: Callable[..., str]) -> None:
    told = one_snapshot(first="one\n2", second="three")
    assert "run: make snapshots" in told
    changed = [line for line in told.splitlines() if line[:1] in "+-"]
    assert changed == ["--- stored: first", "+++ now: first", "-two", "+2"]


@pytest.mark.parametrize("sections", [{"first": "one\ntwo"}, {"first": "one\ntwo", "second": "three", "third": "four"}])
def test_a_section_that_is_gone_or_new_is_a_difference(
    one_snapshot: Callable[..., str], sections: dict[str, str]
) -> None:
    assert one_snapshot(**sections) != ""
