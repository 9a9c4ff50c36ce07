"""`format("seep")`: a spool as a Spark data source, whose offsets are epochs.

Spark makes these objects in its own processes: a reader exists next to the driver as long as its query, and tasks read
the files that it lists in `partitions`. A batch of a query is the parts of some epochs, which never change, so a batch
that Spark runs again has the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from primitives.errors import EnvironmentFault, UserError
from seep.rows.spark_types import spark_schema
from seep.sinks.layout import PartFile
from seep.sinks.spool import SinkSpool

NAME = "seep"
#: The most bytes that one task reads, unless a single file is larger.
_TASK_BYTES = 32 << 20
#: Seconds between two checks whether there is more to read.
_LOOK = 0.01


class SeepDataSource(DataSource):
    """The data source; `load(path)` takes the directory of a sink `seep.sinks.spark(path)`.

    The option `maxBytesPerTrigger` limits a batch of a streaming query; a single epoch may be larger.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        if "path" not in options:
            raise UserError('format("seep") needs the directory of a sink: load(path)')
        self._spool = SinkSpool(options["path"])

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        columns = self._spool.schema
        if columns is None:
            raise UserError(f"{self._spool.root} has no output of seep.sinks.spark(…) yet; start the query first")
        return spark_schema(columns)

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(self._spool, schema)

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(self._spool, schema, _limit(self.options))


class TaskFiles(InputPartition):
    """The files that one task reads: some parts of one instance, in order."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = tuple(paths)


class BatchReader(DataSourceReader):
    """Reads everything that is shown now; if the query has finished, that is all its output."""

    def __init__(self, spool: SinkSpool, schema: StructType) -> None:
        self._spool, self._schema = spool, schema

    def partitions(self) -> list[InputPartition]:
        if trimmed := self._spool.trimmed:
            raise UserError(
                f"{self._spool.root}: the rows up to epoch {trimmed} went to a streaming query and were removed; "
                "read what that query has written"
            )
        return tasks_for(self._spool, self._spool.parts(0, self._spool.shown)) or [TaskFiles(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches_of(partition, self._schema)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a spool for a streaming query. When Spark has processed rows, they are marked as taken, and trimmed."""

    patience = 0.1  #: seconds until Spark is told that there is nothing new

    def __init__(self, spool: SinkSpool, schema: StructType, limit: ReadLimit) -> None:
        self._spool, self._schema, self._limit = spool, schema, limit
        self._taken: int | None = None
        #: the last epoch of a query with the trigger availableNow
        self._target: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        return self._offset(self._spool.trimmed)

    def getDefaultReadLimit(self) -> ReadLimit:
        return self._limit

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._spool.shown

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Returns the end of the next batch. Spark asks when it has processed the one before, which ends at `start`."""
        after = self._epoch(start)
        self._take(after)
        last = self._last_soon(after, limit)
        if last == after and (failure := self._spool.failure):
            raise EnvironmentFault(f"the seep query that writes to {self._spool.root} has failed: {failure}")
        return self._offset(last)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._offset(self._spool.shown)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        after = self._epoch(start)
        if after < self._spool.trimmed:
            raise UserError(
                f"{self._spool.root}: this Spark query has come to epoch {after}, but the rows up to epoch "
                f"{self._spool.trimmed} are removed, for another query had them; "
                "use one Spark query for each sink, and the checkpoint of the one that went furthest"
            )
        return tasks_for(self._spool, self._spool.parts(after, self._epoch(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches_of(partition, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        self._spool.trim(self._epoch(end))

    def _take(self, epoch: int) -> None:
        if epoch != self._taken:
            self._spool.take(epoch)
            self._taken = epoch

    def _last_soon(self, after: int, limit: ReadLimit) -> int:
        """Returns the last epoch to read; waits briefly if there is none, because Spark asks again at once."""
        deadline = time.monotonic() + self.patience
        while (last := self._last(after, limit)) == after and self._target is None and time.monotonic() < deadline:
            if self._spool.failure:
                break
            time.sleep(_LOOK)
        return last

    def _last(self, after: int, limit: ReadLimit) -> int:
        """Returns the last epoch with rows to read now; `after` if there is none: so Spark runs no empty batches."""
        shown = self._spool.shown
        parts = self._spool.parts(after, shown if self._target is None else min(shown, self._target))
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        last, nbytes = after, 0
        for epoch, group in groupby(sorted(parts, key=lambda part: part.last), lambda part: part.last):
            nbytes += sum(self._spool.path(part).stat().st_size for part in group) if most is not None else 0
            if most is not None and nbytes > most and last > after:
                break
            last = epoch
        return last

    # -- offsets ------------------------------------------------------------------------------------------------------

    def _offset(self, epoch: int) -> dict[str, Any]:
        return {"spool": self._id, "epoch": epoch}

    def _epoch(self, offset: Mapping[str, Any]) -> int:
        if offset["spool"] != self._id:
            raise UserError(
                f"{self._spool.root} is not what the checkpoint of this Spark query knows: it was removed and written "
                "anew, or is another one; begin with a new checkpointLocation"
            )
        return int(offset["epoch"])

    @property
    def _id(self) -> str:
        found = self._spool.id
        if found is None:
            raise UserError(f"{self._spool.root} has no output of seep.sinks.spark(…); it may have been removed")
        return found


class _Sized(NamedTuple):
    path: str
    nbytes: int


def tasks_for(spool: SinkSpool, parts: Sequence[PartFile]) -> list[InputPartition]:
    """Divides the files of each instance, in order, into tasks of about the same size."""
    by_instance = sorted(parts, key=lambda part: (part.run, part.instance, part.last))
    tasks: list[InputPartition] = []
    for _, group in groupby(by_instance, lambda part: (part.run, part.instance)):
        tasks += _divided([_Sized(str(path), path.stat().st_size) for path in map(spool.path, group)])
    return tasks


def _divided(files: Sequence[_Sized]) -> Iterator[TaskFiles]:
    taken: list[str] = []
    nbytes = 0
    for file in files:
        if taken and nbytes + file.nbytes > _TASK_BYTES:
            yield TaskFiles(taken)
            taken, nbytes = [], 0
        taken.append(file.path)
        nbytes += file.nbytes
    yield TaskFiles(taken)


def batches_of(partition: InputPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yields the rows of some files in Spark's types; files are mapped, and copied only to change a type."""
    assert isinstance(partition, TaskFiles)
    form = to_arrow_schema(schema, timezone="UTC")
    for path in partition.paths:
        with pa.memory_map(path) as mapped:
            file = pa.ipc.open_file(mapped)
            for number in range(file.num_record_batches):
                yield file.get_batch(number).cast(form)


def _limit(options: Mapping[str, str]) -> ReadLimit:
    if "maxBytesPerTrigger" not in options:
        return ReadAllAvailable()
    given = options["maxBytesPerTrigger"]
    if not given.isdecimal() or int(given) < 1:
        raise UserError(f"maxBytesPerTrigger is {given!r}; give a number of bytes from 1 on")
    return ReadMaxBytes(int(given))
