"""The preview of a stream: its first rows, which a notebook shows as a table."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from seep.reports import figures


@dataclass(frozen=True, slots=True)
class Preview:
    """The first rows of a stream; see `Stream.preview`."""

    stream: str  #: name of the stream
    table: pa.Table
    is_whole: bool  #: whether these are all rows, as the sources have ended

    def __repr__(self) -> str:
        return "\n".join([f"<{self.title}>", *map(str, self.table.to_pylist())])

    @property
    def title(self) -> str:
        """What it shows, in words."""
        count = figures.of(self.table.num_rows, "row")
        return (
            f"the first {count} of {self.stream}" if not self.is_whole else f"{count} of {self.stream}, which are all"
        )

    def _repr_html_(self) -> str:
        from seep.reports.notebook import card, rows_table

        return card(self.title, rows_table(self.table))
