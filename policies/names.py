"""Checks that operators named in settings exist in the query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from primitives.errors import UserError


def check_names(setting: str, named: Iterable[str], there: Sequence[str], what: str = "the query's operators") -> None:
    """Raises UserError, with the setting and the valid names, for names that are not in `there`.

    >>> check_names("scaling.operators", ["countr"], ["words", "counter"])
    Traceback (most recent call last):
    ...
    primitives.errors.UserError: scaling.operators names countr; the query's operators are words, counter
    """
    if unknown := [name for name in dict.fromkeys(named) if name not in there]:
        raise UserError(f"{setting} names {', '.join(unknown)}; {what} are {', '.join(there) or 'none'}")
