"""Joins orders with the payments that come within an hour, and adds up what each customer has paid.

seep run examples.join:query
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import seep

ORDERS = 5_000


def orders() -> pa.Table:
    """One order every second."""
    numbers = np.arange(ORDERS)
    at = pa.array(numbers * 1_000_000, pa.timestamp("us"))
    return pa.table({"order": numbers, "customer": numbers % 97, "at": at})


def payments() -> pa.Table:
    """Four of five orders are paid, after up to two hours, so about half of the payments come too late."""
    numbers = np.arange(ORDERS)[np.arange(ORDERS) % 5 != 0]
    seconds = numbers + np.random.default_rng(1).integers(1, 7_200, len(numbers))
    paid = pa.table({"reference": numbers, "cents": numbers % 1_000 * 10 + 90, "at": seconds * 1_000_000})
    return paid.set_column(2, "at", paid["at"].cast(pa.timestamp("us"))).sort_by("at")


query = seep.Query("join")
placed = query.source("orders", seep.sources.memory(orders(), time="at"))
received = query.source("payments", seep.sources.memory(payments(), time="at"))

paid = placed.key_by("order").join("paid", received.key_by("reference"), between=("0 s", "1 h"))
paid.sink("paid-orders", seep.sinks.collect())

euros = paid.select("euros", {"customer": "customer", "euros": pc.field("cents").cast("float64") / 100})
euros.key_by("customer").aggregate("spent", emit="end", euros=seep.sum("euros"), orders=seep.count()).sink(
    "customers", seep.sinks.collect()
)
