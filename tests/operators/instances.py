"""A few instances of one operator that share its slots, driven epoch by epoch; slots move between them by chunks."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from primitives.graph import Edge
from primitives.hashing import hash_keys
from primitives.slots import SlotSet, slots_of
from primitives.state.chunk import Chunk, read_chunk, write_chunk
from seep.operators.definition import Definition, Input, OperatorSetting
from seep.protocol.logic import Piece
from seep.protocol.messages import MAX_WATERMARK

Row = dict[str, Any]

NAME = "operator"
OUT, LETTERS = Edge(NAME, "out"), Edge(NAME, "letters")
MIN_WATERMARK = -(2**63)


def setting_of(
    definition: Definition, inputs: Sequence[Input], *, slot_bits: int = 2, letters: bool = False
) -> OperatorSetting:
    return OperatorSetting(
        operator=NAME,
        slot_bits=slot_bits,
        inputs=tuple(inputs),
        output=definition.output(NAME, inputs),
        outputs=(OUT,),
        dead_letters=LETTERS if letters else None,
    )


class Instances:
    """What comes out of all instances together must be the same however the slots are divided."""

    def __init__(
        self,
        definition: Definition,
        inputs: Sequence[Input],
        *,
        count: int = 1,
        slot_bits: int = 2,
        letters: bool = False,
        seed: int = 0,
    ) -> None:
        self.setting = setting_of(definition, inputs, slot_bits=slot_bits, letters=letters)
        self.definition = definition
        self.logics = [definition.logic(self.setting) for _ in range(count)]
        self.owners = np.arange(1 << slot_bits) % count
        self.now = 0
        self.letters: list[Row] = []
        self._random = random.Random(seed)

    def epoch(self, *ports: Iterable[Row] | pa.RecordBatch, watermark: int = MIN_WATERMARK) -> list[Row]:
        """What the instances put out in the next epoch for the rows given by port."""
        self.now += 1
        batches = [self._batch(port, rows) for port, rows in enumerate(ports)]
        out: list[Row] = []
        for instance, logic in enumerate(self.logics):
            for slots in self._cut(SlotSet(np.flatnonzero(self.owners == instance))):
                inputs = {port: self._shuffled(self._select(port, batch, slots)) for port, batch in enumerate(batches)}
                outputs = logic.process(Piece(self.now, {p: b for p, b in inputs.items() if b}, watermark, slots))
                for edge, batch in outputs.items():
                    assert batch.num_rows, "an edge without rows is left out"
                    (out if edge == OUT else self.letters).extend(batch.to_pylist())
                if OUT in outputs:
                    assert outputs[OUT].schema.equals(self.setting.output, check_metadata=True)
        return out

    def end(self, *ports: Iterable[Row] | pa.RecordBatch) -> list[Row]:
        return self.epoch(*ports, watermark=MAX_WATERMARK)

    def move(self, slots: SlotSet, target: int) -> None:
        """Hands slots over, from whoever has them."""
        for origin, logic in enumerate(self.logics):
            moving = slots & SlotSet(np.flatnonzero(self.owners == origin))
            if origin != target and moving:
                self.logics[target].state.restore(_shipped(logic.state.snapshot(moving)))
                logic.state.drop(moving)
                self.owners[moving.array] = target

    def recover(self, instance: int) -> None:
        """Replaces an instance by a new one that is restored from a checkpoint and what changed since an epoch ago."""
        old, slots = self.logics[instance], SlotSet(np.flatnonzero(self.owners == instance))
        new = self.logics[instance] = self.definition.logic(self.setting)
        new.state.restore(_shipped(old.state.snapshot(slots)))

    def _cut(self, slots: SlotSet) -> list[SlotSet]:
        """Slots in one or two pieces, as when some of them are still arriving."""
        some = SlotSet([slot for slot in slots if self._random.random() < 0.3])
        return [part for part in (slots - some, some) if part] if slots else []

    def _batch(self, port: int, rows: Iterable[Row] | pa.RecordBatch) -> pa.RecordBatch:
        schema = self.setting.inputs[port].schema
        return rows if isinstance(rows, pa.RecordBatch) else pa.RecordBatch.from_pylist(list(rows), schema)

    def _select(self, port: int, batch: pa.RecordBatch, slots: SlotSet) -> pa.RecordBatch:
        keys = [batch.column(key) for key in self.setting.inputs[port].keys or batch.schema.names]
        owned = slots.mask(self.setting.slot_bits)[slots_of(hash_keys(keys), self.setting.slot_bits)]
        return batch.filter(pa.array(owned))

    def _shuffled(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, ...]:
        """The rows in any order, in any number of batches."""
        rows = list(range(len(batch)))
        self._random.shuffle(rows)
        cut = self._random.randrange(len(rows) + 1)
        parts = [batch.take(pa.array(part, pa.int64())) for part in (rows[:cut], rows[cut:])]
        return tuple(part for part in parts if len(part))


def _shipped(chunks: Iterable[Chunk]) -> list[Chunk]:
    return [read_chunk(write_chunk(chunk)) for chunk in chunks]


def bag(rows: Iterable[Row]) -> Counter[str]:
    """Rows to be compared without regard to their order."""
    return Counter(json.dumps(row, sort_keys=True, default=str) for row in rows)
