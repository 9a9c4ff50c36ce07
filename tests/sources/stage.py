"""Sources on stage: their logic driven as a source instance drives it, under a clock that stands still."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from primitives.graph import Edge
from primitives.slots import SlotSet
from seep.protocol.logic import Reading
from seep.rows.rate import Rate
from seep.sources.base import ReaderDefinition
from seep.sources.definition import SourceSetting
from seep.sources.logic import PartitionedLogic

EDGE = Edge("source", "next")


class Clock:
    """Time passes when the test says so."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def setting(
    slot_bits: int = 0, *, rate: Rate | None = None, until: float | None = None, max_rows: int = 1 << 19
) -> SourceSetting:
    return SourceSetting("source", slot_bits, (EDGE,), 0.05, rate, until, max_rows)


class Driver:
    """One instance that owns all slots unless told otherwise; remembers what it read."""

    def __init__(self, definition: ReaderDefinition, told: SourceSetting | None = None, clock: Clock | None = None):
        bits = (definition.partitions - 1).bit_length()
        self.clock = clock or Clock()
        self.logic: PartitionedLogic = definition.logic(told or setting(bits), self.clock)
        self.slots = SlotSet.full(bits)
        self.readings: list[Reading[pa.RecordBatch]] = []

    def read(self, slots: SlotSet | None = None) -> Reading[pa.RecordBatch]:
        reading = self.logic.read(len(self.readings) + 1, self.slots if slots is None else slots)
        self.readings.append(reading)
        return reading

    def read_all(self, seconds: float = 0.05) -> list[Reading[pa.RecordBatch]]:
        """Reads, an epoch each `seconds`, until there is no more."""
        while not self.read().exhausted:
            self.clock.now += seconds
        return self.readings


def rows_of(reading: Reading[pa.RecordBatch]) -> list[dict[str, object]]:
    return reading.outputs[EDGE].to_pylist() if reading.outputs else []


def column(readings: Sequence[Reading[pa.RecordBatch]], name: str) -> list[object]:
    return [row[name] for reading in readings for row in rows_of(reading)]
