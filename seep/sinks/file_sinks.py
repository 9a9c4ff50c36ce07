"""The sinks that write files: Parquet, CSV and JSON lines."""

from __future__ import annotations

import os
from copy import copy
from pathlib import Path
from typing import Any

import pyarrow as pa

from primitives.errors import UserError
from seep.sinks.definition import SinkDefinition, SinkStore
from seep.sinks.file_store import EarlierOutput, FileStore, Resumed, Target
from seep.sinks.formats import CSV, JSON_LINES, PARQUET, FileFormat
from seep.sinks.layout import OutputLayout, new_run
from seep.sources.files import absolute


def parquet(path: str | Path, *, roll: int = 10, overwrite: bool = False, append: bool = False) -> FileSink:
    """Writes Parquet files to a directory, each row exactly once; `seep.sinks.read` reads them as a table.

    Each instance writes a file for every `roll` epochs with rows. The directory must have the same path on all
    machines, and be empty or missing; `overwrite` removes the files of earlier runs when the first instance starts,
    `append` adds to them.
    """
    return FileSink(path, PARQUET, roll, overwrite, append)


def csv(path: str | Path, *, roll: int = 10, overwrite: bool = False, append: bool = False) -> FileSink:
    """Writes CSV files with a header; otherwise like `parquet`. Columns must be plain: no lists, no binary."""
    return FileSink(path, CSV, roll, overwrite, append)


def json_lines(path: str | Path, *, roll: int = 10, overwrite: bool = False, append: bool = False) -> FileSink:
    """Writes files of JSON objects, one on each line; otherwise like `csv`. NaN and infinities become null."""
    return FileSink(path, JSON_LINES, roll, overwrite, append)


class FileSink(SinkDefinition):
    """See `parquet`. It is for one run: `check` gives it a new run name if the old one has been used."""

    def __init__(self, path: str | Path, form: FileFormat, roll: int, overwrite: bool, append: bool) -> None:
        if roll < 1:
            raise UserError(f"roll={roll!r}; a file holds at least 1 epoch")
        if overwrite and append:
            raise UserError("overwrite= and append= exclude each other; choose one")
        self._layout = OutputLayout(absolute(path))
        self._format = form
        self._roll = roll
        self._existing = (
            EarlierOutput.OVERWRITE if overwrite else EarlierOutput.APPEND if append else EarlierOutput.REFUSE
        )
        self._run = new_run()
        self._resumed: Resumed | None = None

    @property
    def roll(self) -> int:
        return self._roll

    def check(self, operator: str, schema: pa.Schema) -> None:
        try:
            self._format.check(schema)
            self._check_directory()
            if self._resumed is None:
                self._check_existing(schema)
            else:
                self._check_same_columns(schema, list(self._resumed.runs))
        except UserError as error:
            raise UserError(f"sink {operator!r}: {error}") from error
        if self._run in self._layout.runs():
            self._run = new_run()

    def note(self) -> Any:
        return {"runs": [*(self._resumed.runs if self._resumed else ()), self._run]}

    def resumed(self, epoch: int, note: Any) -> FileSink:
        found = copy(self)
        found._run = new_run()
        found._resumed = Resumed(epoch, tuple(note["runs"]))
        return found

    def store(self, operator: str, schema: pa.Schema) -> SinkStore:
        target = Target(self._layout, self._run, self._format, self._roll, self._existing, self._resumed)
        return FileStore(operator, schema, target)

    def _check_directory(self) -> None:
        root = self._layout.root
        if root.exists() and not root.is_dir():
            raise UserError(f"{root} is a file; name a directory")
        existing = next(path for path in (root, *root.parents) if path.exists())
        if not os.access(existing, os.W_OK | os.X_OK):
            raise UserError(f"{existing} cannot be written to; change its permissions, or name another directory")

    def _check_existing(self, schema: pa.Schema) -> None:
        foreign, runs = self._layout.foreign(), self._layout.runs()
        if self._existing is EarlierOutput.APPEND:
            self._check_same_columns(schema, runs)
        elif foreign:
            raise UserError(
                f"{self._layout.root} has files that no sink wrote, such as {foreign[0]}; name another directory"
            )
        elif runs and self._existing is EarlierOutput.REFUSE:
            raise UserError(
                f"{self._layout.root} has the output of an earlier run; "
                "name another directory, or say overwrite=True or append=True"
            )

    def _check_same_columns(self, schema: pa.Schema, runs: list[str]) -> None:
        for path in (self._layout.schema(run) for run in runs):
            if path.exists() and not (earlier := pa.ipc.read_schema(pa.py_buffer(path.read_bytes()))).equals(schema):
                raise UserError(
                    f"{self._layout.root} has the columns [{_columns(earlier)}], "
                    f"which differ from [{_columns(schema)}]; name another directory"
                )


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
