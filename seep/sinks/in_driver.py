"""Sinks at the driver: they collect rows in its memory, or pass them to a function there."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from threading import Lock

import pyarrow as pa

from primitives.errors import InternalError, SeepError, UserError
from primitives.graph import InstanceId
from seep.protocol.view import Incarnation
from seep.sinks.definition import SinkDefinition, SinkFenced, SinkStore, StoreSite

Function = Callable[[int, pa.Table], object]


def collect() -> SinkDefinition:
    """Keeps all rows in the driver's memory, by epoch and then by instance: for small results, and for tests.

    >>> from primitives.graph import InstanceId
    >>> schema = pa.schema([("n", pa.int64())])
    >>> store, sink = collect().store("out", schema), Incarnation(InstanceId("out", 0), 0)
    >>> store.open(sink)
    0
    >>> store.commit(sink, 1, [pa.record_batch({"n": [7]})], watermark=0)
    1
    >>> store.table().to_pydict()
    {'n': [7]}
    """
    return Collect()


def callback(function: Function) -> SinkDefinition:
    """Calls `function(epoch, table)` in the driver with the rows of each epoch of each instance, if there are any.

    It is called once for an epoch of an instance, so several times for an epoch if the sink has several instances.
    Calls never overlap; the epochs of an instance come in order. While the function runs, the sink waits.
    """
    if not callable(function):
        raise UserError(f"callback() needs a function of an epoch and a table, and got {function!r}")
    return Callback(function)


class Collect(SinkDefinition):
    """See `collect`."""

    place = StoreSite.DRIVER

    def check(self, operator: str, schema: pa.Schema) -> None:
        """Any columns will do."""

    def store(self, operator: str, schema: pa.Schema) -> Collected:
        return Collected(operator, schema)


class Callback(SinkDefinition):
    """See `callback`."""

    place = StoreSite.DRIVER

    def __init__(self, function: Function) -> None:
        self._function = function

    def check(self, operator: str, schema: pa.Schema) -> None:
        """Any columns will do."""

    def store(self, operator: str, schema: pa.Schema) -> SinkStore:
        return CallingStore(operator, schema, self._function)


class DriverStore(SinkStore):
    """A store for all instances of a sink, which may call it concurrently.

    It exists as long as the run, so each commit is durable at once. An instance that did not receive the answer to a
    commit repeats it, and gets the same answer.
    """

    def __init__(self, operator: str, schema: pa.Schema) -> None:
        self._operator = operator
        self._schema = schema
        self._lock = Lock()
        self._incarnations: dict[InstanceId, int] = {}
        self._committed: dict[InstanceId, int] = {}

    def open(self, sink: Incarnation) -> int:
        """See `SinkStore`. An incarnation that is already fenced is refused when it commits."""
        with self._lock:
            self._incarnations[sink.instance] = max(sink.number, self._incarnations.get(sink.instance, sink.number))
            return self._committed.get(sink.instance, 0)

    def commit(self, sink: Incarnation, epoch: int, batches: Sequence[pa.RecordBatch], watermark: int) -> int:  # noqa: ARG002
        """See `SinkStore`."""
        with self._lock:
            self._check(sink)
            if epoch > self._committed.get(sink.instance, 0):
                rows = [batch for batch in batches if batch.num_rows]
                if rows:
                    self._take(sink.instance, epoch, rows)
                self._committed[sink.instance] = epoch
            return self._committed[sink.instance]

    def _check(self, sink: Incarnation) -> None:
        current = self._incarnations.get(sink.instance)
        if current is None:
            raise InternalError(f"{sink} commits without having opened its store")
        if sink.number < current:
            raise SinkFenced(f"{sink} was replaced by #{current}")

    @abstractmethod
    def _take(self, sink: InstanceId, epoch: int, rows: list[pa.RecordBatch]) -> None:
        """Processes the rows of a new epoch; if this fails, the epoch is not committed."""


class Collected(DriverStore):
    """Keeps all rows."""

    def __init__(self, operator: str, schema: pa.Schema) -> None:
        super().__init__(operator, schema)
        self._rows: dict[tuple[int, InstanceId], list[pa.RecordBatch]] = {}

    def table(self) -> pa.Table:
        """Returns the rows committed so far, by epoch and then by instance."""
        with self._lock:
            return pa.Table.from_batches(
                [batch for place in sorted(self._rows) for batch in self._rows[place]], self._schema
            )

    def _take(self, sink: InstanceId, epoch: int, rows: list[pa.RecordBatch]) -> None:
        self._rows[epoch, sink] = rows


class CallingStore(DriverStore):
    """Calls a function with the rows, and keeps none."""

    def __init__(self, operator: str, schema: pa.Schema, function: Function) -> None:
        super().__init__(operator, schema)
        self._function = function

    def _take(self, sink: InstanceId, epoch: int, rows: list[pa.RecordBatch]) -> None:
        try:
            self._function(epoch, pa.Table.from_batches(rows, self._schema))
        except SeepError:
            raise
        except Exception as error:
            raise UserError(
                f"sink {self._operator!r}: its function failed on epoch {epoch} of {sink}: "
                f"{type(error).__name__}: {error}"
            ) from error
