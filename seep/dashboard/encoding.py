"""Answers as JSON, whatever texts of users are in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from primitives.errors import encodable


def json_bytes(value: Any) -> bytes:
    r"""Returns a value as JSON in UTF-8; numbers that JSON cannot have are null.

    A lone surrogate, which UTF-8 cannot have, is replaced by an escape: the text of an error may have some.

    >>> json_bytes({"of": float("nan"), "to": "\ud800é"}).decode()
    '{"of":null,"to":"\\\\ud800é"}'
    """
    try:
        return to_json(value, inf_nan_mode="null")
    except PydanticSerializationError:
        return to_json(_escaped(value), inf_nan_mode="null")


def _escaped(value: Any) -> Any:
    match value:
        case str():
            return encodable(value)
        case Mapping():
            return {_escaped(name): _escaped(each) for name, each in value.items()}
        case list() | tuple():
            return [_escaped(each) for each in value]
    return value
