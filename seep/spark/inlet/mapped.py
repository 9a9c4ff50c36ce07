"""`DataFrame.mapInArrow` for sessions without pandas, which Spark requires there but does not use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def map_in_arrow(df: DataFrame, task: Callable[[Iterator[Any]], Iterator[Any]], columns: str) -> DataFrame:
    """Returns the rows that a task makes of the Arrow batches of each partition; the driver never gets the batches."""
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas import functions
    from pyspark.util import PythonEvalType

    udf: Any = functions.vectorized_udf(task, columns, PythonEvalType.SQL_MAP_ARROW_ITER_UDF, "pandas")  # type: ignore[attr-defined,unused-ignore]
    called = udf(*[df[f"`{name.replace('`', '``')}`"] for name in df.columns])
    frame: Any = df
    return DataFrame(frame._jdf.mapInArrow(called._jc, False, None), df.sparkSession)
