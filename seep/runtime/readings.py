"""Readings: what is known of a run at one moment, from the manager, its source log and the nodes' reports together."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from primitives.graph import InstanceId, Kind
from seep.protocol.manager import Manager
from seep.record.log import EventLog
from seep.runtime.metrics import Metrics, Status
from seep.runtime.observer import Sight


class Readings:
    """Takes them off a manager; for its thread."""

    def __init__(self, events: EventLog, metrics: Metrics, positions: Mapping[str, Mapping[int, Any]]) -> None:
        self._events = events
        self._metrics = metrics
        #: source operator -> partition -> position that the source log has
        self._positions = positions
        #: when an observer last looked
        self._seen = 0.0

    def committed(self, manager: Manager) -> int:
        """All sinks have committed this epoch."""
        sinks = [i for i in manager.placement if manager.graph.kind(i.operator) is Kind.SINK]
        return min((manager.safe.of(sink) for sink in sinks), default=0)

    def status(self, manager: Manager) -> Status:
        used = {seat.node for seat in manager.placement.values()}
        return Status(
            at=self._events.now,
            ticked=manager.ticked,
            committed=self.committed(manager),
            rows_read=self._metrics.rows_read,
            rows_per_second=self._metrics.rate(time.monotonic()),
            latency=self._metrics.latency(time.monotonic()),
            instances=self._metrics.instances(),
            nodes=len(manager.nodes),
            idle_nodes=len(manager.nodes.keys() - used),
            imbalance=self._metrics.imbalance,
        )

    def sight(self, manager: Manager, warm_nodes: int) -> Sight:
        """What an observer is shown."""
        now, since = time.monotonic(), self._seen
        self._seen = now
        latest = {operator: history[-1].assignment for operator, history in manager.topology.history.items()}
        return Sight(
            at=self._events.now,
            clock=time.time(),
            nodes=dict(self._metrics.nodes),
            slots={InstanceId(o, i): len(slots) for o, a in latest.items() for i, slots in a.parts.items()},
            positions={operator: dict(positions) for operator, positions in self._positions.items()},
            latencies=tuple(self._metrics.latencies(since)),
            epochs_in_flight=manager.ticked - self.committed(manager),
            warm_nodes=warm_nodes,
        )
