"""The key columns of a stream, in the form in which the state of an operator keeps them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.errors import UserError
from primitives.state.timers import Timers
from seep.operators.definition import Input
from seep.operators.keyed import plain_type


class Keys:
    """The key columns of a stream. In state they are not encoded by dictionaries.

    >>> keys = Keys("counter", Input(pa.schema([("user", pa.int64()), ("n", pa.int64())]), keys=("user",)))
    >>> keys.of(pa.record_batch({"user": [7], "n": [1]}))["user"].to_pylist()
    [7]
    """

    def __init__(self, operator: str, stream: Input) -> None:
        if not stream.keys:
            raise UserError(f"operator '{operator}' keeps unkeyed state; call key_by on its input to name the key")
        self.kinds = {name: plain_type(stream.schema.field(name).type) for name in stream.keys}
        self.fields = [stream.schema.field(name).with_type(kind) for name, kind in self.kinds.items()]

    def of(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """Returns the key columns of rows."""
        return {name: batch.column(name).cast(kind) for name, kind in self.kinds.items()}

    def timers(self, name: str, slot_bits: int, value: pa.DataType | None = None) -> Timers:
        """Makes timers by these keys; their columns have neutral names, so any name of a key column is possible."""
        kinds = {f"key_{at}": kind for at, kind in enumerate(self.kinds.values())}
        return Timers(name, kinds, slot_bits=slot_bits, value=value)

    def due(self, popped: pa.RecordBatch) -> dict[str, pa.Array]:
        """Returns the key columns of records that such timers returned, under their own names."""
        return dict(zip(self.kinds, popped.columns[1:-1], strict=True))


def take(columns: Mapping[str, pa.Array], rows: NDArray[np.int64]) -> dict[str, pa.Array]:
    """Returns some rows of columns."""
    return {name: column.take(pa.array(rows)) for name, column in columns.items()}
