"""Queries 0 to 9, 11 and 12 of NEXMark; sizes are milliseconds of event time."""

from __future__ import annotations

import pyarrow.compute as pc

import seep
from nexmark.queries.definition import reads
from nexmark.queries.last_sales import LastSales
from nexmark.queries.running_average import RunningAverage
from nexmark.queries.winning_bids import winning_bids

SECOND, HOUR = 1_000, 3_600_000

_AUCTION = ("id", "date_time", "expires", "reserve", "seller", "category")
_BID = ("auction", "bidder", "price", "date_time")


@reads("Q0", whole=True)
def q0(events: seep.Stream) -> seep.Stream:
    """Pass-through: every event as it is."""
    return events.map("pass", lambda batch: batch)


@reads("Q1", bids=("auction", "bidder", "price", "date_time", "extra"))
def q1(bids: seep.Stream) -> seep.Stream:
    """Currency conversion: prices in euros."""
    euros = pc.divide(pc.multiply(pc.field("price"), 89), 100)
    names = ("auction", "bidder", "price", "date_time", "extra")
    return bids.select("euros", {name: euros if name == "price" else name for name in names})


@reads("Q2", bids=("auction", "price"))
def q2(bids: seep.Stream) -> seep.Stream:
    """Selection: bids for some of the auctions."""
    auction = pc.field("auction")
    return bids.filter("chosen", pc.multiply(pc.divide(auction, 123), 123) == auction)


@reads("Q3", people=("id", "name", "city", "state"), auctions=("id", "seller", "category"))
def q3(people: seep.Stream, auctions: seep.Stream) -> seep.Stream:
    """Local item suggestion: who sells in one category, in some of the states."""
    local = people.filter("local", pc.field("state").isin(["OR", "ID", "CA"])).key_by("id")
    sold = auctions.filter("category-10", pc.field("category") == 10).key_by("seller")
    names = {"name": "name", "city": "city", "state": "state", "auction": "id_right"}
    return local.join("sellers", sold).select("suggestions", names)


@reads("Q4", auctions=_AUCTION, bids=_BID)
def q4(auctions: seep.Stream, bids: seep.Stream) -> seep.Stream:
    """Average price of a category, after each instant at which something in it was sold."""
    return winning_bids(auctions, bids).key_by("category").apply("average", RunningAverage)


@reads("Q4F", auctions=_AUCTION, bids=_BID)
def q4f(auctions: seep.Stream, bids: seep.Stream) -> seep.Stream:
    """Average price of each category in the end."""
    sales = winning_bids(auctions, bids).key_by("category")
    totals = sales.aggregate("totals", emit="end", time=seep.max("time"), sum_price=seep.sum("price"), num=seep.count())
    average = pc.divide(pc.field("sum_price"), pc.field("num"))
    names = {"time": "time", "category": "category", "avg_price": average, "sum_price": "sum_price", "num": "num"}
    return totals.select("average", names)


@reads("Q5", bids=("auction", "date_time"))
def q5(bids: seep.Stream, size: int = 60 * SECOND, slide: int = SECOND) -> seep.Stream:
    """Hot items: the auctions with the most bids in each sliding window."""
    hot = bids.key_by("auction").window(seep.sliding(size, slide)).highest("hot-items", num=seep.count())
    return hot.select("items", ["window_start", "window_end", "auction", "num"])


@reads("Q6", auctions=_AUCTION, bids=_BID)
def q6(auctions: seep.Stream, bids: seep.Stream) -> seep.Stream:
    """Average selling price by seller, over the last ten sales."""
    return winning_bids(auctions, bids).key_by("seller").apply("last-ten", LastSales)


@reads("Q7", bids=_BID)
def q7(bids: seep.Stream, size: int = 10 * SECOND) -> seep.Stream:
    """Highest bid: the bids of the highest price in each window."""
    highest = bids.key_by("auction").window(seep.tumbling(size)).highest("highest-bids", "price")
    return highest.select("bids-of-windows", ["window_start", "window_end", *_BID])


@reads("Q8", people=("id", "name", "date_time"), auctions=("id", "seller", "reserve", "date_time"))
def q8(people: seep.Stream, auctions: seep.Stream, size: int = 12 * HOUR) -> seep.Stream:
    """New users: who registered, and sold something in the same window."""
    sellers = people.key_by("id").join("new-sellers", auctions.key_by("seller"), window=seep.tumbling(size))
    names = {"person": "id", "name": "name", "auction": "id_right", "reserve": "reserve"}
    return sellers.select("new-users", {**window_of("date_time", size), **names})


@reads("Q9", auctions=_AUCTION, bids=_BID)
def q9(auctions: seep.Stream, bids: seep.Stream) -> seep.Stream:
    """Winning bids."""
    return winning_bids(auctions, bids)


@reads("Q11", bids=("bidder", "date_time"))
def q11(bids: seep.Stream, gap: int = 10 * SECOND) -> seep.Stream:
    """User sessions: how many bids each bidder made without a longer pause."""
    sessions = bids.key_by("bidder").window(seep.session(gap)).aggregate("sessions", num=seep.count())
    names = {"bidder": "bidder", "num": "num", "session_start": "window_start", "session_end": "window_end"}
    return sessions.select("users", names)


@reads("Q12", bids=("bidder", "arrival_time"))
def q12(bids: seep.Stream, size: int = 10 * SECOND) -> seep.Stream:
    """Bids of each bidder in windows of the time at which they arrive."""
    counts = bids.key_by("bidder").window(seep.tumbling(size)).aggregate("counts", num=seep.count())
    return counts.select("bidders", ["bidder", "num", "window_start", "window_end"])


def window_of(time: str, size: int) -> dict[str, pc.Expression]:
    """The bounds of the window that a time is in."""
    start = pc.multiply(pc.divide(pc.field(time), size), size)
    return {"window_start": start, "window_end": pc.add(start, size)}
