"""The input and output of a processor, Spark rows or pandas frames, and their conversion from and to batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from primitives.errors import UserError
from seep.rows.batches import concat
from seep.rows.spark_types import arrow_schema
from seep.spark.processors.forms import to_arrow, to_spark

#: Pandas' name of this machine's time zone.
_LOCAL = "tzlocal()"


class Shape(ABC):
    """The conversion for one kind of input and output."""

    def __init__(self, given: StructType, returned: StructType) -> None:
        self._given, self._returned = given, returned
        self._schema = arrow_schema(returned)

    @abstractmethod
    def parts(self, batch: pa.RecordBatch, groups: Iterable[Sequence[int]]) -> Iterator[Iterator[Any]]:
        """Yields the processor's input for each group of rows."""

    @abstractmethod
    def batch(self, made: list[Any]) -> pa.RecordBatch:
        """Returns the processor's results as one batch."""


class RowShape(Shape):
    """The conversion for `transformWithState`: rows."""

    def __init__(self, given: StructType, returned: StructType) -> None:
        super().__init__(given, returned)
        self._to_row, self._from_row = to_spark(given), to_arrow(returned)

    def parts(self, batch: pa.RecordBatch, groups: Iterable[Sequence[int]]) -> Iterator[Iterator[Any]]:
        """See `Shape`."""
        rows = [self._to_row(row) for row in batch.to_pylist()]
        for group in groups:
            yield iter([rows[at] for at in group])

    def batch(self, made: list[Any]) -> pa.RecordBatch:
        """See `Shape`."""
        return pa.RecordBatch.from_pylist([self._from_row(row) for row in made], self._schema)


class FrameShape(Shape):
    """The conversion for `transformWithStateInPandas`: one frame for each key, with instants as local times."""

    def parts(self, batch: pa.RecordBatch, groups: Iterable[Sequence[int]]) -> Iterator[Iterator[Any]]:
        """See `Shape`."""
        frame = batch.to_pandas()
        for name in (field.name for field in batch.schema if _is_instant(field.type)):
            frame[name] = frame[name].dt.tz_convert(_LOCAL).dt.tz_localize(None)
        for group in groups:
            yield iter([frame.iloc[list(group)].reset_index(drop=True)])

    def batch(self, made: list[Any]) -> pa.RecordBatch:
        """See `Shape`."""
        return concat([self._from_frame(frame) for frame in made if len(frame)], self._schema)

    def _from_frame(self, frame: Any) -> pa.RecordBatch:
        if missing := [name for name in self._schema.names if name not in frame.columns]:
            raise UserError(
                f"a returned frame has no column {missing[0]!r}; it has {', '.join(map(str, frame.columns))}"
            )
        columns = [self._column(frame[field.name], field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _column(self, series: Any, kind: pa.DataType) -> pa.Array:
        if _is_instant(kind) and getattr(series.dt, "tz", None) is None:
            series = series.dt.tz_localize(_LOCAL)
        found = pa.Array.from_pandas(series, type=kind)
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _is_instant(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)
