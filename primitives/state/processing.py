"""Containers: all state containers of an operator, which form its processing state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any

from primitives.errors import UserError
from primitives.slots import SlotSet
from primitives.state.budget import Spillable
from primitives.state.container import Closable, State
from primitives.state.file_chunk import FileChunk


class Containers:
    """The whole processing state of an operator, kept in containers of different names; a `ProcessingState`.

    >>> import pyarrow as pa
    >>> from primitives.state.timers import Timers
    >>> from primitives.state.values import Values
    >>> users = {"user": pa.int64()}
    >>> carts, timeouts = Values("carts", users), Timers("timeouts", users)
    >>> state = Containers(carts, timeouts)
    >>> carts[7] = ["tea"]
    >>> timeouts.schedule(30, 7)
    >>> saved = state.snapshot(SlotSet.full(8))
    >>> [chunk.name for chunk in saved]
    ['carts', 'timeouts']
    >>> state.drop(SlotSet.full(8))
    >>> state.restore(saved)
    >>> dict(carts), len(timeouts)
    ({7: ['tea']}, 1)
    """

    def __init__(self, *containers: State) -> None:
        names = [container.name for container in containers]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise UserError(f"containers of one operator need different names; used twice: {', '.join(twice)}")
        bits = {container.name: container.slot_bits for container in containers}
        if len(set(bits.values())) > 1:
            raise UserError(f"containers of one operator need the same slot_bits; these have {bits}")
        self._containers = dict(zip(names, containers, strict=True))
        self.restored = 0  #: number of restores so far

    @property
    def marks(self) -> tuple[int, ...]:
        """The epochs since which every container can tell what changed, in order."""
        known = [set(container.marks) for container in self._containers.values()]
        return tuple(sorted(set.intersection(*known))) if known else ()

    def snapshot(self, slots: SlotSet, since: int | None = None) -> tuple[Any, ...]:
        """One chunk for each container, empty or not; see `State.snapshot`."""
        return tuple(container.snapshot(slots, since) for container in self._containers.values())

    def restore(self, chunks: Iterable[Any]) -> None:
        """Gives each container its chunks, in order.

        Every container must get some, and every chunk must have a container; otherwise nothing is restored.
        """
        by_name: dict[str, list[Any]] = {name: [] for name in self._containers}
        for chunk in chunks:
            by_name.setdefault(chunk.name, []).append(chunk)
        self._check_covered(by_name)
        self.restored += 1
        for name, container in self._containers.items():
            container.restore(by_name[name])

    def restore_ahead(self, chunks: Iterable[Any]) -> bool:
        """See `ProcessingState.restore_ahead`: files are taken over only together with chunks that build on them."""
        given = tuple(chunks)
        if any(isinstance(chunk, FileChunk) for chunk in given):
            return False
        self.restore(given)
        return True

    def adopt(self, slots: SlotSet) -> None:
        """See `State.adopt`."""
        for container in self._containers.values():
            container.adopt(slots)

    def _check_covered(self, by_name: dict[str, list[Any]]) -> None:
        if unknown := sorted(by_name.keys() - self._containers.keys()):
            raise UserError(
                f"the stored state has {_named(unknown)}, which the operator does not declare; "
                f"it declares {_named(self._containers)}: was a container renamed or removed?"
            )
        if missing := sorted(name for name, chunks in by_name.items() if not chunks):
            raise UserError(
                f"the operator declares {_named(missing)}, which the stored state lacks; "
                "was a container renamed or added?"
            )

    def drop(self, slots: SlotSet) -> None:
        """See `State.drop`."""
        for container in self._containers.values():
            container.drop(slots)

    def drop_in_parts(self, slots: SlotSet, parts: int) -> Iterator[None]:
        """See `State.drop_in_parts`."""
        droppings = (container.drop_in_parts(slots, parts) for container in self._containers.values())
        for _ in zip_longest(*droppings):
            yield

    def mark(self, epoch: int) -> None:
        """See `State.mark`."""
        for container in self._containers.values():
            container.mark(epoch)

    def release(self, epoch: int) -> None:
        """See `State.release`."""
        for container in self._containers.values():
            container.release(epoch)

    def changed(self, since: int) -> int:
        """Number of rows changed since a marked epoch, in all containers."""
        return sum(container.changed(since) for container in self._containers.values())

    def close(self) -> None:
        """Closes files; containers with files can no longer be used."""
        for container in self._containers.values():
            if isinstance(container, Closable):
                container.close()

    @property
    def in_memory(self) -> bool:
        """Whether no container has files or spills."""
        return not any(isinstance(container, Closable | Spillable) for container in self._containers.values())

    @property
    def shares_budget(self) -> bool:
        """Whether any container spills to make room for others, so that their users must take turns."""
        return any(isinstance(container, Spillable) for container in self._containers.values())

    def size(self, slots: SlotSet | None = None) -> int:
        """Estimated bytes that full chunks of `slots`, or of everything, take."""
        return sum(container.size(slots) for container in self._containers.values())


def _named(names: Iterable[str]) -> str:
    return ", ".join(f"state '{name}'" for name in names) or "no state"
