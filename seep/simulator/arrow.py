"""The second medium of the simulator: Arrow batches, the real state containers, and outboxes that spill to disk.

Every operator here does exactly the same as the operator of the same name in `operators.py` does with tuples and
dictionaries. The reference run uses those, so each Arrow schedule also compares the containers with plain dictionaries.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.arrow_batches import ArrowBatches
from primitives.emission import EMISSIONS, Emission
from primitives.graph import Edge, QueryGraph
from primitives.outbox import Outbox
from primitives.slots import SlotSet
from primitives.spill import SpillStore
from primitives.state.chunk import Chunk, read_chunk, write_chunk
from primitives.state.container import State
from primitives.state.frame import Frame
from primitives.state.own import OwnState
from primitives.state.processing import Containers
from primitives.state.timers import Timers
from primitives.state.values import Values
from seep.protocol.logic import Logic, Piece, Reading, SourceLogic
from seep.protocol.messages import Positions
from seep.protocol.view import Incarnation
from seep.simulator import operators
from seep.simulator.operators import Rows

Batch: TypeAlias = pa.RecordBatch
Numbers: TypeAlias = NDArray[np.int64]

KEYS = {"key": pa.int64()}
SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("time", pa.int64())])
NOTHING = pa.RecordBatch.from_pylist([], SCHEMA)


class Shipped(Containers):
    """Containers whose chunks are converted to bytes and back, as on a wire, so that they share no memory."""

    def snapshot(self, slots: SlotSet, since: int | None = None) -> tuple[Chunk, ...]:
        return tuple(read_chunk(write_chunk(chunk)) for chunk in super().snapshot(slots, since))


class ArrowOperator:
    """The base of the Arrow operators: state in containers, the same output on every edge."""

    def __init__(self, graph: QueryGraph, name: str) -> None:
        self.edges = graph.outputs[name]
        self.state = Shipped(*self.containers(graph.operators[name].slot_bits))

    def containers(self, slot_bits: int) -> tuple[State, ...]:  # noqa: ARG002
        return ()

    def process(self, piece: Piece[Batch]) -> Mapping[Edge, Batch]:
        batch = self.batch(piece)
        return dict.fromkeys(self.edges, batch) if batch.num_rows else {}

    def batch(self, piece: Piece[Batch]) -> Batch:
        raise NotImplementedError

    def changed(self, since: int) -> int:
        return self.state.changed(since)


class ArrowMap(ArrowOperator):
    def batch(self, piece: Piece[Batch]) -> Batch:
        key, value, time = columns(piece)
        kept = value % 5 != 0
        return make_batch(((key * 5 + value) % 11)[kept], (value * 3 + 1)[kept], time[kept])


class ArrowRoute(ArrowOperator):
    def process(self, piece: Piece[Batch]) -> Mapping[Edge, Batch]:
        key, value, time = columns(piece)
        way = (key + value) % len(self.edges)
        shares = {edge: make_batch(key[way == i], value[way == i], time[way == i]) for i, edge in enumerate(self.edges)}
        return {edge: share for edge, share in shares.items() if share.num_rows}


class ArrowSum(ArrowOperator):
    def containers(self, slot_bits: int) -> tuple[State, ...]:
        self.totals = Frame("totals", KEYS, {"total": pa.int64()}, slot_bits=slot_bits)
        return (self.totals,)

    def batch(self, piece: Piece[Batch]) -> Batch:
        key, value, time = columns(piece)
        keys, first, group = np.unique(key, return_index=True, return_inverse=True)
        latest = np.zeros(len(keys), np.int64)
        np.maximum.at(latest, group, time)
        totals = self.totals.column("total")[self.totals.add(key, total=value)[first]]
        self.totals.delete(keys[totals % 4 == 3])
        return make_batch(keys, totals, latest)


class ArrowDelay(ArrowOperator):
    def containers(self, slot_bits: int) -> tuple[State, ...]:
        self.waiting = Timers("waiting", KEYS, value=pa.int64(), slot_bits=slot_bits)
        return (self.waiting,)

    def batch(self, piece: Piece[Batch]) -> Batch:
        key, value, time = columns(piece)
        self.waiting.schedule_batch(time + operators.Delay.PATIENCE, [key], value)
        return self.waiting.pop(piece.watermark, piece.slots).select(SCHEMA.names)


class ArrowJoin(ArrowOperator):
    """Joins row by row, with a container for each side whose lists are changed in place."""

    def containers(self, slot_bits: int) -> tuple[State, ...]:
        self.sides = tuple(Values(side, KEYS, slot_bits=slot_bits) for side in ("left", "right"))
        return self.sides

    def batch(self, piece: Piece[Batch]) -> Batch:
        met: list[tuple[int, int]] = []
        for port, side in enumerate(self.sides):
            other = self.sides[1 - port]
            key, value, _ = columns(piece, port)
            for k, v in zip(key.tolist(), (value % 7).tolist(), strict=True):
                met += [(k, v * 7 + o if port == 0 else o * 7 + v) for o in other.peek(k, ())]
                side.setdefault(k, []).append(v)
        keys, values = np.array(met, np.int64).reshape(-1, 2).T
        return make_batch(keys, values, np.zeros(len(met), np.int64))


class ArrowSource:
    """Converts a plain source's rows to Arrow; its positions are its own state."""

    def __init__(self, plain: operators.RowSource) -> None:
        self._plain = plain
        self.state = Shipped(OwnState("positions", self, slot_bits=plain.state.slot_bits))

    def seek(self, positions: Positions) -> None:
        self._plain.seek(positions)

    def committed(self, epoch: int) -> None:
        self._plain.committed(epoch)

    def read(self, epoch: int, slots: SlotSet) -> Reading[Batch]:
        return _as_arrow(self._plain.read(epoch, slots))

    def reread(self, epoch: int, slots: SlotSet, positions: Positions) -> Reading[Batch]:
        return _as_arrow(self._plain.reread(epoch, slots, positions))

    def get_processing_state(self, slots: SlotSet) -> dict[int, int]:
        positions = {slot: self._plain.state.get_in(slot, "position") for slot in slots}
        return {slot: position for slot, position in positions.items() if position is not None}

    def set_processing_state(self, state: Mapping[int, int]) -> None:
        self._plain.seek(state)

    def drop_processing_state(self, slots: SlotSet) -> None:
        self._plain.state.drop(slots)


