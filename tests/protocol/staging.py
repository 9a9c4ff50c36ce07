"""A stage for driving single machines by hand: a small query, its views, and short names for what they say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count, islice
from typing import Any, TypeVar

from primitives.event import Event
from primitives.graph import Edge, InstanceId, Kind, OperatorSpec, QueryGraph
from primitives.slots import SlotSet
from primitives.topology import Topology
from seep.protocol.effects import Effect, Post
from seep.protocol.instances.instance import Instance
from seep.protocol.logic import Piece
from seep.protocol.messages import Data
from seep.protocol.view import Incarnation, Seat, View
from seep.simulator.cells import slot_of_key
from seep.simulator.operators import Keyed, Row, RowBatches, Rows, RowSource, rows_of

Body = TypeVar("Body")

SLOT_BITS = 2
ALL = SlotSet.full(SLOT_BITS)

#: Numbers come in, are passed on, summed up per key, and go out.
GRAPH = QueryGraph(
    [
        OperatorSpec("numbers", Kind.SOURCE, 1),
        OperatorSpec("pass", Kind.STATELESS, SLOT_BITS),
        OperatorSpec("sum", Kind.STATEFUL, SLOT_BITS),
        OperatorSpec("out", Kind.SINK, SLOT_BITS),
    ],
    [Edge("numbers", "pass"), Edge("pass", "sum"), Edge("sum", "out")],
)
NUMBERS, PASS, SUM, OUT = (InstanceId(operator, 0) for operator in GRAPH.order)
SUM1, SUM2 = InstanceId("sum", 1), InstanceId("sum", 2)
BATCHES = RowBatches(GRAPH)

#: A key in each slot.
KEYS = tuple(next(key for key in count() if slot_of_key(key, SLOT_BITS) == slot) for slot in range(1 << SLOT_BITS))


class Sum(Keyed):
    """The total per key so far, put out for every key that comes in."""

    def rows(self, piece: Piece[Rows]) -> Sequence[Row]:
        for key, value, _ in rows_of(piece):
            self.state.put(key, self.state.get(key, 0) + value)
        return [(key, self.state.get(key), 0) for key in sorted({row[0] for row in rows_of(piece)})]


class Pass(Keyed):
    """What comes in goes out."""

    def rows(self, piece: Piece[Rows]) -> Sequence[Row]:
        return rows_of(piece)


class Operators:
    """The logic of the query; its source reads one row of each partition per epoch."""

    def __init__(self, rows: int = 9) -> None:
        self._data = {slot: tuple((KEYS[slot], number, number) for number in range(rows)) for slot in range(2)}

    def logic(self, operator: str) -> Keyed:
        return {"pass": Pass, "sum": Sum}[operator](GRAPH, operator)

    def standing(self, operator: str) -> Keyed:
        return self.logic(operator)

    def source(self, operator: str) -> RowSource:
        return RowSource(GRAPH, operator, self._data, bite=lambda: 1)


def life(instance: InstanceId, number: int = 0) -> Incarnation:
    return Incarnation(instance, number)


def node_of(instance: InstanceId) -> str:
    """Unless a test says otherwise, each instance lives on a node of its own."""
    return f"node of {instance}"


def view_of(
    topology: Topology,
    version: int = 1,
    seats: Mapping[InstanceId, Seat] | None = None,
    idle: Iterable[str] = (),
    lost: Iterable[str] = (),
) -> View:
    """All instances of a topology in their first incarnation, each on its own node, but for the given `seats`."""
    placement = {i: Seat(node_of(i), 0) for i in topology.all_instances()} | dict(seats or {})
    nodes = {seat.node for seat in placement.values()}.union(idle).difference(lost)
    return View(version, topology, placement, frozenset(nodes))


def data(
    sender: Incarnation,
    receiver: Incarnation,
    epoch: int,
    rows: Iterable[Row] = (),
    watermark: int = 0,
    created: float = 0.0,
) -> Data:
    batch = tuple(rows)
    return Data(sender, receiver, epoch, {0: batch} if batch else {}, watermark, created)


def letters(effects: Iterable[Effect], kind: type[Body]) -> list[Body]:
    """The letters of one kind that are to be posted."""
    return [effect.body for effect in effects if isinstance(effect, Post) and isinstance(effect.body, kind)]


def letter(effects: Iterable[Effect], kind: type[Body]) -> Body:
    """The only letter of its kind."""
    (body,) = letters(effects, kind)
    return body


def addressees(effects: Iterable[Effect], kind: type[Any]) -> list[str]:
    """To whom letters of one kind are to be posted."""
    return [effect.to for effect in effects if isinstance(effect, Post) and isinstance(effect.body, kind)]


def events(effects: Iterable[Effect]) -> list[str]:
    return [effect.kind for effect in effects if isinstance(effect, Event)]


def of_kind(effects: Iterable[Effect], kind: type[Body]) -> list[Body]:
    return [effect for effect in effects if isinstance(effect, kind)]


def pull_all(instance: Instance[Any], receiver: Incarnation) -> list[Data]:
    """All that is ready for a receiver; bounded, so that a stream without end fails a test instead of hanging it."""
    return list(islice(iter(lambda: instance.pull(receiver), None), 100))


def pull_rows(instance: Instance[Any], receiver: Incarnation) -> dict[int, list[Row]]:
    """The rows that are ready for a receiver, by epoch."""
    return {m.epoch: [*m.batches.get(0, ())] for m in pull_all(instance, receiver)}
