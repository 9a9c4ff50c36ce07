"""Handlers: how the processes that are seep's own (commands and nodes) write log lines to stderr."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from seep.logs.levels import LogFormat
from seep.logs.line import LogLine
from seep.logs.redaction import Redactor
from seep.logs.run_log import ROOT
from seep.logs.settings import LogSettings


class LineFormatter(logging.Formatter):
    """Formats records as seep's own lines; also for a `logging` configuration of yours.

    >>> record = logging.LogRecord("mine", logging.INFO, "x.py", 1, "so be it", (), None)
    >>> record.created = 0.0
    >>> LineFormatter().format(record)
    '1970-01-01T00:00:00.000Z INFO mine: so be it'
    """

    def __init__(self, form: LogFormat | str = LogFormat.TEXT, redact: Redactor | None = None) -> None:
        super().__init__()
        self._form, self._redact = LogFormat(form), redact

    def format(self, record: logging.LogRecord) -> str:
        line = LogLine.of(record).written(self._form)
        return line if self._redact is None else self._redact(line)


class _StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to what is stderr at the time of each line; a line that cannot be written is lost, and nothing else."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr

    def handleError(self, record: logging.LogRecord) -> None:
        pass


def is_configured() -> bool:
    """Whether somebody has configured `logging` for seep's loggers: they, or the root, have a handler that writes."""
    handlers = (*logging.getLogger(ROOT).handlers, *logging.getLogger().handlers)
    return any(not isinstance(each, logging.NullHandler) for each in handlers)


@contextmanager
def lines_on_stderr(settings: LogSettings) -> Iterator[None]:
    """Writes seep's lines to stderr within the block, if the settings say so and nobody else has configured them."""
    if not settings.is_written or is_configured():
        yield
        return
    logger, handler = logging.getLogger(ROOT), _StderrHandler()
    before = logger.level
    handler.setFormatter(LineFormatter(settings.format or LogFormat.TEXT))
    logger.addHandler(handler)
    logger.setLevel(settings.number)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
