"""The process of one SQL query over tables of state: reads both from its standard input, and writes the answer out.

It runs as a script with an empty environment, and imports nothing of the project. So a query can neither crash the
driver nor use more memory than it may, and there is nothing here that it could read: no secrets, no open files.
Besides, only queries that read the given tables are run, DuckDB is locked, and no file can be written.
"""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

#: The first line of an answer: what ends the process from then on is its limits.
STARTED = b"started\n"
#: What is said first if a query does something else than to read the tables.
READ_ONLY = "a query over state is one SELECT over its tables"
#: The parts of a query that may stand in it, as DuckDB names them.
_NODES = {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"}
_TABLE_FUNCTIONS = {"generate_series", "json_each", "json_tree", "range", "repeat", "unnest"}
#: Scalar functions that are about the database and not about values.
_REFUSED_FUNCTIONS = {
    *("current_setting", "currval", "getenv", "getvariable", "nextval", "pg_sleep", "setval", "sleep_ms", "write_log"),
    *("json_deserialize_sql", "json_serialize_plan", "json_serialize_sql", "query", "query_table"),
}
#: Settings of DuckDB, besides the limits.
_SETTINGS: Mapping[str, str] = {
    "allow_community_extensions": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "enable_external_access": "false",
    "max_temp_directory_size": "0B",
    "python_enable_replacements": "false",
    "temp_directory": "",
}
#: Bytes of address space beyond the memory limit, for what DuckDB does not count, and for the answer.
_SPARE = 256 << 20
_NICE = 5
#: CPU seconds that are used before the query begins, and after it has ended.
_STARTED = 5
#: Rows of the answer that are read at once.
_BATCH = 1024


class QueryRefused(Exception):
    """The query is not run, or has failed; the text says why."""


def main(given: BinaryIO, answer: BinaryIO) -> None:
    """Reads a line of JSON and tables as Arrow streams; writes `STARTED`, a line of JSON and an Arrow stream."""
    wanted = json.loads(given.readline())
    sys.path[:] = wanted["path"]
    tables = {name: _table(given.read(size)) for name, size in wanted["tables"]}
    connection = opened(tables, wanted["memory"], wanted["threads"])
    _first_rows(connection, "SELECT 1", None, 1 << 20)  # loads what every query needs
    answer.write(STARTED)
    answer.flush()
    try:
        confine(wanted["memory"], wanted["seconds"], wanted["threads"])
        rows, more = run(connection, wanted["sql"], tables, wanted)
        told: dict[str, Any] = {"more": more}
        data = _as_stream(rows)
    except QueryRefused as reason:
        told, data = {"refused": str(reason)}, b""
    except MemoryError:
        told, data = {"refused": too_much_memory(wanted["memory"])}, b""
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    answer.write(json.dumps(told).encode() + b"\n" + data)
    answer.flush()


def confine(memory: int, seconds: float, threads: int) -> None:
    """Limits this process: its memory from here on, its time, and no files; other processes go first.

    After its time, a signal ends it at once, whatever it does.
    """
    os.nice(_NICE)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    _limit(resource.RLIMIT_CPU, math.ceil(seconds * threads) + _STARTED)
    _limit(resource.RLIMIT_FSIZE, 0)
    with suppress(OSError), open("/proc/self/statm", encoding="ascii") as statm:
        pages = int(statm.read().split()[0])
        _limit(resource.RLIMIT_AS, pages * resource.getpagesize() + memory + _SPARE)


def _limit(what: int, most: int) -> None:
    with suppress(ValueError, OSError):  # where an operating system does not have it, DuckDB's own limit remains
        resource.setrlimit(what, (most, most))


def run(
    connection: DuckDBPyConnection, sql: str, tables: Iterable[str], limits: Mapping[str, Any]
) -> tuple[pa.Table, bool]:
    """Returns the first rows of a query over these tables, and whether there are more; raises QueryRefused."""
    import duckdb

    try:
        query = checked(connection, sql, tables)
        return _first_rows(connection, query, limits["rows"], limits["nbytes"])
    except duckdb.OutOfMemoryException:
        raise QueryRefused(too_much_memory(limits["memory"])) from None
    except duckdb.InternalException:
        raise QueryRefused("DuckDB cannot run this query") from None
    except duckdb.Error as reason:
        raise QueryRefused(sentence(str(reason))) from None


def opened(tables: Mapping[str, pa.Table], memory: int, threads: int) -> DuckDBPyConnection:
    """Returns a database that has these tables and no way to anything else, and whose settings cannot be changed."""
    import duckdb

    limits: dict[str, Any] = {"memory_limit": f"{memory >> 20}MiB", "threads": threads}
    connection = duckdb.connect(":memory:", config={**_SETTINGS, **limits})
    for name, table in tables.items():
        connection.register(name, table)
    connection.execute("SET lock_configuration = true")
    return connection


def _first_rows(connection: DuckDBPyConnection, query: str, rows: int | None, nbytes: int) -> tuple[pa.Table, bool]:
    """Reads rows until there are enough, or until they have too many bytes."""
    import pyarrow as pa

    with connection.sql(query).to_arrow_reader(_BATCH) as reader:
        batches, count, size = [], 0, 0
        for batch in reader:
            size += batch.nbytes
            if size > nbytes or (rows is not None and count > rows):
                break
            batches.append(batch)
            count += len(batch)
        more = size > nbytes or (rows is not None and count > rows)
        if more:
            connection.interrupt()
        return pa.Table.from_batches(batches, reader.schema).slice(0, rows), more


# -- what may be asked -------------------------------------------------------------------------------------------------


def checked(connection: DuckDBPyConnection, sql: str, tables: Iterable[str]) -> str:
    """Returns the text of the only statement; raises QueryRefused if it is anything but a query over these tables."""
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise QueryRefused(f"{READ_ONLY}; this text has {len(statements) or 'none'}")
    query = statements[0].query.strip().rstrip(";")
    ((tree,),) = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
    parsed = json.loads(tree)
    if parsed.get("error", True):
        raise QueryRefused(f"{READ_ONLY}; {statements[0].type.name} is not allowed, and PIVOT needs IN (…)")
    known = {name.lower() for name in tables}
    for part in [*_parts(parsed)]:
        known.update(each["key"].lower() for each in part.get("cte_map", {}).get("map", ()))
    for part in _parts(parsed):
        _check(part, known, tables)
    return query


def _parts(tree: Any) -> Iterator[Mapping[str, Any]]:
    """Yields all parts of a parsed query."""
    pending = [tree]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            yield part
        pending += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()


def _check(part: Mapping[str, Any], known: set[str], tables: Iterable[str]) -> None:
    kind = part.get("type")
    if isinstance(kind, str) and kind.endswith("_NODE") and kind not in _NODES:
        raise QueryRefused(f"{READ_ONLY}; {kind.split('_')[0]} is not allowed")
    if kind == "BASE_TABLE":
        _check_table(part, known, tables)
    if kind == "SHOW_REF" and part.get("query") is None:
        raise QueryRefused(f"{READ_ONLY}; those are {_listed(tables)}, and DESCRIBE shows the columns of one")
    if kind == "TABLE_FUNCTION":
        _check_function(part["function"], known=lambda name: name in _TABLE_FUNCTIONS)
    if kind == "FUNCTION" or part.get("class") == "WINDOW":
        _check_function(part, known=lambda name: name not in _REFUSED_FUNCTIONS)


def _check_table(part: Mapping[str, Any], known: set[str], tables: Iterable[str]) -> None:
    path = part["qualified_name"]["path"]
    if len(path) != 1 or path[0].lower() not in known:
        raise QueryRefused(f"there is no table {'.'.join(path)!r}; the tables are {_listed(tables)}")


def _check_function(part: Mapping[str, Any], known: Any) -> None:
    name = str(part.get("function_name", "")).lower()
    if not known(name):
        raise QueryRefused(f"the function {name!r} is not allowed in a query over state")


def _listed(tables: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in tables) or "none"


# -- texts and streams -------------------------------------------------------------------------------------------------


def too_much_memory(memory: int) -> str:
    return f"it needs more than {memory >> 20} MiB of memory; let it read fewer rows or columns at once"


def too_slow(seconds: float) -> str:
    return f"it took longer than {seconds:g} s; let it read fewer rows"


def sentence(text: str) -> str:
    """Returns what an error of DuckDB says, without the kind of error, the text of the query and hints for programs.

    >>> sentence('Binder Error: There is no column "m"!\\nCandidate bindings: "n"\\n\\nLINE 1: SELECT m\\n   ^')
    'There is no column "m"! Candidate bindings: "n"'
    """
    lines = []
    for line in text.splitlines():
        if not line.strip() or line.startswith(("LINE ", "Possible solutions")):
            break
        lines.append(line.strip())
    head, separator, rest = " ".join(lines).partition(" Error: ")
    return (rest if separator and head.replace(" ", "").isalpha() else " ".join(lines))[:500]


def _table(data: bytes) -> pa.Table:
    import pyarrow as pa

    return pa.ipc.open_stream(data).read_all()


def _as_stream(table: pa.Table) -> bytes:
    import pyarrow as pa

    stream = BytesIO()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    return stream.getvalue()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
