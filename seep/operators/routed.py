"""A stateless operator that sends to each downstream operator only the rows that are for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from primitives.errors import UserError
from primitives.graph import Edge
from seep.operators.base import BatchLogic
from seep.operators.definition import OperatorSetting
from seep.operators.expressions import evaluate
from seep.operators.stateless import Columns, FlatMap
from seep.protocol.logic import Piece


class Routed(FlatMap):
    """A `FlatMap` whose output is routed: an operator in `routes` gets the rows for which its expression is true.

    Operators that are not in `routes` get all rows. A filter in front of each would receive all rows instead.

    >>> odd = pc.equal(pc.bit_wise_and(pc.field("n"), 1), 1)
    >>> split = Routed(lambda batch: batch, routes={"odd": odd, "even": ~odd})
    """

    def __init__(
        self,
        function: Callable[[pa.RecordBatch], Columns],
        routes: Mapping[str, pc.Expression],
        schema: pa.Schema | None = None,
    ) -> None:
        super().__init__(function, schema)
        self.routes = dict(routes)

    def logic(self, setting: OperatorSetting) -> BatchLogic:
        """See `Definition.logic`."""
        behind = {edge.downstream for edge in setting.outputs}
        if unknown := sorted(self.routes.keys() - behind):
            raise UserError(
                f"operator '{setting.operator}' has a route to '{unknown[0]}', which does not read its output; "
                f"the operators that do are {sorted(behind)}"
            )
        return _Routing(setting, self)


class _Routing(BatchLogic):
    def __init__(self, setting: OperatorSetting, definition: Routed) -> None:
        super().__init__(setting)
        self._transform = partial(definition.transform, setting)
        self._routes = definition.routes

    def compute(self, piece: Piece[pa.RecordBatch]) -> pa.RecordBatch | None:
        """See `BatchLogic.compute`."""
        rows = self.rows(piece)
        return self.guard.call(piece.epoch, self._transform, rows) if len(rows) else None

    def process(self, piece: Piece[pa.RecordBatch]) -> Mapping[Edge, pa.RecordBatch]:
        """See `Logic.process`."""
        chosen = {edge: self._chosen(edge, batch) for edge, batch in super().process(piece).items()}
        return {edge: batch for edge, batch in chosen.items() if len(batch)}

    def _chosen(self, edge: Edge, batch: pa.RecordBatch) -> pa.RecordBatch:
        route = self._routes.get(edge.downstream) if edge in self.setting.outputs else None
        return batch if route is None else batch.filter(evaluate(batch, [route])[0])
