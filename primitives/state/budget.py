"""MemoryBudget: bytes that the containers of a node share; the least recently used slots go to disk first."""

from __future__ import annotations

from itertools import count
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from primitives.errors import EnvironmentFault
from primitives.slots import SlotSet

#: Fraction of the budget that a spill frees beyond the request, so that not every request spills.
_SLACK = 0.1

#: The factor of the budget that memory may reach for a moment.
_TOLERANCE = 1.2


class MemoryUse(NamedTuple):
    """The memory use of a container, slot by slot."""

    sizes: NDArray[np.int64]  #: bytes of each slot
    used: NDArray[np.int64]  #: logical time of each slot's last use
    free: NDArray[np.bool_]  #: whether each slot may be spilled


@runtime_checkable
class Spillable(Protocol):
    """A container whose slots can go to disk."""

    @property
    def name(self) -> str: ...

    def held(self) -> MemoryUse:
        """Returns the memory in use."""
        ...

    def spill(self, slots: SlotSet) -> None:
        """Moves slots to disk; if that fails, they are still in memory."""
        ...

    def settle(self) -> None:
        """Makes all slots spillable: no user of the container holds an object of it that could change."""
        ...


class MemoryBudget:
    """Limits the estimated memory of all containers of a node together. One thread at a time may use its containers.

    >>> budget = MemoryBudget(1 << 20)
    >>> budget.held()
    0
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._members: list[Spillable] = []
        self._clock = count(1)

    def join(self, member: Spillable) -> None:
        """Adds a container."""
        self._members.append(member)

    def leave(self, member: Spillable) -> None:
        """Removes a container that is not needed any more."""
        self._members = [other for other in self._members if other is not member]

    def tick(self) -> int:
        """Returns the logical time of a use, later than all before."""
        return next(self._clock)

    def held(self) -> int:
        """Bytes in memory."""
        return sum(int(member.held().sizes.sum()) for member in self._members)

    def settle(self) -> None:
        """Ends an epoch: no objects of containers are in use, so all slots may be spilled, and are if necessary."""
        for member in self._members:
            member.settle()
        self.make_room()

    def make_room(
        self, more: int = 0, user: Spillable | None = None, kept: SlotSet | None = None, growth: int = 0
    ) -> None:
        """Spills until `more` bytes fit, the least recently used slots first, but not the `kept` slots of `user`.

        The kept slots may grow by `growth`, for which room is made if possible. Raises EnvironmentFault if the slots
        that cannot be spilled exceed the budget by more than a fifth.
        """
        excess = self.held() + more - self.limit
        if excess + growth > 0:
            excess -= self._spill(excess + growth + int(self.limit * _SLACK), user, kept or SlotSet.empty())
        if excess > self.limit * (_TOLERANCE - 1):
            raise EnvironmentFault(
                f"{self.limit + excess} bytes of state are in use at once, and the memory budget is {self.limit}: "
                "raise it, use more nodes or slots, or containers of the kind Disk"
            )

    def _spill(self, wanted: int, user: Spillable | None, kept: SlotSet) -> int:
        """Spills `wanted` bytes, if as many may be spilled; returns how many were."""
        nothing = SlotSet.empty()
        candidates = [
            _candidates(at, member.held(), kept if member is user else nothing)
            for at, member in enumerate(self._members)
        ]
        owners, slots, sizes, used = map(np.concatenate, zip(*candidates, strict=True))
        order = np.argsort(used, kind="stable")
        chosen = order[: np.searchsorted(np.cumsum(sizes[order]), wanted) + 1]
        for owner in np.unique(owners[chosen]).tolist():
            self._members[owner].spill(SlotSet(slots[chosen][owners[chosen] == owner]))
        return int(sizes[chosen].sum())


def _candidates(owner: int, held: MemoryUse, kept: SlotSet) -> tuple[NDArray[np.int64], ...]:
    """Returns owner, slot, size and last use of each slot that may be spilled."""
    free = held.free & (held.sizes > 0)
    free[kept.array] = False
    slots = np.flatnonzero(free)
    return np.full(len(slots), owner), slots, held.sizes[slots], held.used[slots]
