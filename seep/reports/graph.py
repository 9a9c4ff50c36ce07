"""Draws a query as a graph: a box for each operator, in layers from the sources to the sinks, as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import count, pairwise

from primitives.graph import Kind
from seep.reports import figures

#: The most operators that are drawn; nobody can read more.
MOST = 200

_WIDTH, _LINE, _PAD = 176, 16, 10
_GAP_X, _GAP_Y = 84, 22
_MARGIN = 14
#: Characters that fit into a box, and onto an arrow.
_FITS, _FITS_ARROW = 24, 12
#: How often layers are put in order, once forwards and once backwards each time.
_SWEEPS = 4

_STYLE = """
.seep-graph text { font: 12px system-ui, sans-serif; fill: #1f2430; }
.seep-graph .name { font-weight: 600; font-size: 13px; } .seep-graph .small { font-size: 11px; fill: #4b5263; }
.seep-graph .onto { paint-order: stroke; stroke: #ffffff; stroke-width: 4px; }
.seep-graph .ground { fill: #ffffff; } .seep-graph rect.box { stroke-width: 1.3; }
.seep-graph .source { fill: #fdf3e7; stroke: #b8691a; } .seep-graph .stateless { fill: #f3f4f6; stroke: #6a7180; }
.seep-graph .stateful { fill: #e8f0fd; stroke: #3465c0; } .seep-graph .sink { fill: #e9f6ee; stroke: #2d8a57; }
.seep-graph .edge { stroke: #6a7180; fill: none; stroke-width: 1.4; } .seep-graph .head { fill: #6a7180; }
.seep-graph .used { fill: #3465c0; } .seep-graph .full { fill: #c0392b; } .seep-graph .free { fill: #d5d9e0; }
@media (prefers-color-scheme: dark) {
.seep-graph text { fill: #e6e9ef; } .seep-graph .small { fill: #b4bac6; } .seep-graph .ground { fill: #171a21; }
.seep-graph .source { fill: #2b2119; } .seep-graph .stateless { fill: #22262f; }
.seep-graph .stateful { fill: #18243c; } .seep-graph .sink { fill: #14281d; }
.seep-graph .edge { stroke: #b4bac6; } .seep-graph .head { fill: #b4bac6; }
.seep-graph .free { fill: #3a404c; } .seep-graph .onto { stroke: #171a21; }
}
"""


@dataclass(frozen=True, slots=True)
class Notes:
    """The text of one operator's box beside its name; `used` is the part of its CPU share, drawn as a bar."""

    lines: Sequence[str] = ()
    used: float | None = None
    is_full: bool = False  #: whether the bar warns


def graph_svg(
    kinds: Mapping[str, Kind],
    edges: Iterable[tuple[str, str]],
    notes: Mapping[str, Notes] | None = None,
    arrows: Mapping[tuple[str, str], str] | None = None,
) -> str:
    """Returns a graph as SVG, which is legible on light and dark pages.

    `kinds` has the operators in flow order. `notes` has text by operator, `arrows` has text by edge. Of more than
    `MOST` operators the first are drawn, and the picture says so.

    >>> kinds = {"in": Kind.SOURCE, "out": Kind.SINK}
    >>> svg = graph_svg(kinds, [("in", "out")], {"in": Notes(["2 instances"], used=0.5)}, {("in", "out"): "10 rows/s"})
    >>> svg.startswith("<svg"), "2 instances" in svg, "10 rows/s" in svg
    (True, True, True)
    """
    shown = list(kinds)[:MOST]
    upstream: dict[str, list[str]] = {name: [] for name in shown}
    for start, end in edges:
        if start in upstream and end in upstream and start not in upstream[end]:
            upstream[end].append(start)
    drawing = _Drawing(kinds, upstream, notes or {}, arrows or {})
    title = f"query graph: {', '.join(shown[:20])}{' …' if len(shown) > 20 else ''}"
    parts = [*drawing.arrows(), *drawing.boxes()]
    if len(kinds) > MOST:
        text = f"{len(kinds) - MOST} more operators are not drawn"
        parts.append(_text(_MARGIN, drawing.height - 4, text, "small"))
    return (
        f'<svg class="seep-graph" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {drawing.width} {drawing.height}" '
        f'width="{drawing.width}" style="max-width: 100%" role="img" aria-label="{escape(title)}">'
        f"<style>{_STYLE}</style>"
        f'<rect class="ground" width="{drawing.width}" height="{drawing.height}" rx="6"/>' + "".join(parts) + "</svg>"
    )


# --- layers -----------------------------------------------------------------------------------------------------------


def layers(upstream: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Returns the operators in layers: each stands right of all that feed it. Operators come in flow order.

    >>> layers({"a": (), "b": (), "join": ("a", "b"), "out": ("join", "a")})
    [['a', 'b'], ['join'], ['out']]
    """
    depth: dict[str, int] = {}
    for name, before in upstream.items():
        depth[name] = max((depth[each] + 1 for each in before if each in depth), default=0)
    found: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for name, at in depth.items():
        found[at].append(name)
    return found


def _routed(upstream: Mapping[str, Sequence[str]]) -> tuple[list[list[str]], list[list[str]]]:
    """Returns layers with waypoints for edges that pass layers by, and the way of each edge: names from left to right.

    A waypoint has a name that no operator can have.
    """
    found = layers(upstream)
    depth = {name: at for at, layer in enumerate(found) for name in layer}
    numbers, ways = count(), []
    for name, before in upstream.items():
        for each in before:
            if each in depth:
                way = [each]
                for at in range(depth[each] + 1, depth[name]):
                    way.append(f"\0{next(numbers)}")
                    found[at].append(way[-1])
                ways.append([*way, name])
    return found, ways


def _ordered(found: list[list[str]], ways: list[list[str]]) -> list[list[str]]:
    """Puts each layer in the order of its neighbours, so that few arrows cross."""
    pairs = [pair for way in ways for pair in pairwise(way)]
    before: dict[str, list[str]] = {}
    after: dict[str, list[str]] = {}
    for left, right in pairs:
        before.setdefault(right, []).append(left)
        after.setdefault(left, []).append(right)
    for _ in range(_SWEEPS):
        for neighbours, order in ((before, found), (after, found[::-1])):
            for beside, layer in pairwise(order):
                place = {name: at for at, name in enumerate(beside)}
                own = {name: at for at, name in enumerate(layer)}
                layer.sort(key=lambda name: (_middle(neighbours.get(name, ()), place, own[name]), own[name]))
    return found


def _middle(names: Sequence[str], place: Mapping[str, int], otherwise: int) -> float:
    known = [place[name] for name in names if name in place]
    return sum(known) / len(known) if known else float(otherwise)


# --- drawing ----------------------------------------------------------------------------------------------------------


class _Drawing:
    """The places of the boxes, and the shapes."""

    def __init__(
        self,
        kinds: Mapping[str, Kind],
        upstream: Mapping[str, Sequence[str]],
        notes: Mapping[str, Notes],
        arrows: Mapping[tuple[str, str], str],
    ) -> None:
        self._kinds, self._notes, self._texts = kinds, notes, arrows
        found, self._ways = _routed(upstream)
        self._layers = _ordered(found, self._ways)
        self._heights = {name: self._height(name) for layer in self._layers for name in layer}
        columns = [sum(self._heights[n] + _GAP_Y for n in layer) - _GAP_Y for layer in self._layers]
        tallest = max(columns, default=0)
        self._at: dict[str, tuple[float, float]] = {}  #: left edge and middle of each box or waypoint
        for x, (layer, column) in enumerate(zip(self._layers, columns, strict=True)):
            y = _MARGIN + (tallest - column) / 2
            for name in layer:
                self._at[name] = (_MARGIN + x * (_WIDTH + _GAP_X), y + self._heights[name] / 2)
                y += self._heights[name] + _GAP_Y
        self.width = 2 * _MARGIN + max(len(self._layers), 1) * (_WIDTH + _GAP_X) - _GAP_X
        self.height = round(2 * _MARGIN + tallest + (_LINE if len(kinds) > len(upstream) else 0))

    def _height(self, name: str) -> int:
        if name.startswith("\0"):
            return _LINE
        notes = self._notes.get(name, Notes())
        return 2 * _PAD + _LINE * (1 + len(notes.lines)) + (8 if notes.used is not None else 0)

    def boxes(self) -> Iterator[str]:
        for name in (name for layer in self._layers for name in layer if not name.startswith("\0")):
            yield self._box(name)

    def _box(self, name: str) -> str:
        notes, kind = self._notes.get(name, Notes()), self._kinds[name]
        left, middle = self._at[name]
        height = self._heights[name]
        top = middle - height / 2
        title = escape("\n".join([f"{name} ({kind.value})", *notes.lines]))
        parts = [
            f"<title>{title}</title>",
            f'<rect class="box {kind.value}" x="{left:.0f}" y="{top:.1f}" width="{_WIDTH}" height="{height}" rx="6"/>',
            _text(left + _PAD, top + _PAD + 11, figures.cut(name, _FITS - 2), "name"),
        ]
        for number, line in enumerate(notes.lines, 1):
            parts.append(_text(left + _PAD, top + _PAD + 11 + _LINE * number, figures.cut(line, _FITS + 2), "small"))
        if notes.used is not None:
            parts += self._bar(left + _PAD, top + height - _PAD - 2, notes.used, notes.is_full)
        return f"<g>{''.join(parts)}</g>"

    @staticmethod
    def _bar(left: float, top: float, used: float, is_full: bool) -> Iterator[str]:
        whole = _WIDTH - 2 * _PAD
        part = whole * min(max(used, 0.0), 1.0)
        yield f'<rect class="free" x="{left:.0f}" y="{top:.1f}" width="{whole}" height="5" rx="2"/>'
        yield (
            f'<rect class="{"full" if is_full else "used"}" x="{left:.0f}" y="{top:.1f}" width="{part:.1f}" '
            'height="5" rx="2"/>'
        )

    def arrows(self) -> Iterator[str]:
        for way in self._ways:
            yield self._arrow(way)

    def _arrow(self, way: Sequence[str]) -> str:
        path, text = "", self._texts.get((way[0], way[-1]), "")
        for left, right in pairwise(way):
            x1, y1 = self._at[left][0] + _WIDTH, self._at[left][1]
            x2, y2 = self._at[right][0], self._at[right][1]
            bend = (x2 - x1) / 2
            path += f"{'M' if not path else 'L'}{x1:.0f} {y1:.1f}C{x1 + bend:.0f} {y1:.1f} {x2 - bend:.0f} {y2:.1f} "
            path += f"{x2:.0f} {y2:.1f}"
        x, y = self._at[way[-1]]
        head = f'<path class="head" d="M{x - 7:.0f} {y - 4:.1f}L{x:.0f} {y:.1f}L{x - 7:.0f} {y + 4:.1f}z"/>'
        shapes = f'<path class="edge" d="{path}"/>{head}'
        if text:
            x1, y1 = self._at[way[0]][0] + _WIDTH, self._at[way[0]][1]
            y2 = self._at[way[1]][1]
            middle = _text(x1 + _GAP_X / 2, (y1 + y2) / 2 - 5, figures.cut(text, _FITS_ARROW), "small onto", "middle")
            shapes += f"<title>{escape(f'{way[0]} to {way[-1]}: {text}')}</title>{middle}"
        return f"<g>{shapes}</g>"


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
