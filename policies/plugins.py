"""Loads a built-in or user plug-in named in the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from formats.settings import Section, WrongSettings, checked, imported
from primitives.errors import UserError

Made = TypeVar("Made")


class BuiltIn(NamedTuple):
    """A built-in plug-in: the model of its own settings, if any, and its factory, which takes them and the section."""

    settings: type[Section] | None
    make: Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class PluginRegistry(Generic[Made]):
    """The plug-ins that `section.field` may name; each has a method `decide`, which takes `argument`."""

    section: str
    field: str
    argument: str
    built_in: Mapping[str, BuiltIn]

    def made(self, name: str, settings: Mapping[str, Any], given: Section) -> Made:
        """Makes the plug-in of that name with checked settings; raises UserError with the path of a wrong field."""
        made: Made
        if name in self.built_in:
            made = self.built_in[name].make(self._own(name, settings), given)
        elif ":" in name:
            made = self._of_user(name, settings)
        else:
            names = ", ".join(self.built_in)
            raise UserError(f"{self._setting} is {name!r}; choose {names}, or a class of your own as module:Class")
        return made

    @property
    def _setting(self) -> str:
        return f"{self.section}.{self.field}"

    def _own(self, name: str, settings: Mapping[str, Any]) -> Section | None:
        model, label = self.built_in[name].settings, f"{self.field} {name}"
        problems = tuple(f"{each} is unknown; {name} takes none" for each in settings)
        if model is not None:
            try:
                return checked(model, settings, label)
            except WrongSettings as wrong:
                problems = wrong.problems
        if problems:
            raise WrongSettings(label, [f"{self.section}.settings.{problem}" for problem in problems])
        return None

    def _of_user(self, path: str, settings: Mapping[str, Any]) -> Any:
        found = imported(path, self._setting)
        if not isinstance(found, type):
            raise UserError(f"{self._setting} is {path!r}: that is no class")
        if not callable(getattr(found, "decide", None)):
            raise UserError(f"{self._setting} is {path!r}: it has no method decide(self, {self.argument})")
        try:
            return found(**settings)
        except Exception as reason:
            problem = f"{path} cannot be made with {dict(settings)}: {type(reason).__name__}: {reason}"
            raise UserError(f"{self.section}.settings: {problem}") from reason
