"""The stores that sinks commit to, at the driver or at their nodes, and a record of the committed rows."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from primitives.graph import InstanceId
from seep.protocol.effects import Commit
from seep.protocol.instances.sink import CommitAccepted, CommitRefused, SinkOpened
from seep.protocol.view import Incarnation
from seep.sinks.definition import SinkDefinition, SinkFenced, SinkStore, StoreSite


class Stores:
    """One store per sink at the driver, or one per incarnation of a sink at its node, as the definition says."""

    def __init__(self, sinks: Mapping[str, tuple[SinkDefinition, pa.Schema]]) -> None:
        self._sinks = sinks
        self._at_driver: dict[str, SinkStore] = {}
        self._at_nodes: dict[Incarnation, SinkStore] = {}
        #: committed rows by sink, then by epoch and instance; an epoch committed again replaces itself
        self._rows: dict[str, dict[tuple[int, InstanceId], tuple[pa.RecordBatch, ...]]] = {name: {} for name in sinks}

    def open(self, sink: Incarnation) -> SinkOpened:
        definition, schema = self._sinks[sink.instance.operator]
        if definition.place is StoreSite.DRIVER and sink.instance.operator not in self._at_driver:
            self._at_driver[sink.instance.operator] = definition.store(sink.instance.operator, schema)
        elif definition.place is StoreSite.NODE:
            self._at_nodes[sink] = definition.store(sink.instance.operator, schema)
        return SinkOpened(self._store(sink).open(sink))

    def commit(self, effect: Commit) -> CommitAccepted | CommitRefused:
        """Commits rows; refuses an incarnation that is fenced, or whose store has ended with its node."""
        batches = tuple(batch for port in sorted(effect.inputs) for batch in effect.inputs[port])
        try:
            durable = self._commit(effect, batches)
        except SinkFenced:
            return CommitRefused(effect.epoch)
        self._rows[effect.sink.instance.operator][effect.epoch, effect.sink.instance] = batches
        return CommitAccepted(durable)

    def abandon(self, sink: Incarnation) -> None:
        """Drops the store of a sink whose node has ended."""
        self._at_nodes.pop(sink, None)

    def rewind(self, epoch: int) -> None:
        """Begins a new run after an epoch: each sink removes later rows, as its definition says."""
        self.close()
        self._sinks = {name: (sink.resumed(epoch, sink.note()), schema) for name, (sink, schema) in self._sinks.items()}
        for rows in self._rows.values():
            for later in [place for place in rows if place[0] > epoch]:
                del rows[later]

    def tables(self) -> dict[str, pa.Table]:
        """Returns the rows of every sink, by epoch and then by instance."""
        return {name: self._table(name) for name in self._rows}

    def close(self) -> None:
        for store in (*self._at_driver.values(), *self._at_nodes.values()):
            store.close()
        self._at_driver.clear()
        self._at_nodes.clear()

    def _commit(self, effect: Commit, batches: tuple[pa.RecordBatch, ...]) -> int:
        store = self._store(effect.sink)
        durable = store.commit(effect.sink, effect.epoch, batches, effect.watermark)
        return store.flush() if effect.flush and durable < effect.epoch else durable

    def _store(self, sink: Incarnation) -> SinkStore:
        store = self._at_nodes.get(sink) or self._at_driver.get(sink.instance.operator)
        if store is None:
            raise SinkFenced(f"the store of {sink} has ended")
        return store

    def _table(self, name: str) -> pa.Table:
        rows = self._rows[name]
        return pa.Table.from_batches([batch for place in sorted(rows) for batch in rows[place]], self._sinks[name][1])
