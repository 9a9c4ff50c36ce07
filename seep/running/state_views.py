"""Views of state for people: kept for a few seconds, with pages of rows, keys that are looked up, and SQL, as JSON."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from primitives.errors import EnvironmentFault, UserError
from seep.reports import figures
from seep.rows.readable import is_packed, listed, plain, unpacked, value_of
from seep.running.queryable import StateView
from seep.running.state_sql import SqlLimits, SqlResult, StateSql, as_streams

#: Seconds for which a view is kept, the most views, and seconds that a question waits for a view that others ask for.
_KEPT_FOR, _KEPT, _PATIENCE = 15.0, 2, 60.0
#: The most characters of a value in an answer, and of all its rows.
_LONGEST, _MOST = 10_000, 2_000_000
#: Greater whole numbers, which JavaScript cannot hold, are text.
_EXACT = 1 << 53

Json = dict[str, Any]


class KeptView:
    """A view with what is computed once for all questions about it. Thread-safe."""

    def __init__(self, view: StateView) -> None:
        self.view = view
        self._orders: dict[str, pa.Array] = {}
        self._lock = threading.Lock()

    def page(self, container: str | None, key: Sequence[str] | None, offset: int, limit: int) -> Json:
        """Returns rows of a container by key: some of all, or of those of one key."""
        name = self._named(container)
        if key is None:
            order = self._order(name)
            rows, total = self.view.containers[name].take(order.slice(offset, limit)), len(order)
        else:
            found = self.view.rows_of(self._values(name, key), name)
            rows, total = found.slice(offset, limit), len(found)
        names = rows.schema.names
        return {
            "operator": self.view.operator,
            "epoch": self.view.epoch,
            "containers": {each: self._described(each) for each in self.view.containers},
            "container": name,
            "rows": [dict(zip(names, row, strict=True)) for row in json_rows(rows, unpack=True)],
            "offset": offset,
            "total": total,
        }

    @cached_property
    def streams(self) -> Mapping[str, bytes]:
        """The containers as tables for SQL."""
        return as_streams(self.view.containers)

    def _named(self, container: str | None) -> str:
        known = self.view.containers
        if container is not None and container not in known:
            raise UserError(f"{self.view.operator} has no container {container!r}; it has {', '.join(known) or 'none'}")
        if not known:
            raise UserError(f"{self.view.operator} has no state yet; ask again later")
        return next(iter(known)) if container is None else container

    def _described(self, container: str) -> Json:
        table = self.view.containers[container]
        columns = [{"name": each.name, "type": str(each.type)} for each in table.schema]
        return {"columns": columns, "keys": list(self.view.keys[container]), "rows": len(table)}

    def _values(self, container: str, key: Sequence[str]) -> list[Any]:
        """Converts the texts of a key to the types of the key columns."""
        schema, keys = self.view.containers[container].schema, self.view.keys[container]
        if len(key) != len(keys):
            raise UserError(
                f"a key of {container!r} of {self.view.operator} is {', '.join(keys)}: give {len(keys)} values, "
                f"not {len(key)}"
            )
        return [_value(name, text, schema.field(name).type) for name, text in zip(keys, key, strict=True)]

    def _order(self, container: str) -> pa.Array:
        """Returns the places of all rows, sorted by key."""
        with self._lock:
            if container not in self._orders:
                table = self.view.containers[container]
                by = [(name, "ascending") for name in self.view.identity[container]]
                self._orders[container] = pc.sort_indices(table.select([name for name, _ in by]), sort_keys=by)
            return self._orders[container]


def _value(name: str, text: str, kind: pa.DataType) -> Any:
    try:
        return value_of(text, kind)
    except ValueError as reason:
        raise UserError(f"key column {name!r} is of type {kind}, and {text!r} is no such value") from reason


@dataclass(slots=True)
class _Kept:
    view: KeptView
    until: float


@dataclass(slots=True)
class StateViews:
    """The views of a run's operators, for all who look at them. Thread-safe.

    A view takes a cut of the query, so it is kept for a few seconds, and all questions in that time are about the same
    epoch. Two views are kept at most, and none of an operator whose state has more than `most` bytes.
    """

    query: str  #: the name of the query
    read: Callable[[str], StateView]
    nbytes: Callable[[str], int]  #: bytes of the state of an operator, by the last reports
    most: int
    limits: SqlLimits = field(default_factory=SqlLimits)
    clock: Callable[[], float] = time.monotonic
    _sql: StateSql = field(default_factory=StateSql)
    _kept: dict[str, _Kept] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)  #: held for a moment
    _reading: threading.Lock = field(default_factory=threading.Lock)  #: held while a view is taken

    def page(self, operator: str, container: str | None, key: Sequence[str] | None, offset: int, limit: int) -> Json:
        """Returns rows of an operator's state: a page of a container, or the rows of a key given as texts."""
        return self._view(operator).page(container, key, offset, limit)

    def sql(self, operator: str, query: str, limit: int) -> Json:
        """Returns the first rows of the result of a query over the containers of an operator."""
        kept = self._view(operator)
        answer = self._sql.query(query, kept.streams, replace(self.limits, rows=limit, nbytes=_MOST))
        return {"operator": operator, "epoch": kept.view.epoch, **_as_json(answer)}

    def expire(self) -> None:
        """Forgets the views that are too old."""
        with self._lock:
            now = self.clock()
            self._kept = {operator: kept for operator, kept in self._kept.items() if kept.until > now}

    def close(self) -> None:
        """Ends all queries, and forgets all views."""
        self._sql.close()
        with self._lock:
            self._kept.clear()

    def _view(self, operator: str) -> KeptView:
        found = self._known(operator)
        if found is not None:
            return found
        with self._turn(operator):
            return self._known(operator) or self._taken(operator)

    def _known(self, operator: str) -> KeptView | None:
        self.expire()
        with self._lock:
            kept = self._kept.get(operator)
            return None if kept is None else kept.view

    def _taken(self, operator: str) -> KeptView:
        self._check_small(operator)
        view = KeptView(self.read(operator))
        with self._lock:
            self._kept[operator] = _Kept(view, self.clock() + _KEPT_FOR)
            while len(self._kept) > _KEPT:
                del self._kept[next(iter(self._kept))]
        return view

    def _check_small(self, operator: str) -> None:
        size = self.nbytes(operator)
        if size > self.most:
            raise UserError(
                f"the state of {operator} has about {figures.size(size)}, and at most {figures.size(self.most)} of a "
                f"running operator are looked at; take a savepoint, and read it with `seep state show --query "
                f"{self.query} --operator {operator}`"
            )

    @contextmanager
    def _turn(self, operator: str) -> Iterator[None]:
        if not self._reading.acquire(timeout=_PATIENCE):
            raise EnvironmentFault(f"others have asked for state for {_PATIENCE:g} s; ask for {operator} again later")
        try:
            yield
        finally:
            self._reading.release()


