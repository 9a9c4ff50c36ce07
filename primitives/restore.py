"""restore_state and replay_buffer_state: restore a checkpoint, and resend the epochs after it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from primitives.checkpoint import Checkpoint, ProcessingState
from primitives.errors import InternalError
from primitives.outbox import Outbox


def restore_state(checkpoint: Checkpoint, state: ProcessingState, outbox: Outbox[Any]) -> int:
    """Loads a full checkpoint into an empty operator and an empty outbox; returns the last epoch it has processed."""
    if checkpoint.base is not None:
        raise InternalError(
            f"checkpoint {checkpoint.epoch} of {checkpoint.owner} is a delta of {checkpoint.base}; merge them first"
        )
    state.restore(checkpoint.state)
    return resume_state(checkpoint, state, outbox)


def resume_state(checkpoint: Checkpoint, state: ProcessingState, outbox: Outbox[Any]) -> int:
    """Restores the rest of a checkpoint, if the operator has the state already: change tracking and output."""
    state.mark(checkpoint.epoch)
    outbox.trim(checkpoint.trimmed)
    outbox.restore(checkpoint.buffer)
    return checkpoint.epoch


def replay_buffer_state(outbox: Outbox[Any], receiver: Hashable, first: int) -> None:
    """Moves a receiver's cursor on the outbox back, so that it gets every epoch from `first` on again.

    Law: replaying twice has the effect of replaying once, as receivers drop the epochs that they have processed.
    """
    outbox.attach(receiver, first)
