"""The store of file sinks: part files that become visible when complete, each range of epochs exactly once.

An instance collects the rows of some epochs, and then makes them durable in two steps, each an atomic rename out of the
directory of its incarnation (see `fencing`):

1. the part file, if there are any rows: its name says which epochs it holds;
2. the progress file, with the last of these epochs.

After a failure, the higher of the two epochs says where to continue. A crash before step 1 leaves nothing visible, and
the epochs are sent again. A crash between the steps leaves the part, whose name says its last epoch. Epochs without
rows are recorded by the progress file alone. The earlier incarnation is fenced before the later one reads either, so
neither can change afterwards.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pyarrow as pa

from formats.files import publish, sync_directory, write
from primitives.errors import EnvironmentFault, InternalError, UserError
from seep.protocol.messages import MAX_WATERMARK
from seep.protocol.view import Incarnation
from seep.sinks.definition import SinkFenced, SinkStore
from seep.sinks.fencing import enter, incarnations, remove
from seep.sinks.formats import FileFormat
from seep.sinks.layout import OutputLayout, PartFile

#: With more bytes of rows than this, a roll is made durable early, so that memory is bounded.
_MOST_BYTES = 64 << 20

#: The errors of the file system for files in a directory that was removed.
_GONE = (errno.ENOENT, errno.ESTALE)


class EarlierOutput(StrEnum):
    """The treatment of earlier runs' output."""

    REFUSE = "refuse"
    OVERWRITE = "overwrite"
    APPEND = "append"


@dataclass(frozen=True, slots=True)
class Resumed:
    """The run continues after an epoch of earlier runs; what the last of them wrote after it is not valid."""

    epoch: int
    runs: tuple[str, ...]  #: in order


@dataclass(frozen=True, slots=True)
class Target:
    """The directory, format and settings of a run's output."""

    layout: OutputLayout
    run: str
    form: FileFormat
    roll: int
    existing: EarlierOutput
    resumed: Resumed | None = None


