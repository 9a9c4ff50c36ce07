"""The state of a toll calculator for each road: traffic by minute, accidents, and stopped vehicles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lrb.query.beginning import InitialState
from lrb.query.columns import SEGMENTS
from lrb.query.rules import RING, ROAD, RoadArrays, Stops, tell
from primitives.errors import UserError
from primitives.hashing import hash_keys
from primitives.slots import SlotSet, slots_of
from primitives.state.own import OwnState

Ints = NDArray[np.int64]

#: The limit of road numbers, which bounds the table of their places.
_MOST_ROADS = 1 << 20
_FEW_STOPS = 64


class Roads:
    """The container `state` of a toll calculator; dense arrays, in which a report finds its cell without a search.

    It is small, some ten kilobytes a road, and changes everywhere with each minute. So each checkpoint has all of it.
    """

    def __init__(self, slot_bits: int) -> None:
        self.state = OwnState("roads", self, slot_bits=slot_bits)
        self.arrays = _blank(np.empty(0, np.int64))
        self.stops = Stops(np.empty((_FEW_STOPS, 4), np.int64), np.zeros(1, np.int64))
        self._numbers = np.full(2, -1, np.int32)  #: the place of each road in the arrays, or -1
        self._slot_bits = slot_bits

    def numbers(self, roads: NDArray[np.int32]) -> NDArray[np.int32]:
        """Returns the places of roads in the arrays; adds new roads."""
        self._cover(int(roads.max(initial=0)))
        numbers = self._numbers[roads]
        if numbers.min(initial=0) < 0:
            self._append(_blank(np.unique(roads[numbers < 0]).astype(np.int64)))
            numbers = self._numbers[roads]
        return numbers

    def slots(self, roads: NDArray[Any]) -> NDArray[np.uint32]:
        """Returns the slot of each road."""
        return slots_of(hash_keys([roads]), self._slot_bits)

    def begin(self, beginning: InitialState, slots: SlotSet) -> None:
        """Adds the initial roads of these slots."""
        arrays, stops = _read(list(zip(*beginning.rows(self.state.name).to_pydict().values(), strict=True)))
        xway = np.repeat(np.arange(beginning.xways), len(arrays.road))
        arrays = RoadArrays(*(np.concatenate([each] * beginning.xways) for each in arrays))
        arrays = arrays._replace(road=arrays.road + 2 * xway)
        moved = [_with_ids(stops[at % len(stops)], int(each) * beginning.vehicles) for at, each in enumerate(xway)]
        mine = np.flatnonzero(slots.mask(self._slot_bits)[self.slots(arrays.road)])
        self._take_in(RoadArrays(*(each[mine] for each in arrays)), [moved[at] for at in mine])

    def as_beginning(self) -> pa.RecordBatch:
        """Returns all roads, in the form that `begin` reads."""
        written = [self._written(number) for number in range(len(self.arrays.road))]
        names = [*RoadArrays._fields[:-1], "stops"]
        return pa.record_batch([pa.array(column, pa.binary()) for column in zip(*written, strict=True)], names)

    def make_room(self) -> None:
        """Makes room for more stopped vehicles."""
        rows = self.stops.rows
        self.stops = self.stops._replace(rows=np.concatenate([rows, np.empty_like(rows)]))

    def _cover(self, road: int) -> None:
        if road >= _MOST_ROADS:
            raise UserError(f"there is an expressway {road // 2}; number them from 0, below {_MOST_ROADS // 2}")
        if road >= len(self._numbers):
            longer = np.full(2 * (road + 1), -1, np.int32)
            longer[: len(self._numbers)] = self._numbers
            self._numbers = longer

    def _take_in(self, arrays: RoadArrays, stops: Sequence[Ints]) -> None:
        """Adds new roads, and the vehicles that stand on each."""
        first = len(self.arrays.road)
        self._append(arrays)
        for number, mine in enumerate(stops, first):
            tell(number, self.arrays)
            self._add_stops(number, mine)

    def _append(self, new: RoadArrays) -> None:
        self._cover(int(new.road.max(initial=0)))
        self._numbers[new.road] = np.arange(len(new.road)) + len(self.arrays.road)
        self.arrays = RoadArrays(*map(np.concatenate, zip(self.arrays, new, strict=True)))

    # --- state of its own ---------------------------------------------------------------------------------------------

    def get_processing_state(self, slots: SlotSet) -> dict[int, list[list[Any]]]:
        """See `OwnProcessingState`. Returns the roads of each slot."""
        found: dict[int, list[list[Any]]] = {}
        for number, slot in enumerate(self.slots(self.arrays.road).tolist()):
            if slot in slots:
                found.setdefault(slot, []).append(self._written(number))
        return found

    def processing_state_size(self, slots: SlotSet) -> int:
        """See `Measured`. All roads count as equally large."""
        whole = sum(array.nbytes for array in self.arrays[:-1]) + self._in_use().nbytes
        mine = int(slots.mask(self._slot_bits)[self.slots(self.arrays.road)].sum())
        return whole * mine // max(len(self.arrays.road), 1)

    def set_processing_state(self, state: Mapping[int, list[list[Any]]]) -> None:
        """See `OwnProcessingState`."""
        written = [road for roads in state.values() for road in roads]
        if written:
            self._take_in(*_read(written))

    def drop_processing_state(self, slots: SlotSet) -> None:
        """See `OwnProcessingState`."""
        kept = ~slots.mask(self._slot_bits)[self.slots(self.arrays.road)]
        if kept.all():
            return
        stops = self._in_use()[kept[self._in_use()[:, ROAD]]]
        stops[:, ROAD] = (np.cumsum(kept) - 1)[stops[:, ROAD]]
        self.stops.rows[: len(stops)], self.stops.used[0] = stops, len(stops)
        self._numbers[:] = -1
        self.arrays = RoadArrays(*(array[kept] for array in self.arrays))
        self._numbers[self.arrays.road] = np.arange(len(self.arrays.road))

    def _in_use(self) -> Ints:
        used: Ints = self.stops.rows[: self.stops.used[0]]
        return used

    def _written(self, number: int) -> list[Any]:
        """Returns a road as plain data, without what can be computed from the rest."""
        stops = self._in_use()
        mine = stops[stops[:, ROAD] == number][:, 1:]
        in_order = mine[np.argsort(mine[:, 0])]  # so that equal states have equal bytes
        return [*(array[number].tobytes() for array in self.arrays[:-1]), in_order.tobytes()]

    def _add_stops(self, number: int, stops: Ints) -> None:
        while self.stops.used[0] + len(stops) > len(self.stops.rows):
            self.make_room()
        first = int(self.stops.used[0])
        self.stops.used[0] += len(stops)
        self._in_use()[first:, ROAD], self._in_use()[first:, 1:] = number, stops


def _blank(roads: Ints) -> RoadArrays:
    count = len(roads)
    return RoadArrays(
        road=roads,
        clock=np.tile(np.array([0, -1]), (count, 1)),
        cells=np.zeros((count, RING, SEGMENTS, 2), np.int64),
        accidents=np.zeros((count, 2, SEGMENTS), np.int64),
        told=np.zeros((count, SEGMENTS, 3), np.int64),
    )


def _read(written: Sequence[Sequence[bytes]]) -> tuple[RoadArrays, list[Ints]]:
    """Converts plain data back to the arrays of roads and the vehicles that stand on each."""
    read = _blank(np.zeros(len(written), np.int64))
    *columns, stops = zip(*written, strict=True)
    for array, parts in zip(read[:-1], columns, strict=True):
        array[:] = np.frombuffer(b"".join(parts), np.int64).reshape(array.shape)
    return read, [np.frombuffer(each, np.int64).reshape(-1, 3) for each in stops]


def _with_ids(stops: Ints, shift: int) -> Ints:
    """Returns the stopped vehicles with higher ids."""
    moved: Ints = stops + np.array([shift, 0, 0])
    return moved