def _as_json(answer: SqlResult) -> Json:
    columns = [{"name": each.name, "type": str(each.type)} for each in answer.rows.schema]
    rows = json_rows(answer.rows, unpack=False)
    more = answer.more or len(rows) < len(answer.rows)
    return {"columns": columns, "rows": rows, "total_known": not more, "more": more, "seconds": answer.seconds}


def json_rows(table: pa.Table, unpack: bool) -> list[list[Any]]:
    """Returns rows as JSON values, with long values cut; not all of them if together they are too long.

    `unpack` shows containers' Python objects instead of their bytes.
    """
    columns = [_python(table.field(place), column, unpack) for place, column in enumerate(table.columns)]
    rows, size = list[list[Any]](), 0
    for row in zip(*columns, strict=True):
        shown, length = _shown_row(row)
        size += length
        if rows and size > _MOST:
            break
        rows.append(shown)
    return rows


def _python(column: pa.Field, values: pa.ChunkedArray, unpack: bool) -> list[Any]:
    if pa.types.is_decimal(column.type) and column.type.scale == 0:  # a sum of whole numbers
        return [None if value is None else int(value) for value in values.to_pylist()]
    return _unpacked_or_bytes(values) if unpack and is_packed(column) else listed(values)


def _unpacked_or_bytes(values: pa.ChunkedArray) -> list[Any]:
    """Returns the Python objects of a column, or its bytes if it has others."""
    try:
        return unpacked(values)
    except Exception:  # msgpack may raise any exception for other bytes
        return listed(values)


def _shown_row(row: Sequence[Any]) -> tuple[list[Any], int]:
    """Returns the values of a row as JSON values, and the number of their characters."""
    shown = [_exact(plain(value)) for value in row]
    texts = [json.dumps(value, ensure_ascii=False) for value in shown]
    cut = [value if len(text) <= _LONGEST else f"{text[:_LONGEST]}…" for value, text in zip(shown, texts, strict=True)]
    return cut, sum(min(len(text), _LONGEST) for text in texts)


def _exact(value: Any) -> Any:
    """Returns a JSON value with whole numbers as text that JavaScript would round."""
    match value:
        case bool():
            return value
        case int() if abs(value) > _EXACT:
            return str(value)
        case list():
            return [_exact(each) for each in value]
        case dict():
            return {name: _exact(each) for name, each in value.items()}
    return value
