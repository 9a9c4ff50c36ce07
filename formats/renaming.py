"""Finds state that was stored under an old name, which the operator or container declares as an alias."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from primitives.errors import UserError

Stored = TypeVar("Stored")


def renamed(what: str, stored: Mapping[str, Stored], aliases: Mapping[str, Sequence[str]]) -> dict[str, Stored]:
    """Returns everything stored under its present name. Raises UserError if a name matches several stored ones.

    >>> renamed("operator", {"counter": 7, "parse": 8}, {"visits": ["counts", "counter"]})
    {'parse': 8, 'visits': 7}
    """
    found = dict(stored)
    for name, others in aliases.items():
        mine = [each for each in dict.fromkeys((name, *others)) if each in stored]
        if len(mine) > 1:
            raise UserError(
                f"{what} '{name}' could be any of the stored {', '.join(mine)}, by its aliases; leave out "
                "those that it is not"
            )
        for each in mine:
            found[name] = found.pop(each)
    return found


def check_aliases(what: str, aliases: Mapping[str, Sequence[str]], names: Sequence[str]) -> None:
    """Raises UserError if an alias is a name in use, or is declared twice."""
    owners: dict[str, str] = {}
    for name, others in aliases.items():
        for alias in others:
            if alias in names:
                raise UserError(
                    f"{what} '{name}' has the alias '{alias}', and '{alias}' is still in use; an alias is what "
                    "something was called before, so leave it out"
                )
            if owners.setdefault(alias, name) != name:
                raise UserError(
                    f"{what} '{owners[alias]}' and '{name}' both have the alias '{alias}'; leave it out of one"
                )
