"""Counts for each key, as Spark has its users write them; for `spark_io.py`. They need pandas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle


class Counting(StatefulProcessor):
    """For `transformWithStateInPandas`."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: ARG002
        found = (self._count.get() or (0,))[0] + sum(map(len, rows))
        self._count.update((found,))
        yield pd.DataFrame({"key": [key[0]], "n": [found]})


def count(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
    """For `applyInPandasWithState`."""
    found = (state.getOption or (0,))[0] + sum(map(len, frames))
    state.update((found,))
    yield pd.DataFrame({"key": [key[0]], "n": [found]})
