"""checkpoint_state: the processing state and buffer state of an instance after an epoch, in full or as a delta."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from primitives.emission import Emission
from primitives.errors import InternalError
from primitives.graph import InstanceId
from primitives.outbox import Outbox
from primitives.slots import SlotSet
from primitives.state.chunk import Chunk
from primitives.state.chunk_chain import merged


class ProcessingState(Protocol):
    """The state of an operator, in all its containers: SEEP's get- and set-processing-state, by slot."""

    @property
    def marks(self) -> tuple[int, ...]:
        """The epochs since which changes can be listed."""
        ...

    def snapshot(self, slots: SlotSet, since: int | None = None) -> Iterable[Any]: ...

    def restore(self, chunks: Iterable[Any]) -> None: ...

    def restore_ahead(self, chunks: Iterable[Any]) -> bool:
        """Restores slots before they are owned.

        Returns False, with nothing done, if later chunks must come in the same call.
        """
        ...

    def adopt(self, slots: SlotSet) -> None:
        """Makes the owner of these slots count what was restored ahead as changed since every mark."""
        ...

    def drop(self, slots: SlotSet) -> None: ...

    def drop_in_parts(self, slots: SlotSet, parts: int) -> Iterator[None]:
        """Drops slots that are not used meanwhile; each step drops a part of them."""
        ...

    def mark(self, epoch: int) -> None: ...

    def release(self, epoch: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """(θ, τ, β) of one instance: its state after epoch τ and the output that its receivers may still need.

    With a `base` it says only what changed since the checkpoint of that epoch.
    """

    owner: InstanceId
    incarnation: int
    serial: int  #: counts the checkpoints of an incarnation; (incarnation, serial) orders all of an owner
    epoch: int
    base: int | None
    slots: SlotSet  #: the slots of θ: owned ones, and handed-over ones whose new owner is not safe yet
    state: tuple[Any, ...]  #: θ: chunks; several of one container take effect in order
    buffer: tuple[tuple[int, Emission[Any]], ...]  #: β: outbox entries, only those after `base`
    trimmed: int  #: no receiver needs outbox entries up to this epoch

    @property
    def order(self) -> tuple[int, int]:
        return self.incarnation, self.serial

    @property
    def is_whole(self) -> bool:
        """Whether it has all of the state, even if it has a base."""
        return bool(self.state) and all(
            isinstance(chunk, Chunk) and self.slots <= chunk.replaced for chunk in self.state
        )

    @property
    def nbytes(self) -> int:
        chunks = sum(int(chunk.nbytes) for chunk in self.state)
        return chunks + sum(emission.nbytes for _, emission in self.buffer)


def checkpoint_state(
    state: ProcessingState,
    outbox: Outbox[Any],
    *,
    owner: InstanceId,
    incarnation: int,
    serial: int,
    epoch: int,
    slots: SlotSet,
    base: int | None = None,
) -> Checkpoint:
    """Returns the checkpoint of an instance whose last epoch is `epoch`: full, or since the epoch `base`.

    Also marks the state at `epoch`, so that the next checkpoint can be a delta of this one.
    """
    chunks = tuple(state.snapshot(slots, base))
    state.mark(epoch)
    return Checkpoint(
        owner, incarnation, serial, epoch, base, slots, chunks, tuple(outbox.entries(base)), outbox.trimmed
    )


def chain_checkpoints(base: Checkpoint, deltas: Sequence[Checkpoint], slots: SlotSet | None = None) -> Checkpoint:
    """One full checkpoint that holds a base and its deltas one after the other: a container may have several chunks.

    If `slots` are given, it has the state of these only, and no output.

    Restoring it equals restoring the base and then each delta. It costs a look at each row, where merging would cost
    several times what the restore itself does.
    """
    if not deltas and slots is None:
        return base
    for earlier, later in zip((base, *deltas), deltas, strict=False):
        if later.base != earlier.epoch:
            raise InternalError(
                f"checkpoint {later.epoch} of {base.owner} builds on {later.base}, not on {earlier.epoch}"
            )
    last = (base, *deltas)[-1]
    wanted = last.slots if slots is None else last.slots & slots
    chunks = (chunk.select(wanted) for part in (base, *deltas) for chunk in part.state)
    buffer = output_of((base, *deltas)) if slots is None else ()
    return replace(last, base=base.base, slots=wanted, state=tuple(chunks), buffer=buffer)


def output_of(chain: Sequence[Checkpoint]) -> tuple[tuple[int, Emission[Any]], ...]:
    """Returns the output in a base and its deltas that may still be needed."""
    return tuple(entry for part in chain for entry in part.buffer if entry[0] > chain[-1].trimmed)


def without_state(chain: Sequence[Checkpoint]) -> Checkpoint:
    """Joins a base and its deltas to one checkpoint without state, for a receiver that has the state already."""
    return replace(chain[-1], base=None, state=(), buffer=output_of(chain))


def merge_checkpoints(base: Checkpoint, deltas: Sequence[Checkpoint]) -> Checkpoint:
    """One full checkpoint with the effect of a base and its deltas in order, in the fewest chunks; see `merged`."""
    if not deltas:
        return base
    chain = chain_checkpoints(base, deltas)
    parts: dict[str, list[Any]] = {}
    for chunk in chain.state:
        parts.setdefault(chunk.name, []).append(chunk)
    return replace(chain, state=tuple(chunk for chunks in parts.values() for chunk in merged(chunks)))
