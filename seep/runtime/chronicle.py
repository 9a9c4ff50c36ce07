"""The chronicle: what the manager does, and how recoveries get on, told as events of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from primitives.event import Event
from primitives.graph import InstanceId, Kind, QueryGraph
from seep.protocol.events import NodeLost, SplitEffective, StateRestored
from seep.protocol.view import Seat
from seep.record.events import InstanceRecovered, NodeKilled
from seep.record.log import EventLog
from seep.runtime.recovery import Recovered, Recoveries

Placement = Mapping[InstanceId, Seat]


class Chronicle:
    """Told of what happens as it happens; for the manager's thread, except `killed`."""

    def __init__(self, events: EventLog, graph: QueryGraph) -> None:
        self._events = events
        self._graph = graph
        self._recoveries = Recoveries()
        #: why the node was given up of which the manager will say that it is lost
        self._why = ""

    def killed(self, node: str, placement: Placement) -> None:
        """Somebody has killed a node on purpose; said right before."""
        self._recoveries.killed(node, self._events.now)
        self._events.add(NodeKilled(node=node, hosted=_hosted(node, placement)))

    def given_up(self, node: str, why: str, placement: Placement, ticked: int) -> None:
        """A node is about to be lost to the manager, with what it hosts."""
        hosted = _hosted(node, placement)
        stateful = {i for i in hosted if self._graph.kind(i.operator) is Kind.STATEFUL}
        self._recoveries.lost(node, hosted, stateful, ticked, self._events.now)
        self._why = why

    def tell(self, event: Event) -> None:
        """Something that the manager tells."""
        if isinstance(event, NodeLost):
            event = replace(event, why=self._why)
        if isinstance(event, StateRestored | SplitEffective):
            self._recoveries.restored(event.subject, self._events.now)
        self._events.add(event)

    def committed(self, epoch: int) -> None:
        """All sinks are past an epoch."""
        for recovered in self._recoveries.committed(epoch, self._events.now):
            self._tell_recovered(recovered)

    def _tell_recovered(self, recovered: Recovered) -> None:
        for instance in recovered.instances:
            self._events.add(
                InstanceRecovered(
                    subject=instance,
                    seconds=recovered.total,
                    detected=recovered.detected,
                    restored=recovered.restored,
                    replayed=recovered.replayed,
                )
            )


def _hosted(node: str, placement: Placement) -> tuple[InstanceId, ...]:
    return tuple(instance for instance, seat in placement.items() if seat.node == node)
