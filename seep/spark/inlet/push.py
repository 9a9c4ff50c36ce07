"""Pushing: a Spark task sends the rows of its partition to nodes; this runs in Spark's Python workers.

If a node fails meanwhile, the task does not fail: its receipt names the nodes that keep the piece, and the driver
makes other nodes copy it.
"""

from __future__ import annotations

import gc
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from seep.channels.dial import FAILURES, client_of
from seep.channels.links import Link, NoLinkEvents
from seep.channels.pieces import Aligner, PieceHeader
from seep.channels.port import Address
from seep.channels.security import Security
from seep.channels.wire import encode
from seep.protocol.view import MANAGER
from seep.rows.position import MIN_WATERMARK
from seep.rows.times import event_times
from seep.spark.inlet.pieces import Key

#: The columns that a task returns to the driver, as SQL and as Arrow schema.
RECEIPT_COLUMNS = (
    "partition int, token string, rows bigint, nbytes bigint, latest bigint, holders array<string>, why string"
)
_RECEIPT = pa.schema(
    {
        "partition": pa.int32(),
        "token": pa.string(),
        "rows": pa.int64(),
        "nbytes": pa.int64(),
        "latest": pa.int64(),
        "holders": pa.list_(pa.string()),
        "why": pa.string(),
    }
)


@dataclass(frozen=True, slots=True)
class PushSettings:
    """The settings of every task; it asks for the target nodes when it begins, because nodes change."""

    source: str
    schema: pa.Schema
    time: str | None
    driver: Address
    security: Security


class PushTarget:
    """A node to which a piece is pushed."""

    def __init__(self, name: str, address: Address, settings: PushSettings, opening: list[Any]) -> None:
        self.name = name
        self._client = client_of(address, settings.security)
        options = flight.FlightCallOptions(headers=[settings.security.header])
        descriptor = flight.FlightDescriptor.for_command(encode(opening).to_pybytes())
        self._writer, self._answers = self._client.do_put(descriptor, settings.schema, options)
        self._aligner = Aligner(settings.schema)

    def send(self, batch: pa.RecordBatch) -> None:
        self._writer.write_with_metadata(batch, self._aligner.pad(bytes([PieceHeader.ROWS]), batch.nbytes))

    def finish(self) -> None:
        """Returns when the node keeps the piece; raises one of FAILURES if it does not."""
        self._writer.write_metadata(bytes([PieceHeader.END]))
        self._writer.done_writing()
        if self._answers.read() is None:
            raise ConnectionError(f"{self.name} has not said that it keeps what was pushed")

    def close(self) -> None:
        with suppress(*FAILURES):
            self._writer.close()
        self._client.close()


class Push:
    """Pushes the rows of one partition to all targets at once, as long as one of them works."""

    def __init__(self, settings: PushSettings, partition: int) -> None:
        self._settings, self._partition = settings, partition
        self._token = uuid.uuid4().hex
        self._targets: list[PushTarget] | None = None  #: None before the first rows
        self._rows = self._nbytes = 0
        self._latest = MIN_WATERMARK
        self._why = ""

    @property
    def is_lost(self) -> bool:
        """Whether no target keeps it."""
        return self._targets == []

    def send(self, given: pa.RecordBatch) -> None:
        batch = _formed(given, self._settings.schema)
        self._rows += batch.num_rows
        self._nbytes += batch.nbytes
        if self._settings.time is not None:
            self._latest = max(self._latest, int(event_times(batch[self._settings.time]).max()))
        if self._targets is None:
            self._targets = self._opened()
        self._with_all(lambda target: target.send(batch))

    def receipt(self) -> pa.RecordBatch:
        """Returns the receipt: the holders of the piece, and its size."""
        self._with_all(PushTarget.finish)
        holders = [target.name for target in self._targets or ()]
        self.close()
        row = [self._partition, self._token, self._rows, self._nbytes, self._latest, holders, self._why]
        columns = [pa.array([value], field.type) for value, field in zip(row, _RECEIPT, strict=True)]
        return pa.record_batch(columns, schema=_RECEIPT)

    def close(self) -> None:
        for target in self._targets or ():
            target.close()

    def _opened(self) -> list[PushTarget]:
        asked = _ask(self._settings, self._partition)
        key = Key(self._settings.source, asked["stream"], asked["id"])
        opening = ["piece", list(key), self._partition, self._token]
        places = []
        for name, host, port in asked["places"]:
            try:
                places.append(PushTarget(name, Address(host, port), self._settings, opening))
            except FAILURES as reason:
                self._why = f"{name}: {reason}"
        return places

    def _with_all(self, act: Callable[[PushTarget], None]) -> None:
        """Calls `act` with all targets; drops those that fail."""
        if self._targets is not None:
            self._targets = [target for target in self._targets if self._works(target, act)]

    def _works(self, target: PushTarget, act: Callable[[PushTarget], None]) -> bool:
        try:
            act(target)
        except FAILURES as reason:
            self._why = f"{target.name}: {reason}"
            target.close()
            return False
        return True


def push(settings: PushSettings, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pushes the rows of the partition of the task that runs here, and yields its receipt."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "this runs in a task of Spark's"
    _exempt_modules_from_gc()
    pushed = Push(settings, context.partitionId())
    try:
        for batch in batches:
            if batch.num_rows and not pushed.is_lost:
                pushed.send(batch)
        yield pushed.receipt()
    finally:
        pushed.close()


@cache
def _exempt_modules_from_gc() -> None:
    """Exempts imported modules from garbage collection: Spark collects after every task, which took 50 ms for them."""
    gc.collect()
    gc.freeze()


def _ask(settings: PushSettings, partition: int) -> dict[str, Any]:
    """Asks the driver which batch this is, and where its pieces go."""
    link = Link("spark task", MANAGER, settings.driver, settings.security, NoLinkEvents())
    try:
        answer: dict[str, Any] = link.call("pushed", {"places": settings.source, "partition": partition})
    finally:
        link.close()
    return answer


def _formed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Casts a batch to the types of the source: Spark's types differ in time zones and nullability."""
    if batch.schema.equals(schema):
        return batch
    columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
