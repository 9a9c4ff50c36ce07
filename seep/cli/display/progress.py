"""Progress of long work: a bar on a terminal, elsewhere a plain line for each tenth of work that takes some time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Self

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

#: Seconds of work before the first plain line: of shorter work there is none.
_SILENT = 2.0


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
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
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


def with_bar(batches: Iterable[pa.RecordBatch], label: str, total: int, *, quiet: bool) -> Iterator[pa.RecordBatch]:
    """Yields the batches, and shows how many of so many rows there have been."""
    done = 0
    with ProgressBar(label, quiet=quiet) as bar:
        for batch in batches:
            yield batch
            done += len(batch)
            bar.reach(done, total)
