"""The spool: a directory of Arrow files between a sink and Spark, which reads it as a log of epochs.

Three marks are epoch numbers; each has one writer, and only grows (unless a Spark query begins from the start):

- *shown*, by the driver of a run: Spark may read the parts up to this epoch. They will never change.
- *taken*, by Spark's reader: Spark has processed the rows up to this epoch. Sinks wait if too much is not taken.
- *trimmed*, by Spark's reader: Spark will not read the rows up to this epoch again, and their parts are removed.

A part belongs to its last epoch, so the parts after one epoch and up to another hold each row of these epochs once.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from formats.files import publish, write
from seep.sinks.layout import OutputLayout, PartFile

#: The mark *taken* of a reader that reads everything at the end: sinks need not wait for it.
EVERYTHING = 2**62


class SinkSpool:
    """The directory, for all who use it: instances of the sink, the driver of the run, and Spark's readers."""

    def __init__(self, root: str | Path) -> None:
        self.layout = OutputLayout(root)

    @property
    def root(self) -> Path:
        return self.layout.root

    @property
    def id(self) -> str | None:
        """An id that differs from that of a later log in the same directory; None before anything was written."""
        runs = self.layout.runs()
        return runs[0] if runs else None

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of the latest run that has written them; None before anything was written."""
        told = [path for run in self.layout.runs() if (path := self.layout.schema(run)).exists()]
        return pa.ipc.read_schema(pa.py_buffer(told[-1].read_bytes())) if told else None

    def parts(self, after: int, upto: int) -> list[PartFile]:
        """Lists the parts with the rows of epochs `after` + 1 to `upto`, in order."""
        return [part for part in self.layout.parts() if after < part.last <= upto]

    def path(self, part: PartFile) -> Path:
        return self.root / part.name

    # -- marks --------------------------------------------------------------------------------------------------------

    @property
    def shown(self) -> int:
        """The mark of the latest run; the marks of earlier runs do not count any more."""
        runs = self.layout.runs()
        return self.shown_by(runs[-1]) if runs else 0

    def shown_by(self, run: str) -> int:
        return _number(self.layout.run(run) / "shown")

    def show(self, run: str, epoch: int) -> None:
        _put(self.layout.run(run) / "shown", str(epoch))

    @property
    def taken(self) -> int:
        return _number(self.layout.hidden / "taken")

    def take(self, epoch: int) -> None:
        _put(self.layout.hidden / "taken", str(epoch))

    @property
    def trimmed(self) -> int:
        return _number(self.layout.hidden / "trimmed")

    def trim(self, epoch: int) -> None:
        """Writes the mark, then removes the parts: so a reader that finds a part missing knows why."""
        if epoch > self.trimmed:
            _put(self.layout.hidden / "trimmed", str(epoch))
        for part in self.parts(0, epoch):
            self.path(part).unlink(missing_ok=True)

    @property
    def failure(self) -> str | None:
        """The reason why the latest run failed, if it did."""
        runs = self.layout.runs()
        with suppress(FileNotFoundError):
            return (self.layout.run(runs[-1]) / "failed").read_text("utf-8") if runs else None
        return None

    def fail(self, run: str, why: str) -> None:
        _put(self.layout.run(run) / "failed", why)


def _number(path: Path) -> int:
    try:
        return int(path.read_bytes())
    except FileNotFoundError:
        return 0


def _put(path: Path, text: str) -> None:
    """Replaces a mark atomically and durably, even if others do so at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}-{os.getpid()}-{threading.get_ident()}")
    write(fresh, lambda stream: stream.write(text.encode()))
    publish(fresh, path)
