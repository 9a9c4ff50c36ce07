"""The running average of sales in each category, after each instant with a sale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

import seep
from seep.operators.definition import Input

AVERAGE = pa.schema([(name, pa.int64()) for name in ("time", "category", "avg_price", "sum_price", "num")])


class RunningAverage(seep.Operator):
    """Averages sales. Rows come by time from epoch to epoch, so only the sums by instant within an epoch are sorted."""

    def output(self, inputs: Sequence[Input]) -> pa.Schema:  # noqa: ARG002
        return AVERAGE

    def open(self, context: seep.Context) -> None:
        self.totals = context.frame("totals", {"sum_price": pa.int64(), "num": pa.int64()})

    def process(self, inputs: seep.Inputs) -> dict[str, object]:
        sales = pa.Table.from_batches([inputs[0]]).group_by(["category", "time"])
        instants = sales.aggregate([("price", "sum"), ("price", "count")])
        instants = instants.sort_by([("category", "ascending"), ("time", "ascending")])
        categories = instants["category"].to_numpy()
        starts = np.flatnonzero(np.diff(categories, prepend=-1))
        rows = self.totals.locate(categories[starts])
        sums, counts = (
            self._run_on(column, instants[there].to_numpy(), starts, rows)
            for column, there in (("sum_price", "price_sum"), ("num", "price_count"))
        )
        return {
            "time": instants["time"],
            "category": categories,
            "avg_price": sums // counts,
            "sum_price": sums,
            "num": counts,
        }

    def _run_on(self, column: str, added: np.ndarray, starts: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Returns the totals after each instant, continuing the earlier totals, and keeps them for the next epoch."""
        lengths = np.diff(starts, append=len(added))
        totals = np.cumsum(added)
        before = self.totals.column(column)[rows] - (totals - added)[starts]
        running: np.ndarray = totals + np.repeat(before, lengths)
        self.totals.column(column)[rows] = running[starts + lengths - 1]
        return running
