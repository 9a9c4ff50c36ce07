"""The log of one process of a run: a logger whose lines have the run's fields, and no secrets."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from primitives.errors import encodable
from seep.logs.line import FIELDS, LONGEST_EXCEPTION, LONGEST_MESSAGE, PREFIX, LogLine, shortened
from seep.logs.redaction import Redactor

#: The logger above all others of seep. A library must say that it may stay without handlers.
ROOT = "seep"
logging.getLogger(ROOT).addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class LogContext:
    """What all logs of one process of a run share."""

    keep: Callable[[LogLine], None]  #: takes each line for `seep logs`; called on any thread
    least: int = logging.INFO  #: the least level of these lines
    redact: Redactor = field(default_factory=Redactor)


class RunLog(logging.LoggerAdapter[logging.Logger]):
    """A logger of one process of a run.

    Each line goes to Python's `logging`, as far as its user has configured it, and, independently of that, to the
    lines that `seep logs` shows. Its record has all of `FIELDS` as attributes (`seep_run`, …), empty if not known.
    Secrets are replaced before any handler gets the record; therefore it has `exc_text`, and no `exc_info`.
    """

    def __init__(self, name: str, context: LogContext, fields: Mapping[str, object] | None = None) -> None:
        super().__init__(logging.getLogger(name), dict(fields or {}))
        self._context = context

    def named(self, name: str) -> RunLog:
        """Returns a log under another name."""
        return RunLog(name, self._context, self.extra)

    def bound(self, **fields: object) -> RunLog:
        """Returns a log whose lines have more fields."""
        return RunLog(self.logger.name, self._context, {**(self.extra or {}), **fields})

    def isEnabledFor(self, level: int) -> bool:
        return level >= self._context.least or self.logger.isEnabledFor(level)

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Logs a line, with `extra` as more fields; the message is formatted only if anybody wants it."""
        if not self.isEnabledFor(level):
            return
        file, number, function, _ = self.logger.findCaller(stacklevel=1 + kwargs.get("stacklevel", 1))
        record = self.logger.makeRecord(
            self.logger.name, level, file, number, self._message(msg, args), (), None, function, self._extra(kwargs)
        )
        record.exc_text = self._exception(kwargs.get("exc_info"))
        if level >= self._context.least:
            self._context.keep(LogLine.of(record))
        if self.logger.isEnabledFor(level):
            self.logger.handle(record)

    def _message(self, message: object, arguments: tuple[object, ...]) -> str:
        try:
            text = str(message) % arguments if arguments else str(message)
        except (TypeError, ValueError):
            text = f"{message} {arguments}"
        return shortened(self._plain(text), LONGEST_MESSAGE)

    def _extra(self, kwargs: Mapping[str, Any]) -> dict[str, object]:
        known = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return {f"{PREFIX}{name}": self._value(known.get(name)) for name in FIELDS}

    def _value(self, value: object) -> str | int:
        if value is None:
            return ""
        return value if type(value) is int else self._plain(str(value))

    def _exception(self, raised: BaseException | bool | None) -> str | None:
        if isinstance(raised, BaseException):
            text = "".join(traceback.format_exception(raised)).rstrip()
        elif raised:
            text = traceback.format_exc().rstrip()
        else:
            return None
        return shortened(self._plain(text), LONGEST_EXCEPTION)

    def _plain(self, text: str) -> str:
        """Returns the text without secrets, and with escapes for what a handler with UTF-8 could not write."""
        return encodable(self._context.redact(text))
