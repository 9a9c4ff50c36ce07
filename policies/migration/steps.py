"""MigrationSteps: a change of an assignment as a sequence of moves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from primitives.slots import SlotSet

#: The slots that each instance gets in one step, in the form that `Manager.move` takes.
Move = dict[int, SlotSet]


@dataclass(frozen=True, slots=True, eq=False)
class MigrationSteps:
    """Moves in order. Each is made when it is requested, so a million of them need no more memory than their slots.

    >>> steps = MigrationSteps.of(np.array([4, 5, 6]), np.array([1, 2, 1]), np.array([0, 0, 7]))
    >>> len(steps), list(steps)
    (2, [{1: SlotSet(4), 2: SlotSet(5)}, {1: SlotSet(6)}])
    """

    slots: NDArray[np.integer[Any]]  #: by step, and within a step by target
    targets: NDArray[np.integer[Any]]  #: the target of each slot
    bounds: NDArray[np.int64]  #: step k has the slots from bounds[k] up to before bounds[k + 1]

    @classmethod
    def of(
        cls, slots: NDArray[np.integer[Any]], targets: NDArray[np.integer[Any]], numbers: NDArray[np.number[Any]]
    ) -> MigrationSteps:
        """Returns steps in which slots of the same number move together, lower numbers first."""
        order = np.lexsort((slots, targets, numbers))
        firsts = np.unique(numbers[order], return_index=True)[1]
        return cls(slots[order], targets[order], np.append(firsts, len(order)))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, at: int) -> Move:
        at = range(len(self))[at]
        chosen = slice(self.bounds[at], self.bounds[at + 1])
        targets, firsts = np.unique(self.targets[chosen], return_index=True)
        parts = np.split(self.slots[chosen], firsts[1:])
        return {int(target): SlotSet(part) for target, part in zip(targets, parts, strict=True)}

    def __iter__(self) -> Iterator[Move]:
        return (self[at] for at in range(len(self)))

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of slots in each step."""
        return np.diff(self.bounds)
