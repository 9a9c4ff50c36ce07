"""Draws the phases of recoveries, scalings and migrations as bars over time, as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any, NamedTuple

from seep.reports import figures
from seep.reports.chart import COLOURS, axis

_WIDTH, _LEFT, _RIGHT = 880, 240, 110
_ROW, _BAR, _TOP = 18, 11, 20
#: The most rows that are drawn: the longest changes.
_MOST = 40
#: The narrowest part that can be seen and pointed at.
_NARROWEST = 1.5
#: Characters that fit before the bars.
_FITS = 34


class Part(NamedTuple):
    """A phase of a change: from one second of the run to another."""

    name: str
    start: float
    end: float


class ChangeBar(NamedTuple):
    """A change with its phases, in order."""

    name: str
    parts: Sequence[Part]

    @property
    def start(self) -> float:
        return self.parts[0].start

    @property
    def seconds(self) -> float:
        return self.parts[-1].end - self.start


def changes_of(report: Mapping[str, Any]) -> list[ChangeBar]:
    """Returns the changes of a run, with the phases that its report tells, in the order of their beginning."""
    summary = report["summary"]
    found = [
        *(_recovery(each) for each in summary["recoveries"]),
        *(_scaling(each) for each in summary["scalings"]),
        *(_migration(each) for each in report.get("migrations", ()) if each.get("begun") is not None),
    ]
    longest = sorted((each for each in found if each.parts), key=lambda each: -each.seconds)[:_MOST]
    return sorted(longest, key=lambda each: each.start)


def _recovery(recovery: Mapping[str, Any]) -> ChangeBar:
    parts = {name: recovery[name] for name in ("detected", "restored", "replayed") if name in recovery}
    start = recovery["at"] - recovery["seconds"]
    return ChangeBar(f"recovered {recovery['instance']}", list(_in_a_row(start, parts, recovery["at"])))


def _in_a_row(start: float, parts: Mapping[str, float], end: float) -> Iterator[Part]:
    """Yields phases that follow each other; what is left until the end has no name in the report."""
    at = start
    for name, seconds in parts.items():
        yield Part(name, at, at + seconds)
        at += seconds
    if end > at + 1e-6 or not parts:
        yield Part("until it was done", at, end)


def _scaling(scaling: Mapping[str, Any]) -> ChangeBar:
    name = f"scaled {scaling['operator']} {scaling['before']} → {scaling['after']}"
    waited, start = scaling.get("waited", 0.0), scaling["at"] - scaling["seconds"]
    begun = [Part("waited", start - waited, start)] if waited else []
    return ChangeBar(name, [*begun, Part("carried out", start, scaling["at"])])


def _migration(migration: Mapping[str, Any]) -> ChangeBar:
    name = f"moved slots of {migration['operator']} ({migration['strategy']})"
    times = {
        "waited": migration.get("opened"),
        "moved": migration.get("begun"),
        "settled": migration.get("moved"),
        "": migration.get("ended"),
    }
    known = [(phase, at) for phase, at in times.items() if at is not None]
    return ChangeBar(name, [Part(phase, at, then) for (phase, at), (_, then) in pairwise(known)])


def phases_svg(changes: Sequence[ChangeBar], seconds: float) -> str:
    """Returns the bars below an axis of the run's time."""
    scale = axis([seconds], _LEFT, _WIDTH - _RIGHT)
    height = _TOP + _ROW * len(changes) + 4
    return "\n".join(
        [
            f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="Phases">',
            *(
                f'<line class="grid" x1="{scale.at(tick):.1f}" x2="{scale.at(tick):.1f}" y1="{_TOP - 4}" '
                f'y2="{height}"/><text x="{scale.at(tick):.1f}" y="{_TOP - 8}" text-anchor="middle">{tick:g} s</text>'
                for tick in scale.ticks()
            ),
            *(shape for row, change in enumerate(changes) for shape in _row(change, _TOP + _ROW * row, scale.at)),
            "</svg>",
        ]
    )


def _row(change: ChangeBar, top: float, place: Any) -> Iterable[str]:
    label = figures.cut(change.name, _FITS)
    yield f'<text x="{_LEFT - 8}" y="{top + _BAR:.1f}" text-anchor="end">{escape(label)}</text>'
    right = 0.0
    for number, part in enumerate(change.parts):
        left = place(part.start)
        right = max(place(part.end), left + _NARROWEST)
        title = escape(f"{change.name}: {part.name} {figures.time(part.end - part.start)}")
        yield (
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{_BAR}" '
            f'fill="{COLOURS[number % len(COLOURS)]}"><title>{title}</title></rect>'
        )
    yield f'<text x="{right + 5:.1f}" y="{top + _BAR:.1f}">{escape(figures.time(change.seconds))}</text>'
