"""Tokens of the dashboard: from files of the settings, from the environment, or made for the run."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from primitives.errors import EnvironmentFault, UserError
from seep.dashboard.access import Access, checked_token
from seep.dashboard.settings import DashboardSettings

#: The environment's variables with the tokens of operators and of viewers.
OPERATOR_VARIABLE, VIEWER_VARIABLE = "SEEP_TOKEN", "SEEP_VIEWER_TOKEN"
#: The most bytes that are read of a file with a token.
_MOST = 4096


def access_of(settings: DashboardSettings, environment: Mapping[str, str] = os.environ) -> Access:
    """Returns who may use a dashboard; a file goes before the environment, and what neither has is made.

    Tokens of a dashboard that is not served are not looked for.
    """
    if settings.port is None:
        return Access()
    return Access(
        token_of(settings.token_file, "dashboard.token_file", OPERATOR_VARIABLE, environment),
        token_of(settings.viewer_token_file, "dashboard.viewer_token_file", VIEWER_VARIABLE, environment),
    )


def token_of(path: Path | None, setting: str, variable: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Returns the token of a file, or else of the environment; None if neither has one."""
    if path is not None:
        return checked_token(token_in(path, setting), f"{setting} {path}")
    return checked_token(environment.get(variable, "").strip() or None, variable)


def token_in(path: Path, setting: str) -> str:
    """Returns the token that a file has, without spaces around it; only its user may be able to read the file."""
    try:
        with open(path.expanduser(), "rb", opener=_without_waiting) as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise UserError(f"{setting}: {path} is not a file")
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise UserError(f"{setting}: others than you may use {path}: chmod 600 {path}")
            return file.read(_MOST).decode().strip()
    except (OSError, UnicodeDecodeError) as reason:
        raise EnvironmentFault(f"{setting}: the token in {path} cannot be read: {reason}") from reason


def _without_waiting(path: str, flags: int) -> int:
    """Opens a file; a named pipe, which has no token, is not waited for."""
    return os.open(path, flags | os.O_NONBLOCK)
