"""Formats the numbers that led to a decision for its explanation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def percent(part: float) -> str:
    """A part of a whole.

    >>> percent(0.834)
    '83 %'
    """
    return f"{part * 100:.0f} %"


def percents(parts: Iterable[float]) -> str:
    """Several of them.

    >>> percents([0.83, 0.79])
    '83 % and 79 %'
    """
    return listed([percent(part) for part in parts])


def listed(words: Sequence[object]) -> str:
    """One or more things in a row.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    *first, last = map(str, words)
    return f"{', '.join(first)} and {last}" if first else last


def in_reports(count: int) -> str:
    """Of how many reports something is said.

    >>> in_reports(1), in_reports(3)
    ('in the last report', 'in the last 3 reports')
    """
    return "in the last report" if count == 1 else f"in the last {count} reports"
