"""A query in one call: an operator with state per key, from a DataFrame to a DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seep.config.files import read_policy
from seep.config.launching import launch_settings, sections_of
from seep.operators.custom import Operator
from seep.query.query import Query
from seep.rows.times import Duration
from seep.sinks import spark as spark_sink
from seep.spark.inlet.source import from_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def stateful(
    df: DataFrame,
    *,
    key: str | Sequence[str],
    operator: Operator | Callable[[], Operator],
    policy: str | Path | None = None,
    name: str = "stateful",
    time: str | None = None,
    out_of_order: Duration = 0,
    spool: str | Path | None = None,
    checkpoint: str | Path | None = None,
    trigger: Mapping[str, Any] | None = None,
    **options: Any,
) -> DataFrame:
    """Runs an operator on the rows of a DataFrame, key by key; returns a DataFrame, batch or streaming like the input.

    `policy` is a policy file; `options` are those of `seep.launch` and override it. `spool` is the directory of
    `seep.sinks.spark`; the other arguments are those of `from_spark`. For a streaming DataFrame, the query runs until
    that or the program ends. To control the run, write the query yourself: it takes five lines.

    >>> counts = seep.stateful(clicks, key="user", operator=Counting())   # doctest: +SKIP
    """
    query = Query(name)
    rows = query.source("rows", from_spark(df, **_given(time, out_of_order, checkpoint, trigger)))
    keyed = rows.key_by(*([key] if isinstance(key, str) else key))
    keyed.apply("operator", operator).sink("out", spark_sink(spool))
    chosen = _of_policy(policy) | options
    convert = query.to_spark if df.isStreaming else query.to_batch_df
    return convert(df.sparkSession, **chosen)


def _given(
    time: str | None, out_of_order: Duration, checkpoint: str | Path | None, trigger: Mapping[str, Any] | None
) -> dict[str, Any]:
    return {"time": time, "out_of_order": out_of_order, "checkpoint": checkpoint, "trigger": trigger}


def _of_policy(policy: str | Path | None) -> dict[str, Any]:
    """Returns the options of a policy file, in the form of `launch`."""
    if policy is None:
        return {}
    file = read_policy(Path(policy))
    settings = launch_settings(file.run.given() | sections_of(file))
    said = {each.name: getattr(settings.options, each.name) for each in fields(settings.options)}
    return said | {"parallelism": settings.parallelism, "rate": settings.rate}
