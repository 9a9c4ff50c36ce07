"""Strict checks of a user's operator in tests: for mistakes that show only when slots move."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from primitives.errors import UserError
from primitives.hashing import hash_keys
from primitives.slots import SlotSet
from primitives.state.owned_keys import OwnedKeys, signatures
from primitives.state.processing import Containers
from seep.operators.context import Inputs
from seep.operators.definition import OperatorSetting
from seep.operators.keyed import key_columns

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
#: Attributes that the project itself sets on a user's operator.
_OURS = ("_running",)


class _ByIdentity:
    """Compares an object by identity. It holds a reference, so that no other object can get the same id."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and self._value is other._value

    __hash__ = None  # type: ignore[assignment]


class Attributes:
    """The attributes of some objects at one moment, to be compared with later ones; those in `caches` are left out.

    Numbers, text, lists, dicts, sets and arrays are compared by content; other objects by identity.
    """

    def __init__(self, objects: Iterable[object]) -> None:
        self._objects = list(objects)
        self._initial = self._snapshot()

    def _snapshot(self) -> list[dict[str, Any]]:
        return [
            {name: _content(value, ()) for name, value in vars(each).items() if name not in _left_out(each)}
            for each in self._objects
        ]

    def check(self, operator: str) -> None:
        """Raises a UserError that names the first attribute that has changed."""
        for each, before, now in zip(self._objects, self._initial, self._snapshot(), strict=True):
            changed = [name for name in {**before, **now} if before.get(name, _ABSENT) != now.get(name, _ABSENT)]
            if changed:
                raise UserError(
                    f"operator '{operator}': attribute '{changed[0]}' of {type(each).__name__} has changed while rows "
                    "were processed. Attributes are not state: they do not move with keys, and are gone after a "
                    "failure. Keep it in a container that open() asks its context for; or, if it is only a cache that "
                    f"no output depends on, say so in the class: caches = ('{changed[0]}',)"
                )


_ABSENT = _ByIdentity(object())


def _left_out(each: object) -> tuple[str, ...]:
    return (*_OURS, *getattr(type(each), "caches", ()))


def _content(value: Any, within: tuple[int, ...]) -> Any:
    """Returns a copy of the value that can be compared later, also after the value was changed in place."""
    if type(value) in _PLAIN:
        return type(value), repr(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return value.dtype.str, value.shape, value.tobytes()
    if id(value) in within:
        return _ByIdentity(value)
    inner = (*within, id(value))
    if isinstance(value, dict):
        return type(value), [(_content(key, inner), _content(each, inner)) for key, each in value.items()]
    if isinstance(value, list | tuple | deque):
        return type(value), [_content(each, inner) for each in value]
    if isinstance(value, set | frozenset):
        return type(value), sorted(map(repr, value))
    return bytes(value) if isinstance(value, bytearray) else _ByIdentity(value)


class Strictness:
    """Remembers every key of the rows of one instance, and the attributes before the first row."""

    def __init__(self, setting: OperatorSetting, state: Containers, watched: Iterable[object]) -> None:
        self._setting = setting
        self._state = state
        self._restored = state.restored
        self._attributes = Attributes(watched)
        self._known: set[int] = set()

    def owned_keys(self, slots: SlotSet, inputs: Inputs) -> OwnedKeys:
        """Returns the keys of all rows so far, including those of earlier owners of the slots."""
        if self._state.restored != self._restored:
            self._restored = self._state.restored
            for chunk in self._state.snapshot(slots):
                self._known.update(signatures(hash_keys([chunk.rows.column(key) for key in chunk.keys])))
        for given, batch in zip(self._setting.inputs, inputs, strict=True):
            self._known.update(signatures(hash_keys(key_columns(given, batch))))
        return OwnedKeys(self._setting.operator, slots, self._setting.slot_bits, self._known)

    def check_attributes(self) -> None:
        """Raises UserError if an attribute has changed."""
        self._attributes.check(self._setting.operator)