class FileStore(SinkStore):
    """The store of one instance in one incarnation."""

    def __init__(self, operator: str, schema: pa.Schema, target: Target) -> None:
        self._operator = operator
        self._schema = schema
        self._target = target
        #: the directory of the incarnation; None before it is open and when it is closed or fenced
        self._workspace: Path | None = None
        self._sink: Incarnation | None = None
        self._durable = self._taken = 0
        self._epochs: list[int] = []
        self._rows: list[pa.RecordBatch] = []

    def open(self, sink: Incarnation) -> int:
        """See `SinkStore`. An incarnation that is already fenced is refused when it commits."""
        self._sink = sink
        try:
            with self._translated_errors(sink):
                self._workspace = enter(self._home(sink), sink.number)
                if self._workspace is not None:
                    self._treat_earlier_output()
                    self._record_schema(sink, self._workspace)
                    self._durable = self._taken = self._last_committed(sink)
        except SinkFenced:
            self._workspace = None
        return self._durable

    def commit(self, sink: Incarnation, epoch: int, batches: Sequence[pa.RecordBatch], watermark: int) -> int:
        """See `SinkStore`. An incarnation that was replaced may be refused only when a roll is full."""
        if self._workspace is None:
            raise SinkFenced(f"{sink} was replaced, or its store is closed")
        if epoch <= self._taken:
            raise InternalError(f"{sink} commits epoch {epoch} after {self._taken}")
        self._taken = epoch
        self._epochs.append(epoch)
        self._rows += [batch for batch in batches if batch.num_rows]
        is_last = watermark == MAX_WATERMARK
        if is_last or self._is_full():
            with self._translated_errors(sink):
                self._make_durable(sink, self._workspace, is_last)
        return self._durable

    def close(self) -> None:
        """See `SinkStore`. The directory of the incarnation stays, so that earlier ones find that they are fenced."""
        self._workspace = None
        self._epochs, self._rows = [], []

    def flush(self) -> int:
        """See `SinkStore`: the next part begins after the epochs taken so far."""
        if self._workspace is not None and self._epochs:
            assert self._sink is not None
            with self._translated_errors(self._sink):
                self._make_durable(self._sink, self._workspace, False)
        return self._durable

    # -- making epochs durable ----------------------------------------------------------------------------------------

    def _is_full(self) -> bool:
        return len(self._epochs) >= self._target.roll or sum(batch.nbytes for batch in self._rows) >= _MOST_BYTES

    def _make_durable(self, sink: Incarnation, workspace: Path, is_last: bool) -> None:
        if self._rows or (is_last and self._is_first_part()):
            self._publish_part(sink, workspace)
        write(workspace / "progress", lambda stream: stream.write(b"%d" % self._taken))
        publish(workspace / "progress", self._home(sink) / "progress")
        self._durable = self._taken
        self._epochs, self._rows = [], []

    def _publish_part(self, sink: Incarnation, workspace: Path) -> None:
        form = self._target.form
        name = PartFile(self._target.run, self._epochs[0], self._epochs[-1], sink.instance.index, form.suffix).name
        table = pa.Table.from_batches(self._rows, self._schema)
        write(workspace / name, lambda stream: form.write(table, stream))
        publish(workspace / name, self._target.layout.root / name)

    def _is_first_part(self) -> bool:
        """Whether the run has written nothing yet: then a part without rows is written for its columns."""
        return not any(part.run == self._target.run for part in self._target.layout.parts())

    # -- opening ------------------------------------------------------------------------------------------------------

    def _home(self, sink: Incarnation) -> Path:
        return self._target.layout.instance(self._target.run, sink.instance)

    def _last_committed(self, sink: Incarnation) -> int:
        mine = (self._target.run, sink.instance.index)
        found = [part.last for part in self._target.layout.parts() if (part.run, part.instance) == mine]
        progress = self._home(sink) / "progress"
        if progress.exists():
            found.append(int(progress.read_bytes()))
        return max(found, default=0)

    def _record_schema(self, sink: Incarnation, workspace: Path) -> None:
        """Writes the schema for `read`. All instances write the same file."""
        write(workspace / "schema", lambda stream: stream.write(self._schema.serialize()))
        publish(workspace / "schema", self._target.layout.schema(self._target.run))
        directory = self._home(sink)
        while directory != self._target.layout.root.parent:
            sync_directory(directory)
            directory = directory.parent

    def _treat_earlier_output(self) -> None:
        """Refuses, removes or keeps the output of earlier runs, as the user has said; before anything is written."""
        if self._target.resumed is not None:
            self._take_back(self._target.resumed)
            return
        earlier = [run for run in self._target.layout.runs() if run < self._target.run]
        if self._target.existing is EarlierOutput.OVERWRITE:
            for run in earlier:
                self._clear(run)
        elif self._target.existing is EarlierOutput.REFUSE and earlier:
            raise UserError(
                f"another run or another sink writes to {self._target.layout.root} as well; "
                "give each sink a directory of its own"
            )

    def _take_back(self, resumed: Resumed) -> None:
        """Fences the runs that this one continues, and removes what the last of them wrote after the epoch."""
        layout = self._target.layout
        for run in resumed.runs:
            for home in layout.instances(run):
                remove(home)
        for part in layout.parts():
            if part.run not in resumed.runs or part.last <= resumed.epoch:
                continue
            if part.first <= resumed.epoch:
                raise InternalError(f"{part.name} has epochs before and after {resumed.epoch}, where the run goes on")
            (layout.root / part.name).unlink(missing_ok=True)

    def _clear(self, run: str) -> None:
        """Fences all instances of an earlier run, and then removes its parts."""
        layout = self._target.layout
        remove(layout.run(run))
        for part in layout.parts():
            if part.run == run:
                (layout.root / part.name).unlink(missing_ok=True)

    # -- errors -------------------------------------------------------------------------------------------------------

    @contextmanager
    def _translated_errors(self, sink: Incarnation) -> Iterator[None]:
        """Translates errors of the file system into errors of the sink."""
        try:
            yield
        except UserError as error:
            raise UserError(f"sink {self._operator!r}: {error}") from error
        except OSError as error:
            if error.errno in _GONE and self._is_replaced(sink):
                raise SinkFenced(f"{sink} was replaced") from error
            root = self._target.layout.root
            raise EnvironmentFault(f"sink {self._operator!r} cannot write to {root}: {error}") from error

    def _is_replaced(self, sink: Incarnation) -> bool:
        """Whether a later incarnation, or a later run, has fenced this one."""
        home = self._home(sink)
        is_later_here = home.is_dir() and max(incarnations(home), default=-1) > sink.number
        return is_later_here or any(run > self._target.run for run in self._target.layout.runs())
