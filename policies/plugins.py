"""Loads a built-in or user plug-in named in the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from formats.settings import Section, WrongSettings, checked, imported
from primitives.errors import UserError

S = TypeVar("S", bound=Section)


def own_settings(model: type[S], settings: Mapping[str, Any], where: str, name: str) -> S:
    """Checks the settings of a built-in plug-in.

    Raises WrongSettings that begins with `name` and has the path of each wrong field.
    """
    try:
        return checked(model, settings, name)
    except WrongSettings as wrong:
        raise WrongSettings(name, [f"{where}.{problem}" for problem in wrong.problems]) from wrong


def made_by_path(path: str, settings: Mapping[str, Any], section: str, field: str, argument: str) -> Any:
    """Makes an instance of the class that `section.field` names, with `section.settings` as keywords.

    Raises UserError if there is no such class, if it has no method `decide` (which takes `argument`), or if its
    constructor fails.
    """
    found = imported(path, f"{section}.{field}")
    if not isinstance(found, type):
        raise UserError(f"{section}.{field} is {path!r}: that is no class")
    if not callable(getattr(found, "decide", None)):
        raise UserError(f"{section}.{field} is {path!r}: it has no method decide(self, {argument})")
    try:
        return found(**settings)
    except Exception as reason:
        raise UserError(
            f"{section}.settings: {path} cannot be made with {dict(settings)}: {type(reason).__name__}: {reason}"
        ) from reason
