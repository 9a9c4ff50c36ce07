"""State: the interface of state containers: snapshot, restore, drop, size, and change tracking."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from primitives.errors import InternalError, UserError
from primitives.slots import SlotSet
from primitives.state.chunk import Chunk


class State(Protocol):
    """Keyed state of one operator instance that can be taken apart by slot and put together again.

    Laws: restore(snapshot(s)) = s; merge(partition(s)) = s; base + deltas = full snapshot.
    """

    @property
    def name(self) -> str:
        """The container's name, unique within its operator."""
        ...

    @property
    def slot_bits(self) -> int:
        """The operator has 2^slot_bits slots."""
        ...

    @property
    def marks(self) -> tuple[int, ...]:
        """The epochs since which `snapshot` can say what changed, in order."""
        ...

    def snapshot(self, slots: SlotSet, since: int | None = None) -> Any:
        """Returns the content of `slots` in full, as a `Chunk` or, if large, a `FileChunk`; for no slots, a `Chunk`.

        With `since`, a marked epoch, it returns the changes after it. This delta names every slot replaced since,
        whether or not in `slots`, because a checkpoint must remove what it held of slots that have left. To restore it
        next to other slots, take `select(slots)` of it first.
        """
        ...

    def restore(self, chunks: Iterable[Any]) -> None:
        """Applies each chunk in order, by the law of `Chunk`.

        Chunks that build on a `FileChunk` must be in the same call.
        """
        ...

    def adopt(self, slots: SlotSet) -> None:
        """Counts `slots`, including what was restored of them before, as replaced now."""
        ...

    def drop(self, slots: SlotSet) -> None:
        """Removes the content of slots; the next delta contains this."""
        ...

    def drop_in_parts(self, slots: SlotSet, parts: int) -> Iterator[None]:
        """Drops slots that are not used meanwhile; each step drops a part of them, of about equal duration."""
        ...

    def size(self, slots: SlotSet | None = None) -> int:
        """Estimated bytes that a full chunk of `slots`, or of everything, takes."""
        ...

    def __len__(self) -> int:
        """Number of rows."""
        ...

    def mark(self, epoch: int) -> None:
        """Ends the epoch: later writes count as after it. Epochs are marked in ascending order.

        Marking the last one again changes nothing. A delta since then still has all writes after the first time, so it
        is right for a reader with the state of either time.
        """
        ...

    def release(self, epoch: int) -> None:
        """Removes the marks below `epoch`; a mark at `epoch` itself can still be used."""
        ...

    def changed(self, since: int) -> int:
        """Number of rows written or deleted since a marked epoch; rows of replaced slots all count."""
        ...


@runtime_checkable
class Closable(Protocol):
    """A container with its own files."""

    def close(self) -> None:
        """Closes the files and deletes them."""
        ...


def check_fits(chunk: Chunk, state: State, version: int, keys: tuple[str, ...], schema: pa.Schema) -> None:
    """Raises unless `chunk` can be restored into `state`, whose chunks have this version, these keys and schema."""
    expected = {"name": state.name, "slot_bits": state.slot_bits, "keys": keys}
    for field, mine in expected.items():
        if getattr(chunk, field) != mine:
            raise InternalError(
                f"state '{state.name}' has {field} {mine!r} and cannot restore a chunk with {getattr(chunk, field)!r}"
            )
    if chunk.version != version:
        raise UserError(
            f"state '{state.name}' has version {version}, and the stored state has version {chunk.version}: "
            "convert it on loading, or run the code that wrote it"
        )
    _check_schema(state.name, chunk.rows.schema, schema)


def _check_schema(name: str, stored: pa.Schema, declared: pa.Schema) -> None:
    for field in declared:
        if field.name not in stored.names:
            raise UserError(
                f"state '{name}' declares column '{field.name}', which the stored state lacks; it has {stored.names}"
            )
        found = stored.field(field.name).type
        if found != field.type:
            raise UserError(f"column '{field.name}' of state '{name}' is {field.type}, but {found} in the stored state")
    if stored.names != declared.names:
        raise UserError(f"state '{name}' has columns {declared.names}, but the stored state has {stored.names}")
