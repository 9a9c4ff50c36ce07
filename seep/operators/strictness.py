"""Strict checks of a user's operator in tests: for mistakes that show only when slots move."""

from __future__ import annotations

from collections.abc import Iterable

from primitives.hashing import hash_keys
from primitives.slots import SlotSet
from primitives.state.owned_keys import OwnedKeys, signatures
from primitives.state.processing import Containers
from seep.operators.attributes import Attributes
from seep.operators.context import Inputs
from seep.operators.definition import OperatorSetting
from seep.operators.keyed import key_columns


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
