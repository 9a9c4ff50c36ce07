"""Rates as text on the command line and in files."""

from __future__ import annotations

import re

_ROWS = re.compile(r"(\d[\d_,]*(?:\.\d+)?)\s*([kM]?)")
_THOUSANDS = {"": 1, "k": 1_000, "M": 1_000_000}


def rows_per_second(text: str) -> float | None:
    """Reads a rate; None for `max`, which means no limit.

    >>> rows_per_second("20k"), rows_per_second("1_500"), rows_per_second("2.5M"), rows_per_second("max")
    (20000.0, 1500.0, 2500000.0, None)
    """
    if text == "max":
        return None
    read = _ROWS.fullmatch(text.strip())
    rate = float(re.sub("[_,]", "", read[1])) * _THOUSANDS[read[2]] if read else 0.0
    if rate <= 0:
        raise ValueError(
            f"{text!r} is not a rate; write rows per second, such as 500, 20k or 1.5M, or max for no limit"
        )
    return rate
