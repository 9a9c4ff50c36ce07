"""The average of each seller's last ten sales, after each sale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

import seep
from seep.operators.definition import Input

AVERAGE = pa.schema([(name, pa.int64()) for name in ("time", "seller", "auction", "avg_price", "num")])

#: Number of earlier sales that are kept per seller; a new sale makes ten. A price of -1 means no sale.
_KEPT = tuple(f"price_{nth}" for nth in range(9))


class LastSales(seep.Operator):
    """Averages the last ten sales. Sales come by time from epoch to epoch; an epoch's sales follow the kept ones."""

    def output(self, inputs: Sequence[Input]) -> pa.Schema:  # noqa: ARG002
        return AVERAGE

    def open(self, context: seep.Context) -> None:
        columns = dict.fromkeys(_KEPT, pa.int64())
        self.kept = context.frame("kept", columns, defaults=dict.fromkeys(_KEPT, -1))

    def process(self, inputs: seep.Inputs) -> dict[str, object]:
        order = [(name, "ascending") for name in ("seller", "time", "auction")]
        sales = pa.Table.from_batches([inputs[0]]).sort_by(order)
        sellers, prices = sales["seller"].to_numpy(), sales["price"].to_numpy()
        starts = np.flatnonzero(np.diff(sellers, prepend=-1))
        rows, lengths = self.kept.locate(sellers[starts]), np.diff(starts, append=len(sellers))

        # For each seller: nine places for kept sales, then the new ones.
        firsts = starts + len(_KEPT) * np.arange(len(starts))
        new = np.arange(len(sellers)) + len(_KEPT) * np.repeat(np.arange(1, len(starts) + 1), lengths)
        every = np.empty(len(sellers) + len(_KEPT) * len(starts), np.int64)
        every[new] = prices
        for nth, name in enumerate(_KEPT):
            every[firsts + nth] = self.kept.column(name)[rows]
        for nth, name in enumerate(_KEPT):
            self.kept.column(name)[rows] = every[firsts + lengths + nth]

        sums, counts = (_of_ten(each, new) for each in (np.maximum(every, 0), every >= 0))
        average = {"avg_price": sums // counts, "num": counts}
        return {"time": sales["time"], "seller": sellers, "auction": sales["auction"], **average}


def _of_ten(values: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Returns the sum of the ten values up to each of `ends`, including it."""
    sums = np.concatenate([[0], np.cumsum(values)])
    total: np.ndarray = sums[ends + 1] - sums[ends - len(_KEPT)]
    return total
