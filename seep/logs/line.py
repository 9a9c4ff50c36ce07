"""Log lines as values: what travels between processes, and the two forms in which a line is written."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from primitives.errors import encodable
from seep.logs.levels import LogFormat

#: The fields of a line, as far as they are known, in their order.
FIELDS = ("run", "node", "instance", "epoch", "decision")
#: Attributes of Python's log records that have them begin with this.
PREFIX = "seep_"
#: The most characters of a message, and of an exception with its trace.
LONGEST_MESSAGE, LONGEST_EXCEPTION = 4096, 16384
#: What a line takes besides its text, about.
_OVERHEAD = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of the log of one process.

    >>> line = LogLine(at=1.5, level=30, logger="seep.node", message="link lost", fields={"run": "ab", "node": "n2"})
    >>> line.text()
    '1970-01-01T00:00:01.500Z WARNING seep.node run=ab node=n2: link lost'
    >>> line.to_json()["time"]
    '1970-01-01T00:00:01.500Z'
    """

    at: float  #: unix time
    level: int  #: as in Python's `logging`
    logger: str
    message: str
    fields: Mapping[str, str | int] = field(default_factory=dict)
    exception: str = ""  #: with its trace

    @classmethod
    def of(cls, record: logging.LogRecord) -> LogLine:
        """Returns the line of a record of Python's `logging`; one that is not ours has no fields."""
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        attributes = ((name, getattr(record, f"{PREFIX}{name}", "")) for name in FIELDS)
        found = {name: value for name, value in attributes if value != ""}
        return cls(
            at=record.created,
            level=record.levelno,
            logger=record.name,
            message=shortened(encodable(record.getMessage()), LONGEST_MESSAGE),
            fields={name: value if type(value) is int else encodable(str(value)) for name, value in found.items()},
            exception=shortened(encodable(record.exc_text or ""), LONGEST_EXCEPTION),
        )

    @property
    def size(self) -> int:
        """The memory that it takes, about."""
        return (
            _OVERHEAD + len(self.message) + len(self.exception) + sum(len(str(each)) for each in self.fields.values())
        )

    def text(self) -> str:
        """The line as plain text; further lines of its message and the trace of its exception are indented."""
        named = "".join(f" {name}={visible(str(value))}" for name, value in self.fields.items())
        first = f"{_rfc3339(self.at)} {logging.getLevelName(self.level)} {self.logger}{named}: "
        return first + "\n    ".join(map(visible, self._lines()))

    def _lines(self) -> Iterator[str]:
        yield from self.message.split("\n")
        yield from self.exception.splitlines()

    def to_json(self) -> dict[str, Any]:
        """The line as one JSON object; fields that are not known are left out."""
        told: dict[str, Any] = {
            "time": _rfc3339(self.at),
            "level": logging.getLevelName(self.level),
            "logger": self.logger,
            "message": self.message,
            **self.fields,
        }
        return told | ({"exception": self.exception} if self.exception else {})

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> LogLine:
        """Returns the line that `to_json` wrote.

        >>> line = LogLine(at=1.5, level=25, logger="seep.node", message="lost", fields={"run": "ab", "epoch": 3})
        >>> LogLine.from_json(line.to_json()) == line
        True
        """
        return cls(
            at=datetime.fromisoformat(told["time"]).timestamp(),
            level=_level(told["level"]),
            logger=told["logger"],
            message=told["message"],
            fields={name: told[name] for name in FIELDS if name in told},
            exception=told.get("exception", ""),
        )

    def written(self, form: LogFormat) -> str:
        """The line in one of its forms."""
        return json.dumps(self.to_json(), ensure_ascii=False) if form is LogFormat.JSON else self.text()


def shortened(text: str, longest: int) -> str:
    """Returns the text, without its middle if it is longer than that; the end of a trace says most.

    >>> shortened("0123456789", 4)
    '01 … 6 characters left out … 89'
    """
    left_out = len(text) - longest
    if left_out <= 0:
        return text
    return f"{text[: longest // 2]} … {left_out:,} characters left out … {text[-(longest - longest // 2) :]}"


def _rfc3339(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _level(name: str) -> int:
    """Returns the number of a level; one without a name of its own is written `Level 25`."""
    return logging.getLevelNamesMapping().get(name) or int(name.removeprefix("Level "))


def visible(text: str) -> str:
    """Escapes control characters: a name or message must not change the terminal, or look like another line.

    >>> print(visible("a\\x1b[2Jb"))
    a\\x1b[2Jb
    """
    return "".join(char if char.isprintable() or char in "\t " else repr(char)[1:-1] for char in text)
