"""Views of a run: a table that is updated in place on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from primitives.event import Event
from seep.cli.display.panels import LISTS, instance_table, rows_for
from seep.record.status import Status
from seep.reports import figures

#: Events that are shown only with --verbose, because others summarise them.
_DETAILS = {"node joined", "rebound", "restored", "retired", "finished", "move announced", "move complete"} | {
    "vm ordered",
    "vm ready",
    "vm released",
    "split begun",
    "split effective",
}
_SHOWN_ELSEWHERE = {"failed"}
#: Seconds between two plain lines.
_LINES_APART = 1.0

_STYLES = {"killed": "red", "stopped": "red", "node lost": "red", "strike failed": "yellow", "recovered": "green"} | {
    "bottleneck": "yellow",
    "pool exhausted": "yellow",
    "provider failed": "yellow",
    "scaling failed": "red",
    "scaled out": "green",
    "scaled in": "green",
    "migrated": "green",
    "migration cancelled": "yellow",
    "migration refused": "yellow",
    "hot slot": "yellow",
    "balancing failed": "red",
    "balanced": "green",
}


class ConsoleView:
    """The base of views; it prints only messages. As a context, it clears what it has drawn at the end."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, reason: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def say(self, line: str | Text) -> None:
        """Prints a line that stays. Names such as counter[0] are not interpreted as markup."""
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def step(self, what: str) -> None:
        """Shows a step of the start."""

    def happen(self, event: Event) -> None:
        """Takes an event; may be called on any thread."""

    def show(self, status: Status) -> None:
        """Shows the status, and the events since the last call."""

    def flush(self) -> None:
        """Shows the remaining events at the end."""


class EventView(ConsoleView):
    """A view that shows events, in the thread that shows the status."""

    def __init__(self, console: Console, verbose: bool = False) -> None:
        super().__init__(console)
        self._hidden = _SHOWN_ELSEWHERE if verbose else _SHOWN_ELSEWHERE | _DETAILS
        self._happened: SimpleQueue[Event] = SimpleQueue()

    def happen(self, event: Event) -> None:
        if event.kind not in self._hidden:
            self._happened.put(event)

    def flush(self) -> None:
        while not self._happened.empty():
            self.say(event_line(self._happened.get()))


class LogLines(EventView):
    """A view for logs: one line a second, and one per event."""

    _next = 0.0

    def step(self, what: str) -> None:
        self.say(what)

    def show(self, status: Status) -> None:
        self.flush()
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _LINES_APART
            self.say(status_line(status))


class LiveTable(EventView):
    """A view for terminals: a table that is updated in place, and the events above it."""

    def __init__(self, console: Console, verbose: bool = False) -> None:
        super().__init__(console, verbose)
        self._live = Live(console=console, transient=True, refresh_per_second=4)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, reason: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def step(self, what: str) -> None:
        self._live.update(Text(f"{what} …", style="dim"))

    def show(self, status: Status) -> None:
        self.flush()
        most = rows_for(self.console.height) * LISTS
        self._live.update(Group(Text(status_line(status), style="bold"), instance_table(status, most)))


def view_for(console: Console, *, quiet: bool, verbose: bool) -> ConsoleView:
    """Returns the view that suits the console and the flags."""
    if quiet:
        return ConsoleView(console)
    return (LiveTable if console.is_terminal else LogLines)(console, verbose)


def event_line(event: Event) -> Text:
    """Returns an event with its time, aligned with the times of the status."""
    return Text(f"{event.at:7.2f} s  {event}", style=_STYLES.get(event.kind, ""))


def status_line(status: Status) -> str:
    """Returns a status in one line."""
    latency = f"latency {figures.latency(status.latency)}" if status.latency else "no latency yet"
    parts = (
        f"{status.rows_per_second:,.0f} rows/s",
        latency,
        f"{figures.of(status.ticked - status.committed, 'epoch')} in flight",
        f"{figures.of(len(status.instances), 'instance')} on {figures.of(status.nodes - status.idle_nodes, 'node')}"
        f" ({status.idle_nodes} idle)",
        *_restoring(status),
        *_imbalances(status),
    )
    return f"{status.at:7.2f} s  " + "; ".join(parts)


def _restoring(status: Status) -> Iterator[str]:
    restoring = sum(each.phase == "restoring" for each in status.instances)
    if restoring:
        yield f"{figures.of(restoring, 'instance')} without state yet"


def _imbalances(status: Status) -> Iterator[str]:
    for operator in status.balanced:
        if operator in status.imbalance:
            yield f"fullest {operator} {status.imbalance[operator]:.2f} times the mean"
