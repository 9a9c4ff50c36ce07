"""Settings as models: checks YAML field by field, and names the path of what is wrong; loads classes by import path."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, WithJsonSchema

from formats.durations import optional_seconds, seconds
from primitives.errors import UserError

#: Marks durations in a schema, to distinguish them from other numbers.
LENGTH_OF_TIME = "length-of-time"
#: A duration: a number of seconds, or text such as 50ms.
Seconds = Annotated[
    float, BeforeValidator(seconds), WithJsonSchema({"type": ["number", "string"], "format": LENGTH_OF_TIME})
]
#: A duration, or none.
OptionalSeconds = Annotated[
    float | None,
    BeforeValidator(optional_seconds),
    WithJsonSchema({"type": ["number", "string", "null"], "format": LENGTH_OF_TIME}),
]


class Section(BaseModel):
    """The base of all settings: refuses unknown fields, and is immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class WrongSettings(UserError):
    """Settings are not valid; lists all problems."""

    def __init__(self, name: str, problems: Sequence[str]) -> None:
        super().__init__(f"{name}: {'; '.join(problems)}")
        self.problems = tuple(problems)  #: each begins with the path of its field


S = TypeVar("S", bound=Section)


def checked(model: type[S], content: Any, name: str) -> S:
    """Converts `content` to a `model`.

    Raises WrongSettings that begins with `name` and has the path of each wrong field.
    """
    try:
        return model.model_validate({} if content is None else content)
    except ValidationError as reason:
        raise WrongSettings(name, [_in_words(model, error) for error in reason.errors()]) from reason


def _in_words(model: type[Section], error: Any) -> str:
    path, value, message = error["loc"], error["input"], error["msg"].removeprefix("Value error, ")
    where = ".".join(map(str, path)) or "the whole"
    match error["type"]:
        case "extra_forbidden":
            return f"{where} is unknown; known are {', '.join(_section(model, path[:-1]).model_fields)}"
        case "missing":
            return f"{where} is missing"
        case "model_type" | "dict_type":
            return f"{where} is {value!r}, and not a mapping"
        case "value_error" if isinstance(value, Mapping):  # each field by itself is valid
            return f"{where}: {message}"
    return f"{where} is {value!r}: {message}"


def _section(model: type[Section], path: tuple[Any, ...]) -> type[Section]:
    """Returns the model of the section at a path, or of the innermost known section around it."""
    for part in path:
        field = model.model_fields.get(part)
        inner = _models_in(field.annotation) if field else []
        model = inner[0] if inner else model
    return model


def _models_in(annotation: Any) -> list[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models_in(argument)]


def imported(path: str, setting: str) -> Any:
    """Imports `module:name`, also from the working directory.

    Raises UserError that begins with `setting` if it is missing.

    >>> imported("collections:Counter", "scaling.policy")("seep")["e"]
    2
    """
    module, _, name = path.partition(":")
    if "" not in sys.path:
        sys.path.append("")
    try:
        found = importlib.import_module(module)
    except Exception as reason:  # any exception of the user's module
        raise UserError(
            f"{setting} is {path!r}: module {module!r} cannot be imported: {type(reason).__name__}: {reason}"
        ) from reason
    if not hasattr(found, name):
        raise UserError(f"{setting} is {path!r}: there is no {name!r} in {module}")
    return getattr(found, name)
