"""Processes the hours before a trial in this process, as fast as possible, to compute the initial state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from time import thread_time
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lrb.generator import TrafficSettings, gathered, traffic
from lrb.query.beginning import InitialState
from lrb.query.linear_road import linear_road
from lrb.query.toll_calculator import TollCalculating
from lrb.schema import INPUT
from primitives.graph import Edge
from primitives.slots import SlotSet
from seep import sinks, sources
from seep.operators.base import BatchLogic
from seep.protocol.logic import Piece
from seep.query.program import Program
from seep.rows.batches import empty

OPERATORS = ("forwarder", "toll_calculator", "toll_assessment", "toll_collector", "balance_account")
_ALL = SlotSet.full(8)
#: Containers with rows by vehicle.
_KNOWN = ("vehicles", "accounts", "totals")
#: Tuples in an epoch: many, because each epoch has a fixed cost.
_ROWS = 1 << 16
_TRAFFIC = "traffic.arrow"


class LocalChain:
    """The operators between source and sink; measures the CPU time of each."""

    def __init__(self) -> None:
        feeder = sources.memory(empty(INPUT), time="time")
        program: Program = linear_road(feeder, sinks.discard()).compile()
        self._logics: dict[str, BatchLogic] = {}
        for name in OPERATORS:
            logic = program.logic(name)
            assert isinstance(logic, BatchLogic)
            self._logics[name] = logic
        self.spent = dict.fromkeys(OPERATORS, 0.0)
        self._epoch = 0

    def process(self, tuples: pa.RecordBatch, watermark: int) -> Mapping[Edge, pa.RecordBatch]:
        """Processes tuples as one epoch; returns the rows on each edge."""
        self._epoch += 1
        made: dict[Edge, pa.RecordBatch] = {Edge("feeder", "forwarder"): tuples}
        for name in OPERATORS:
            inputs = {edge.port: (rows,) for edge, rows in made.items() if edge.downstream == name}
            made |= self._work(name, Piece(self._epoch, inputs, watermark, _ALL))
        return made

    def beginning(self) -> dict[str, pa.RecordBatch]:
        """Returns the operators' current state, for `InitialState.write`."""
        chunks = [chunk for logic in self._logics.values() for chunk in logic.state.snapshot(_ALL)]
        rows = {chunk.name: chunk.rows for chunk in chunks if chunk.name in _KNOWN}
        calculating = self._logics["toll_calculator"]
        assert isinstance(calculating, TollCalculating)
        return rows | {calculating.roads.state.name: calculating.roads.as_beginning()}

    def _work(self, name: str, piece: Piece[pa.RecordBatch]) -> Mapping[Edge, pa.RecordBatch]:
        begin = thread_time()
        made = self._logics[name].process(piece)
        self.spent[name] += thread_time() - begin
        return made


class Rest(NamedTuple):
    """The rest of the traffic of one expressway: a file of tuples."""

    path: Path
    vehicles: int  #: upper limit of vehicle ids, including the part before

    def beginning(self, xways: int) -> InitialState:
        """Returns the initial state for this number of expressways."""
        return InitialState(self.path.parent, xways, self.vehicles)


def fast_forward(
    settings: TrafficSettings, until: int, folder: Path, reach: Callable[[int, int], None] = lambda _, __: None
) -> Rest:
    """Processes the traffic of one expressway before a second; writes the operators' state and the remaining tuples.

    Tells `reach` how many of all seconds of traffic it has gone through.
    """
    chain, vehicles, path = LocalChain(), 0, folder / _TRAFFIC
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, INPUT) as writer:
        for batch in gathered(traffic(settings), _ROWS):
            vehicles = max(vehicles, 1 + int(pc.max(batch["vid"]).as_py()))
            at = int(np.searchsorted(batch["time"].to_numpy(), until))
            _work(chain, batch.slice(0, at))
            writer.write_batch(batch.slice(at))
            reach(batch["time"][-1].as_py() + 1, settings.seconds)
    chain.process(pa.RecordBatch.from_pylist([], INPUT), until - 1)  # rows that wait for the end of that second
    rest = Rest(path, vehicles)
    rest.beginning(1).write(chain.beginning())
    return rest


def _work(chain: LocalChain, tuples: pa.RecordBatch) -> None:
    if len(tuples):
        chain.process(tuples, tuples["time"][-1].as_py() - 1)
