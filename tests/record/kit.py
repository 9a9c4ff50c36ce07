"""What tests of the record share: a small query, reports of its nodes, and a record whose clock the test sets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from primitives.graph import Edge, InstanceId, Kind, OperatorSpec, QueryGraph
from seep.protocol.manager.manager import Manager
from seep.protocol.manager.state import ManagerSettings
from seep.protocol.view import Incarnation
from seep.record.facts import QueryFacts, query_facts
from seep.record.observer import SourceDemand
from seep.record.record import Record
from seep.record.reports import InstanceFigures, NodeReport

SLOT_BITS = 4
GRAPH = QueryGraph(
    [
        OperatorSpec("numbers", Kind.SOURCE, SLOT_BITS),
        OperatorSpec("map", Kind.STATELESS, SLOT_BITS),
        OperatorSpec("counter", Kind.STATEFUL, SLOT_BITS),
        OperatorSpec("out", Kind.SINK, SLOT_BITS),
    ],
    [Edge("numbers", "map"), Edge("map", "counter"), Edge("counter", "out")],
)
COUNTER, MAP = InstanceId("counter", 0), InstanceId("map", 0)


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Recorded:
    """A record and its clock."""

    clock: Clock = field(default_factory=Clock)
    positions: dict[str, dict[int, Any]] = field(default_factory=lambda: {"numbers": {}})

    def __post_init__(self) -> None:
        self.record = Record(GRAPH, {"numbers": SourceDemand(None, 2)}, self.positions, self.clock, self.clock)

    def take(self, name: str, at: float, *instances: InstanceFigures, **more: Any) -> None:
        """A node's report arrives at a time."""
        self.clock.now = at
        self.record.take(name, node(at, *instances, **more))


def figures(operator: str = "counter", incarnation: int = 0, index: int = 0, **more: Any) -> InstanceFigures:
    """What a node tells of one instance."""
    identity = Incarnation(InstanceId(operator, index), incarnation)
    return InstanceFigures(identity=identity, **({"phase": "running", "epoch": 0, "counted": 1} | more))


def node(at: float, *instances: InstanceFigures, **more: Any) -> NodeReport:
    """What a node tells."""
    return NodeReport(at=at, instances=instances, **({"cpu": 0.0, "cores": 1.0} | more))


def launched(nodes: int = 4) -> QueryFacts:
    """A query that runs on some nodes."""
    manager = Manager(GRAPH, dict.fromkeys(GRAPH.order, 1), ManagerSettings())
    for number in range(nodes):
        manager.node_joined(f"n{number + 1}")
    manager.launch()
    return query_facts(manager)
