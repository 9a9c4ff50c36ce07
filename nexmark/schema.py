"""The columns of persons, auctions and bids, and of logs with all of them (section 2 of the spec)."""

from __future__ import annotations

import pyarrow as pa

_INT, _TEXT = pa.int64(), pa.string()

PERSON = pa.schema(
    {"id": _INT, "name": _TEXT, "email": _TEXT, "card": _TEXT, "city": _TEXT, "state": _TEXT, "date_time": _INT}
    | {"extra": _TEXT}
)
AUCTION = pa.schema(
    {"id": _INT, "item": _TEXT, "desc": _TEXT, "initial_bid": _INT, "reserve": _INT, "date_time": _INT}
    | {"expires": _INT, "seller": _INT, "category": _INT, "extra": _TEXT}
)
BID = pa.schema({"auction": _INT, "bidder": _INT, "price": _INT, "date_time": _INT, "extra": _TEXT})

#: Names by number of the kind.
KINDS = (PERSON, AUCTION, BID)

#: Columns of all kinds, and the prefixes of other columns in a log.
COMMON = ("date_time", "extra")
PREFIXES = ("p_", "a_", "b_")


def log_name(kind: int, column: str) -> str:
    """Returns the name that a kind's column has in a log.

    >>> log_name(1, "seller"), log_name(2, "date_time")
    ('a_seller', 'date_time')
    """
    return column if column in COMMON else PREFIXES[kind] + column


_OF_KINDS = {
    log_name(kind, field.name): field.type
    for kind, schema in enumerate(KINDS)
    for field in schema
    if field.name not in COMMON
}

#: Columns of a log: one row per event, in order of arrival.
LOG = pa.schema(
    {"seq": _INT, "event_id": _INT, "kind": pa.int8()}
    | dict.fromkeys(("date_time", "arrival_time", "watermark"), _INT)
    | {name: _OF_KINDS[name] for name in ("p_id", "p_name", "p_email", "p_card", "p_city", "p_state")}
    | {name: _OF_KINDS[name] for name in ("a_id", "a_item", "a_desc", "a_initial_bid", "a_reserve", "a_expires")}
    | {name: _OF_KINDS[name] for name in ("a_seller", "a_category", "b_auction", "b_bidder", "b_price")}
    | {"extra": _TEXT}
)
assert set(_OF_KINDS) <= set(LOG.names)
