"""Tokens of the dashboard: from files and the environment, and what is wrong with them; never shown in an error."""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping
from pathlib import Path

import pytest

from primitives.errors import EnvironmentFault, SeepError, UserError
from seep.dashboard.access import Role
from seep.dashboard.settings import DashboardSettings
from seep.dashboard.tokens import access_of

OPERATOR, VIEWER, OTHER = "operator-0123456789-abc", "viewer-0123456789-abcde", "other-0123456789-abcdef"


def token_file(folder: Path, content: str | bytes, mode: int = 0o600) -> Path:
    path = folder / "a.token"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(mode)
    return path


def refused(kind: type[SeepError], environment: Mapping[str, str] | None = None, **settings: object) -> str:
    """The error for these settings, after a look that it shows no token."""
    with pytest.raises(kind) as caught:
        access_of(DashboardSettings(port=0, **settings), environment or {})
    shown = "".join(traceback.format_exception(caught.value))
    assert not any(token in shown for token in (OPERATOR, VIEWER, OTHER, "sh0rt"))
    return str(caught.value)


def test_tokens_come_from_files_without_the_spaces_around_them(tmp_path: Path) -> None:
    path = token_file(tmp_path, f"\n  {OPERATOR}\r\n")
    access = access_of(DashboardSettings(port=0, token_file=path), {})
    assert access.operator_token == OPERATOR
    path.write_text(OTHER)
    assert access.role_of(OTHER) is None, "it is read once"


def test_tokens_come_from_the_environment_and_files_go_before_it(tmp_path: Path) -> None:
    environment = {"SEEP_TOKEN": f" {OPERATOR} ", "SEEP_VIEWER_TOKEN": VIEWER}
    access = access_of(DashboardSettings(port=0), environment)
    assert (access.role_of(OPERATOR), access.role_of(VIEWER)) == (Role.OPERATOR, Role.VIEWER)
    access = access_of(DashboardSettings(port=0, viewer_token_file=token_file(tmp_path, OTHER)), environment)
    assert access.secrets == (OPERATOR, OTHER)


def test_tokens_that_nobody_has_given_are_made() -> None:
    one, other = (access_of(DashboardSettings(port=0), {"SEEP_TOKEN": " "}) for _ in range(2))
    assert len({*one.secrets, *other.secrets}) == 4


def test_the_home_directory_may_be_abbreviated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    token_file(tmp_path, OPERATOR)
    assert access_of(DashboardSettings(port=0, token_file=Path("~/a.token")), {}).operator_token == OPERATOR


def test_without_a_dashboard_nobody_looks_for_tokens() -> None:
    assert access_of(DashboardSettings(token_file=Path("/nonexistent/token")), {"SEEP_TOKEN": "sh0rt"}).secrets


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o660, 0o606, 0o644, 0o777, 0o601, 0o620])
def test_a_file_that_others_may_use_is_refused_with_the_command_that_helps(tmp_path: Path, mode: int) -> None:
    path = token_file(tmp_path, OPERATOR, mode)
    told = refused(UserError, token_file=path)
    assert told == f"dashboard.token_file: others than you may use {path}: chmod 600 {path}"


def test_a_file_that_is_not_there_is_named_with_its_setting(tmp_path: Path) -> None:
    told = refused(EnvironmentFault, viewer_token_file=tmp_path / "none")
    assert told.startswith(f"dashboard.viewer_token_file: the token in {tmp_path / 'none'} cannot be read: ")
    assert "cannot be read" in refused(EnvironmentFault, token_file=tmp_path / ("x" * 300))


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    assert (
        refused(UserError, token_file=tmp_path / "pipe") == f"dashboard.token_file: {tmp_path / 'pipe'} is not a file"
    )
    (tmp_path / "folder").mkdir(0o700)
    assert "folder" in refused(SeepError, token_file=tmp_path / "folder")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("sh0rt", "has 5 characters; a token needs 20 to 512"),
        ("", "has 0 characters"),
        ("x" * 1_000_000, "has 4096 characters"),
        (f"{OPERATOR}\n{OTHER}", "has a space or a character that is not ASCII"),
        ("ü" * 30, "has a space or a character that is not ASCII"),
    ],
)
def test_a_weak_token_is_refused_by_the_name_of_its_file(tmp_path: Path, content: str, told: str) -> None:
    path = token_file(tmp_path, content)
    assert refused(UserError, token_file=path).startswith(f"dashboard.token_file {path} {told}")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    assert "cannot be read" in refused(EnvironmentFault, token_file=token_file(tmp_path, b"\xff\xfe" * 20))


def test_a_weak_token_of_the_environment_is_refused_by_its_name() -> None:
    assert refused(UserError, {"SEEP_VIEWER_TOKEN": "sh0rt"}).startswith("SEEP_VIEWER_TOKEN has 5 characters")
    assert "the same token" in refused(UserError, {"SEEP_TOKEN": OPERATOR, "SEEP_VIEWER_TOKEN": OPERATOR})
