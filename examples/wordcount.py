"""Counts the words of a stream of lines, in windows of ten seconds.

seep run examples.wordcount:query --parallelism counter=2
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import seep

LINES = pa.array(["the quick brown fox", "jumps over the lazy dog", "the dog sleeps", "and the fox is gone"])
SECONDS = 60
LINES_PER_SECOND = 500


def write_lines(partition: int, first: int, count: int) -> dict[str, pa.Array]:
    """The lines from number `first` on; a generator must give the same rows whenever it is asked for them."""
    numbers = np.arange(first, first + count)
    at = pa.array(numbers * 1_000_000 // LINES_PER_SECOND, pa.timestamp("us"))
    return {"line": LINES.take(pa.array((numbers * 7 + partition) % len(LINES))), "at": at}


def split(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """A row for each word; it keeps the time of its line."""
    words = pc.split_pattern(batch["line"], " ")
    return {"word": pc.list_flatten(words), "at": batch["at"].take(pc.list_parent_indices(words))}


query = seep.Query("wordcount")
lines = query.source(
    "lines",
    seep.sources.generator(
        write_lines,
        pa.schema([("line", pa.string()), ("at", pa.timestamp("us"))]),
        partitions=2,
        rows=SECONDS * LINES_PER_SECOND,
        time="at",
    ),
)
words = lines.flat_map("splitter", split)
counts = words.key_by("word").window(seep.tumbling("10 s")).aggregate("counter", n=seep.count())
counts.sink("out", seep.sinks.collect())
