"""Parses durations in settings, on a command line and in queries, such as 50ms."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from fractions import Fraction

from primitives.errors import UserError

_MICROSECOND = timedelta(microseconds=1)
_UNITS = {
    "us": 1,
    "ms": 10**3,
    "s": 10**6,
    "sec": 10**6,
    "min": 60 * 10**6,
    "m": 60 * 10**6,
    "h": 3_600 * 10**6,
    "d": 86_400 * 10**6,
}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


def micros(duration: str | timedelta) -> int:
    """Returns the microseconds of a duration: a timedelta, or text in us, ms, s, min, h and d.

    >>> micros("30 s"), micros("1h 30min"), micros("-0.5 ms"), micros(timedelta(milliseconds=5))
    (30000000, 5400000000, -500, 5000)
    """
    if isinstance(duration, timedelta):
        return duration // _MICROSECOND
    text = duration.strip().lower()
    exact = _sum_of_parts(text.removeprefix("-"))
    if exact is None or exact.denominator != 1:
        raise UserError(
            f"{duration!r} is no length of time in whole microseconds; "
            "write a number and a unit (us, ms, s, min, h, d), such as '30 s' or '1h 30min'"
        )
    return -int(exact) if text.startswith("-") else int(exact)


def _sum_of_parts(text: str) -> Fraction | None:
    """Returns `1h 30min` in microseconds; None if the text has another form."""
    exact, at = Fraction(0), 0
    while (part := _PART.match(text, at)) and part[2] in _UNITS:
        exact, at = exact + Fraction(part[1]) * _UNITS[part[2]], part.end()
    return exact if text and at == len(text) else None


def seconds(text: object) -> float:
    """Returns the seconds of a duration; a plain number is seconds.

    >>> seconds("50ms"), seconds("1min 30s"), seconds("30"), seconds(2.5)
    (0.05, 90.0, 30.0, 2.5)
    """
    number = _number(text)
    try:
        found = number if number is not None else micros(str(text)) / 1e6
    except UserError as reason:
        raise ValueError(str(reason)) from None
    if not (math.isfinite(found) and found > 0):
        raise ValueError(f"{text!r} is no length of time to wait for; choose more than 0 s")
    return found


def optional_seconds(text: object) -> float | None:
    """Returns the seconds of a duration, or None for `none`."""
    return None if text is None or text == "none" else seconds(text)


def _number(text: object) -> float | None:
    if isinstance(text, bool):
        return None
    try:
        return float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
