"""Payloads of an outbox that are a batch per edge and nothing else."""

from __future__ import annotations

from primitives.spill import Batches, SpillCodec

BATCHES: SpillCodec[Batches] = SpillCodec(lambda payload: (payload, {}), lambda batches, _: batches)


def batches_nbytes(payload: Batches) -> int:
    """The bytes of all batches of a payload."""
    return sum(batch.nbytes for batch in payload.values())
