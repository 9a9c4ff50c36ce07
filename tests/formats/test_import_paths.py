"""Import paths: what is there is found, and what is not is told with the setting that names it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from formats.settings import imported
from primitives.errors import UserError


def test_what_a_path_names_is_found() -> None:
    assert imported("collections:Counter", "a.setting") is Counter


def test_modules_in_the_working_directory_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_here.py").write_text("found = 7\n")
    monkeypatch.chdir(tmp_path)
    assert imported("only_here:found", "a.setting") == 7


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "no_such_module:Class",
            "a.setting is 'no_such_module:Class': module 'no_such_module' cannot be imported: ",
        ),
        ("collections:Nothing", "a.setting is 'collections:Nothing': there is no 'Nothing' in collections"),
        (":Class", "a.setting is ':Class': module '' cannot be imported: ValueError: Empty module name"),
        ("collections:", "a.setting is 'collections:': there is no '' in collections"),
    ],
)
def test_what_is_not_there_is_told_with_the_setting(path: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        imported(path, "a.setting")


def test_a_module_that_fails_is_told_with_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "breaks_when_imported.py").write_text("raise RuntimeError('not today')\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="cannot be imported: RuntimeError: not today"):
        imported("breaks_when_imported:Class", "a.setting")
