"""The chronicle: what the manager does, and how recoveries get on, told as events of the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from primitives.graph import InstanceId, Kind, QueryGraph
from seep.protocol.effects import Event
from seep.protocol.view import Seat
from seep.runtime.events import Events
from seep.runtime.recovery import Recovered, Recoveries

Placement = Mapping[InstanceId, Seat]


class Chronicle:
    """Told of what happens as it happens; for the manager's thread, except `killed`."""

    def __init__(self, events: Events, graph: QueryGraph) -> None:
        self._events = events
        self._graph = graph
        self._recoveries = Recoveries()
        #: why the node was given up of which the manager will say that it is lost
        self._why = ""

    def killed(self, node: str, placement: Placement) -> None:
        """Somebody has killed a node on purpose; said right before."""
        self._recoveries.killed(node, self._events.now)
        hosted = ", ".join(map(str, _hosted(node, placement))) or "nothing"
        self._events.add("killed", node=node, detail=f"with {hosted}")

    def given_up(self, node: str, why: str, placement: Placement, ticked: int) -> None:
        """A node is about to be lost to the manager, with what it hosts."""
        hosted = _hosted(node, placement)
        stateful = {i for i in hosted if self._graph.kind(i.operator) is Kind.STATEFUL}
        self._recoveries.lost(node, hosted, stateful, ticked, self._events.now)
        self._why = why

    def tell(self, event: Event, instances: Iterable[InstanceId]) -> None:
        """Something that the manager tells of one of these instances, or of an operator or a node."""
        if event.kind == "node lost":
            self._events.add(event.kind, node=event.subject, detail=self._why)
            return
        instance = _named(event.subject, instances)
        if event.kind in ("restored", "split effective") and instance is not None:
            self._recoveries.restored(instance, self._events.now)
        operator = instance.operator if instance else event.subject
        name = str(instance) if instance else None
        self._events.add(event.kind, operator=operator, instance=name, detail=event.detail)

    def committed(self, epoch: int) -> None:
        """All sinks are past an epoch."""
        for recovered in self._recoveries.committed(epoch, self._events.now):
            self._tell_recovered(recovered)

    def _tell_recovered(self, recovered: Recovered) -> None:
        parts = {name: getattr(recovered, name) for name in ("detected", "restored", "replayed")}
        for instance in recovered.instances:
            self._events.add(
                "recovered", operator=instance.operator, instance=str(instance), seconds=recovered.total, parts=parts
            )


def _hosted(node: str, placement: Placement) -> tuple[InstanceId, ...]:
    return tuple(instance for instance, seat in placement.items() if seat.node == node)


def _named(subject: str, instances: Iterable[InstanceId]) -> InstanceId | None:
    """`counter[2]` or `counter[2]#1` as an instance."""
    return next((instance for instance in instances if str(instance) == subject.partition("#")[0]), None)
