"""The language versions of an encyclopaedia that are read most, in every half minute: SEEP's open-loop top-k query.

The views come by the clock, whether or not the query keeps up. When more of them are overdue than an epoch may have
(524,288), the source passes the rest over, and counts these rows as `shed`. Here are 600,000 views, which is five
seconds of them at this rate, so a query that is not much too slow sheds nothing:

seep run examples.topk:query --rate 120k
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import seep
from primitives.hashing import hash_keys

LANGUAGES, PARTITIONS, K = 300, 4, 10
ROWS, VIEWS_PER_SECOND = 150_000, 10_000  # of each partition, and of all
CODES = pa.array([f"{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(LANGUAGES)])
VIEWS = pa.schema([("at", pa.timestamp("us")), ("language", pa.string()), ("page", pa.int64()), ("size", pa.int64())])
#: The n-th language is read in proportion to 1/n.
SHARES = np.cumsum(1 / np.arange(1, LANGUAGES + 1)) / (1 / np.arange(1, LANGUAGES + 1)).sum()


def views(partition: int, first: int, count: int) -> dict[str, pa.Array]:
    """The page views from number `first` on: when, in which language, which page of it, and how many bytes."""
    numbers = np.arange(first, first + count) * PARTITIONS + partition
    chance = hash_keys([numbers])
    language = np.searchsorted(SHARES, (chance >> np.uint64(11)).astype(float) * 2.0**-53)
    return {
        "at": pa.array(numbers * 1_000_000 // VIEWS_PER_SECOND, pa.timestamp("us")),
        "language": CODES.take(pa.array(language)),
        "page": pa.array((chance % np.uint64(10_000)).astype(np.int64)),
        "size": pa.array((chance % np.uint64(90_001)).astype(np.int64) + 1_000),
    }


class Merge(seep.Operator):
    """An operator that selects the highest K of all instances' counts of a window."""

    notify_type = pa.struct([("language", pa.string()), ("views", pa.int64())])

    def output(self, inputs):
        return pa.schema([inputs[0].schema.field("window_start"), ("language", pa.string()), ("views", pa.int64())])

    def process(self, inputs):
        counts = inputs[0]
        ends = counts["window_end"].cast(pa.timestamp("us")).cast(pa.int64())
        partial = pa.StructArray.from_arrays([counts["language"], counts["views"]], fields=list(self.notify_type))
        self.notify_batch(pc.subtract(ends, 1), [counts["window_start"]], partial)

    def on_notify(self, due, inputs):  # noqa: ARG002
        language, views = due["value"].flatten()
        counts = pa.table({"window_start": due["window_start"], "language": language, "views": views})
        ordered = counts.sort_by([("window_start", "ascending"), ("views", "descending"), ("language", "ascending")])
        starts = ordered["window_start"].to_numpy()
        rank = np.arange(len(ordered)) - np.searchsorted(starts, starts)
        return ordered.filter(pa.array(rank < K))


query = seep.Query("topk")
source = seep.sources.generator(views, VIEWS, partitions=PARTITIONS, rows=ROWS, time="at", shed=True)
slim = query.source("views", source, rate=VIEWS_PER_SECOND).map("map", lambda rows: rows.select(["at", "language"]))
counts = slim.key_by("language").window(seep.tumbling("30 s")).aggregate("reduce", views=seep.count())
counts.key_by("window_start").apply("merge", Merge).sink("out", seep.sinks.collect())
