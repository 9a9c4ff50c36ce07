"""SQL over state: whatever a query tries, it reads the given tables, within its limits, or is refused in a sentence."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primitives.errors import EnvironmentFault, UserError
from seep.rows.readable import packed
from seep.running import sql_process
from seep.running.sql_process import QueryRefused
from seep.running.state_sql import SqlLimits, SqlResult, StateSql, as_streams
from tests.waiting import eventually

COUNTS = pa.table({"word": ["be", "or", "to"], "n": pa.array([2, 1, 2], pa.int64())})
TABLES = {"counts": COUNTS, "last page": pa.table({"word": ["be"], "value": packed([{"page": 2}])})}
LIMITS = {"memory": 128 << 20, "threads": 1, "seconds": 30.0, "rows": None, "nbytes": 1 << 20}


def rows(sql: str, tables: dict[str, pa.Table] | None = None, **limits: Any) -> list[dict[str, Any]]:
    """The answer of the engine itself, in this process."""
    return answer(sql, TABLES if tables is None else tables, **limits)[0].to_pylist()


def answer(sql: str, tables: dict[str, pa.Table], **limits: Any) -> tuple[pa.Table, bool]:
    with sql_process.opened(tables, 128 << 20, 1) as connection:
        return sql_process.run(connection, sql, tables, LIMITS | limits)


# --- what may be asked ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT n FROM counts WHERE word = 'or'", [{"n": 1}]),
        ("FROM Counts SELECT max(n) AS most;", [{"most": 2}]),
        ("WITH twice AS (SELECT n * 2 AS m FROM counts) SELECT sum(m) AS s FROM twice -- all", [{"s": 10}]),
        ('SELECT c.n FROM counts c JOIN "last page" p USING (word)', [{"n": 2}]),
        ("SELECT n, count(*) AS c FROM counts GROUP BY n HAVING c > 1 ORDER BY n LIMIT 5", [{"n": 2, "c": 2}]),
        ("SELECT word FROM counts QUALIFY row_number() OVER (ORDER BY word) = 3", [{"word": "to"}]),
        ("SELECT x FROM range(2) r(x) UNION ALL VALUES (7) ORDER BY x", [{"x": 0}, {"x": 1}, {"x": 7}]),
        (
            "WITH RECURSIVE t(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM t WHERE i < 3) FROM t ORDER BY i",
            [{"i": i} for i in (1, 2, 3)],
        ),
        ("SELECT column_name FROM (DESCRIBE counts)", [{"column_name": "word"}, {"column_name": "n"}]),
        (
            "SELECT * FROM counts PIVOT (sum(n) FOR word IN ('be', 'or'))",
            [{"be": 2, "or": 1}],
        ),
    ],
)
def test_a_query_reads_the_containers_as_tables(sql: str, expected: list[dict[str, Any]]) -> None:
    assert rows(sql) == expected


SECRET = pa.table({"secret": ["a variable of this module"]})

WAYS_OUT = {
    "COPY counts TO '{path}'": "COPY is not allowed",
    "COPY counts FROM '{path}'": "COPY is not allowed",
    "EXPORT DATABASE '{path}'": "EXPORT is not allowed",
    "IMPORT DATABASE '{path}'": "not allowed",
    "ATTACH '{path}' AS other": "ATTACH is not allowed",
    "INSTALL httpfs": "LOAD is not allowed",
    "LOAD '{path}'": "LOAD is not allowed",
    "SET memory_limit = '100GB'": "SET is not allowed",
    "RESET memory_limit": "SET is not allowed",
    "PRAGMA database_list": "PRAGMA is not allowed",
    "CALL duckdb_settings()": "CALL is not allowed",
    "USE memory": "SET is not allowed",
    "CREATE TABLE more AS SELECT * FROM range(10)": "CREATE is not allowed",
    "CREATE MACRO f() AS TABLE SELECT * FROM read_text('{path}')": "CREATE is not allowed",
    "INSERT INTO counts VALUES ('a', 1)": "INSERT is not allowed",
    "UPDATE counts SET n = 0": "UPDATE is not allowed",
    "DELETE FROM counts": "DELETE is not allowed",
    "DROP VIEW counts": "DROP is not allowed",
    "WITH x AS (INSERT INTO counts VALUES ('a', 1) RETURNING *) SELECT * FROM x": "INSERT is not allowed",
    "BEGIN": "TRANSACTION is not allowed",
    "CHECKPOINT": "not allowed",
    "EXPLAIN SELECT 1": "EXPLAIN is not allowed",
    "PREPARE p AS SELECT 1": "PREPARE is not allowed",
    "EXECUTE p": "EXECUTE is not allowed",
    "SELECT 1; SELECT 2": "this text has 2",
    "-- nothing": "this text has none",
    "SHOW TABLES": 'those are "counts", "last page"',
    "FROM '{path}'": "there is no table",
    "FROM 'https://example.invalid/x.parquet'": "there is no table",
    "FROM SECRET": 'there is no table \'SECRET\'; the tables are "counts", "last page"',
    "FROM secrets_of_this_function": "there is no table",
    "FROM information_schema.tables": "there is no table",
    "FROM duckdb_settings": "there is no table",
    "FROM sqlite_master": "there is no table",
    "FROM memory.main.counts": "there is no table",
    "SELECT * FROM read_csv('{path}')": "the function 'read_csv' is not allowed",
    "SELECT * FROM read_parquet('{path}')": "the function 'read_parquet' is not allowed",
    "SELECT * FROM read_text('{path}')": "the function 'read_text' is not allowed",
    "SELECT * FROM counts, LATERAL (SELECT * FROM read_blob('{path}'))": "the function 'read_blob' is not allowed",
    "SELECT (SELECT content FROM read_text('{path}'))": "the function 'read_text' is not allowed",
    "SELECT * FROM glob('/*')": "the function 'glob' is not allowed",
    "SELECT * FROM duckdb_settings()": "the function 'duckdb_settings' is not allowed",
    "SELECT * FROM duckdb_views()": "the function 'duckdb_views' is not allowed",
    "SELECT * FROM pragma_database_list()": "the function 'pragma_database_list' is not allowed",
    "SELECT * FROM python_arrow_scan(1, 2, 3)": "the function 'python_arrow_scan' is not allowed",
    "SELECT * FROM arrow_scan(1, 2, 3)": "the function 'arrow_scan' is not allowed",
    "SELECT * FROM query('SELECT 1')": "the function 'query' is not allowed",
    "SELECT * FROM query_table('counts')": "the function 'query_table' is not allowed",
    "SELECT * FROM json_execute_serialized_sql('x')": "the function 'json_execute_serialized_sql' is not allowed",
    "SELECT getenv('HOME')": "the function 'getenv' is not allowed",
    "SELECT list_transform([1], lambda x: getenv('HOME'))": "the function 'getenv' is not allowed",
    "SELECT 'HOME'.getenv()": "the function 'getenv' is not allowed",
    "SELECT system.main.getenv('HOME')": "the function 'getenv' is not allowed",
    "SELECT current_setting('home_directory')": "the function 'current_setting' is not allowed",
    "SELECT write_log('x')": "the function 'write_log' is not allowed",
    "SELECT sum(n) FILTER (getenv('HOME') = '') OVER (ORDER BY getenv('A')) FROM counts": "'getenv' is not allowed",
    "SELECT * FROM counts ORDER BY getenv('HOME')": "the function 'getenv' is not allowed",
    "SELECT * FROM counts LIMIT getenv('HOME')": "the function 'getenv' is not allowed",
}


@pytest.mark.parametrize("sql", WAYS_OUT)
def test_every_way_out_is_refused_in_words(sql: str, tmp_path: Path) -> None:
    secrets_of_this_function = SECRET  # noqa: F841
    path = tmp_path / "file.csv"
    path.write_text("n\n1\n")
    before = set(os.listdir(tmp_path))
    with pytest.raises(QueryRefused) as refusal:
        rows(sql.replace("{path}", str(path)))
    assert WAYS_OUT[sql] in str(refusal.value)
    assert set(os.listdir(tmp_path)) == before


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('{path}')",
        "SELECT * FROM '{path}'",
        "COPY (SELECT 1) TO '{path}'",
        "ATTACH '{path}' AS other",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET memory_limit = '100GB'",
        "SET threads = 8",
        "SELECT * FROM SECRET",
    ],
)
def test_the_database_is_locked_also_without_the_check_of_queries(sql: str, tmp_path: Path) -> None:
    path = tmp_path / "file.csv"
    path.write_text("n\n1\n")
    with sql_process.opened(TABLES, 128 << 20, 1) as connection, pytest.raises(duckdb.Error):
        connection.execute(sql.replace("{path}", str(path))).fetchall()
    assert path.read_text() == "n\n1\n"


def test_errors_are_one_sentence_without_the_insides_of_the_engine() -> None:
    for sql, expected in {
        "SELECT m FROM counts": 'Referenced column "m" not found in FROM clause! Candidate bindings: "n"',
        "SELEKT 1": "syntax error",
        "SELECT 'x'::int": "Could not convert string 'x' to INT32",
        "SELECT no_such_function(1)": "no_such_function",
    }.items():
        with pytest.raises(QueryRefused) as refusal:
            rows(sql)
        text = str(refusal.value)
        assert expected.lower() in text.lower()
        assert "Error:" not in text
        assert "LINE" not in text
        assert "\n" not in text


# --- limits -----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 40), st.integers(1, 50))
@settings(max_examples=25, deadline=None)
def test_an_answer_has_the_first_rows_and_says_whether_there_are_more(there: int, wanted: int) -> None:
    table, more = answer(f"SELECT * FROM range({there})", {}, rows=wanted)
    assert table["range"].to_pylist() == list(range(there))[:wanted]
    assert more == (there > wanted)


def test_an_endless_result_ends_with_its_first_rows() -> None:
    for sql in (
        "SELECT * FROM range(1000000000000)",
        "WITH RECURSIVE t(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM t) FROM t",
    ):
        table, more = answer(sql, {}, rows=10)
        assert (len(table), more) == (10, True)


def test_an_answer_of_too_many_bytes_is_cut() -> None:
    table, more = answer("SELECT repeat('x', 1000) FROM range(100000)", {}, nbytes=1 << 20)
    assert more
    assert table.nbytes <= 1 << 20


@pytest.fixture
def engine() -> Iterator[StateSql]:
    made = StateSql()
    yield made
    made.close()


def ask(engine: StateSql, sql: str, **limits: Any) -> SqlResult:
    return engine.query(sql, as_streams(TABLES), SqlLimits(**limits))


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT count(*) FROM range(1000000000000)", "it took longer than 0.5 s"),
        ("SELECT repeat('x', 3000000000)", "it needs more than 64 MiB of memory"),
        ("SELECT list_sum(range(400000000))", "it needs more than 64 MiB of memory"),
        # which of its limits it reaches first depends on the machine
        ("SELECT max(i) FROM (WITH RECURSIVE t(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM t) FROM t)", ""),
        ("SELECT * FROM (SELECT md5(range::text) m FROM range(100000000)) ORDER BY m", ""),
    ],
)
def test_a_query_that_takes_too_much_is_ended(engine: StateSql, sql: str, why: str) -> None:
    with pytest.raises(UserError, match=f"the query failed: {why or 'it (took longer|needs more)'}"):
        ask(engine, sql, seconds=0.5, memory=64 << 20)
    assert ask(engine, "SELECT 1 AS one").rows.to_pylist() == [{"one": 1}]


def test_a_process_sees_no_environment_of_the_driver(engine: StateSql, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEP_TOKEN", "of the run")
    seen: list[str] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set() and not seen:
            for process in list(engine._running):
                text = Path(f"/proc/{process.pid}/environ").read_bytes().decode()
                seen.extend([text] if Path(f"/proc/{process.pid}/cmdline").read_bytes().count(b"sql_process") else [])

    with ThreadPoolExecutor() as pool:
        watcher = pool.submit(watch)
        with pytest.raises(UserError):
            ask(engine, "SELECT count(*) FROM range(1000000000000)", seconds=0.5)
        done.set()
        watcher.result()
    assert seen == [""]


def test_two_queries_run_at_a_time_and_the_end_of_a_run_ends_them(
    engine: StateSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seep.running.state_sql._TURN", 0.05)
    endless = "SELECT count(*) FROM range(1000000000000)"
    with ThreadPoolExecutor() as pool:
        two = [pool.submit(ask, engine, endless, seconds=100.0) for _ in range(2)]
        assert eventually(lambda: len(engine._running) == 2)
        with pytest.raises(EnvironmentFault, match="2 queries over state are running already"):
            ask(engine, "SELECT 1")
        processes = list(engine._running)
        engine.close()
        for each in two:
            with pytest.raises(EnvironmentFault, match="the run is over"):
                each.result(60)
    assert all(process.poll() is not None for process in processes)
    with pytest.raises(EnvironmentFault, match="the run is over"):
        ask(engine, "SELECT 1")


# --- values -----------------------------------------------------------------------------------------------------------


def test_python_objects_and_types_that_the_engine_lacks_are_text() -> None:
    table = pa.table(
        {
            "key": [1],
            "value": packed([(1, {"a": b"\x01"})]),
            "half": pa.array([1.5], pa.float32()).cast(pa.float16()),
            "large": pa.array([Decimal("1.25")], pa.decimal256(50, 2)),
            "within": pa.array([[Decimal("2.5")]], pa.list_(pa.decimal256(50, 1))),
            "day": [date(2026, 1, 31)],
        }
    )
    (stream,) = as_streams({"t": table}).values()
    (row,) = rows("SELECT * FROM t", {"t": pa.ipc.open_stream(stream).read_all()})
    assert row == {
        "key": 1,
        "value": '[1, {"a": "0x01"}]',
        "half": 1.5,
        "large": '"1.25"',
        "within": '["2.5"]',
        "day": date(2026, 1, 31),
    }


def test_an_empty_container_is_a_table_with_its_columns() -> None:
    (stream,) = as_streams({"t": TABLES["last page"].slice(0, 0)}).values()
    table = pa.ipc.open_stream(stream).read_all()
    assert table.schema.names == ["word", "value"]
    assert rows("SELECT count(*) AS n FROM t", {"t": table}) == [{"n": 0}]


VALUES: dict[pa.DataType, Callable[[int], Any]] = {
    pa.int8(): lambda n: n % 100,
    pa.uint64(): lambda n: n,
    pa.float64(): float,
    pa.string(): str,
    pa.binary(): lambda n: bytes([n % 256]),
    pa.bool_(): lambda n: bool(n % 2),
    pa.list_(pa.int32()): lambda n: [n, None],
    pa.struct([("a", pa.int32())]): lambda n: {"a": n},
}


@given(st.sampled_from(sorted(VALUES, key=str)), st.lists(st.none() | st.integers(0, 10_000), max_size=20))
@settings(max_examples=40, deadline=None)
def test_values_come_out_as_they_went_in(kind: pa.DataType, numbers: list[int | None]) -> None:
    values = [None if number is None else VALUES[kind](number) for number in numbers]
    table = pa.table({"place": np.arange(len(values)), "v": pa.array(values, kind)})
    (stream,) = as_streams({"t": table}).values()
    found = rows("SELECT v FROM t ORDER BY place", {"t": pa.ipc.open_stream(stream).read_all()})
    assert [row["v"] for row in found] == values
