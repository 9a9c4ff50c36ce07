"""Draws docs/architecture.svg, the picture of the README: python -m tools.architecture_svg."""

from __future__ import annotations

from html import escape
from pathlib import Path

PICTURE = Path(__file__).parent.parent / "docs" / "architecture.svg"

_WIDTH, _HEIGHT = 960, 500
#: The picture has a ground of its own, so it is legible on any page, and follows the reader's choice of light or dark.
_STYLE = """
text { font: 14px system-ui, sans-serif; fill: #1f2430; }
.title { font-weight: 600; } .small { font-size: 12px; fill: #4b5263; }
.ground { fill: #ffffff; stroke: #c9ced8; } .outside { fill: #f3f4f6; stroke: #7d8493; }
.spark { fill: #fdf3e7; stroke: #d9822b; } .driver { fill: #e8f0fd; stroke: #3465c0; }
.node { fill: #e9f6ee; stroke: #2d8a57; } .state { fill: #cfead9; stroke: #2d8a57; }
.arrow { stroke: #4b5263; fill: none; stroke-width: 1.6; } .control { stroke-dasharray: 5 4; } .head { fill: #4b5263; }
@media (prefers-color-scheme: dark) {
text { fill: #e6e9ef; } .small { fill: #b4bac6; }
.ground { fill: #171a21; stroke: #3a404c; } .outside { fill: #22262f; stroke: #8b93a3; }
.spark { fill: #2b2119; stroke: #d9822b; } .driver { fill: #18243c; stroke: #6f9cf0; }
.node { fill: #14281d; stroke: #4fb37e; } .state { fill: #1f4530; stroke: #4fb37e; }
.arrow { stroke: #b4bac6; } .head { fill: #b4bac6; }
}
"""
_HEAD = (
    '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path class="head" d="M0 0 L8 4 L0 8 z"/></marker>'
)


def picture() -> str:
    """The picture as SVG."""
    parts = [
        _box(1, 1, _WIDTH - 2, _HEIGHT - 2, "ground"),
        _box(190, 20, 580, 395, "spark"),
        _text(204, 43, "Spark: local session or Standalone cluster", "title"),
        *_driver(),
        *(part for number in range(3) for part in _node(number)),
        *_outside(),
        *_arrows(),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        'aria-label="Architecture of seep: nodes hosted by Spark, the driver, storage">'
        f"<style>{_STYLE}</style><defs>{_HEAD}</defs>" + "\n".join(parts) + "</svg>\n"
    )


def _driver() -> list[str]:
    return [
        _box(210, 58, 540, 92, "driver"),
        _text(224, 80, "Driver: your program, with your Spark session", "title"),
        _text(224, 102, "manager: opens epochs, starts plans, knows who is alive; no row passes through it", "small"),
        _text(224, 120, "steward: asks the policies, and decides on scaling, balancing, migration, drains", "small"),
        _text(224, 138, "record: events, status, report", "small"),
    ]


def _node(number: int) -> list[str]:
    left = 210 + 186 * number
    hosted = ("source", "counter[0], sink[0]", "counter[1], sink[1]")[number]
    return [
        _box(left, 200, 168, 196, "node"),
        _text(left + 12, 222, f"Node {number + 1}", "title"),
        _text(left + 12, 240, "one Spark task", "small"),
        _box(left + 12, 252, 144, 84, "outside"),
        _text(left + 22, 272, hosted, "small"),
        *_slots(left + 22, 282, number),
        _text(left + 22, 328, "outbox: rows sent" if number == 0 else "state, in slots", "small"),
        _box(left + 12, 346, 144, 38, "outside"),
        _text(left + 22, 370, "backups of others", "small"),
    ]


def _slots(left: int, top: int, number: int) -> list[str]:
    """The slots of an instance: small squares, of which each instance has some."""
    return (
        [_box(left + 15 * at, top, 12, 30, "state", 2) for at in range(8)]
        if number
        else [_box(left + 31 * at, top, 27, 30, "state", 2) for at in range(4)]
    )


def _outside() -> list[str]:
    return [
        *_listed(16, "Input", "DataFrames", "files", "generators", "your own"),
        *_listed(804, "Output", "DataFrames", "files", "functions", "exactly once"),
        _box(190, 435, 580, 46, "outside"),
        _text(204, 463, "Storage", "title"),
        _text(276, 463, "a directory or S3: checkpoints and savepoints of the whole query", "small"),
    ]


def _listed(left: int, title: str, *lines: str) -> list[str]:
    below = (_text(left + 12, 260 + 18 * at, line, "small") for at, line in enumerate(lines))
    return [_box(left, 214, 140, 120, "outside"), _text(left + 12, 238, title, "title"), *below]


def _arrows() -> list[str]:
    return [
        _arrow("M156 280 H208"),
        _arrow("M378 292 H394"),
        _arrow("M340 396 V406 H636 V398"),
        _arrow("M750 292 H802"),
        *(_arrow(f"M{294 + 186 * number} 150 V198", "arrow control") for number in range(3)),
        _text(306, 180, "epochs and views", "small"),
        _arrow("M480 415 V433"),
    ]


def _box(left: int, top: int, width: int, height: int, kind: str, radius: int = 8) -> str:
    return f'<rect class="{kind}" x="{left}" y="{top}" width="{width}" height="{height}" rx="{radius}"/>'


def _text(left: int, base: int, words: str, kind: str) -> str:
    return f'<text class="{kind}" x="{left}" y="{base}">{escape(words)}</text>'


def _arrow(path: str, kind: str = "arrow") -> str:
    return f'<path class="{kind}" d="{path}" marker-end="url(#head)"/>'


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
