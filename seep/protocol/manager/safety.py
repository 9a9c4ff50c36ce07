"""Safe epochs: the output and state that each instance need not keep, so that its outbox can be trimmed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set
from typing import NamedTuple

from primitives.graph import InstanceId, Kind, QueryGraph
from primitives.topology import Topology
from primitives.trim import safe_to_trim

_NEVER_NEEDED = 2**62


class Unneeded(NamedTuple):
    """The epochs up to which an instance's messages and output are not needed any more."""

    epoch: int  #: not needed up to this epoch
    output: int  #: the same for output alone


class SafeEpochs:
    """The safe epoch of each instance. It only rises, except that a pin holds back the epochs that a split will replay.

    The safe epoch of a stateful instance is its last recorded backup, of a sink its last commit, of all others the last
    epoch up to which all their receivers are safe (up to which any outbox may be trimmed, too). Operators with state
    that are `unkept` are among the others: their state is not recovered.
    """

    def __init__(self, graph: QueryGraph, unkept: Collection[str] = ()) -> None:
        self._graph = graph
        self._keeping = {o for o in graph.order if graph.kind(o) in (Kind.STATEFUL, Kind.SINK) and o not in unkept}
        #: stateful instance or sink -> last recorded backup or commit
        self._kept: dict[InstanceId, int] = {}
        #: each instance -> epoch up to which no receiver needs anything …
        self.trimmed: dict[InstanceId, int] = {}
        #: … or needs output, though new owners of slots may still need the state of the slots that left
        self._sent: dict[InstanceId, int] = {}
        self._pins: dict[InstanceId, int] = {}
        #: instances that have ended, which the topology may still name as receivers
        self._retired: set[InstanceId] = set()
        #: whether anything was recorded since the last `advance`
        self._news = True

    def born(self, instance: InstanceId, epoch: int) -> None:
        self._kept[instance] = self.trimmed[instance] = self._sent[instance] = epoch
        self._news = True

    def of(self, instance: InstanceId) -> int:
        """Returns the epoch up to which the instance's senders need not keep anything for it."""
        if instance in self._retired:
            return _NEVER_NEEDED
        epoch = self._kept[instance] if instance.operator in self._keeping else self.trimmed[instance]
        return min(epoch, self._pins.get(instance, epoch))

    def needed_after(self, instance: InstanceId) -> int:
        """Returns the epoch up to which the instance is not asked for anything, and does not ask for anything."""
        has_receivers = self._graph.kind(instance.operator) is not Kind.SINK
        return min(self.of(instance), self.trimmed[instance]) if has_receivers else self.of(instance)

    def kept(self, instance: InstanceId, epoch: int) -> None:
        """Records a backup or a commit."""
        self._kept[instance] = max(epoch, self._kept[instance])
        self._news = True

    def pin(self, instance: InstanceId) -> None:
        """Keeps everything after the present safe epoch until `unpin`: a split may have to go back to it."""
        self._pins[instance] = self.of(instance)

    def unpin(self, instance: InstanceId) -> None:
        self._pins.pop(instance, None)
        self._news = True

    def set_back(self, instance: InstanceId, epoch: int) -> None:
        """Sets a pinned instance back to a backup older than its newest: the one that was split."""
        self._kept[instance] = epoch

    def retire(self, instance: InstanceId) -> None:
        """Retires an instance that owns nothing any more and whose output is all safe."""
        self._retired.add(instance)
        for record in (self._kept, self.trimmed, self._sent, self._pins):
            record.pop(instance, None)
        self._news = True

    def forget(self, named: Collection[InstanceId]) -> None:
        """Forgets retired instances that the topology does not name any more."""
        self._retired &= set(named)

    @property
    def known(self) -> Set[InstanceId]:
        """The instances of which anything is recorded."""
        return self.trimmed.keys()

    @property
    def pinned(self) -> Set[InstanceId]:
        return self._pins.keys()

    def advance(self, topology: Topology, instances: Iterable[InstanceId], ticked: int) -> dict[InstanceId, Unneeded]:
        """Computes up to which epochs each instance is not needed any more; returns those that have changed."""
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
        self._news = bool(news)  # trimming makes the senders of stateless instances safe in turn
        return news

    def is_done(self, topology: Topology, instance: InstanceId) -> bool:
        """Returns whether an instance that owns nothing any more has no receiver left that needs it."""
        last = topology.last_epoch(instance)
        if last is None:
            return False
        if self._graph.kind(instance.operator) is Kind.SINK:
            return self.of(instance) >= last
        return self.trimmed[instance] >= self._limit(topology, instance, last + 1)

    def _limit(self, topology: Topology, instance: InstanceId, ticked: int) -> int:
        """Returns the last epoch to trim: after the last owned epoch, only the state of departing slots is sent."""
        if self._graph.kind(instance.operator) is Kind.SINK:
            return 0
        last = topology.last_epoch(instance)
        if last is None:
            return ticked
        return last + 1 if topology.departures(instance, last + 1) else last
