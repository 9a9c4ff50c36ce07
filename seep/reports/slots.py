"""Draws who owns which slots of an operator, as a strip of SVG."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from html import escape
from itertools import pairwise
from typing import Any

from seep.reports import figures
from seep.reports.chart import COLOURS

_WIDTH, _HEIGHT = 880, 22
#: The instances that are named below a strip; of more, those with most slots.
_NAMED = 12


def slots_svg(operator: str, slots: Mapping[str, Any]) -> str:
    """Returns a strip in which each instance has a colour, wide as the slots that it owns.

    `slots` is the operator's part of a report: the number of `slots`, the `starts` of runs of slots with one owner, and
    the `owners`.
    """
    count, starts, owners = slots["slots"], slots["starts"], slots["owners"]
    runs = list(zip(pairwise([*starts, count]), owners, strict=True))
    return "\n".join(
        [
            f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(f"Slots of {operator}")}">',
            *(_run(operator, first, last, owner, _WIDTH / count) for (first, last), owner in runs),
            "</svg>",
        ]
    )


def slots_line(slots: Mapping[str, Any]) -> str:
    """Returns how many slots each instance owns, those with most first.

    >>> slots_line({"slots": 8, "starts": [0, 2, 6], "owners": [0, 1, 0]})
    '8 slots: [0] 4, [1] 4'
    """
    counts = Counter[int]()
    for (first, last), owner in zip(pairwise([*slots["starts"], slots["slots"]]), slots["owners"], strict=True):
        counts[owner] += last - first
    most = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    more = f", and {len(most) - _NAMED} more instances" if len(most) > _NAMED else ""
    named = ", ".join(f"[{owner}] {count:,}" for owner, count in most[:_NAMED])
    return f"{figures.of(slots['slots'], 'slot')}: {named}{more}"


def _run(operator: str, first: int, last: int, owner: int, width: float) -> str:
    title = escape(f"slots {first} to {last - 1}: {operator}[{owner}]")
    return (
        f'<rect x="{first * width:.2f}" width="{(last - first) * width:.2f}" height="{_HEIGHT}" '
        f'fill="{COLOURS[owner % len(COLOURS)]}" stroke="#fff" stroke-width="0.3"><title>{title}</title></rect>'
    )
