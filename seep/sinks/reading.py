"""Reads what file sinks have written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from primitives.errors import EnvironmentFault, UserError
from seep.sinks.formats import FORMATS
from seep.sinks.layout import OutputLayout, PartFile


def read(path: str | Path) -> pa.Table:
    """Reads the rows in the directory of a file sink, by run, epoch and instance, even while a query writes to it.

    Rows of epochs that are not durable yet are missing: at most those of the last `roll` epochs.
    """
    layout = OutputLayout(path)
    parts, runs = layout.parts(), layout.runs()
    if not runs:
        raise UserError(f"{path} has no output of a sink")
    return pa.concat_tables([_columns(layout, runs[-1]).empty_table(), *(_read(layout, part) for part in parts)])


def _read(layout: OutputLayout, part: PartFile) -> pa.Table:
    path = layout.root / part.name
    if part.suffix not in FORMATS:
        raise UserError(f"{path} is of no format that sinks write")
    try:
        return FORMATS[part.suffix].read(path, _columns(layout, part.run))
    except pa.ArrowException as error:
        raise EnvironmentFault(f"{path} is damaged: {error}") from error


def _columns(layout: OutputLayout, run: str) -> pa.Schema:
    """Returns the columns of a run, from its schema file, or from a Parquet file if that is missing."""
    path = layout.schema(run)
    if path.exists():
        return pa.ipc.read_schema(pa.py_buffer(path.read_bytes()))
    part = next((part for part in layout.parts() if part.run == run and part.suffix == "parquet"), None)
    if part is None:
        raise UserError(f"{layout.hidden} does not tell the columns of run {run}; read its files with a schema")
    return pq.read_schema(layout.root / part.name)
