"""merge_state: the inverse of partition. Tests state the law with it; a scale-in merges live state, not checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from primitives.checkpoint import Checkpoint
from primitives.errors import InternalError
from primitives.graph import InstanceId
from primitives.slots import SlotSet
from primitives.state.chunk_chain import merged


def merge_state(owner: InstanceId, parts: Sequence[Checkpoint]) -> Checkpoint:
    """Returns one checkpoint of `owner` from full checkpoints of the same epoch over disjoint slots.

    Law: merge_state(o, partition_processing_state(c, …)) has the effect of c. Buffer state cannot be merged across
    senders, so only the owner's own part may have any. Plans do not need this function: an instance that gets slots
    restores their state beside its own.
    """
    first = parts[0]
    slots = SlotSet.empty()
    state: dict[str, list[Any]] = {}
    for part in parts:
        _check(owner, first, part, slots)
        slots |= part.slots
        for chunk in part.state:
            state.setdefault(chunk.name, []).append(chunk)
    own = next((part for part in parts if part.owner == owner), replace(first, owner=owner))
    return replace(own, slots=slots, state=tuple(chunk for chunks in state.values() for chunk in merged(chunks)))


def _check(owner: InstanceId, first: Checkpoint, part: Checkpoint, taken: SlotSet) -> None:
    if part.base is not None or part.epoch != first.epoch:
        raise InternalError(
            f"checkpoint {part.epoch} of {part.owner} cannot be merged: parts must be full and of epoch {first.epoch}"
        )
    if not part.slots.isdisjoint(taken):
        raise InternalError(f"slots {part.slots & taken} are in two of the parts that are merged into {owner}")
    if part.buffer and part.owner != owner:
        raise InternalError(
            f"{part.owner} still has buffer state; let its receivers become safe before merging it into {owner}"
        )
