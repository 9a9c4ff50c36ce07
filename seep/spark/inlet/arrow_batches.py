"""Has Spark hand over Arrow batches without pandas, and without measuring them after every row where it need not.

Spark limits a batch by rows and by bytes, and to know the bytes it asks all columns for their sizes after each row:
that is most of the cost of the transfer (0.7 of 0.9 µs for five integers). Rows of bounded width need no limit in
bytes, and text does not either in batches of fewer rows. Settings of the user's session are respected, and not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
#: The only value for which Spark does not measure batches.
_NO_BOUND = str(2**31 - 1)
#: Rows of a batch with columns of unbounded length: with 10,000 characters in each row, some tens of megabytes.
_FEW = 2_000
_BOUNDED = (pa.types.is_null, pa.types.is_boolean, pa.types.is_primitive, pa.types.is_decimal)


def unweighed(df: DataFrame, schema: pa.Schema) -> DataFrame:
    """Returns the DataFrame in a copy of its session that does not measure batches; the same one if it must."""
    from pyspark.sql import DataFrame

    settings = _settings(df.sparkSession, schema)
    if not settings:
        return df
    frame: Any = df
    session = frame._jdf.sparkSession().cloneSession()
    for key, value in settings.items():
        session.conf().set(key, value)
    within = frame._jdf.getClass().getName()
    dataset = getattr(frame.sparkSession._jvm, within)
    return DataFrame(dataset.ofRows(session, frame._jdf.logicalPlan()), df.sparkSession)


def unweigh(session: SparkSession, schema: pa.Schema) -> None:
    """Changes a streaming query's own session, which nothing else uses, so that it does not measure batches."""
    for key, value in _settings(session, schema).items():
        session.conf.set(key, value)


def _settings(session: SparkSession, schema: pa.Schema) -> dict[str, str]:
    own: Any = session
    known = own._jsparkSession.sessionState().conf()
    if known.contains(_BYTES) or any(map(_is_heavy, schema.types)):
        return {}
    rows = int(session.conf.get(_ROWS) or 0)
    if all(map(_is_bounded, schema.types)):
        return {_BYTES: _NO_BOUND}
    return {_BYTES: _NO_BOUND, _ROWS: str(min(rows, _FEW) if rows > 0 else _FEW)}


def _is_bounded(type: pa.DataType) -> bool:
    """Whether all values have the same small size."""
    if pa.types.is_struct(type):
        return all(_is_bounded(type.field(i).type) for i in range(type.num_fields))
    return any(check(type) for check in _BOUNDED)


def _is_heavy(type: pa.DataType) -> bool:
    """Whether a value may be as large as an image or a document."""
    return pa.types.is_binary(type) or any(_is_heavy(type.field(i).type) for i in range(type.num_fields))


def map_in_arrow(df: DataFrame, task: Callable[[Iterator[Any]], Iterator[Any]], columns: str) -> DataFrame:
    """Returns the rows that a task makes of the Arrow batches of each partition; the driver never gets the batches.

    As `DataFrame.mapInArrow`, but for sessions without pandas too, which Spark requires there and does not use.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas import functions
    from pyspark.util import PythonEvalType

    udf: Any = functions.vectorized_udf(task, columns, PythonEvalType.SQL_MAP_ARROW_ITER_UDF, "pandas")  # type: ignore[attr-defined,unused-ignore]
    called = udf(*[df[f"`{name.replace('`', '``')}`"] for name in df.columns])
    frame: Any = df
    return DataFrame(frame._jdf.mapInArrow(called._jc, False, None), df.sparkSession)
