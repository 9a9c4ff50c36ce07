"""Formats the numbers behind a decision for its explanation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def percent(part: float) -> str:
    """Formats a fraction.

    >>> percent(0.834)
    '83 %'
    """
    return f"{part * 100:.0f} %"


def percents(parts: Iterable[float]) -> str:
    """Formats several fractions.

    >>> percents([0.83, 0.79])
    '83 % and 79 %'
    """
    return listed([percent(part) for part in parts])


def listed(words: Sequence[object]) -> str:
    """Joins one or more words with commas and `and`.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    *first, last = map(str, words)
    return f"{', '.join(first)} and {last}" if first else last


def in_reports(count: int) -> str:
    """Says how many reports a statement is about.

    >>> in_reports(1), in_reports(3)
    ('in the last report', 'in the last 3 reports')
    """
    return "in the last report" if count == 1 else f"in the last {count} reports"
