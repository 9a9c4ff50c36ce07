"""Settings of log lines: the section `log` of a policy file."""

from __future__ import annotations

import logging

from pydantic import Field

from formats.settings import Section
from seep.logs.levels import LogFormat, LogLevel


class LogSettings(Section):
    """How a run's processes log. Without any setting, only nodes on a cluster write lines, to their stderr."""

    level: LogLevel | None = Field(
        None, description="Least important lines that are written: debug, info, warning or error; info if none."
    )
    format: LogFormat | None = Field(
        None, description="Form of lines that seep writes to stderr: text, or json (one object per line); text if none."
    )

    @property
    def is_written(self) -> bool:
        """Whether lines are written to stderr, and not only kept for `seep logs`."""
        return self.level is not None or self.format is not None

    @property
    def number(self) -> int:
        """The least level of lines that are written, as a number."""
        return (self.level or LogLevel.INFO).number

    @property
    def kept(self) -> int:
        """The least level of lines that are kept for `seep logs`: at least from `info` on."""
        return min(self.number, logging.INFO)
