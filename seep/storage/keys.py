"""The syntax of keys: every back end can keep them, and none leads out of the back end's own place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

from primitives.errors import InternalError, UserError

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=+-]*")
_LONGEST_PART = 200  #: so that a file system can add a suffix within its limit of 255 bytes
_LONGEST = 900  #: so that a prefix can be added within the 1,024 bytes of S3
#: A field of a form: its name, the minimum of digits of a number, and the word that stands for no number.
_FIELD = re.compile(r"\{(?P<name>\w+)(?::(?P<digits>\d+))?(?:\|(?P<none>\w+))?\}")


class _Field(NamedTuple):
    """A variable part of a key: text without slashes, or a number."""

    name: str
    digits: int | None
    none: str | None

    @property
    def pattern(self) -> str:
        text = "[^/]+" if self.digits is None else rf"\d{{{self.digits},}}"
        return f"(?P<{self.name}>{text}{'' if self.none is None else f'|{self.none}'})"

    def write(self, value: Any) -> str:
        if value is None and self.none is not None:
            return self.none
        return str(value) if self.digits is None else f"{value:0{self.digits}d}"

    def read(self, text: str) -> Any:
        if text == self.none:
            return None
        return text if self.digits is None else int(text)


class KeyForm:
    """The form of one kind of key; converts values to keys and back.

    >>> form = KeyForm("{query}/runs/{generation:6}")
    >>> form.write({"query": "orders", "generation": 3}), form.read("orders/runs/000003"), form.read("orders/runs/3")
    ('orders/runs/000003', {'query': 'orders', 'generation': 3}, None)
    >>> form.prefix(query="orders")
    'orders/runs/'
    """

    def __init__(self, text: str) -> None:
        self._parts: list[str | _Field] = []
        start = 0
        for found in _FIELD.finditer(text):
            digits = None if found["digits"] is None else int(found["digits"])
            self._parts += [text[start : found.start()], _Field(found["name"], digits, found["none"])]
            start = found.end()
        self._parts.append(text[start:])

    def write(self, values: Mapping[str, Any]) -> str:
        return "".join(part if isinstance(part, str) else part.write(values[part.name]) for part in self._parts)

    def prefix(self, **values: Any) -> str:
        """Returns the common prefix of all keys with these values, up to the first value that is not given."""
        begun = ""
        for part in self._parts:
            if isinstance(part, _Field) and part.name not in values:
                break
            begun += part if isinstance(part, str) else part.write(values[part.name])
        return begun

    def read(self, key: str) -> dict[str, Any] | None:
        """Returns the values in a key, or None if the key has another form."""
        found = self._pattern.fullmatch(key)
        if found is None:
            return None
        values = {each.name: each.read(found[each.name]) for each in self._parts if isinstance(each, _Field)}
        return values if self.write(values) == key else None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("".join(re.escape(p) if isinstance(p, str) else p.pattern for p in self._parts))


def checked_key(key: str) -> str:
    """Returns the key if it is valid; raises UserError otherwise.

    >>> checked_key("orders/000000000012/counter/0-totals")
    'orders/000000000012/counter/0-totals'
    >>> checked_key("../orders")
    Traceback (most recent call last):
    primitives.errors.UserError: '../orders' cannot be a key of a store: its part '..' is no name; names are made of \
letters, digits and _ . = + -, begin with a letter, a digit or _, and have at most 200 characters
    """
    for part in key.split("/"):
        if not _PART.fullmatch(part) or len(part) > _LONGEST_PART:
            raise UserError(
                f"{key!r} cannot be a key of a store: its part {part!r} is no name; names are made of letters, digits "
                f"and _ . = + -, begin with a letter, a digit or _, and have at most {_LONGEST_PART} characters"
            )
    if len(key) > _LONGEST:
        raise UserError(f"{key!r} cannot be a key of a store: it has more than {_LONGEST} characters")
    return key


def directory_of(prefix: str) -> str | None:
    """Returns the directory that contains all keys with this prefix, or None if no key can have it.

    >>> directory_of("orders/0000"), directory_of("orders"), directory_of("/etc/")
    ('orders', '', None)
    """
    *directories, _ = prefix.split("/")
    return "/".join(directories) if all(map(_PART.fullmatch, directories)) else None


def checked_range(start: int, length: int | None) -> None:
    """Checks a range before back ends interpret an invalid one in different ways."""
    if start < 0 or (length is not None and length < 0):
        raise InternalError(f"a range of a value begins at {start} and has {length} bytes; neither may be negative")
