"""Rehearsal: a node runs the query's operators on a few artificial rows before it registers.

Compiled kernels are loaded when they are first called, one by one: this would delay the first epochs by a second or
more, which a node that takes over from another one cannot afford. Only built-in operators are rehearsed, because a
user's function may count its calls.
"""

from __future__ import annotations

from contextlib import closing, suppress

import numpy as np
import pyarrow as pa

from primitives.slots import SlotSet
from primitives.topology import Assignment
from seep.operators.aggregation.aggregates import Aggregate
from seep.operators.base import BatchLogic
from seep.operators.definition import Definition, OperatorSetting
from seep.operators.joins import Join
from seep.protocol.logic import Logic, Piece
from seep.protocol.messages import MAX_WATERMARK
from seep.query.program import Program

_ROWS = 4


def rehearse(program: Program) -> None:
    """Calls what the nodes of the query will call; ignores a failure, because the run will report it."""
    for definition, setting in program.operators.values():
        if isinstance(definition, Aggregate | Join):
            with (
                suppress(Exception),
                closing(_logic(definition, setting)) as logic,
                closing(_logic(definition, setting)) as successor,
            ):
                _play(logic, successor, setting)
    batches = program.batches()
    for edge, schema in program.schemas.items():
        with suppress(Exception):
            bits = program.graph.operators[edge.downstream].slot_bits
            batches.split(edge, made_up(schema), Assignment.contiguous(2, bits))
            batches.select(edge, made_up(schema), SlotSet.full(bits) - SlotSet([0]))


def _logic(definition: Definition, setting: OperatorSetting) -> BatchLogic:
    logic = definition.logic(setting)
    assert isinstance(logic, BatchLogic)
    return logic


def _play(logic: Logic[pa.RecordBatch], successor: Logic[pa.RecordBatch], setting: OperatorSetting) -> None:
    """Runs some epochs, a full and an incremental checkpoint, a restore, and the end of the input."""
    everything = SlotSet.full(setting.slot_bits)
    inputs = {port: (made_up(stream.schema),) for port, stream in enumerate(setting.inputs)}
    logic.state.mark(0)
    logic.process(Piece(1, inputs, 0, everything))
    full = tuple(logic.state.snapshot(everything))
    logic.state.mark(1)
    logic.process(Piece(2, inputs, 1, everything))
    successor.state.restore(full)
    successor.state.restore(logic.state.snapshot(everything, 1))
    successor.process(Piece(3, inputs, MAX_WATERMARK, everything))
    successor.state.drop(everything)


def made_up(schema: pa.Schema) -> pa.RecordBatch:
    """Makes a few rows of these columns: small numbers, cast to the type of the column, or nulls.

    >>> made_up(pa.schema([("n", pa.int16()), ("word", pa.string()), ("tags", pa.list_(pa.string()))])).to_pydict()
    {'n': [0, 1, 0, 1], 'word': ['0', '1', '0', '1'], 'tags': [None, None, None, None]}
    """
    return pa.record_batch([_column(field.type) for field in schema], schema=schema)


def _column(kind: pa.DataType) -> pa.Array:
    numbers = pa.array(np.arange(_ROWS, dtype=np.int64) % 2)
    try:
        return numbers.cast(kind)
    except pa.ArrowException:
        return pa.nulls(_ROWS, kind)
