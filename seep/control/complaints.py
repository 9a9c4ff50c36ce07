"""Complaints: what fails again and again is told once, by where it comes from."""

from __future__ import annotations

import traceback


def place_of(reason: BaseException) -> tuple[str, str, int]:
    """The kind of error and the line of code that it comes from first: the same again, whatever numbers its text has.

    >>> def failing(number: int) -> None:
    ...     raise ValueError(f"number {number}")
    >>> def place(number: int) -> tuple[str, str, int]:
    ...     try:
    ...         failing(number)
    ...     except ValueError as reason:
    ...         return place_of(reason)
    >>> place(1) == place(2)
    True
    """
    while reason.__cause__ is not None:
        reason = reason.__cause__
    frames = traceback.extract_tb(reason.__traceback__)
    file, line = (frames[-1].filename, frames[-1].lineno or 0) if frames else ("", 0)
    return type(reason).__name__, file, line
