"""The running average of what is sold in each category, as it is after each instant with a sale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

import seep
from seep.operators.definition import Input

AVERAGE = pa.schema([(name, pa.int64()) for name in ("time", "category", "avg_price", "sum_price", "num")])


class RunningAverage(seep.Operator):
    """Rows come by time from one epoch to the next, so within an epoch only their sums by instant are to be ordered."""

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
        """The totals after each instant, from those before on; they are kept for the next."""
        lengths = np.diff(starts, append=len(added))
        totals = np.cumsum(added)
        before = self.totals.column(column)[rows] - (totals - added)[starts]
        running: np.ndarray = totals + np.repeat(before, lengths)
        self.totals.column(column)[rows] = running[starts + lengths - 1]
        return running
