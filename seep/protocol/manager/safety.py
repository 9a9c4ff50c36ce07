"""Safe epochs: what each instance could lose without loss to the query, and how far each outbox may be trimmed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set
from typing import NamedTuple

from primitives.graph import InstanceId, Kind, QueryGraph
from primitives.topology import Topology
from primitives.trim import safe_to_trim

_NEVER_NEEDED = 2**62


class Unneeded(NamedTuple):
    """What of an instance nobody needs any more."""

    epoch: int  #: anything up to here
    output: int  #: output up to here


class SafeEpochs:
    """The safe epoch of each instance. It only rises, except that a pin holds back what a split will replay.

    The safe epoch is of a stateful instance the last recorded backup, of a sink the last commit, of all others the
    last epoch that all their receivers are safe up to (which is also how far any outbox may be trimmed). Operators with
    state that are `unkept` are among those others: what they knew is gone with them.
    """

    def __init__(self, graph: QueryGraph, unkept: Collection[str] = ()) -> None:
        self._graph = graph
        self._keeping = {o for o in graph.order if graph.kind(o) in (Kind.STATEFUL, Kind.SINK) and o not in unkept}
        #: of stateful instances and sinks: last recorded backup or commit
        self._kept: dict[InstanceId, int] = {}
        #: of all instances: no receiver needs anything up to here …
        self.trimmed: dict[InstanceId, int] = {}
        #: … nor output up to here, though new owners of slots may need the state that left with them
        self._sent: dict[InstanceId, int] = {}
        self._pins: dict[InstanceId, int] = {}
        #: instances that are no more, and that the topology may still name as receivers
        self._retired: set[InstanceId] = set()
        #: whether anything was recorded that `advance` has not looked at
        self._news = True

    def born(self, instance: InstanceId, epoch: int) -> None:
        self._kept[instance] = self.trimmed[instance] = self._sent[instance] = epoch
        self._news = True

    def of(self, instance: InstanceId) -> int:
        """Everything up to this epoch can be lost by the instance's senders."""
        if instance in self._retired:
            return _NEVER_NEEDED
        epoch = self._kept[instance] if instance.operator in self._keeping else self.trimmed[instance]
        return min(epoch, self._pins.get(instance, epoch))

    def needed_after(self, instance: InstanceId) -> int:
        """Nobody asks the instance for anything up to this epoch, nor does it ask for that itself."""
        has_receivers = self._graph.kind(instance.operator) is not Kind.SINK
        return min(self.of(instance), self.trimmed[instance]) if has_receivers else self.of(instance)

    def kept(self, instance: InstanceId, epoch: int) -> None:
        """Notes a recorded backup, or a commit."""
        self._kept[instance] = max(epoch, self._kept[instance])
        self._news = True

    def pin(self, instance: InstanceId) -> None:
        """Until `unpin`, nothing after the present safe epoch may be lost: a split may have to go back to it."""
        self._pins[instance] = self.of(instance)

    def unpin(self, instance: InstanceId) -> None:
        self._pins.pop(instance, None)
        self._news = True

    def set_back(self, instance: InstanceId, epoch: int) -> None:
        """A pinned instance goes on from an older backup than its newest: that of a split."""
        self._kept[instance] = epoch

    def retire(self, instance: InstanceId) -> None:
        """Retires an instance that owns nothing any more and of which all output is safe."""
        self._retired.add(instance)
        for record in (self._kept, self.trimmed, self._sent, self._pins):
            record.pop(instance, None)
        self._news = True

    def forget(self, named: Collection[InstanceId]) -> None:
        """Forgets retired instances that the topology does not name any more."""
        self._retired &= set(named)

    @property
    def known(self) -> Set[InstanceId]:
        """The instances that anything is recorded of."""
        return self.trimmed.keys()

    @property
    def pinned(self) -> Set[InstanceId]:
        return self._pins.keys()

    def advance(self, topology: Topology, instances: Iterable[InstanceId], ticked: int) -> dict[InstanceId, Unneeded]:
        """Works out what of each instance is not needed any more; returns those for which that is news."""
        if not self._news:
            return {}
        place = {operator: i for i, operator in enumerate(self._graph.order)}
        news: dict[InstanceId, Unneeded] = {}
        for instance in sorted(instances, key=lambda i: place[i.operator], reverse=True):
            before = Unneeded(self.trimmed[instance], self._sent[instance])
            limit = self._limit(topology, instance, ticked)
            epoch = safe_to_trim(topology, instance, before.epoch, limit, self.of)
            output = safe_to_trim(topology, instance, max(epoch, before.output), limit, self.of, of_output=True)
            if (epoch, output) != before:
                self.trimmed[instance], self._sent[instance] = news[instance] = Unneeded(epoch, output)
        self._news = bool(news)  # what was trimmed makes senders of stateless instances safe in turn
        return news

    def is_done(self, topology: Topology, instance: InstanceId) -> bool:
        """Whether an instance that owns nothing any more has no receiver left that needs it."""
        last = topology.last_epoch(instance)
        if last is None:
            return False
        if self._graph.kind(instance.operator) is Kind.SINK:
            return self.of(instance) >= last
        return self.trimmed[instance] >= self._limit(topology, instance, last + 1)

    def _limit(self, topology: Topology, instance: InstanceId, ticked: int) -> int:
        """Beyond the last epoch that an instance owns, only the state of departing slots is left to be sent."""
        if self._graph.kind(instance.operator) is Kind.SINK:
            return 0
        last = topology.last_epoch(instance)
        if last is None:
            return ticked
        return last + 1 if topology.departures(instance, last + 1) else last
