"""Writes the four outputs as files in the layouts of section 3, ordered by time, vehicle and query."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from lrb.data.tables import written
from lrb.schema import ALERTS, BALANCES, EXPENDITURES, TOLLS


class Output(NamedTuple):
    """An output: the type that begins its lines, their columns, and the response time limit (section 3)."""

    kind: int
    file: str
    schema: pa.Schema
    printed: tuple[str, ...]
    limit: int = 5  #: seconds

    @property
    def name(self) -> str:
        return self.file.removesuffix(".csv")


#: The outputs by their types.
OUTPUTS = (
    Output(0, "tolls.csv", TOLLS, ("vid", "time", "emit", "lav", "toll")),
    Output(1, "accidents.csv", ALERTS, ("time", "emit", "vid", "segment")),
    Output(2, "balances.csv", BALANCES, ("time", "emit", "result_time", "qid", "balance")),
    Output(3, "expenditures.csv", EXPENDITURES, ("time", "emit", "qid", "balance"), limit=10),
)
_ORDER = ("time", "vid", "qid")


def write_outputs(folder: Path, tolls: pa.Table, alerts: pa.Table, balances: pa.Table, expenditures: pa.Table) -> None:
    """Writes all four files; each replaces an existing one atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    for output, rows in zip(OUTPUTS, (tolls, alerts, balances, expenditures), strict=True):
        lines = _lines(output, rows)
        with written(folder / output.file, lines.schema) as write:
            for batch in lines.to_batches():
                write(batch)


def _lines(output: Output, rows: pa.Table) -> pa.Table:
    """Returns the lines of the file, in order."""
    ordered = rows.sort_by([(name, "ascending") for name in _ORDER if name in rows.column_names])
    columns = [ordered[name] for name in output.printed]
    kind = pa.repeat(pa.scalar(output.kind, pa.int64()), len(ordered))
    return pa.Table.from_arrays([kind, *columns], ["type", *output.printed])
