"""The external world: where sinks commit, and what must be true of it at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from primitives.errors import InternalError
from primitives.graph import InstanceId
from seep.protocol.view import Incarnation
from seep.simulator.operators import Row


class SinkStore:
    """A transactional store: epochs of an instance in order, each once, and only from its newest incarnation."""

    def __init__(self) -> None:
        self._open: dict[InstanceId, int] = {}
        self._committed: dict[InstanceId, int] = {}
        self._begun = 0
        #: operator -> epoch -> (port, row) -> how often
        self.rows: dict[str, dict[int, Counter[tuple[int, Row]]]] = {}

    def open(self, sink: Incarnation) -> int:
        """Fences earlier incarnations; returns the last epoch committed by the instance."""
        self._open[sink.instance] = max(sink.number, self._open.get(sink.instance, 0))
        return self._committed.get(sink.instance, self._begun)

    def rewind(self, epoch: int) -> None:
        """Takes back what was committed after an epoch: a new run begins there."""
        self._begun = epoch
        self._committed.clear()
        for epochs in self.rows.values():
            for later in [each for each in epochs if each > epoch]:
                del epochs[later]

    def commit(self, sink: Incarnation, epoch: int, inputs: Mapping[int, Iterable[Row]]) -> bool:
        if sink.number < self._open[sink.instance]:
            return False
        if epoch <= self._committed.get(sink.instance, self._begun):
            raise InternalError(f"{sink} commits epoch {epoch} a second time")
        self._committed[sink.instance] = epoch
        rows = self.rows.setdefault(sink.instance.operator, {}).setdefault(epoch, Counter())
        for port, of_port in inputs.items():
            rows.update((port, row) for row in of_port)
        return True
