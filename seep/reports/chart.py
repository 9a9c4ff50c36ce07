"""Charts: lines over time, with marks for events, as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise

Points = Sequence[tuple[float, float]]

#: Colours that most people can distinguish.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3c8d", "#666666")
#: Dashes and gaps of successive lines: a line below another shows through the gaps.
DASHES = ("", "9 5", "3 4", "14 4 3 4", "5 9")

_WIDTH, _HEIGHT = 880, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 170, 12, 26
_LEGEND_LINE = 16
#: The number of names that fit into the legend.
_NAMES = (_HEIGHT - _TOP) // _LEGEND_LINE
#: Steps between ticks, times a power of ten.
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
#: Values up to this count as zero.
_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps values from `low` to `high` to positions from `begin` to `end`; logarithmically if `log`."""

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """Returns the position of a value; a value outside is moved to the end.

        >>> Axis(0, 10, 100, 200).at(2.5), Axis(1, 100, 0, 2, log=True).at(10), Axis(0, 10, 100, 200).at(99)
        (125.0, 1.0, 200.0)
        """
        low, high, value = (math.log(each) if self.log else each for each in (self.low, self.high, self._within(value)))
        return self.begin + (value - low) / (high - low) * (self.end - self.begin)

    def ticks(self) -> list[float]:
        """Returns round numbers on the axis, in order.

        >>> Axis(0, 70, 0, 1).ticks(), Axis(0.003, 2, 0, 1, log=True).ticks()
        ([0.0, 20.0, 40.0, 60.0], [0.01, 0.1, 1.0])
        """
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            return [10.0**power for power in range(first, last + 1)]
        step = _step((self.high - self.low) / 4)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [step * number for number in range(first, last + 1)]

    def _within(self, value: float) -> float:
        return min(max(value, self.low), self.high)


def axis(values: Iterable[float], begin: float, end: float, *, log: bool = False) -> Axis:
    """Makes an axis for all values; it begins at 0, or if `log`, at a power of ten.

    >>> axis([3, 8], 0, 100), axis([0.02, 0.5], 0, 100, log=True)
    (Axis(low=0.0, high=8.4, begin=0, end=100, log=False), Axis(low=0.01, high=1.0, begin=0, end=100, log=True))
    """
    known = [value for value in values if math.isfinite(value) and value > _TINY]
    if not log:
        return Axis(0.0, 1.05 * max(known, default=0.0) or 1.0, begin, end)
    low = math.floor(math.log10(min(known, default=1.0)))
    high = max(math.ceil(math.log10(max(known, default=1.0))), low + 1)
    return Axis(10.0**low, 10.0**high, begin, end, log=True)


def _step(least: float) -> float:
    """Returns the next round number that is not less."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in _STEPS if step * power >= least * (1 - 1e-9))


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark at the time of an event."""

    at: float
    colour: str
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of lines by name, with their points by time. With `steps`, a value holds until the next one.

    Equal lines are drawn once, with all their names.
    """

    title: str
    lines: Mapping[str, Points]
    words: Callable[[float], str]  #: formats values
    marks: Sequence[Mark] = ()
    log: bool = False
    steps: bool = False
    seconds: float = field(default=1.0)  #: the length of the time axis

    def svg(self) -> str:
        """Returns the drawing."""
        return "\n".join(
            [
                f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(self.title)}">',
                *self._time_ticks(),
                *self._value_ticks(),
                *map(self._mark, self.marks),
                *(self._line(number, names) for number, names in enumerate(self._groups)),
                *self._legend(),
                "</svg>",
            ]
        )

    @property
    def _groups(self) -> list[list[str]]:
        """Groups the names of equal lines."""
        groups: dict[tuple[tuple[float, float], ...], list[str]] = {}
        for name, points in self.lines.items():
            groups.setdefault(tuple(points), []).append(name)
        return list(groups.values())

    @property
    def _time(self) -> Axis:
        return Axis(0.0, self.seconds, _LEFT, _WIDTH - _RIGHT)

    @property
    def _values(self) -> Axis:
        values = [value for points in self.lines.values() for _, value in points]
        return axis(values, _HEIGHT - _BOTTOM, _TOP, log=self.log)

    def _time_ticks(self) -> Iterator[str]:
        for tick in self._time.ticks():
            x = self._time.at(tick)
            yield _text(x, _HEIGHT - 8, f"{tick:g} s", "middle")
            yield _segment(x, _HEIGHT - _BOTTOM, x, _HEIGHT - _BOTTOM + 4, "axis")

    def _value_ticks(self) -> Iterator[str]:
        values = self._values
        for tick in values.ticks():
            y = values.at(tick)
            yield _segment(_LEFT, y, _WIDTH - _RIGHT, y, "grid")
            yield _text(_LEFT - 6, y + 4, self.words(tick), "end")

    def _mark(self, mark: Mark) -> str:
        x = self._time.at(mark.at)
        line = _segment(x, _TOP, x, _HEIGHT - _BOTTOM, "mark", f' stroke="{mark.colour}"')
        return f"<g><title>{escape(mark.text)}</title>{line}</g>"

    def _line(self, number: int, names: Sequence[str]) -> str:
        time, values = self._time, self._values
        places = [(time.at(at), values.at(value)) for at, value in self.lines[names[0]]]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (_stepped(places) if self.steps else places))
        title = f"<title>{escape(', '.join(names))}</title>"
        return f'<polyline class="line"{_stroke(number)} points="{points}">{title}</polyline>'

    def _legend(self) -> Iterator[str]:
        """Draws the names, those of one line below each other, as far as there is room."""
        named = [(number, name) for number, names in enumerate(self._groups) for name in names]
        shown = named if len(named) <= _NAMES else named[: _NAMES - 1]
        for at, (number, name) in enumerate(shown):
            yield from self._name(at, name, number)
        if len(named) > len(shown):
            yield from self._name(len(shown), f"and {len(named) - len(shown)} more", None)

    def _name(self, at: int, name: str, number: int | None) -> Iterator[str]:
        x, y = _WIDTH - _RIGHT + 12, _TOP + 8 + at * _LEGEND_LINE
        if number is not None:
            yield _segment(x, y - 4, x + 26, y - 4, "line", _stroke(number))
        yield _text(x + 32, y, name, "start")


def _stroke(number: int) -> str:
    """Returns the colour and the dashes of a line.

    >>> _stroke(0), _stroke(1)
    (' stroke="#0072b2"', ' stroke="#d55e00" stroke-dasharray="9 5"')
    """
    dashes = DASHES[number % len(DASHES)]
    return f' stroke="{COLOURS[number % len(COLOURS)]}"' + (f' stroke-dasharray="{dashes}"' if dashes else "")


def _stepped(places: Points) -> Iterator[tuple[float, float]]:
    """Adds a corner before each new value.

    >>> list(_stepped([(0, 1), (5, 2)]))
    [(0, 1), (5, 1), (5, 2)]
    """
    yield from places[:1]
    for (_, before), (x, y) in pairwise(places):
        yield x, before
        yield x, y


def _segment(x1: float, y1: float, x2: float, y2: float, kind: str, stroke: str = "") -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"{stroke}/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
