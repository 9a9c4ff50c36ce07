"""Cuts the clicks of each visitor into sessions, which end after half a minute without a click.

seep run examples.sessions:query
"""

import numpy as np
import pyarrow as pa

import seep

VISITORS, CLICKS = 200, 20_000
PAGES = pa.array(["/", "/search", "/item", "/cart", "/pay"])


def clicks() -> pa.Table:
    """Every visitor clicks about ten times in a row, and then reads for some minutes; clicks come up to 2 s late."""
    rng = np.random.default_rng(1)
    pauses = np.where(rng.random(CLICKS) < 0.1, rng.integers(60, 600, CLICKS), rng.integers(1, 20, CLICKS))
    visitor = rng.integers(0, VISITORS, CLICKS)
    at = np.zeros(CLICKS, np.int64)
    for each in range(VISITORS):
        at[visitor == each] = np.cumsum(pauses[visitor == each]) * 1_000_000
    arrival = np.argsort(at + rng.integers(0, 2_000_000, CLICKS))
    columns = {"visitor": pa.array(visitor), "page": PAGES.take(pa.array(rng.integers(0, len(PAGES), CLICKS)))}
    return pa.table({**columns, "at": pa.array(at, pa.timestamp("us"))}).take(pa.array(arrival))


query = seep.Query("sessions")
sessions = (
    query.source("clicks", seep.sources.memory(clicks(), time="at", out_of_order="2 s"))
    .key_by("visitor")
    .window(seep.session("30 s"))
    .aggregate("sessions", clicks=seep.count(), entry=seep.first("page"), exit=seep.last("page"))
)
sessions.sink("out", seep.sinks.collect())
