"""SQL over state: runs each query of DuckDB in a process of its own, read only and with limits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import NamedTuple

import pyarrow as pa

from primitives.errors import EnvironmentFault, UserError, install_command
from seep.rows.readable import as_text, readable
from seep.running import sql_process

#: The most queries at a time, and seconds that another one waits for its turn.
_AT_ONCE, _TURN = 2, 5.0
#: Seconds for the start of the process and for what it reads and writes, besides the query's own.
_STARTED = 20.0
#: Exit codes of a process that was ended because of its time.
_TOO_SLOW = (-signal.SIGALRM, -signal.SIGXCPU)
_NARROW = {pa.float16(): pa.float32()}


@dataclass(frozen=True, slots=True)
class SqlLimits:
    """What one query may use."""

    seconds: float = 10.0
    memory: int = 256 << 20  #: bytes
    threads: int = 2
    rows: int | None = None  #: the most rows of the answer; None: no limit but its bytes
    nbytes: int = 64 << 20  #: the most bytes of the answer


class SqlResult(NamedTuple):
    """The first rows of the result of a query."""

    rows: pa.Table
    more: bool  #: whether rows were left out
    seconds: float


class StateSql:
    """Runs queries, a few at a time. Thread-safe; the calling thread waits for the answer, with a deadline."""

    def __init__(self) -> None:
        self._turns = threading.BoundedSemaphore(_AT_ONCE)
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_closed = False

    def query(self, sql: str, tables: Mapping[str, bytes], limits: SqlLimits) -> SqlResult:
        """Returns the result of a query over tables, given as Arrow streams. Raises UserError if it is refused."""
        check_duckdb()
        begun = time.monotonic()
        with self._turn(), self._process() as process:
            data = b"".join([_header(sql, tables, limits), *tables.values()])
            try:
                answer, _ = process.communicate(data, limits.seconds + _STARTED)
            except subprocess.TimeoutExpired:
                raise UserError(_too_slow(limits)) from None
        if self._is_closed:
            raise EnvironmentFault("the run is over, so its state cannot be asked for any more")
        rows, more = _answer_of(answer, process.returncode, limits)
        return SqlResult(rows, more, time.monotonic() - begun)

    def close(self) -> None:
        """Ends all queries; later ones are refused."""
        with self._lock:
            self._is_closed = True
            for process in self._running:
                process.kill()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._turns.acquire(timeout=_TURN):
            raise EnvironmentFault(f"{_AT_ONCE} queries over state are running already; try again when one has ended")
        try:
            yield
        finally:
            self._turns.release()

    @contextmanager
    def _process(self) -> Iterator[subprocess.Popen[bytes]]:
        """Starts a process without environment, which ends with this context."""
        with self._lock:
            if self._is_closed:
                raise EnvironmentFault("the run is over, so its state cannot be asked for any more")
            process = subprocess.Popen(
                [sys.executable, "-I", sql_process.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},
                cwd=os.path.sep,
                start_new_session=True,
            )
            self._running.add(process)
        try:
            with process:
                try:
                    yield process
                finally:
                    process.kill()
        finally:
            with self._lock:
                self._running.discard(process)


def check_duckdb() -> None:
    """Raises UserError if DuckDB is not installed."""
    if find_spec("duckdb") is None:
        raise UserError(f"SQL over state needs DuckDB, which is not installed: {install_command('dashboard')}")


def as_streams(tables: Mapping[str, pa.Table]) -> dict[str, bytes]:
    """Returns tables as Arrow streams for `StateSql.query`; Python objects, and types that DuckDB lacks, are text."""
    return {name: _stream(list(map(_for_duckdb, table.to_batches())), table.schema) for name, table in tables.items()}


def _stream(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> bytes:
    schema = batches[0].schema if batches else _for_duckdb(_empty(schema)).schema
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(stream.getvalue())


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema)


def _for_duckdb(batch: pa.RecordBatch) -> pa.RecordBatch:
    batch = readable(batch)
    for place, field in enumerate(batch.schema):
        if field.type in _NARROW:
            batch = batch.set_column(place, field.name, batch.column(place).cast(_NARROW[field.type]))
        elif _is_unknown(field.type):
            batch = batch.set_column(place, field.name, as_text(batch.column(place)))
    return batch


def _is_unknown(kind: pa.DataType) -> bool:
    """Whether DuckDB does not have a type, or a type within it."""
    within = [kind.field(place).type for place in range(kind.num_fields)]
    is_unknown = pa.types.is_decimal256(kind) or pa.types.is_float16(kind) or pa.types.is_union(kind)
    return is_unknown or any(map(_is_unknown, within))


def _header(sql: str, tables: Mapping[str, bytes], limits: SqlLimits) -> bytes:
    wanted = {
        "sql": sql,
        "tables": [[name, len(data)] for name, data in tables.items()],
        "path": sys.path,
        **{name: getattr(limits, name) for name in ("seconds", "memory", "threads", "rows", "nbytes")},
    }
    return json.dumps(wanted).encode() + b"\n"


def _answer_of(answer: bytes, code: int, limits: SqlLimits) -> tuple[pa.Table, bool]:
    if not answer.startswith(sql_process.STARTED):
        raise EnvironmentFault(f"the process of a query has ended with exit code {code} before it could begin")
    head, _, data = answer.removeprefix(sql_process.STARTED).partition(b"\n")
    if not head:  # it was killed, or has crashed, which happens without memory
        too_much = f"the query failed: {sql_process.too_much_memory(limits.memory)}"
        raise UserError(_too_slow(limits) if code in _TOO_SLOW else too_much)
    told = json.loads(head)
    if "refused" in told:
        raise UserError(f"the query failed: {told['refused']}")
    return pa.ipc.open_stream(data).read_all(), bool(told["more"])


def _too_slow(limits: SqlLimits) -> str:
    return f"the query failed: {sql_process.too_slow(limits.seconds)}"
