"""Results: what a query has put out, in order, as a file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from primitives.errors import EnvironmentFault


def in_order(rows: pa.Table) -> pa.Table:
    """The rows by all columns from the left, so that equal results are equal tables.

    >>> in_order(pa.table({"n": [2, 1]}))["n"].to_pylist()
    [1, 2]
    """
    return rows.sort_by([(name, "ascending") for name in rows.schema.names]) if len(rows) else rows


def write_result(rows: pa.Table, path: Path) -> None:
    """The file is there, whole, when all rows are in it."""
    part = path.with_name(path.name + ".part")
    try:
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(in_order(rows), part)
        part.replace(path)
    except OSError as reason:
        raise EnvironmentFault(f"{path} cannot be written: {reason}") from reason
    finally:
        part.unlink(missing_ok=True)
