"""The layout of a directory that file sinks write to; no other module makes names of files there."""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from primitives.graph import InstanceId

_PART = re.compile(r"part-(\d{8}T\d{12}-[0-9a-f]{4})-(\d{12})-(\d{12})-(\d{5})\.([a-z]+)")
_RUN = re.compile(r"\d{8}T\d{12}-[0-9a-f]{4}")


def new_run() -> str:
    """Makes a name for a run; names of later runs sort after those of earlier runs."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{secrets.token_hex(2)}"


class PartFile(NamedTuple):
    """A visible file with the rows of an instance in a range of epochs. Names sort by run, epoch and instance."""

    run: str
    first: int
    last: int
    instance: int
    suffix: str

    @property
    def name(self) -> str:
        return f"part-{self.run}-{self.first:012d}-{self.last:012d}-{self.instance:05d}.{self.suffix}"

    @classmethod
    def of(cls, name: str) -> PartFile | None:
        """Parses the name of a file; returns None for files that no sink has written."""
        found = _PART.fullmatch(name)
        return found and cls(found[1], int(found[2]), int(found[3]), int(found[4]), found[5])


class OutputLayout:
    """The paths in the directory: visible parts at the top, all else in `_seep`, which readers of directories skip."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self.hidden = self.root / "_seep"

    def parts(self) -> list[PartFile]:
        """Lists the visible parts, sorted by name."""
        names = sorted(entry.name for entry in self.root.iterdir()) if self.root.is_dir() else []
        return [part for name in names if (part := PartFile.of(name))]

    def runs(self) -> list[str]:
        """Lists the runs that have written here, in order, including those without a part."""
        hidden = {entry.name for entry in self.hidden.iterdir()} if self.hidden.is_dir() else set()
        return sorted({run for run in hidden if _RUN.fullmatch(run)} | {part.run for part in self.parts()})

    def foreign(self) -> list[str]:
        """Lists visible entries that no sink has written."""
        names = sorted(entry.name for entry in self.root.iterdir()) if self.root.is_dir() else []
        return [name for name in names if not name.startswith((".", "_")) and PartFile.of(name) is None]

    def run(self, run: str) -> Path:
        """Returns the directory of a run."""
        return self.hidden / run

    def schema(self, run: str) -> Path:
        """Returns the path of the file with the columns that a run writes."""
        return self.run(run) / "schema"

    def instances(self, run: str) -> list[Path]:
        """Lists the directories of all instances of a run."""
        directory = self.run(run)
        return sorted(entry for entry in directory.iterdir() if entry.is_dir()) if directory.is_dir() else []

    def instance(self, run: str, sink: InstanceId) -> Path:
        """Returns the directory of an instance, which has a directory for each of its incarnations."""
        return self.run(run) / f"{quote(sink.operator, safe='')}-{sink.index}"
