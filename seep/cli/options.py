"""Options of several commands, and the way a command takes a group of options as one object."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Traces of errors.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


#: Options whose value may be left out, and the value that stands for that.
_SHORT = {"--metrics": "0", "--dashboard": "0"}


def with_values(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments of a command with the value of each option that may be given without one.

    >>> with_values(["run", "words.py:query", "--metrics", "--balance"])
    ['run', 'words.py:query', '--metrics', '0', '--balance']
    >>> with_values(["run", "--metrics", "9400", "words.py:query"])
    ['run', '--metrics', '9400', 'words.py:query']
    """
    found = []
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        found.append(argument)
        if argument in _SHORT and not following.lstrip("-").isdecimal():
            found.append(_SHORT[argument])
    return found


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Returns the command with an option for each field of a parameter that is a dataclass."""
    parameters = inspect.signature(command, eval_str=True).parameters.values()
    groups: dict[str, Any] = {each.name: each.annotation for each in parameters if is_dataclass(each.annotation)}

    @wraps(command)
    def with_options(**given: Any) -> None:
        made = {
            name: group(**{each.name: given.pop(each.name) for each in fields(group)}) for name, group in groups.items()
        }
        command(**given, **made)

    taken = [option for each in parameters for option in _options(each)]
    with_options.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
    with_options.__annotations__ = {}
    return with_options


def _options(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """Returns the options for a parameter."""
    group = parameter.annotation
    if not is_dataclass(group):
        yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        return
    hints = get_type_hints(group, include_extras=True)
    for each in fields(group):
        kind, default = inspect.Parameter.KEYWORD_ONLY, _default(each)
        yield inspect.Parameter(each.name, kind, default=default, annotation=hints[each.name])


def _default(option: Field[Any]) -> Any:
    if option.default_factory is not MISSING:
        return option.default_factory()
    return inspect.Parameter.empty if option.default is MISSING else option.default
