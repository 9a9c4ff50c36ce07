"""The source: the same rows from a log and as they are made, however they are cut; and the watermarks of both."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nexmark.generator import EventGenerator, EventKind, EventSettings
from nexmark.log import log
from nexmark.schema import LOG
from nexmark.source import EventSource, GeneratedEvents, LoggedEvents, WantedColumns
from primitives.errors import UserError
from seep.sources.reader import SourceReader

MODEL = EventSettings(group=64, rate=1_000)
EVENTS = 6_400
BIDS = WantedColumns({EventKind.BID: ("auction", "price", "date_time")})
BOTH = WantedColumns(
    {EventKind.AUCTION: ("id", "item", "expires", "date_time"), EventKind.BID: ("auction", "price", "date_time")}
)
FEW = WantedColumns({EventKind.PERSON: ("id", "name")}, time=None)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    pq.write_table(pa.Table.from_batches(log(MODEL, EVENTS), LOG), path, row_group_size=999)
    return path


def read(reader: SourceReader, limits: list[int], wanted: WantedColumns, partition: int = 0) -> pa.Table:
    """All rows, and beside them the watermark that came with each."""
    blocks, marks, offset, ended = [], [], 0, False
    while not ended:
        block = reader.read(partition, offset, limits[len(blocks) % len(limits)])
        assert len(block.rows) <= limits[len(blocks) % len(limits)]
        assert len(block.rows) or block.ended
        blocks.append(block.rows)
        marks += [None] * (len(block.rows) - 1) + [block.watermark] * (len(block.rows) > 0)
        offset, ended = block.offset, block.ended
    return (
        pa.Table.from_batches(blocks, wanted.schema).combine_chunks().append_column("mark", pa.array(marks, pa.int64()))
    )


@pytest.mark.parametrize("wanted", [BIDS, BOTH, FEW], ids=["bids", "both", "few"])
@settings(max_examples=6, deadline=None)
@given(limits=st.lists(st.integers(1, 900), min_size=1, max_size=4))
def test_rows_are_the_same_from_a_log_and_as_they_are_made(
    path: Path, wanted: WantedColumns, limits: list[int]
) -> None:
    limits = [*limits, 700]
    made = read(GeneratedEvents(wanted, MODEL, EVENTS).reader(), limits, wanted).drop_columns("mark")
    assert made.equals(read(GeneratedEvents(wanted, MODEL, EVENTS).reader(), [5_000], wanted).drop_columns("mark"))
    logged = read(LoggedEvents(wanted, path).reader(), limits, wanted).drop_columns("mark")
    assert logged.to_pylist() == made.to_pylist()


@pytest.mark.parametrize("source", ["log", "made"])
def test_no_later_row_is_earlier_than_a_watermark_and_it_is_the_best(source: str, path: Path) -> None:
    reader = LoggedEvents(BIDS, path).reader() if source == "log" else GeneratedEvents(BIDS, MODEL, EVENTS).reader()
    rows = read(reader, [97], BIDS)
    times, marks = rows["date_time"].to_numpy(), rows["mark"].to_pylist()
    every = EventGenerator(MODEL).times(EventGenerator(MODEL).at(np.arange(EVENTS)))
    later = np.minimum.accumulate(times[::-1])[::-1]
    told = [(mark, int(least)) for mark, least in zip(marks, later, strict=True) if mark is not None]
    assert len(told) > 20
    assert all(mark <= least for mark, least in told)
    assert sum(mark == least for mark, least in told) > len(told) * 0.7
    assert min(mark for mark, _ in told) >= every.min()


def test_partitions_share_the_events_out(path: Path) -> None:
    source = GeneratedEvents(BIDS, MODEL, EVENTS, partitions=3)
    parts = [read(source.reader(), [100], BIDS, partition).drop_columns("mark") for partition in range(3)]
    whole = read(LoggedEvents(BIDS, path).reader(), [1_000], BIDS).drop_columns("mark")
    names = [(name, "ascending") for name in whole.schema.names]
    assert pa.concat_tables(parts).sort_by(names).equals(whole.sort_by(names))


@pytest.mark.parametrize("wanted", [BIDS, BOTH, FEW], ids=["bids", "both", "few"])
def test_the_share_of_rows_is_that_of_their_kinds(path: Path, wanted: WantedColumns) -> None:
    sources: list[EventSource] = [LoggedEvents(wanted, path), GeneratedEvents(wanted, MODEL)]
    expected = sum({EventKind.PERSON: 1, EventKind.AUCTION: 3, EventKind.BID: 46}[kind] for kind in wanted.kinds) / 50
    assert [source.share() for source in sources] == pytest.approx([expected, expected])


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no log"):
        LoggedEvents(BIDS, tmp_path / "none.parquet").check("bids")
    path = tmp_path / "other.parquet"
    pq.write_table(
        pa.table({"kind": [1], "watermark": [1], "date_time": [1], "b_auction": ["x"], "b_price": [1]}), path
    )
    with pytest.raises(UserError, match="column 'kind' of the log"):
        LoggedEvents(BIDS, path).check("bids")
