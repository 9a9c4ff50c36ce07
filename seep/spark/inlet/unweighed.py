"""Spark makes Arrow batches of rows without weighing each batch after every row, where it has no need to.

Spark bounds a batch by rows and by bytes, and to know the bytes it asks all columns for their sizes after each row:
that is most of what the hand-over costs (0.7 of 0.9 µs for five integers). Rows of bounded width need no such bound,
and neither do texts in batches of fewer rows. What the user's session says of it is obeyed, and left as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
#: The one value for which Spark does not weigh.
_NO_BOUND = str(2**31 - 1)
#: Rows of a batch with columns of any length: with ten thousand characters in each, some tens of megabytes.
_FEW = 2_000
_BOUNDED = (pa.types.is_null, pa.types.is_boolean, pa.types.is_primitive, pa.types.is_decimal)


def unweighed(df: DataFrame, schema: pa.Schema) -> DataFrame:
    """The DataFrame in a session like its own that does not weigh; the same one if it has to."""
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
    """The same for all to come in a session that is nobody else's: that of a streaming query."""
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
    """Whether each value has the same few bytes."""
    if pa.types.is_struct(type):
        return all(_is_bounded(type.field(i).type) for i in range(type.num_fields))
    return any(check(type) for check in _BOUNDED)


def _is_heavy(type: pa.DataType) -> bool:
    """Whether a value may well be an image or a document."""
    return pa.types.is_binary(type) or any(_is_heavy(type.field(i).type) for i in range(type.num_fields))
