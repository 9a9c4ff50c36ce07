"""The buffer state of an instance: a log of (epoch -> payload) with one cursor per receiver.

Replay is moving a cursor back, trim is dropping the head of the log. A slow receiver never holds up another one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Generic, TypeVar

from primitives.errors import InternalError

if TYPE_CHECKING:
    from primitives.spill import SpillStore

P = TypeVar("P")


def nbytes_of(payload: object) -> int:
    """Returns the payload's own `nbytes`, or 0 if it has none."""
    return int(getattr(payload, "nbytes", 0))


class Outbox(Generic[P]):
    """An append-only log of epochs that several receivers read, each at its own pace.

    >>> outbox = Outbox[str]()
    >>> outbox.append(1, "a")
    >>> outbox.append(2, "b")
    >>> outbox.attach("count[0]", first=1)
    >>> outbox.pull("count[0]"), outbox.pull("count[0]"), outbox.pull("count[0]")
    ((1, 'a'), (2, 'b'), None)
    >>> outbox.attach("count[0]", first=2)  # replay from epoch 2
    >>> outbox.pull("count[0]")
    (2, 'b')
    >>> outbox.trim(1), outbox.entries()
    (1, [(2, 'b')])

    With a `budget` and a `spill` store, what exceeds the budget (in bytes, as told by `size`) lives in the store;
    apart from where the bytes are, nothing changes.
    """

    __slots__ = (
        "_budget",
        "_cursors",
        "_epochs",
        "_memory",
        "_nbytes",
        "_resident",
        "_size",
        "_sizes",
        "_spill",
        "_spilled",
        "_trimmed",
    )

    def __init__(
        self,
        *,
        size: Callable[[P], int] = nbytes_of,
        budget: int | None = None,
        spill: SpillStore[P] | None = None,
        trimmed: int = 0,
    ) -> None:
        if budget is not None and spill is None:
            raise InternalError(f"an outbox with a budget of {budget} bytes needs a spill store to hold the rest")
        self._size = size
        self._budget = budget
        self._spill = spill
        self._trimmed = trimmed
        #: all epochs of the log, ascending; every one is above `_trimmed` and in either `_memory` or `_spilled`
        self._epochs: list[int] = []
        self._memory: dict[int, P] = {}
        #: the epochs that the spill store holds
        self._spilled: set[int] = set()
        #: epoch -> bytes, for all epochs with a size
        self._sizes: dict[int, int] = {}
        #: the epochs of `_sizes` that are in memory, ascending: what spilling can choose from
        self._resident: list[int] = []
        #: receiver -> the lowest epoch it may still pull
        self._cursors: dict[Hashable, int] = {}
        self._nbytes = 0

    # --- writing

    def append(self, epoch: int, payload: P) -> None:
        """Adds the newest epoch; gaps are allowed.

        If the spill store fails (EnvironmentFault), the epoch is in the log all the same, in memory.
        """
        if epoch <= self.last:
            raise InternalError(f"epoch {epoch} appended to an outbox that is already at epoch {self.last}")
        self._epochs.append(epoch)
        self._memory[epoch] = payload
        if nbytes := self._size(payload):
            self._sizes[epoch] = nbytes
            self._nbytes += nbytes
            self._resident.append(epoch)
            if self._budget is not None:
                spill_state(self, self._budget)

    def trim(self, epoch: int) -> int:
        """Drops all epochs up to `epoch` and returns their number; an epoch lower than before does nothing.

        A receiver whose cursor is further back continues after `epoch`: the caller knows that all of it is safe.
        """
        if epoch <= self._trimmed:
            return 0
        self._trimmed = epoch
        dropped = self._epochs[: bisect_right(self._epochs, epoch)]
        del self._epochs[: len(dropped)]
        self._forget(dropped)
        return len(dropped)

    def restore(self, entries: Iterable[tuple[int, P]]) -> None:
        """Fills an empty outbox with what `entries` of another one returned."""
        if self._epochs:
            raise InternalError(f"restore into an outbox that holds epochs {self._epochs[0]} to {self._epochs[-1]}")
        for epoch, payload in entries:
            self.append(epoch, payload)

    def close(self) -> None:
        """Removes all entries and receivers, and all spill files."""
        self._cursors.clear()
        self.trim(self.last)
        if self._spill is not None:
            self._spill.close()

    # --- receivers

    def attach(self, receiver: Hashable, first: int) -> None:
        """Places the receiver's cursor: the next entry it pulls is the first with an epoch of at least `first`."""
        if first <= self._trimmed:
            raise InternalError(
                f"receiver {receiver!r} asks for epoch {first}, but the outbox is trimmed to {self._trimmed}"
            )
        self._cursors[receiver] = first

    def detach(self, receiver: Hashable) -> None:
        """Removes the receiver; an unknown one is ignored."""
        self._cursors.pop(receiver, None)

    @property
    def receivers(self) -> tuple[Hashable, ...]:
        """All attached receivers, in order of their first attachment."""
        return tuple(self._cursors)

    def pending(self, receiver: Hashable) -> bool:
        """Whether `pull` would return an entry."""
        cursor = self._cursors.get(receiver)
        return cursor is not None and bool(self._epochs) and cursor <= self._epochs[-1]

    def peek(self, receiver: Hashable) -> tuple[int, P] | None:
        """The receiver's next (epoch, payload), without moving its cursor; None if there is none."""
        cursor = self._cursors.get(receiver)
        if cursor is None or (index := bisect_left(self._epochs, cursor)) == len(self._epochs):
            return None
        epoch = self._epochs[index]
        return epoch, self._payload(epoch)

    def pull(self, receiver: Hashable) -> tuple[int, P] | None:
        """The receiver's next (epoch, payload), moving its cursor behind it; None if there is none."""
        entry = self.peek(receiver)
        if entry is not None:
            self._cursors[receiver] = entry[0] + 1
        return entry

    def position(self, receiver: Hashable) -> int | None:
        """The lowest epoch the receiver may still pull, so that `attach(receiver, position)` changes nothing."""
        cursor = self._cursors.get(receiver)
        return None if cursor is None else max(cursor, self._trimmed + 1)

    # --- inspection

    def entries(self, after: int | None = None) -> list[tuple[int, P]]:
        """All entries, or those of epochs above `after`, in order: what a checkpoint carries."""
        start = 0 if after is None else bisect_right(self._epochs, after)
        return [(epoch, self._payload(epoch)) for epoch in self._epochs[start:]]

    @property
    def trimmed(self) -> int:
        """The epoch up to which everything was dropped."""
        return self._trimmed

    @property
    def last(self) -> int:
        """The last epoch appended or trimmed; the next one must be above it."""
        return self._epochs[-1] if self._epochs else self._trimmed

    def __len__(self) -> int:
        return len(self._epochs)

    @property
    def nbytes(self) -> int:
        """Size of the entries in memory."""
        return self._nbytes

    # --- spilling

    def coldest(self) -> int | None:
        """Returns the epoch in memory that will be needed last, or None if memory holds nothing worth spilling.

        Epochs behind all cursors go first, because they are read again only after a failure. Of these the newest goes
        first, because it is trimmed last: so the fewest epochs are written. After them goes the epoch that is furthest
        ahead of the nearest cursor that will reach it.
        """
        resident = self._resident
        starts = sorted({max(cursor, self._trimmed + 1) for cursor in self._cursors.values()})
        sent = bisect_left(resident, starts[0]) if starts else len(resident)
        if sent:
            return resident[sent - 1]
        lasts = [
            (resident[upto - 1] - start, resident[upto - 1])
            for start, end in pairwise([*starts, self.last + 1])
            if (upto := bisect_left(resident, end))
        ]
        return max(lasts)[1] if lasts else None

    def spill(self, epoch: int) -> int:
        """Moves one epoch from memory to the spill store and returns its size; if the store fails, it stays."""
        if self._spill is None:
            raise InternalError(f"epoch {epoch} cannot be spilled: the outbox has no spill store")
        if epoch not in self._memory:
            raise InternalError(f"epoch {epoch} cannot be spilled: it is not in memory")
        self._spill.put(epoch, self._memory[epoch])
        nbytes = self._release(epoch)
        self._spilled.add(epoch)
        return nbytes

    def _payload(self, epoch: int) -> P:
        if self._spill is not None and epoch in self._spilled:
            return self._spill.get(epoch)
        return self._memory[epoch]

    def _release(self, epoch: int) -> int:
        """Takes one epoch out of memory and returns the bytes that frees."""
        del self._memory[epoch]
        nbytes = self._sizes.pop(epoch, 0)
        if nbytes:
            del self._resident[bisect_left(self._resident, epoch)]
            self._nbytes -= nbytes
        return nbytes

    def _forget(self, epochs: list[int]) -> None:
        on_disk = [epoch for epoch in epochs if epoch in self._spilled]
        for epoch in epochs:
            if epoch in self._memory:
                self._release(epoch)
        self._spilled.difference_update(on_disk)
        # Last, so that a file that cannot be removed leaves the log whole.
        if self._spill is not None:
            self._spill.drop(on_disk)


def spill_state(outbox: Outbox[P], budget: int) -> int:
    """Spills the epochs needed last until at most `budget` bytes are in memory; returns the number of moved bytes."""
    moved = 0
    while outbox.nbytes > budget and (epoch := outbox.coldest()) is not None:
        moved += outbox.spill(epoch)
    return moved
