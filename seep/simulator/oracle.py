"""The oracle: the same query over the same epochs without nodes, instances or failures, and the comparison with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from primitives.graph import Edge, Kind
from primitives.slots import SlotSet
from seep.protocol.logic import Piece
from seep.protocol.messages import MAX_WATERMARK
from seep.simulator.operators import Row, Rows, watermark_of
from seep.simulator.queries import SimulatedQuery

#: epoch -> source operator -> slot -> position after the epoch
Offsets = Mapping[int, Mapping[str, Mapping[int, int]]]
Committed = Mapping[str, Mapping[int, Counter[tuple[int, Row]]]]


class ReferenceRun:
    """Runs whole epochs through one copy of each operator that owns all slots."""

    def __init__(self, query: SimulatedQuery, offsets: Offsets, last: int, final: int | None) -> None:
        self._query = query
        self._offsets = offsets
        self._last = last
        self._final = final
        self._logic = {
            o: query.plain_logic(o) for o in query.graph.of_kind(Kind.STATELESS) + query.graph.of_kind(Kind.STATEFUL)
        }
        self._positions = {source: dict.fromkeys(data, 0) for source, data in query.data.items()}

    def run(self) -> dict[str, dict[int, Counter[tuple[int, Row]]]]:
        sinks: dict[str, dict[int, Counter[tuple[int, Row]]]] = {s: {} for s in self._query.graph.of_kind(Kind.SINK)}
        for epoch in range(1, self._last + 1):
            self._epoch(epoch, sinks)
        return sinks

    def _epoch(self, epoch: int, sinks: dict[str, dict[int, Counter[tuple[int, Row]]]]) -> None:
        graph, streams, watermarks = self._query.graph, dict[Edge, Rows](), dict[str, int]()
        for operator in graph.order:
            inputs = self._inputs(operator, streams)
            watermark = min((watermarks[e.upstream] for e in graph.inputs[operator]), default=MAX_WATERMARK)
            if graph.kind(operator) is Kind.SOURCE:
                rows, watermark = self._read(operator, epoch)
                streams |= dict.fromkeys(graph.outputs[operator], rows)
            elif graph.kind(operator) is Kind.SINK:
                sinks[operator][epoch] = Counter(
                    (p, row) for p, batches in inputs.items() for b in batches for row in b
                )
            else:
                everything = SlotSet.full(graph.operators[operator].slot_bits)
                streams |= self._logic[operator].process(Piece(epoch, inputs, watermark, everything))
            watermarks[operator] = watermark

    def _inputs(self, operator: str, streams: Mapping[Edge, Rows]) -> dict[int, tuple[Rows, ...]]:
        inputs: dict[int, tuple[Rows, ...]] = {}
        for edge in self._query.graph.inputs[operator]:
            if streams.get(edge):
                inputs[edge.port] = (*inputs.get(edge.port, ()), streams[edge])
        return inputs

    def _read(self, source: str, epoch: int) -> tuple[Rows, int]:
        data, positions, rows = self._query.data[source], self._positions[source], list[Row]()
        for slot, end in self._offsets[epoch][source].items():
            rows += data[slot][positions[slot] : end]
            positions[slot] = end
        watermark = (
            MAX_WATERMARK if epoch == self._final else min(watermark_of(data[slot], positions[slot]) for slot in data)
        )
        return tuple(rows), watermark


def differences(expected: Committed, found: Committed, epochs: int) -> list[str]:
    """Returns missing and extra rows, by sink and epoch, up to the given epoch; empty if the output is exact."""
    notes = []
    for sink, by_epoch in expected.items():
        for epoch in range(1, epochs + 1):
            want, have = by_epoch.get(epoch, Counter()), found.get(sink, {}).get(epoch, Counter())
            if want != have:
                missing, extra = sorted((want - have).elements()), sorted((have - want).elements())
                notes.append(f"sink {sink!r}, epoch {epoch}: missing {missing}, too many {extra}")
    return notes
