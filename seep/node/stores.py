"""Stores of sinks whose rows go to the driver: the ends at the instance and at the driver."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from primitives.errors import EnvironmentFault
from seep.channels.links import Link
from seep.protocol.view import Incarnation
from seep.query.program import Program
from seep.sinks.definition import SinkFenced, SinkStore, StoreSite
from seep.sinks.in_driver import Collected

#: Seconds until a failed call is repeated.
_RETRY = 0.05


class RemoteStore(SinkStore):
    """A store in the driver. Calls are repeated until answered, which is safe, as the store knows what it has."""

    def __init__(self, link: Link, ended: threading.Event) -> None:
        self._link = link
        self._ended = ended

    def open(self, sink: Incarnation) -> int:
        return self._ask("sink open", {"sink": sink})

    def commit(self, sink: Incarnation, epoch: int, batches: Sequence[pa.RecordBatch], watermark: int) -> int:
        body = {"sink": sink, "epoch": epoch, "batches": list(batches), "watermark": watermark}
        return self._ask("sink commit", body)

    def _ask(self, method: str, body: Mapping[str, Any]) -> int:
        while True:
            try:
                answer = self._link.call(method, body)
            except EnvironmentFault:
                if self._ended.wait(_RETRY):
                    raise SinkFenced from None
                continue
            if answer is None:
                raise SinkFenced
            return int(answer)


class DriverStores:
    """The stores of all sinks that commit to the driver."""

    def __init__(self, program: Program) -> None:
        self.stores: dict[str, SinkStore] = {
            operator: definition.store(operator, schema)
            for operator, (definition, schema) in program.sinks.items()
            if definition.place is StoreSite.DRIVER
        }

    def open(self, body: Mapping[str, Any]) -> int | None:
        sink = body["sink"]
        return self.stores[sink.instance.operator].open(sink)

    def commit(self, body: Mapping[str, Any]) -> int | None:
        """Commits rows; returns the last durable epoch, or None for an instance that was replaced."""
        sink = body["sink"]
        store = self.stores[sink.instance.operator]
        try:
            return store.commit(sink, body["epoch"], body["batches"], body["watermark"])
        except SinkFenced:
            return None

    def table(self, operator: str) -> pa.Table:
        """Returns the rows of a `collect` sink so far."""
        store = self.stores[operator]
        assert isinstance(store, Collected)
        return store.table()

    def close(self) -> None:
        for store in self.stores.values():
            store.close()
