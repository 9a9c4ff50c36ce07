"""The sink that discards rows: for measuring everything before it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from seep.protocol.view import Incarnation
from seep.sinks.definition import SinkDefinition, SinkStore


def discard() -> SinkDefinition:
    """Counts rows and drops them.

    >>> discard().store("out", pa.schema([])).counters
    {'rows': 0}
    """
    return Discard()


class Discard(SinkDefinition):
    """See `discard`."""

    def check(self, operator: str, schema: pa.Schema) -> None:
        """Any columns will do."""

    def store(self, operator: str, schema: pa.Schema) -> Discarding:  # noqa: ARG002
        return Discarding()


class Discarding(SinkStore):
    """Stores nothing, so it needs no fencing; the manager knows the last epoch of the instance."""

    def __init__(self) -> None:
        self.counters = {"rows": 0}

    def open(self, sink: Incarnation) -> int:  # noqa: ARG002
        """See `SinkStore`."""
        return 0

    def commit(self, sink: Incarnation, epoch: int, batches: Sequence[pa.RecordBatch], watermark: int) -> int:  # noqa: ARG002
        """See `SinkStore`."""
        self.counters["rows"] += sum(batch.num_rows for batch in batches)
        return epoch
