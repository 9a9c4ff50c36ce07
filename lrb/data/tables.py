"""Writes tables as CSV without a header or as Parquet, by the suffix of the path."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from formats.files import whole_file
from primitives.errors import UserError

_PLAIN = pa_csv.WriteOptions(include_header=False, quoting_style="none")


@contextmanager
def written(path: Path, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Gives a function that writes batches; the file appears, complete, at the end of the context."""
    if path.suffix not in (".csv", ".dat", ".parquet"):
        raise UserError(f"{path} is to be CSV or Parquet; let its name end with .csv, .dat or .parquet")
    with whole_file(path) as partial, _writer(partial, schema, parquet=path.suffix == ".parquet") as writer:
        yield writer.write_batch


def _writer(path: Path, schema: pa.Schema, *, parquet: bool) -> pq.ParquetWriter | pa_csv.CSVWriter:
    return pq.ParquetWriter(path, schema) if parquet else pa_csv.CSVWriter(path, schema, write_options=_PLAIN)
