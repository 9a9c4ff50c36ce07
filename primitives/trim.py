"""trim: drops output that no receiver will need again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from primitives.graph import InstanceId
from primitives.outbox import Outbox
from primitives.topology import Topology


def safe_to_trim(
    topology: Topology,
    sender: InstanceId,
    trimmed: int,
    limit: int,
    safe_epoch: Callable[[InstanceId], int],
    *,
    of_output: bool = False,
) -> int:
    """Returns the last epoch up to which all receivers of a sender are safe, from `trimmed` on and at most `limit`.

    Receivers are those of the epoch in question: instances that own slots downstream and, unless only those `of_output`
    count, the new owners of slots that leave the sender.

    Law: never above the safe epoch of anyone who may ask for a replay.
    """
    epoch = trimmed
    while epoch < limit and all(
        safe_epoch(receiver) > epoch
        for receiver in topology.receivers(sender, epoch + 1)
        if not of_output or receiver.operator != sender.operator
    ):
        epoch += 1
    return epoch


def trim(outbox: Outbox[Any], safe_epoch: int) -> int:
    """Drops everything up to the safe epoch; returns the number of epochs dropped."""
    return outbox.trim(safe_epoch)
