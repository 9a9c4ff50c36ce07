"""The sink that Spark reads from: rows are spooled as Arrow files, and kept until Spark has processed them."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from primitives.errors import UserError
from seep.protocol.view import Incarnation
from seep.sinks.definition import SinkFenced, SinkStore
from seep.sinks.file_sinks import FileSink
from seep.sinks.file_store import FileStore, Resumed, Target
from seep.sinks.formats import ARROW
from seep.sinks.spool import SinkSpool

#: The most bytes per instance that are shown to Spark and not yet taken, before the sink waits.
BACKLOG = 256 << 20
#: The bytes that a part counts for at least, because many small files cost time too.
_LEAST = 1 << 16
#: Seconds between two checks whether Spark has taken more.
_POLL = 0.02


def spark(path: str | Path | None = None, *, roll: int = 1, backlog: int = BACKLOG, at_once: bool = False) -> SparkSink:
    """Passes rows to Spark, each exactly once: `run.to_spark()`, or `spark.readStream.format("seep").load(path)`.

    The directory must have the same path on all machines, and be empty or missing. Without a path, it is a temporary
    directory of this machine, removed at the end of the program, which is sufficient for a local Spark. Each instance
    writes a file for every `roll` epochs. The query waits if there are more than `backlog` bytes of an instance that
    Spark has not taken.

    In a run with storage, rows are shown to Spark when a stored checkpoint covers them, so that they do not change if
    the run is restored from it; `at_once` shows them as soon as they are committed.
    """
    return SparkSink(path, roll, backlog, at_once)


class SparkSink(FileSink):
    """See `spark`."""

    def __init__(self, path: str | Path | None, roll: int, backlog: int, at_once: bool) -> None:
        if backlog < 1:
            raise UserError(f"backlog={backlog!r}; Spark can only take what may be written: give it some bytes")
        self.is_temporary = path is None
        super().__init__(_temporary() if path is None else path, ARROW, roll, overwrite=False, append=False)
        self._backlog = backlog
        self.at_once = at_once

    @property
    def spool(self) -> SinkSpool:
        return SinkSpool(self._layout.root)

    @property
    def run(self) -> str:
        """The name of this run in the spool."""
        return self._run

    def check(self, operator: str, schema: pa.Schema) -> None:
        from seep.rows.spark_types import spark_schema

        try:
            spark_schema(schema)
        except UserError as error:
            raise UserError(f"sink {operator!r}: {error}") from error
        super().check(operator, schema)

    def resumed(self, epoch: int, note: Any) -> SparkSink:
        found = super().resumed(epoch, note)
        assert isinstance(found, SparkSink)
        check_not_shown(found.spool, Resumed(epoch, tuple(note["runs"])))
        return found

    def store(self, operator: str, schema: pa.Schema) -> SinkStore:
        target = Target(self._layout, self._run, self._format, self._roll, self._existing, self._resumed)
        return SpoolStore(operator, schema, target, self._backlog)

    def _check_existing(self, schema: pa.Schema) -> None:
        if self._layout.runs():
            raise UserError(
                f"{self._layout.root} has the output of an earlier run, which this one does not go on from; "
                "restore that run from its storage, or name another directory"
            )
        super()._check_existing(schema)


class _Written(NamedTuple):
    last: int  #: epoch
    nbytes: int


class SpoolStore(FileStore):
    """Makes parts durable as other file sinks do, but waits before the next one if Spark is too far behind."""

    def __init__(self, operator: str, schema: pa.Schema, target: Target, backlog: int) -> None:
        super().__init__(operator, schema, target)
        self._spool = SinkSpool(target.layout.root)
        self._backlog = backlog
        #: the parts that this instance has written in this run, and that Spark had not taken at the last check
        self._written: deque[_Written] = deque()

    def open(self, sink: Incarnation) -> int:
        """See `SinkStore`."""
        epoch = super().open(sink)
        self._written.extend(
            _Written(part.last, max(_LEAST, _size(self._spool.path(part))))
            for part in self._spool.parts(self._spool.taken, epoch)
            if (part.run, part.instance) == (self._target.run, sink.instance.index)
        )
        return epoch

    def _make_durable(self, sink: Incarnation, workspace: Path, is_last: bool) -> None:
        nbytes = sum(batch.nbytes for batch in self._rows)
        if nbytes:
            self._await_room(sink, workspace)
            self._written.append(_Written(self._taken, max(_LEAST, nbytes)))
        super()._make_durable(sink, workspace, is_last)

    def _await_room(self, sink: Incarnation, workspace: Path) -> None:
        while sum(part.nbytes for part in self._written) >= self._backlog and self._not_taken() >= self._backlog:
            if not workspace.is_dir():
                raise SinkFenced(f"{sink} was replaced")
            time.sleep(_POLL)

    def _not_taken(self) -> int:
        """Returns the bytes that are shown to Spark and not taken; parts that are not shown yet do not count."""
        taken, shown = self._spool.taken, self._spool.shown_by(self._target.run)
        while self._written and self._written[0].last <= taken:
            self._written.popleft()
        return sum(part.nbytes for part in self._written if part.last <= shown)

    def _take_back(self, resumed: Resumed) -> None:
        check_not_shown(self._spool, resumed)
        super()._take_back(resumed)


def check_not_shown(spool: SinkSpool, resumed: Resumed) -> None:
    """Raises an error if Spark was shown rows after the epoch, as these cannot be removed."""
    shown = max((spool.shown_by(run) for run in resumed.runs), default=0)
    if shown > resumed.epoch:
        raise UserError(
            f"{spool.root}: Spark was shown the rows up to epoch {shown}, and the checkpoint is of epoch "
            f"{resumed.epoch}; restore a later one, or name another directory and begin a new Spark query with it"
        )


def _size(path: Path) -> int:
    """Returns the size of a part, which Spark's reader may remove at any time."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _temporary() -> str:
    """Makes a directory that is removed at the end of this program."""
    path = tempfile.mkdtemp(prefix="seep-spool-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
