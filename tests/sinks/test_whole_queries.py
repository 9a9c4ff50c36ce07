"""Sources and file sinks in a whole query, on the real protocol, while nodes are killed and partitions move."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import seep
from seep.testing import InProcess

SCHEMA = pa.schema([("n", pa.int64()), ("partition", pa.int64())])


def numbers(partition: int, first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch([np.arange(first, first + count), np.full(count, partition)], schema=SCHEMA)


def copy_to(home: Path, roll: int, instances: int) -> seep.Query:
    """Four partitions of fifty rows each, to files."""
    query = seep.Query("copy")
    source = seep.sources.generator(numbers, SCHEMA, partitions=4, rows=50, time="n")
    stream = query.source("numbers", source, parallelism=2)
    stream.sink("out", seep.sinks.parquet(home, roll=roll), parallelism=instances)
    return query


def as_rows(table: pa.Table) -> list[tuple[int, int]]:
    return sorted(zip(table["n"].to_pylist(), table["partition"].to_pylist(), strict=True))


EXPECTED = [(n, partition) for n in range(50) for partition in range(4)]
TROUBLE = st.sampled_from(["", "", "kill numbers", "kill out", "move"])


@hypothesis_settings(max_examples=30)
@given(st.lists(TROUBLE, max_size=12), st.integers(1, 6), st.integers(1, 2), st.integers(0, 2**16))
def test_every_row_is_in_the_files_once_whatever_happens(
    tmp_path_factory: pytest.TempPathFactory, troubles: list[str], roll: int, instances: int, seed: int
) -> None:
    home, moves = tmp_path_factory.mktemp("out"), 0
    with InProcess(copy_to(home, roll, instances), rows_per_epoch=12, seed=seed) as run:
        for trouble in troubles:
            run.pulse()
            for _ in range(seed % 23):
                run.step()
            match trouble.split():
                case ["kill", operator]:
                    run.kill(operator)
                case ["move"] if not moves:
                    moves += 1
                    run.move("numbers", {0: [0, 2], 1: [1, 3]})
        run.run()
    assert as_rows(seep.sinks.read(home)) == EXPECTED


def test_what_one_query_writes_another_one_reads(tmp_path: Path) -> None:
    seep.testing.run(copy_to(tmp_path / "first", 3, 2))
    query = seep.Query("again")
    stream = query.source("files", seep.sources.parquet(tmp_path / "first", time="n", out_of_order=50))
    stream.sink("out", seep.sinks.json_lines(tmp_path / "second"))
    seep.testing.run(query)
    assert as_rows(seep.sinks.read(tmp_path / "second")) == EXPECTED
