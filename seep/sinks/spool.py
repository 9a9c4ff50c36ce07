"""The spool: a directory of Arrow files between a sink and Spark, which reads it as a log of epochs.

Three marks say how far things are; each has one writer, and each only grows (but for a Spark query that begins anew):

- *shown*, by the driver of a run: Spark may read the parts up to this epoch. They will never change.
- *taken*, by Spark's reader: the rows up to this epoch are processed. Sinks wait if too much is shown and not taken.
- *trimmed*, by Spark's reader: the rows up to this epoch will not be asked for again, and their parts are removed.

A part belongs to its last epoch, so the parts after one epoch and up to another are each row of these epochs once.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from seep.sinks.durable import publish, write
from seep.sinks.layout import OutputLayout, PartFile

#: Taken by a reader that wants all there will ever be: nothing has to wait for it.
EVERYTHING = 2**62


class SinkSpool:
    """The directory as all sides see it: instances of the sink, the driver of the run, and Spark's readers."""

    def __init__(self, root: str | Path) -> None:
        self.layout = OutputLayout(root)

    @property
    def root(self) -> Path:
        return self.layout.root

    @property
    def id(self) -> str | None:
        """Tells this log from any other that may be in the same directory some day; None while nobody has written."""
        runs = self.layout.runs()
        return runs[0] if runs else None

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of the latest run that has told them; None while nobody has written."""
        told = [path for run in self.layout.runs() if (path := self.layout.schema(run)).exists()]
        return pa.ipc.read_schema(pa.py_buffer(told[-1].read_bytes())) if told else None

    def parts(self, after: int, upto: int) -> list[PartFile]:
        """The parts with the rows of epochs `after` + 1 to `upto`, in order."""
        return [part for part in self.layout.parts() if after < part.last <= upto]

    def path(self, part: PartFile) -> Path:
        return self.root / part.name

    # -- marks --------------------------------------------------------------------------------------------------------

    @property
    def shown(self) -> int:
        """As the latest run says; one that has been followed by another has nothing more to say."""
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
        """Says so before anything is removed: whoever finds a part missing can know why."""
        if epoch > self.trimmed:
            _put(self.layout.hidden / "trimmed", str(epoch))
        for part in self.parts(0, epoch):
            self.path(part).unlink(missing_ok=True)

    @property
    def failure(self) -> str | None:
        """What the latest run failed of, if it did."""
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
    """Replaces a mark at once and for good, whoever else does so at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}-{os.getpid()}-{threading.get_ident()}")
    write(fresh, lambda stream: stream.write(text.encode()))
    publish(fresh, path)
