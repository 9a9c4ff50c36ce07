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
        """The content of `slots` in full, as a `Chunk`, or a `FileChunk` where there is much; without slots, a `Chunk`.

        Or with `since`, a marked epoch, what changed after it.

        The latter names every slot replaced since, whether or not in `slots`: a checkpoint must void what it held of
        slots that have left. Whoever restores it next to other slots takes `select(slots)` of it first.
        """
        ...

    def restore(self, chunks: Iterable[Any]) -> None:
        """Applies each chunk, in order, by the law of `Chunk`; all that builds on a `FileChunk` in the same call."""
        ...

    def adopt(self, slots: SlotSet) -> None:
        """Counts `slots`, with what was restored of them before, as replaced now."""
        ...

    def drop(self, slots: SlotSet) -> None:
        """Forgets the slots; the next delta says so."""
        ...

    def drop_in_parts(self, slots: SlotSet, parts: int) -> Iterator[None]:
        """Drops slots that are not used meanwhile; each step a part of them, all of which take about as long."""
        ...

    def size(self, slots: SlotSet | None = None) -> int:
        """Estimated bytes that a full chunk of `slots`, or of everything, takes."""
        ...

    def __len__(self) -> int:
        """Number of rows."""
        ...

    def mark(self, epoch: int) -> None:
        """Ends the epoch: what is written from now on counts as after it.

        Epochs are marked in ascending order. To mark the last one again changes nothing: a delta since then still
        covers all that was written after the first time, which is right for whoever has either state.
        """
        ...

    def release(self, epoch: int) -> None:
        """Forgets the marks below `epoch`; a mark at `epoch` itself stays usable."""
        ...

    def changed(self, since: int) -> int:
        """Number of rows written or deleted since a marked epoch; rows of replaced slots all count."""
        ...


@runtime_checkable
class Closable(Protocol):
    """A container with files of its own."""

    def close(self) -> None:
        """Lets go of the files and deletes them."""
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
