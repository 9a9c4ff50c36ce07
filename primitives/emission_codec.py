"""EMISSIONS: how an outbox of Arrow emissions spills to disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from primitives.emission import Emission
from primitives.graph import Edge
from primitives.spill import Batches, SpillCodec


def _to_batches(emission: Emission[pa.RecordBatch]) -> tuple[Batches, Mapping[str, object]]:
    batches = {str(at): batch for at, batch in enumerate(emission.outputs.values())}
    return batches, {
        "edges": list(emission.outputs),  # in the order of the batches; an edge as text could be ambiguous
        "watermark": emission.watermark,
        "created": emission.created,
    }


def _from_batches(batches: dict[str, pa.RecordBatch], metadata: dict[str, Any]) -> Emission[pa.RecordBatch]:
    edges = [Edge(*edge) for edge in metadata["edges"]]
    outputs = {edge: batches[str(at)] for at, edge in enumerate(edges)}
    return Emission(outputs, metadata["watermark"], metadata["created"])


#: The codec of one epoch's output: its batch per edge, watermark and time of creation.
EMISSIONS: SpillCodec[Emission[pa.RecordBatch]] = SpillCodec(_to_batches, _from_batches)
