"""One instance of each operator of a NEXMark query, one after the other, and the CPU that each of them takes."""

from __future__ import annotations

from time import thread_time

import pyarrow as pa

from nexmark.generator import EventSettings
from nexmark.queries import QUERIES
from nexmark.source import GeneratedEvents
from primitives.graph import Edge, Kind
from primitives.slots import SlotSet
from seep import sinks
from seep.protocol.logic import Piece
from seep.sources.reader import SourceReader


class Chain:
    """A query from its source to before its sink, an epoch at a time; seconds are those of the thread's CPU."""

    def __init__(self, name: str, settings: EventSettings) -> None:
        source = GeneratedEvents(QUERIES[name].wanted, settings)
        program = QUERIES[name].between(lambda _: source, sinks.discard()).compile()
        self._reader: SourceReader = source.reader()
        self._share = source.share()
        self._graph = program.graph
        self._edges = list(program.schemas)
        self._logics = {operator: program.logic(operator) for operator in program.operators}
        self._bits = {name: setting.slot_bits for name, (_, setting) in program.operators.items()}
        self._offset = self._epoch = 0
        self.spent: dict[str, float] = {}
        self.events = self.rows_out = 0

    def run(self, events: int, block: int) -> None:
        """So many events more, in epochs of `block` events."""
        for _ in range(0, events, block):
            self._epoch += 1
            self._step(block)

    def measure(self, warm: int, events: int, block: int) -> dict[str, float]:
        """Nanoseconds of each operator for each event, once it has run for a while."""
        self.run(warm, block)
        self.spent, self.events, self.rows_out = {}, 0, 0
        self.run(events, block)
        return {name: seconds / self.events * 1e9 for name, seconds in self.spent.items()}

    def _step(self, block: int) -> None:
        made: dict[Edge, pa.RecordBatch] = {}
        watermark = -(2**63)
        for name in self._graph.order:
            begin = thread_time()
            if self._graph.kind(name) is Kind.SOURCE:
                read = self._reader.read(0, self._offset, max(int(block * self._share), 1))
                self.events += read.offset - self._offset
                self._offset = read.offset
                watermark = watermark if read.watermark is None else read.watermark - 1
                made |= {edge: read.rows for edge in self._edges if edge.upstream == name}
            elif self._graph.kind(name) is Kind.SINK:
                self.rows_out += sum(len(rows) for edge, rows in made.items() if edge.downstream == name)
            else:
                inputs: dict[int, tuple[pa.RecordBatch, ...]] = {}
                for edge, rows in made.items():
                    if edge.downstream == name:
                        inputs[edge.port] = (*inputs.get(edge.port, ()), rows)
                piece = Piece(self._epoch, inputs, watermark, SlotSet.full(self._bits[name]))
                made |= self._logics[name].process(piece)
            self.spent[name] = self.spent.get(name, 0.0) + thread_time() - begin
