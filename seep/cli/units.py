"""Units: lengths of time and rates as people write them on a command line."""

from __future__ import annotations

import math
import re

from primitives.errors import UserError
from seep.query.times import micros

_ROWS = re.compile(r"(\d[\d_,]*(?:\.\d+)?)\s*([kM]?)")
_THOUSANDS = {"": 1, "k": 1_000, "M": 1_000_000}


def seconds(text: object) -> float:
    """A length of time; a plain number is seconds.

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
    """A length of time, or None for `none`."""
    return None if text is None or text == "none" else seconds(text)


def rows_per_second(text: str) -> float | None:
    """A rate; None for `max`, without a limit.

    >>> rows_per_second("20k"), rows_per_second("1_500"), rows_per_second("2.5M"), rows_per_second("max")
    (20000.0, 1500.0, 2500000.0, None)
    """
    if text == "max":
        return None
    read = _ROWS.fullmatch(text.strip())
    rate = float(re.sub("[_,]", "", read[1])) * _THOUSANDS[read[2]] if read else 0.0
    if rate <= 0:
        raise ValueError(f"{text!r} is no rate; write rows per second, such as 500, 20k or 1.5M, or max for no limit")
    return rate


def _number(text: object) -> float | None:
    if isinstance(text, bool):
        return None
    try:
        return float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
