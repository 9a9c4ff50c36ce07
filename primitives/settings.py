"""Settings: what people may say in YAML, as models that are checked field by field, with the path of what is wrong."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from primitives.durations import optional_seconds, seconds
from primitives.errors import UserError

#: A length of time: a number of seconds, or text such as 50ms.
Seconds = Annotated[float, BeforeValidator(seconds)]
#: The same, or none.
OptionalSeconds = Annotated[float | None, BeforeValidator(optional_seconds)]


class Section(BaseModel):
    """The base of all settings: refuses what it does not know, and never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


S = TypeVar("S", bound=Section)


def checked(model: type[S], content: Any, name: str) -> S:
    """`content` as `model`; UserError that begins with `name` and has the path of each field that is wrong."""
    try:
        return model.model_validate({} if content is None else content)
    except ValidationError as reason:
        problems = "; ".join(_in_words(model, error) for error in reason.errors())
        raise UserError(f"{name}: {problems}") from reason


def _in_words(model: type[Section], error: Any) -> str:
    path = error["loc"]
    where = ".".join(map(str, path)) or "the whole"
    if error["type"] == "extra_forbidden":
        return f"{where} is unknown; known are {', '.join(_section(model, path[:-1]).model_fields)}"
    if error["type"] == "missing":
        return f"{where} is missing"
    return f"{where} is {error['input']!r}: {error['msg'].removeprefix('Value error, ')}"


def _section(model: type[Section], path: tuple[Any, ...]) -> type[Section]:
    """The model of the section at a path; the innermost that is known, where the path goes through something else."""
    for part in path:
        field = model.model_fields.get(part)
        inner = _models_in(field.annotation) if field else []
        model = inner[0] if inner else model
    return model


def _models_in(annotation: Any) -> list[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models_in(argument)]
