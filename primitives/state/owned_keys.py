"""OwnedKeys: refuses state for keys that the instance does not own, which would be lost."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from primitives.errors import UserError
from primitives.slots import SlotSet, slot_of, slots_of

_UPPER = 32


class OwnedKeys:
    """Refuses new keys outside of the slots of the current rows; given the keys of all rows so far, any other key.

    Containers check while user code runs. Only new keys are checked: an instance with a key owns its slot.

    >>> owned = OwnedKeys("friends", SlotSet([0, 1]), slot_bits=2)
    >>> owned.check_key("counts", 2**64 - 1, "bob")
    Traceback (most recent call last):
    ...
    primitives.errors.UserError: operator 'friends', state 'counts': key 'bob' is not one of a row ...
    """

    def __init__(self, operator: str, slots: SlotSet, slot_bits: int, known: Collection[int] | None = None) -> None:
        self._operator = operator
        self._slots = slots
        self._bits = slot_bits
        self._known = known  #: by `signatures`
        self._mask = slots.mask(slot_bits)

    def check(self, container: str, hashes: NDArray[np.uint64], key_at: Callable[[int], Any]) -> None:
        """Raises UserError, naming the first such key, if a container is about to hold keys that are not owned."""
        own = self._mask[slots_of(hashes, self._bits)]
        if self._known is not None:
            own &= np.fromiter((each in self._known for each in signatures(hashes)), np.bool_, len(hashes))
        if not own.all():
            raise self._foreign(container, key_at(int(np.argmin(own))))

    def check_key(self, container: str, key_hash: int, key: Any) -> None:
        """Checks one key, like `check`."""
        is_known = self._known is None or key_hash >> _UPPER in self._known
        if not is_known or slot_of(key_hash, self._bits) not in self._slots:
            raise self._foreign(container, key)

    def _foreign(self, container: str, key: Any) -> UserError:
        return UserError(
            f"operator '{self._operator}', state '{container}': key {key!r} is not one of a row that came here, so its "
            "state belongs to another instance, or will, and would not be found there. Send a row for that key to an "
            "operator after a key_by of its own, or keep what is to be known in the state of the key in hand"
        )


def signatures(hashes: NDArray[np.uint64]) -> list[int]:
    """Returns the part of key hashes that is remembered: the half that does not depend on subkeys."""
    found: list[int] = (hashes >> np.uint64(_UPPER)).tolist()
    return found
