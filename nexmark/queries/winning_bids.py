"""The winning bid of each auction, used by three queries: the highest valid bid, known when the auction expires."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

import seep
from primitives.kernels import kernel
from primitives.state.columnar.fixed import read_only, to_numbers
from seep.operators.definition import Input

Ints = NDArray[np.int64]

SALE = pa.schema(
    [(name, pa.int64()) for name in ("time", "auction", "seller", "category", "bidder", "price", "bid_time")]
)
#: State of an open auction, in this order; a price of -1 means no bid yet.
_COLUMNS = ("opens", "expires", "reserve", "seller", "category", "price", "bid_time", "bidder")
OPENS, EXPIRES, RESERVE, PRICE, BID_TIME, BIDDER = (
    _COLUMNS.index(name) for name in ("opens", "expires", "reserve", "price", "bid_time", "bidder")
)


def winning_bids(auctions: seep.Stream, bids: seep.Stream) -> seep.Stream:
    """Returns the stream with one row for each sold auction, when it expires."""
    sales = auctions.key_by("id").apply("winning-bids", WinningBids, bids.key_by("auction"))
    return sales.event_time("time")


class WinningBids(seep.Operator):
    """Computes winning bids.

    A bid is valid from the auction's beginning to before its end, at the reserve or more. Of equal bids, the earliest
    wins, then the one with the lowest bidder. A bid is processed when the watermark has reached its time: by then its
    auction is known, if the bid can be valid. A bid that is ahead waits as a notification. A notification without value
    closes an auction.
    """

    ports = 2
    notify_type = pa.struct([("bidder", pa.int64()), ("price", pa.int64())])

    def output(self, inputs: Sequence[Input]) -> pa.Schema:  # noqa: ARG002
        return SALE

    def open(self, context: seep.Context) -> None:
        self.auctions = context.frame("auctions", dict.fromkeys(_COLUMNS, pa.int64()))

    def process(self, inputs: seep.Inputs) -> None:
        opened, bids = inputs
        known = {"opens": opened["date_time"], **{name: opened[name] for name in _COLUMNS[1:5]}}
        self.auctions.put(opened["id"], **known, price=-1)
        self.notify_batch(pc.subtract(opened["expires"], 1), [opened["id"]])
        ahead = pc.greater(bids["date_time"], inputs.watermark)
        self._offer(bids.filter(pc.invert(ahead)))
        waiting = bids.filter(ahead)
        offers = pa.StructArray.from_arrays([waiting["bidder"], waiting["price"]], fields=list(self.notify_type))
        self.notify_batch(waiting["date_time"], [waiting["auction"]], offers)

    def on_notify(self, due: pa.RecordBatch, inputs: seep.Inputs) -> pa.RecordBatch:  # noqa: ARG002
        waited = due.filter(due["value"].is_valid())
        bidder, price = waited["value"].flatten()
        self._offer(
            pa.record_batch({"auction": waited["id"], "bidder": bidder, "price": price, "date_time": waited["time"]})
        )
        rows = self.auctions.locate(due.filter(due["value"].is_null())["id"])
        closed = self.auctions.take(rows)
        self.auctions.delete_rows(rows)
        sold = closed.rename_columns({"id": "auction", "expires": "time"}).filter(pc.field("price") >= 0)
        return sold.select(SALE.names)

    def _offer(self, bids: pa.RecordBatch) -> None:
        rows = self.auctions.locate(bids["auction"], create=False)
        place = self.auctions.in_place(rows[rows >= 0])
        columns = (read_only(to_numbers(bids[name])) for name in ("price", "date_time", "bidder"))
        offer(place.words, place.width, place.first, rows, *columns)


@kernel
def offer(words: Ints, width: int, first: int, rows: Ints, prices: Ints, times: Ints, bidders: Ints) -> None:
    """Makes each bid the best of its auction if it is valid and better than the one before."""
    for at in range(len(rows)):
        auction = words[rows[at] * width + first : rows[at] * width + first + len(_COLUMNS)]
        if rows[at] < 0 or prices[at] < max(auction[RESERVE], auction[PRICE]):
            continue
        is_open = auction[OPENS] <= times[at] < auction[EXPIRES]
        before = prices[at], -times[at], -bidders[at]
        if is_open and before > (auction[PRICE], -auction[BID_TIME], -auction[BIDDER]):
            auction[PRICE], auction[BID_TIME], auction[BIDDER] = prices[at], times[at], bidders[at]