def _as_arrow(reading: Reading[Rows]) -> Reading[Batch]:
    return reading._replace(outputs={edge: from_rows(rows) for edge, rows in reading.outputs.items()})


# --- batches ----------------------------------------------------------------------------------------------------------


def from_rows(rows: Rows) -> Batch:
    """Converts plain rows to a batch."""
    return make_batch(*np.array(rows, np.int64).reshape(-1, 3).T)


def make_batch(*numbers: Numbers) -> Batch:
    """Returns a batch of the given keys, values and times."""
    return pa.record_batch([pa.array(column) for column in numbers], schema=SCHEMA)


def columns(piece: Piece[Batch], port: int = 0) -> tuple[Numbers, Numbers, Numbers]:
    """Returns keys, values and times of all rows on a port."""
    batch = pa.concat_batches([*piece.inputs.get(port, ()), NOTHING])
    key, value, time = (column.to_numpy() for column in batch.columns)
    return key, value, time


def to_rows(batch: Batch) -> Rows:
    """Converts a batch to plain rows."""
    return tuple(zip(*(column.to_pylist() for column in batch.columns), strict=True))


# --- the medium -------------------------------------------------------------------------------------------------------

_NAMESAKES: dict[type[operators.Keyed], type[ArrowOperator]] = {
    operators.RowMap: ArrowMap,
    operators.Route: ArrowRoute,
    operators.Sum: ArrowSum,
    operators.Delay: ArrowDelay,
    operators.RowJoin: ArrowJoin,
}


#: So small that most outboxes have to spill.
BUDGET = 150


class Arrow:
    """Arrow batches and the real containers; with a directory, outboxes that spill to files there."""

    def __init__(self, spill_to: Path | None = None) -> None:
        self._spill_to = spill_to
        self._outboxes = count()

    def batches(self, graph: QueryGraph) -> ArrowBatches:
        return ArrowBatches(graph, {edge: ["key"] for edge in graph.edges})

    def logic(self, graph: QueryGraph, operator: str, kind: type[operators.Keyed]) -> Logic[Batch]:
        return _NAMESAKES[kind](graph, operator)

    def source(self, plain: operators.RowSource) -> SourceLogic[Batch]:
        return ArrowSource(plain)

    def rows(self, batch: Batch) -> Rows:
        return to_rows(batch)

    def outbox(self, me: Incarnation) -> Outbox[Emission[Batch]]:
        if self._spill_to is None:
            return Outbox()
        store = SpillStore(self._spill_to / f"{me}-{next(self._outboxes)}", EMISSIONS)
        return Outbox(budget=BUDGET, spill=store)
