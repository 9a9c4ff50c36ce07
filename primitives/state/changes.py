"""Changes: the marks that a container retains, and its log of the interval after each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa

from primitives.errors import InternalError
from primitives.slots import SlotSet
from primitives.state.chunk import Chunk
from primitives.state.owned_keys import OwnedKeys

Log = TypeVar("Log")


@dataclass(slots=True)
class Interval(Generic[Log]):
    """The changes between one mark and the next: replaced slots, and the container's own log of other changes."""

    mark: int
    replaced: SlotSet
    log: Log


class Changes(Generic[Log]):
    """Intervals since the oldest retained mark. Without a mark nothing is recorded, as no delta can be requested.

    >>> changes = Changes("counts", set)
    >>> changes.mark(4)
    >>> changes.current.log.add("a")
    >>> changes.mark(5)
    >>> [interval.log for interval in changes.since(4)]
    [{'a'}, set()]
    """

    __slots__ = ("_intervals", "_name", "_new_log", "current")

    def __init__(self, name: str, new_log: Callable[[], Log]) -> None:
        self._name = name
        self._new_log = new_log
        self._intervals: dict[int, Interval[Log]] = {}  #: by mark, ascending
        self.current: Interval[Log] | None = None  #: the interval after the last mark, which is written to

    @property
    def marks(self) -> tuple[int, ...]:
        """The retained marks, in order."""
        return tuple(self._intervals)

    def mark(self, epoch: int) -> None:
        """Opens the interval after `epoch`; to mark the last epoch again changes nothing."""
        if self.current is not None and epoch <= self.current.mark:
            if epoch < self.current.mark:
                raise InternalError(
                    f"state '{self._name}' is marked at epoch {self.current.mark}, and {epoch} is before"
                )
            return
        self.current = self._intervals[epoch] = Interval(epoch, SlotSet.empty(), self._new_log())

    def release(self, epoch: int) -> None:
        """Forgets the marks below `epoch`."""
        self._intervals = {mark: interval for mark, interval in self._intervals.items() if mark >= epoch}
        if not self._intervals:
            self.current = None

    def since(self, epoch: int) -> list[Interval[Log]]:
        """The intervals after a marked epoch, in order."""
        if epoch not in self._intervals:
            raise InternalError(
                f"state '{self._name}' has no mark at epoch {epoch}, only at {list(self.marks)}; take a full snapshot"
            )
        return [interval for mark, interval in self._intervals.items() if mark >= epoch]

    def replace(self, slots: SlotSet) -> None:
        """Records that `slots` were dropped or restored, whatever they held before."""
        if self.current is not None:
            self.current.replaced |= slots

    def replaced_since(self, epoch: int) -> SlotSet:
        """The slots replaced after a marked epoch."""
        replaced = SlotSet.empty()
        for interval in self.since(epoch):
            replaced |= interval.replaced
        return replaced


class Tracked(ABC, Generic[Log]):
    """The part of a `State` that is common to all containers with `Changes`."""

    name: str
    slot_bits: int
    version: int
    _changes: Changes[Log]

    #: the new keys that may be written while user code processes rows; None: any
    owned: OwnedKeys | None = None

    @abstractmethod
    def snapshot(self, slots: SlotSet, since: int | None = None) -> Any:
        """See `State.snapshot`."""
        raise NotImplementedError

    @abstractmethod
    def restore(self, chunks: Iterable[Any]) -> None:
        """See `State.restore`."""
        raise NotImplementedError

    @abstractmethod
    def drop(self, slots: SlotSet) -> None:
        """See `State.drop`."""
        raise NotImplementedError

    @abstractmethod
    def size(self, slots: SlotSet | None = None) -> int:
        """See `State.size`."""
        raise NotImplementedError

    @abstractmethod
    def changed(self, since: int) -> int:
        """See `State.changed`."""
        raise NotImplementedError

    @abstractmethod
    def __len__(self) -> int:
        """Number of rows."""
        raise NotImplementedError

    def _chunk_of(
        self, keys: tuple[str, ...], replaced: SlotSet, rows: pa.RecordBatch, deleted: pa.RecordBatch
    ) -> Chunk:
        """The chunk of some rows, and of identities that were deleted."""
        return Chunk(
            name=self.name,
            version=self.version,
            slot_bits=self.slot_bits,
            replaced=replaced,
            keys=keys,
            identity=tuple(deleted.schema.names),
            rows=rows,
            deleted=deleted,
        )

    def drop_in_parts(self, slots: SlotSet, parts: int) -> Iterator[None]:
        """See `State.drop_in_parts`."""
        for part in slots.parts(parts):
            self.drop(part)
            yield

    @property
    def marks(self) -> tuple[int, ...]:
        """See `State.marks`."""
        return self._changes.marks

    def mark(self, epoch: int) -> None:
        """See `State.mark`."""
        self._changes.mark(epoch)

    def release(self, epoch: int) -> None:
        """See `State.release`."""
        self._changes.release(epoch)

    def adopt(self, slots: SlotSet) -> None:
        """See `State.adopt`."""
        self._changes.replace(slots)
