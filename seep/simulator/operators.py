"""Small operators for the simulator. Rows are (key, value, time) tuples; a batch is a tuple of rows.

Each operator is deterministic and independent of the distribution of slots, as the protocol requires.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from primitives.graph import Edge, QueryGraph
from primitives.slots import SlotSet
from primitives.topology import Assignment
from seep.protocol.logic import Piece, Reading
from seep.protocol.messages import MAX_WATERMARK, Positions
from seep.simulator.cells import Cells, slot_of_key

Row = tuple[int, int, int]
Rows = tuple[Row, ...]


class RowBatches:
    """Batches as tuples of rows, which are split by the slot of their key."""

    def __init__(self, graph: QueryGraph) -> None:
        self._bits = {o.name: o.slot_bits for o in graph.operators.values()}

    def split(self, edge: Edge, batch: Rows, assignment: Assignment) -> Mapping[int, Rows]:
        if assignment.sole_owner is not None:
            return {assignment.sole_owner: batch}
        bits, owners = self._bits[edge.downstream], assignment.table
        parts: dict[int, list[Row]] = {}
        for row in batch:
            parts.setdefault(owners[slot_of_key(row[0], bits)], []).append(row)
        return {index: tuple(rows) for index, rows in parts.items()}

    def select(self, edge: Edge, batch: Rows, slots: SlotSet) -> Rows | None:
        bits = self._bits[edge.downstream]
        return tuple(row for row in batch if slot_of_key(row[0], bits) in slots) or None

    def concat(self, batches: Sequence[Rows]) -> Rows:
        return tuple(chain.from_iterable(batches))


def rows_of(piece: Piece[Rows], port: int = 0) -> list[Row]:
    return [row for batch in piece.inputs.get(port, ()) for row in batch]


class Keyed:
    """The base class of the plain operators: state in one container, the same output on every edge."""

    def __init__(self, graph: QueryGraph, name: str) -> None:
        self.edges = graph.outputs[name]
        self.state = Cells(name, graph.operators[name].slot_bits)

    def process(self, piece: Piece[Rows]) -> Mapping[Edge, Rows]:
        rows = tuple(self.rows(piece))
        return dict.fromkeys(self.edges, rows) if rows else {}

    def rows(self, piece: Piece[Rows]) -> Sequence[Row]:
        raise NotImplementedError

    def changed(self, since: int) -> int:
        return self.state.changed(since)


class RowMap(Keyed):
    """A stateless operator that drops every fifth value and moves rows to other keys; its state is only a cache."""

    def rows(self, piece: Piece[Rows]) -> Sequence[Row]:
        return [(self._moved(key * 5 + value), value * 3 + 1, time) for key, value, time in rows_of(piece) if value % 5]

    def _moved(self, number: int) -> int:
        if self.state.get(number) is None:
            self.state.put(number, number % 11)
        return int(self.state.get(number))


class Route(Keyed):
    """A stateless operator with several outputs: each edge gets its own rows, and some edges get none."""

    def process(self, piece: Piece[Rows]) -> Mapping[Edge, Rows]:
        rows, ways = rows_of(piece), len(self.edges)
        shares = {edge: tuple(r for r in rows if (r[0] + r[1]) % ways == i) for i, edge in enumerate(self.edges)}
        return {edge: share for edge, share in shares.items() if share}


class Sum(Keyed):
    """A running sum per key, which is removed at times so that deletions occur."""

    def rows(self, piece: Piece[Rows]) -> Sequence[Row]:
        news: dict[int, tuple[int, int]] = {}
        for key, value, time in rows_of(piece):
            total, latest = news.get(key, (0, 0))
            news[key] = (total + value, max(latest, time))
        return [self._add(key, value, time) for key, (value, time) in news.items()]

    def _add(self, key: int, value: int, time: int) -> Row:
        total = self.state.get(key, 0) + value
        if total % 4 == 3:
            self.state.delete(key)
        else:
            self.state.put(key, total)
        return key, total, time


class Delay(Keyed):
    """Delayed rows: each is put out again when the watermark has passed its time by a fixed amount."""

    PATIENCE = 12

    def rows(self, piece: Piece[Rows]) -> Sequence[Row]:
        for key, value, time in rows_of(piece):
            self.state.put(key, tuple(sorted((*self.state.get(key, ()), (time + self.PATIENCE, value)))))
        return [row for key in self.state.keys_in(piece.slots) for row in self._due(key, piece.watermark)]

    def _due(self, key: int, watermark: int) -> list[Row]:
        waiting = self.state.get(key)
        later = tuple(entry for entry in waiting if entry[0] > watermark)
        if len(later) == len(waiting):
            return []
        if later:
            self.state.put(key, later)
        else:
            self.state.delete(key)
        return [(key, value, time) for time, value in waiting if time <= watermark]


class RowJoin(Keyed):
    """A join of two inputs by key without a window: every left value meets every right value once."""

    def rows(self, piece: Piece[Rows]) -> Sequence[Row]:
        new: dict[int, tuple[list[int], list[int]]] = {}
        for port in (0, 1):
            for key, value, _ in rows_of(piece, port):
                new.setdefault(key, ([], []))[port].append(value % 7)
        return [row for key, (left, right) in new.items() for row in self._meet(key, left, right)]

    def _meet(self, key: int, left: list[int], right: list[int]) -> list[Row]:
        old_left, old_right = self.state.get(key, ((), ()))
        met = [(a, b) for a in left for b in (*old_right, *right)] + [(a, b) for a in old_left for b in right]
        self.state.put(key, (tuple(sorted((*old_left, *left))), tuple(sorted((*old_right, *right)))))
        return [(key, a * 7 + b, 0) for a, b in met]


class RowSource:
    """A source that reads its partitions (one per slot) in portions of random size, which only the log knows."""

    def __init__(self, graph: QueryGraph, name: str, data: Mapping[int, Rows], bite: Callable[[], int]) -> None:
        self.edges = graph.outputs[name]
        self.state = Cells(name, graph.operators[name].slot_bits)
        self._data = data
        self._bite = bite

    def seek(self, positions: Positions) -> None:
        for slot, position in positions.items():
            self.state.put_in(slot, "position", position)

    def committed(self, epoch: int) -> None:
        """Does nothing: how much this source reads does not depend on commits."""

    def read(self, epoch: int, slots: SlotSet) -> Reading[Rows]:  # noqa: ARG002
        ends = {slot: min(self._position(slot) + self._bite(), len(self._data[slot])) for slot in slots}
        return self._read_up_to(ends)

    def reread(self, epoch: int, slots: SlotSet, positions: Positions) -> Reading[Rows]:  # noqa: ARG002
        return self._read_up_to({slot: positions[slot] for slot in slots})

    def _read_up_to(self, ends: Mapping[int, int]) -> Reading[Rows]:
        rows: list[Row] = []
        for slot, end in ends.items():
            rows += self._data[slot][self._position(slot) : end]
            self.state.put_in(slot, "position", end)
        watermark = min((watermark_of(self._data[slot], end) for slot, end in ends.items()), default=MAX_WATERMARK)
        exhausted = all(end == len(self._data[slot]) for slot, end in ends.items())
        return Reading({edge: tuple(rows) for edge in self.edges} if rows else {}, dict(ends), watermark, exhausted)

    def _position(self, slot: int) -> int:
        return int(self.state.get_in(slot, "position", 0))


def watermark_of(rows: Rows, position: int) -> int:
    """Returns a time that no row after `position` precedes; rows of a partition are ordered by time."""
    return rows[position][2] if position < len(rows) else MAX_WATERMARK


def make_data(rng: random.Random, slots: int, rows: int, keys: int) -> dict[int, Rows]:
    """Returns the input of one source: for each partition, rows with ascending times."""
    return {
        slot: tuple(
            (rng.randrange(keys), rng.randrange(50), i * 3 + rng.randrange(3))
            for i in range(rng.randint(rows // 2, rows))
        )
        for slot in range(slots)
    }
