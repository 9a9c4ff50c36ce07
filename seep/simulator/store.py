"""The external store of a world, where sinks commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from primitives.errors import InternalError
from primitives.graph import InstanceId
from seep.protocol.effects import Commit
from seep.protocol.instances.sink import CommitAccepted, CommitRefused, SinkOpened
from seep.protocol.view import Incarnation
from seep.simulator.operators import Row, Rows


class SimulatedSinkStore:
    """A transactional store: epochs of an instance in order, each once, and only from its newest incarnation."""

    def __init__(self, rows_of: Callable[[Any], Rows]) -> None:
        self._rows_of = rows_of
        self._open: dict[InstanceId, int] = {}
        self._committed: dict[InstanceId, int] = {}
        self._begun = 0
        #: operator -> epoch -> (port, row) -> number of times
        self.rows: dict[str, dict[int, Counter[tuple[int, Row]]]] = {}

    def open(self, sink: Incarnation) -> SinkOpened:
        """Fences earlier incarnations; returns the last epoch committed by the instance."""
        self._open[sink.instance] = max(sink.number, self._open.get(sink.instance, 0))
        return SinkOpened(self._committed.get(sink.instance, self._begun))

    def abandon(self, sink: Incarnation) -> None:
        """Does nothing: an external store does not notice that the node has ended."""

    def rewind(self, epoch: int) -> None:
        """Undoes the commits after an epoch, because a new run begins there."""
        self._begun = epoch
        self._committed.clear()
        for epochs in self.rows.values():
            for later in [each for each in epochs if each > epoch]:
                del epochs[later]

    def commit(self, commit: Commit) -> CommitAccepted | CommitRefused:
        """See `Sinks`."""
        sink, epoch = commit.sink, commit.epoch
        if sink.number < self._open[sink.instance]:
            return CommitRefused(epoch)
        if epoch <= self._committed.get(sink.instance, self._begun):
            raise InternalError(f"{sink} commits epoch {epoch} a second time")
        self._committed[sink.instance] = epoch
        rows = self.rows.setdefault(sink.instance.operator, {}).setdefault(epoch, Counter())
        for port, batches in commit.inputs.items():
            rows.update((port, row) for batch in batches for row in self._rows_of(batch))
        return CommitAccepted(epoch)
