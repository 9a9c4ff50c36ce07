"""Sources of files: which files a path means, exact positions in them, and errors that name file and line."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from primitives.errors import EnvironmentFault, SeepError, UserError
from seep import sources
from seep.sources.base import ReaderDefinition
from tests.sources.stage import Driver, column, rows_of, setting

N = pa.schema([("n", pa.int64())])
WORDS = pa.schema([("n", pa.int64()), ("word", pa.string())])


def everything(definition: ReaderDefinition, max_rows: int = 1 << 19) -> list[dict[str, object]]:
    bits = (definition.partitions - 1).bit_length()
    return [
        row for reading in Driver(definition, setting(bits, max_rows=max_rows)).read_all() for row in rows_of(reading)
    ]


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


# -- which files ------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i, name in enumerate(["b.csv", "a.csv", "_hidden.csv", ".hidden.csv", "notes.txt"]):
        write(tmp_path / name, f"n\n{i}\n")
    (tmp_path / "sub.csv").mkdir()
    return tmp_path


@pytest.mark.parametrize(("pattern", "expected"), [("", [1, 0]), ("*.csv", [1, 0]), ("*", [1, 0, 4]), ("b.csv", [0])])
def test_a_path_means_a_file_a_pattern_or_the_visible_files_of_a_directory(
    folder: Path, pattern: str, expected: list[int]
) -> None:
    definition = sources.csv(folder / pattern, schema=N, partitions=1)
    assert [row["n"] for row in everything(definition)] == expected


def test_a_path_is_the_same_from_any_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    definition = sources.csv("a.csv", schema=N)
    monkeypatch.chdir("/")
    assert everything(definition) == [{"n": 1}]


@pytest.mark.parametrize("make", [sources.csv, sources.json_lines, sources.parquet])
@pytest.mark.parametrize("name", ["missing.csv", "*.nothing", "."])
def test_a_path_without_files_is_refused_before_the_run(tmp_path: Path, make: Any, name: str) -> None:
    with pytest.raises(UserError, match=r"source 'orders': no files match .*"):
        make(tmp_path / name).check("orders")


def test_an_address_is_not_a_path() -> None:
    with pytest.raises(UserError, match="s3://bucket/x is not a path"):
        sources.parquet("s3://bucket/x")


def test_files_are_shared_out_over_partitions(tmp_path: Path) -> None:
    for i in range(10):
        write(tmp_path / f"{i}.jsonl", f'{{"n": {i}}}\n')
    definition = sources.json_lines(tmp_path, partitions=4)
    assert definition.partitions == 4
    assert sorted(row["n"] for row in everything(definition)) == list(range(10))  # type: ignore[type-var]


# -- CSV --------------------------------------------------------------------------------------------------------------


def test_columns_of_a_csv_file_may_come_in_any_order_and_others_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "\ufeffword,other,n\na,1,2\n")
    assert everything(sources.csv(path, schema=WORDS)) == [{"n": 2, "word": "a"}]


def test_csv_files_need_no_header_and_may_have_another_delimiter(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "1;a\r\n2;b")
    assert everything(sources.csv(path, schema=WORDS, header=False, delimiter=";")) == [
        {"n": 1, "word": "a"},
        {"n": 2, "word": "b"},
    ]


def test_a_text_in_quotes_is_never_null(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", 'n,word\n,\n1,""\nNA,"NA"\n')
    rows = everything(sources.csv(path, schema=WORDS, nulls=["", "NA"]))
    assert rows == [{"n": None, "word": None}, {"n": 1, "word": ""}, {"n": None, "word": "NA"}]


def test_in_a_single_column_a_blank_line_is_a_null(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "n\n1\n\n3\n")
    assert everything(sources.csv(path, schema=N), max_rows=1) == [{"n": 1}, {"n": None}, {"n": 3}]


CELLS = st.tuples(
    st.integers(-9, 9), st.text(st.sampled_from('ab,"\n\r é'), max_size=6), st.sampled_from(["\n", "\r\n", "\n\n"])
)


@hypothesis_settings(max_examples=60)
@given(st.lists(CELLS, max_size=12), st.integers(1, 5), st.booleans())
def test_csv_rows_are_the_same_wherever_reading_stops(
    tmp_path_factory: pytest.TempPathFactory, cells: list[tuple[int, str, str]], max_rows: int, ends: bool
) -> None:
    text = "".join(f'{n},"{word.replace(chr(34), chr(34) * 2)}"{end}' for n, word, end in cells)
    path = write(tmp_path_factory.mktemp("csv") / "x.csv", text if ends else text.rstrip("\r\n"))
    definition = sources.csv(path, schema=WORDS, header=False)
    assert everything(definition, max_rows) == [{"n": n, "word": word} for n, word, _ in cells]


def test_rows_longer_than_what_is_read_at_once_are_whole(tmp_path: Path) -> None:
    words = ["x" * 200_000, "y", "z\n" * 100_000]
    path = write(tmp_path / "x.csv", "n,word\n" + "".join(f'{i},"{word}"\n' for i, word in enumerate(words)))
    assert [row["word"] for row in everything(sources.csv(path, schema=WORDS), 1)] == words


@pytest.mark.parametrize("max_rows", [1, 2, 100])
@pytest.mark.parametrize(("bad", "reason"), [("x,y", "int64"), ("1,2,3", "Expected 2 columns")])
def test_a_csv_row_that_cannot_be_read_is_named_by_file_and_line(
    tmp_path: Path, max_rows: int, bad: str, reason: str
) -> None:
    good = '1,"a\nb"\n\n2,c\n'
    path = write(tmp_path / "x.csv", "n,word\n" + good * 3 + bad + "\n" + good)
    with pytest.raises(UserError, match=rf"source 'source': {path}, line 14: .*{reason}"):
        everything(sources.csv(path, schema=WORDS), max_rows)


def test_a_csv_file_without_a_column_is_refused_before_the_run(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "n,word\n1,a\n")
    path = write(tmp_path / "b.csv", "n\n1\n")
    with pytest.raises(UserError, match=rf"source 'orders': {path} has no column 'word'; its header has n"):
        sources.csv(tmp_path, schema=WORDS).check("orders")


def test_columns_of_csv_files_are_inferred(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "n,at,word,nothing\n1,2024-01-01 00:00:00,a,\n")
    kinds = {"n": pa.int64(), "at": pa.timestamp("us"), "word": pa.string(), "nothing": pa.string()}
    assert sources.csv(path).schema == pa.schema(kinds)


@pytest.mark.parametrize("text", ["", "n\n", "n"])
def test_a_csv_file_without_rows_has_none(tmp_path: Path, text: str) -> None:
    assert everything(sources.csv(write(tmp_path / "x.csv", text), schema=N)) == []


# -- JSON lines -------------------------------------------------------------------------------------------------------


def test_fields_that_are_missing_are_null_and_others_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", '{"word": "a", "x": [1]}\n  \n\n{"n": 2}')
    rows = everything(sources.json_lines(path, schema=WORDS), max_rows=1)
    assert rows == [{"n": None, "word": "a"}, {"n": 2, "word": None}]


def test_times_and_dates_in_json_are_text(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", '{"at": "2024-01-01T00:00:01Z", "day": "2024-02-29"}\n')
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("day", pa.date32())])
    (row,) = everything(sources.json_lines(path, schema=schema))
    assert row == {"at": datetime(2024, 1, 1, 0, 0, 1, tzinfo=UTC), "day": date(2024, 2, 29)}


@pytest.mark.parametrize(
    ("bad", "reason"), [('{"n": ', "JSON parse error"), ('{"n": "x"}', "number"), ('{"n":1} {"n":2}', "2 rows")]
)
def test_a_json_line_that_cannot_be_read_is_named(tmp_path: Path, bad: str, reason: str) -> None:
    path = write(tmp_path / "x.jsonl", '{"n": 1}\n' * 5 + "\n" + bad + '\n{"n": 1}\n')
    with pytest.raises(UserError, match=rf"{path}, line 7: .*{reason}"):
        everything(sources.json_lines(path, schema=N), max_rows=3)


def test_columns_that_cannot_be_told_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", "so it begins\n")
    with pytest.raises(UserError, match=rf"source 'orders': the columns of {path} cannot be told.*give schema="):
        sources.json_lines(path).check("orders")


# -- Parquet ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def table() -> pa.Table:
    return pa.table(
        {"n": range(1000), "word": [str(n) for n in range(1000)], "at": pa.array(range(1000), pa.timestamp("ms"))}
    )


def test_row_groups_are_shared_out_over_partitions(tmp_path: Path, table: pa.Table) -> None:
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=100)
    pq.write_table(table[:0], tmp_path / "b.parquet")
    definition = sources.parquet(tmp_path, partitions=4, time="at", out_of_order="1 s")
    driver = Driver(definition)
    driver.read_all()
    assert definition.partitions == 4
    assert sorted(column(driver.readings, "n")) == list(range(1000))  # type: ignore[type-var]


def test_only_the_columns_that_are_asked_for_are_read(tmp_path: Path, table: pa.Table) -> None:
    pq.write_table(table, tmp_path / "a.parquet")
    rows = everything(sources.parquet(tmp_path / "a.parquet", columns=["word", "n"]))
    assert rows[-1] == {"word": "999", "n": 999}


def test_parquet_files_without_rows_have_none(tmp_path: Path, table: pa.Table) -> None:
    pq.write_table(table[:0], tmp_path / "a.parquet")
    assert everything(sources.parquet(tmp_path)) == []


def test_rows_are_the_same_wherever_reading_stops_or_begins_again(tmp_path: Path, table: pa.Table) -> None:
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=170)
    definition = sources.parquet(tmp_path, columns=["n"], partitions=2)
    reader, found = definition.reader(), []
    for partition in range(2):
        at, ended = 0, False
        while not ended:
            rows, at, ended, _ = reader.read(partition, at, 70)
            found += rows["n"].to_pylist()
            reader.read(partition, max(at - 100, 0), 3)  # elsewhere in between
    assert found == list(range(1000))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.drop_columns(["word"]), "has no column 'word'; its columns are n, at"),
        (
            lambda table: table.set_column(0, "n", table["n"].cast(pa.string())),
            "column 'n' is string in .*b.parquet, but int64 in",
        ),
    ],
)
def test_parquet_files_whose_columns_differ_are_refused_before_the_run(
    tmp_path: Path, table: pa.Table, change: Any, message: str
) -> None:
    pq.write_table(table, tmp_path / "a.parquet")
    pq.write_table(change(table), tmp_path / "b.parquet")
    with pytest.raises(UserError, match=f"source 'orders': .*{message}"):
        sources.parquet(tmp_path).check("orders")


def test_a_file_that_is_no_parquet_is_refused_before_the_run(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", "so it begins")
    with pytest.raises(UserError, match=rf"source 'orders': {path} is not a Parquet file"):
        sources.parquet(path).check("orders")


def test_a_column_that_no_parquet_file_has_is_refused(tmp_path: Path, table: pa.Table) -> None:
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(UserError, match="has no column 'm'"):
        sources.parquet(tmp_path, columns=["m"]).check("orders")


# -- files that change ------------------------------------------------------------------------------------------------


def test_rows_that_are_added_after_the_start_are_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "n\n1\n")
    definition = sources.csv(path, schema=N)
    assert definition.partitions == 1
    write(path, "n\n1\n2\n")
    assert everything(definition) == [{"n": 1}]


def test_files_that_are_cut_or_replaced_or_gone_are_faults_of_the_surroundings(tmp_path: Path, table: pa.Table) -> None:
    path, other = write(tmp_path / "x.csv", "n\n1\n2\n"), tmp_path / "x.parquet"
    pq.write_table(table, other)
    definitions: list[ReaderDefinition] = [sources.csv(path, schema=N), sources.parquet(other)]
    for definition in definitions:
        definition.check("orders")
    write(path, "n\n1")
    pq.write_table(table[:10], other)
    for definition in definitions:
        with pytest.raises(EnvironmentFault, match=r"source 'source': .*x\.(csv|parquet)"):
            everything(definition)
    other.unlink()
    with pytest.raises(SeepError, match=r"x\.parquet"):
        everything(definitions[1])
