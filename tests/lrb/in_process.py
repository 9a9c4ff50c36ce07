"""The query in this process, on tuples in a test's hands."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import pairwise

import pyarrow as pa

from lrb.data.writing import OUTPUTS
from lrb.query.answers import outputs
from lrb.query.linear_road import linear_road
from lrb.schema import INPUT
from lrb.validation.reference import Tuple
from seep import sinks
from seep.query.query import Query
from seep.sources.definition import SourceDefinition
from seep.testing import InProcess, script
from seep.testing.scripted import Cue
from tests.lrb.traffic import table

#: Rows of tolls, alerts, balances and expenditures, each in order.
Rows = list[list[tuple[int, ...]]]


def epochs(tuples: Sequence[Tuple], count: int, seed: int = 0) -> list[pa.RecordBatch]:
    """The tuples, cut into so many batches wherever chance will have it, some of them empty."""
    lot, whole = random.Random(seed), table(tuples).combine_chunks()
    cuts = sorted(lot.randrange(len(tuples) + 1) for _ in range(count - 1))
    batch = whole.to_batches()[0] if len(whole) else pa.RecordBatch.from_pylist([], INPUT)
    return [batch.slice(start, end - start) for start, end in pairwise([0, *cuts, len(tuples)])]


def scripted(*items: pa.RecordBatch | Cue) -> Query:
    return query(script(*items, time="time"))


def query(feeder: SourceDefinition) -> Query:
    return linear_road(feeder, sinks.collect())


def result(query: Query, parallelism: Mapping[str, int] | None = None, seed: int | None = None) -> Rows:
    """What comes out at its end."""
    with InProcess(query, parallelism=parallelism, seed=seed, rows_per_epoch=500) as process:
        process.run()
        return found(process)


def found(process: InProcess) -> Rows:
    """What came out so far."""
    printed = [table.select(each.printed) for each, table in zip(OUTPUTS, outputs(process.tables["sink"]), strict=True)]
    return [sorted(zip(*map(pa.ChunkedArray.to_pylist, each.columns), strict=True)) for each in printed]
