"""Exports: every row once, in files that other programs read, and no half ones."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from primitives.errors import EnvironmentFault, UserError
from primitives.slots import SlotSet
from seep.inspection import Stored, StoredContainer, export
from seep.testing import rows
from tests.inspection.orders import QUERY, WORDS, Counter, Stage


@pytest.fixture
def counter(stage: Stage) -> Counter:
    counter = Counter().see(*WORDS)
    stage.take(counter)
    stage.take(counter.see("be", *WORDS[:3]))
    return counter


def container(stage: Stage, name: str) -> StoredContainer:
    return Stored.open(stage.location, QUERY).container("counter", name)


@pytest.mark.usefixtures("counter")
@pytest.mark.parametrize("name", ["counts", "last page", "lists", "bids", "timers"])
def test_a_parquet_file_has_every_row_however_many_at_a_time(stage: Stage, name: str, tmp_path: Path) -> None:
    read = container(stage, name)
    table = Stored.open(stage.location, QUERY).table("counter", name)
    assert export(read, tmp_path / "all.parquet", group_bytes=100) == len(table)
    assert rows(pq.read_table(tmp_path / "all.parquet")) == rows(table)
    assert pq.ParquetFile(tmp_path / "all.parquet").num_row_groups > 5


def test_a_csv_file_has_what_it_cannot_hold_as_json(stage: Stage, counter: Counter, tmp_path: Path) -> None:
    export(container(stage, "lists"), tmp_path / "lists.csv")
    found = pacsv.read_csv(tmp_path / "lists.csv").to_pylist()
    assert {row["word"]: json.loads(row["value"]) for row in found} == dict(counter.lists)


def test_text_with_commas_quotes_and_lines_survives_csv(stage: Stage, tmp_path: Path) -> None:
    word = 'say "a, b"\nc'
    stage.take(Counter().see(word))
    export(container(stage, "counts"), tmp_path / "counts.csv")
    options = pacsv.ParseOptions(newlines_in_values=True)
    assert pacsv.read_csv(tmp_path / "counts.csv", parse_options=options)["word"].to_pylist() == [word]


@pytest.mark.usefixtures("counter")
def test_some_slots_are_exported_without_the_others(stage: Stage, tmp_path: Path) -> None:
    slots = SlotSet.range(3, 5)
    read = container(stage, "counts")
    export(read, tmp_path / "some.parquet", slots=slots)
    assert rows(pq.read_table(tmp_path / "some.parquet")) == rows(pa.table(read.rows(slots)))


def test_no_rows_are_a_file_with_the_columns(stage: Stage, tmp_path: Path) -> None:
    stage.take(Counter())
    assert export(container(stage, "counts"), tmp_path / "none.parquet") == 0
    assert pq.read_table(tmp_path / "none.parquet").schema.names == ["word", "n", "score"]


@pytest.mark.usefixtures("counter")
def test_nothing_is_overwritten(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("mine")
    with pytest.raises(UserError, match="is there already"):
        export(container(stage, "counts"), tmp_path / "mine.csv")
    assert (tmp_path / "mine.csv").read_text() == "mine"


@pytest.mark.usefixtures("counter")
def test_a_format_that_is_unknown_is_refused(stage: Stage, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="as 'xlsx'; choose parquet or csv"):
        export(container(stage, "counts"), tmp_path / "counts.xlsx")
    assert export(container(stage, "counts"), tmp_path / "counts.txt", "csv") == 61


@pytest.mark.usefixtures("counter")
def test_an_export_that_fails_leaves_no_file(stage: Stage, tmp_path: Path) -> None:
    stage.blob("counts").unlink()
    (tmp_path / "out").mkdir()
    with pytest.raises(EnvironmentFault, match="nothing under"):
        export(container(stage, "counts"), tmp_path / "out" / "counts.parquet")
    with pytest.raises(EnvironmentFault, match="cannot be written"):
        export(container(stage, "bids"), tmp_path / "none" / "bids.parquet")
    assert list((tmp_path / "out").iterdir()) == []
