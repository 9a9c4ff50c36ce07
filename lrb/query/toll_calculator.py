"""The toll calculator: computes statistics, accidents and tolls of each road; emits vehicles that enter a segment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lrb.query.ahead import Ahead
from lrb.query.beginning import FIRST_EPOCH, InitialState
from lrb.query.columns import CROSSINGS, LANES, POSITION_BITS, SEGMENTS, TUPLES
from lrb.query.roads import Roads
from lrb.query.rules import Entries, Reports, Vehicles, drive, silent
from primitives.errors import UserError
from primitives.graph import Kind
from primitives.slots import SlotSet
from primitives.state.columnar.fixed import read_only, to_numbers
from primitives.state.frame import Frame, InPlace
from seep.operators.base import BatchLogic
from seep.operators.definition import Definition, Input, OperatorSetting
from seep.protocol.logic import Piece
from seep.protocol.messages import MAX_WATERMARK

Ints = NDArray[np.int64]

#: Columns of a report, with their valid ranges.
_RANGES = {
    "road": (0, 1 << 20),
    "speed": (0, 1 << 10),
    "lane": (0, LANES),
    "segment": (0, SEGMENTS),
    "position": (0, 1 << POSITION_BITS),
}

#: Vehicles checked for silence per report: all of them within some 15 seconds.
_LOOKED_AT = 2
#: Seconds of silence after which a vehicle begins a new trip, so its state can be deleted.
_SILENCE = 60


class TollCalculator(Definition):
    """Reads reports by road; applies sections 4 to 6 of the spec, and the charges of 7.1.

    A report is applied as soon as none from an earlier second can come. The result does not depend on other reports of
    the same second, except on whether that second has an accident, which matters only in the next minute.
    """

    kind: ClassVar[Kind] = Kind.STATEFUL

    def __init__(self, beginning: InitialState | None = None) -> None:
        self.beginning = beginning

    def output(self, operator: str, inputs: Sequence[Input]) -> pa.Schema:
        """See `Definition.output`."""
        if len(inputs) != 1 or inputs[0].keys != ("road",) or not inputs[0].schema.equals(TUPLES):
            raise UserError(f"operator '{operator}' reads one stream, of what the forwarder puts out, keyed by road")
        return CROSSINGS

    def logic(self, setting: OperatorSetting) -> TollCalculating:
        """See `Definition.logic`."""
        return TollCalculating(setting, self.beginning)


class TollCalculating(BatchLogic):
    """See `TollCalculator`."""

    def __init__(self, setting: OperatorSetting, beginning: InitialState | None = None) -> None:
        bits = setting.slot_bits
        self._beginning = beginning
        self._vehicles = Frame(
            "vehicles",
            {"road": pa.int32()},
            dict.fromkeys(("heard", "place", "equal", "pending", "speeds"), pa.int64()),
            subkeys={"vid": pa.int64()},
            slot_bits=bits,
        )
        self.roads = Roads(bits)
        self._ahead = Ahead(setting.inputs[0], bits)
        self._looked_at = 0  #: the row number of the first vehicle to check next
        super().__init__(setting, self._vehicles, self.roads.state, self._ahead.state)

    def compute(self, piece: Piece[pa.RecordBatch]) -> pa.RecordBatch | None:
        """See `Base.compute`."""
        if self._beginning is not None and piece.epoch == FIRST_EPOCH:
            self._beginning.fill(self._vehicles, piece.slots)
            self.roads.begin(self._beginning, piece.slots)
        rows = self._ahead.due(self.rows(piece), piece.watermark + (piece.watermark < MAX_WATERMARK), piece.slots)
        if not len(rows):
            return None
        _check(rows)
        crossings = self._driven(rows)
        if piece.watermark < MAX_WATERMARK:
            self._forget_silent(_LOOKED_AT * len(rows), piece.watermark - _SILENCE, piece.slots)
        return crossings

    def _driven(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        numbers = read_only(self.roads.numbers(to_numbers(rows["road"])))
        place = self._vehicles.in_place(self._vehicles.locate(rows))
        entries = _room(len(rows))
        done = 0
        while (done := self._drive(rows, numbers, done, place, entries)) < len(rows):
            self.roads.make_room()
        self.counters["late"] += int(entries.counts[1])
        return _crossings(rows, entries)

    def _drive(
        self, rows: pa.RecordBatch, numbers: NDArray[np.int32], start: int, place: InPlace, entries: Entries
    ) -> int:
        columns = {name: to_numbers(rows[name]) for name in Reports._fields if name != "road"}
        vehicles = Vehicles(place.words, place.width, place.first, place.rows)
        reports = Reports(road=numbers, **columns)
        return int(drive(reports, start, vehicles, self.roads.arrays, self.roads.stops, entries))

    def _forget_silent(self, count: int, before: int, slots: SlotSet) -> None:
        """Checks some of the vehicles, and deletes those whose last report is older than `before`."""
        found = self._silent(count, before)
        if len(found):
            roads = to_numbers(self._vehicles.take(found)["road"])
            mine = slots.mask(self.setting.slot_bits)[self.roads.slots(roads)]
            self._vehicles.delete_rows(found[mine])

    def _silent(self, count: int, before: int) -> Ints:
        place = self._vehicles.in_place(np.empty(0, np.int64))
        begin = min(self._looked_at, place.end)
        end = min(begin + count, place.end)
        self._looked_at = end if end < place.end else 0  # from the start again, even if there are more rows by then
        found: Ints = silent(place.words, place.width, place.first, begin, end, before)
        return found


def _check(rows: pa.RecordBatch) -> None:
    """Raises UserError if a report has values that the compiled code does not support."""
    for name, (least, end) in _RANGES.items():
        values = to_numbers(rows[name])
        if values.min() < least or values.max() >= end:
            wrong = int(np.argmax((values < least) | (values >= end)))
            raise UserError(
                f"a report has the {name} {values[wrong]}, which must be {least} to {end - 1}: "
                f"{rows.slice(wrong, 1).to_pylist()[0]}; leave such tuples out"
            )


def _room(count: int) -> Entries:
    return Entries(
        np.empty(count, np.int64), np.empty(count, np.int64), np.empty((count, 3), np.int64), np.zeros(2, np.int64)
    )


def _crossings(rows: pa.RecordBatch, entries: Entries) -> pa.RecordBatch:
    count = int(entries.counts[0])
    report = entries.report[:count]
    lav, toll, accident = entries.told[:count].T
    columns = {
        "vid": to_numbers(rows["vid"])[report],
        "toll": toll.copy(),
        "charged": entries.charged[:count],
        "due": to_numbers(rows["due"])[report],
        "time": to_numbers(rows["time"])[report],
        "lav": lav.astype(np.int32),
        "accident": accident.astype(np.int32),
    }
    return pa.record_batch([pa.array(columns[name]) for name in CROSSINGS.names], schema=CROSSINGS)
