"""Formats numbers for people."""

from __future__ import annotations

from collections.abc import Mapping

#: For each unit: the time up to which it is used, the unit in seconds, its name.
_TIMES = ((1e-3, 1e-6, "µs"), (1.0, 1e-3, "ms"), (float("inf"), 1.0, "s"))
#: For each unit of plain numbers: the number up to which it is used, the unit, its name.
_THOUSANDS = ((999.5, 1.0, ""), (999.5e3, 1e3, "k"), (float("inf"), 1e6, "M"))
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")


def time(seconds: float) -> str:
    """Formats a time with three digits and a unit.

    >>> time(0.00123), time(0.0456), time(0.41), time(12.34), time(0.0)
    ('1.23 ms', '45.6 ms', '410 ms', '12.3 s', '0 s')
    """
    if not seconds:
        return "0 s"
    unit, name = next((unit, name) for limit, unit, name in _TIMES if seconds < limit)
    number = seconds / unit
    digits = 2 if number < 10 else 1 if number < 100 else 0
    return f"{number:,.{digits}f} {name}"


def size(nbytes: int) -> str:
    """Formats bytes in the largest unit of which there is at least one.

    >>> size(512), size(3 << 20)
    ('512 B', '3.0 MiB')
    """
    number, step = float(nbytes), 0
    while number >= 1024 and step < len(_SIZES) - 1:
        number, step = number / 1024, step + 1
    return f"{number:.1f} {_SIZES[step]}" if step else f"{nbytes} B"


def short(number: float) -> str:
    """Formats a number in three digits, for where there is little room.

    >>> short(2_500_000), short(40_000), short(12_345), short(950.4), short(7), short(0.25), short(999.6)
    ('2.5M', '40k', '12.3k', '950', '7', '0.25', '1k')
    """
    unit, name = next((unit, name) for limit, unit, name in _THOUSANDS if number < limit)
    return f"{number / unit:.3g}{name}"


def latency(percentiles: Mapping[str, float]) -> str:
    """Formats percentiles in a line.

    >>> latency({"p50": 0.031, "max": 0.2}), latency({})
    ('p50 31.0 ms, max 200 ms', 'not known yet')
    """
    return ", ".join(f"{name} {time(seconds)}" for name, seconds in percentiles.items()) or "not known yet"


def of(count: int, thing: str) -> str:
    """Formats a number of things.

    >>> of(1, "node"), of(1200, "row"), of(2, "recovery")
    ('1 node', '1,200 rows', '2 recoveries')
    """
    plural = thing[:-1] + "ies" if thing.endswith("y") else thing + "s"
    return f"{count:,} {thing if count == 1 else plural}"


def cut(text: str, most: int) -> str:
    """Shortens a text to so many characters.

    >>> cut("counter", 7), cut("counter[0]", 7)
    ('counter', 'counte…')
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"
