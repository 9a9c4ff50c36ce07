"""Rings of log lines, both bounded: those that a node has still to send, and those of all processes in the driver."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from seep.logs.line import LogLine
from seep.record.ring import Ring

#: The most bytes of lines that wait in a node, and that the driver keeps.
WAITING, COLLECTED = 256 << 10, 4 << 20
#: The most lines, and bytes of lines, that are sent or shown at once.
_LINES, _BYTES = 200, 64 << 10


class OutgoingLines:
    """The lines of a node's process that it has not sent yet: the newest, and the number of those dropped. Thread-safe.

    >>> waiting = OutgoingLines(most=600)
    >>> for number in range(4):
    ...     waiting.keep(LogLine(at=0.0, level=20, logger="seep.node", message=f"line {number}"))
    >>> [line.message for line in waiting.take()[0]], waiting.take()
    (['line 2', 'line 3'], ((), 0))
    """

    def __init__(self, most: int = WAITING) -> None:
        self._most = most
        self._lines: deque[LogLine] = deque()
        self._size = self._dropped = 0
        self._lock = threading.Lock()

    def keep(self, line: LogLine) -> None:
        with self._lock:
            self._lines.append(line)
            self._size += line.size
            while self._size > self._most and len(self._lines) > 1:
                self._size -= self._lines.popleft().size
                self._dropped += 1

    def take(self) -> tuple[tuple[LogLine, ...], int]:
        """Takes the oldest lines, as many as are sent at once; returns them, and the number dropped before them."""
        with self._lock:
            taken = _page(self._lines)
            for line in taken:
                self._size -= line.size
                self._lines.popleft()
            dropped, self._dropped = self._dropped, 0
        return taken, dropped


def _page(lines: deque[LogLine] | list[LogLine]) -> tuple[LogLine, ...]:
    """Returns the first lines, as many as one message may have, and at least one if there is any."""
    page, size = list[LogLine](), 0
    for line in lines:
        size += line.size
        if page and (len(page) == _LINES or size > _BYTES):
            break
        page.append(line)
    return tuple(page)


class LinePage(NamedTuple):
    """Some lines after a cursor."""

    lines: tuple[LogLine, ...]
    cursor: int  #: after these lines, and those that were passed over
    missed: int  #: number of lines after the cursor asked for that are not kept any more
    is_last: bool  #: there are no further lines now


Wanted = Callable[[LogLine], bool]


class CollectedLines:
    """The newest lines of all processes of a run, in the order in which the driver got them. Thread-safe.

    >>> lines = CollectedLines()
    >>> lines.keep(LogLine(at=0.0, level=20, logger="seep.driver", message="begins"))
    >>> page = lines.after(0)
    >>> [line.message for line in page.lines], page.cursor, page.is_last
    (['begins'], 1, True)
    """

    def __init__(self, most: int = COLLECTED) -> None:
        self._ring = Ring[LogLine](most, lambda line: line.size)
        self._news = threading.Condition()
        self._closed = False

    def keep(self, line: LogLine) -> None:
        self._ring.append(line)
        with self._news:
            self._news.notify_all()

    def close(self) -> None:
        """Notes that the run is over: nobody waits for further lines."""
        with self._news:
            self._closed = True
            self._news.notify_all()

    @property
    def is_closed(self) -> bool:
        return self._closed

    def after(self, cursor: int, wanted: Wanted = lambda _: True, wait: float = 0.0) -> LinePage:
        """Returns the next lines that are wanted; if there are none, waits for some, at most `wait` seconds."""
        deadline, missed = time.monotonic() + wait, 0
        while True:
            page = self._page(cursor, wanted)
            cursor, missed = page.cursor, missed + page.missed
            left = deadline - time.monotonic()
            if page.lines or (page.is_last and (self._closed or left <= 0)):
                return page._replace(missed=missed)
            self._await_more(cursor, left)

    def _await_more(self, cursor: int, seconds: float) -> None:
        with self._news:
            self._news.wait_for(lambda: self._closed or self._ring.total > cursor, max(0.0, seconds))

    def _page(self, cursor: int, wanted: Wanted) -> LinePage:
        first, lines = self._ring.since(max(0, cursor))
        chosen = [(number, line) for number, line in enumerate(lines, start=first) if wanted(line)]
        page = _page([line for _, line in chosen])
        is_last = len(page) == len(chosen)
        after = first + len(lines) if is_last else chosen[len(page)][0]
        return LinePage(page, max(cursor, after), first - max(0, cursor) if first > cursor else 0, is_last)


def at_least(level: int, node: str | None = None) -> Wanted:
    """Returns what is wanted: lines of a level or above, of or about one node if it is named."""
    return lambda line: line.level >= level and (node is None or line.fields.get("node") == node)


def dropped_line(at: float, dropped: int, fields: dict[str, str | int]) -> LogLine:
    """Returns the line that says that lines are missing."""
    message = f"{dropped:,} log lines were dropped here: more were written than are sent to the driver"
    return LogLine(at=at, level=logging.WARNING, logger="seep.logs", message=message, fields=fields)
