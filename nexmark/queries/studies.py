"""The queries that Rhino (NBQ…) and AutoFlow (AF) added; sizes are milliseconds of event time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

import seep
from nexmark.queries.definition import reads
from nexmark.queries.original import HOUR, SECOND, window_of
from seep.query.stream import Windowed

MINUTE = 60 * SECOND
GAPS = (30 * MINUTE, 60 * MINUTE, 90 * MINUTE, 120 * MINUTE)

_PAIRS = {
    "auction": "id",
    "bidder": "bidder",
    "price": "price",
    "auction_time": "date_time",
    "bid_time": "date_time_right",
}
_BOUNDS = {"window_start": "window_start", "window_end": "window_end"}


@reads("NBQ5", bids=("auction", "price", "date_time"))
def nbq5(bids: seep.Stream, size: int = 60 * SECOND, slide: int = 10 * SECOND) -> seep.Stream:
    """How much is bid for each auction in each sliding window."""
    windows = bids.key_by("auction").window(seep.sliding(size, slide))
    facts = windows.aggregate("facts", num=seep.count(), max_price=seep.max("price"), last_time=seep.max("date_time"))
    return facts.select("auctions", ["window_start", "window_end", "auction", "num", "max_price", "last_time"])


@reads("NBQ8", people=("id", "date_time"), auctions=("id", "seller", "date_time"))
def nbq8(people: seep.Stream, auctions: seep.Stream, size: int = 12 * HOUR, on_disk: bool = False) -> seep.Stream:
    """Who registered, and sold something in the same window."""
    window = seep.tumbling(size)
    sellers = people.key_by("id").join("new-sellers", auctions.key_by("seller"), window=window, on_disk=on_disk)
    names = {"person": "id", "auction": "id_right", "person_time": "date_time", "auction_time": "date_time_right"}
    return sellers.select("new-users", {**window_of("date_time", size), **names})


@reads("NBQX", auctions=("id", "date_time"), bids=("auction", "bidder", "price", "date_time"))
def nbqx(auctions: seep.Stream, bids: seep.Stream, gaps: tuple[int, ...] = GAPS, size: int = 4 * HOUR) -> seep.Stream:
    """Auctions with the bids for them: in sessions with gaps of four lengths, and in windows."""
    opened, bids = auctions.key_by("id"), bids.key_by("auction")
    joined = opened.join(f"tumble-{size}", bids, window=seep.tumbling(size))
    pairs = [_labelled(joined, f"tumble:{size}", window_of("date_time", size))]
    for gap in gaps:
        joined = opened.join(f"session-{gap}", bids, window=seep.session(gap))
        pairs.append(_labelled(joined, f"session:{gap}", _BOUNDS))
    return pairs[0].union(*pairs[1:])


def _labelled(joined: seep.Stream, label: str, bounds: Mapping[str, str | pc.Expression]) -> seep.Stream:
    """The pairs of one join in the columns of the result."""
    return joined.select(label.replace(":", "-pairs-"), {"sub": pc.scalar(label), **bounds, **_PAIRS})


@reads("NBQXC", auctions=("id", "date_time"), bids=("auction", "price", "date_time"))
def nbqxc(auctions: seep.Stream, bids: seep.Stream, gaps: tuple[int, ...] = GAPS, size: int = 4 * HOUR) -> seep.Stream:
    """The same, with pairs counted and prices summed; for that it is enough to count both sides."""
    nothing = pc.scalar(None).cast(pa.int64())
    opened = auctions.select("opened", {"auction": "id", "opened": "id", "price": nothing, "date_time": "date_time"})
    offers = bids.select(
        "offers", {"auction": "auction", "opened": nothing, "price": "price", "date_time": "date_time"}
    )
    both = opened.union(offers).key_by("auction")
    windows = {f"session:{gap}": seep.session(gap) for gap in gaps} | {f"tumble:{size}": seep.tumbling(size)}
    counts = [_counted(both.window(window), label) for label, window in windows.items()]
    return counts[0].union(*counts[1:])


def _counted(windowed: Windowed, label: str) -> seep.Stream:
    """How many pairs there are of the rows in each window of one kind."""
    name = label.replace(":", "-")
    opened, offers = pc.field("opened"), pc.field("offers")
    facts = windowed.aggregate(
        name, opened=seep.count("opened"), offers=seep.count("price"), sum_price=seep.sum("price")
    )
    sides = facts.filter(f"{name}-both", (opened > 0) & (offers > 0))
    sums = {"num": pc.multiply(opened, offers), "sum_price": pc.multiply(opened, pc.field("sum_price"))}
    return sides.select(f"{name}-pairs", {"sub": pc.scalar(label), **_BOUNDS, "auction": "auction", **sums})


@reads("AF", bids=("auction", "price"))
def af(bids: seep.Stream, emit: Literal["changes", "end"] = "end") -> seep.Stream:
    """AutoFlow's map and reduce: the sum of the prices that are bid for each auction."""
    return bids.key_by("auction").aggregate("reducer", emit=emit, sum_price=seep.sum("price"), num=seep.count())
