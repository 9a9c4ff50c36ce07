"""Progress of long work: a bar on a terminal, elsewhere a plain line for each tenth of work that takes some time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Self

import pyarrow as pa
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from seep.reports import figures

#: Seconds of work before the first plain line: of shorter work there is none. And between two lines of a wait.
_SILENT, _LINES_APART = 2.0, 5.0


class ProgressBar:
    """Shows on stderr how much of some work is done. As a context, it removes the bar at the end."""

    def __init__(
        self,
        label: str,
        *,
        quiet: bool = False,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._label, self._clock, self._begin = label, clock, clock()
        self._console = console or Console(stderr=True)
        self._is_plain = not quiet and not self._console.is_terminal
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        self._bar = Progress(
            *columns, console=self._console, transient=True, disable=quiet or not self._console.is_terminal
        )
        self._task = self._bar.add_task(label, total=None)
        self._tenth = 0  #: the last one of which there was a line

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, reason: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def reach(self, done: int, total: int) -> None:
        """Shows that so much of all work is done."""
        self._bar.update(self._task, completed=done, total=total)
        tenth = 10 * done // total if total else 0
        if self._is_plain and tenth > self._tenth and self._clock() - self._begin >= _SILENT:
            self._tenth = tenth
            line = f"{self._label}: {10 * tenth} %, {done:,} of {total:,}"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


class WaitingLine:
    """Shows on stderr how long a wait has taken, and for what. As a context, it removes the line at the end."""

    def __init__(
        self, label: str, *, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._label, self._clock, self._begin = label, clock, clock()
        self._console = console or Console(stderr=True)
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        terminal = self._console.is_terminal
        self._line = Progress(*columns, console=self._console, transient=True, disable=not terminal)
        self._task = self._line.add_task(label, total=None)
        self._next = self._begin + _SILENT  #: when there is a plain line

    def __enter__(self) -> Self:
        self._line.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, reason: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.stop()

    def show(self, words: str) -> None:
        """Shows what the wait is for now."""
        described = f"{self._label}: {words}" if words else self._label
        self._line.update(self._task, description=described)
        now = self._clock()
        if not self._console.is_terminal and now >= self._next:
            self._next = now + _LINES_APART
            line = f"{self._label}: {figures.time(now - self._begin)} so far{'; ' * bool(words)}{words}"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def with_bar(batches: Iterable[pa.RecordBatch], label: str, total: int, *, quiet: bool) -> Iterator[pa.RecordBatch]:
    """Yields the batches, and shows how many of so many rows there have been."""
    done = 0
    with ProgressBar(label, quiet=quiet) as bar:
        for batch in batches:
            yield batch
            done += len(batch)
            bar.reach(done, total)
