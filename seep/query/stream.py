"""Streams: users build a query from them. Every call checks its arguments at once, so that errors point to its line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from primitives.errors import UserError
from seep.operators.aggregation.agg import Agg
from seep.operators.aggregation.aggregates import Aggregate
from seep.operators.aggregation.highest import HighestKeys, HighestRows
from seep.operators.custom import CustomOperator, Operator
from seep.operators.definition import Definition, Input
from seep.operators.errors import naming
from seep.operators.joins import IntervalJoin, UnboundedJoin, WindowJoin
from seep.operators.session_join import SessionJoin
from seep.operators.state_machine import Reduce, StateMachine
from seep.operators.stateless import EachRow, Filter, FlatMap, Map, Project
from seep.operators.windows import Session, Sliding, Tumbling, Window
from seep.query import launcher
from seep.query.checks import Clock, check_keys, check_name, check_same_query, check_time, clock_of, common_clock
from seep.query.preview import Preview
from seep.query.vertex import CodeOptions, OperatorOptions, SinkVertex, VertexOptions, check_aliases, check_options
from seep.rows.times import Duration
from seep.sinks.definition import SinkDefinition

if TYPE_CHECKING:
    from seep.query.query import Query

#: A user's function on Arrow batches; each operator documents what it may return.
BatchFunction = Callable[[pa.RecordBatch], Any]
#: A user's function on one row as a dictionary.
RowFunction = Callable[[dict[str, Any]], Any]
#: When an aggregate without a window puts rows out: changed rows after each epoch, or all rows at the end.
Emit = Literal["changes", "end"]


class Stream:
    """The rows that one operator puts out, or several together (`union`).

    A stream is immutable: each call adds an operator to the query and returns a new stream. The first argument is the
    name of the operator. Every operator takes the options `parallelism`, `slot_bits` and `aliases` (its names in state
    stored earlier); operators with a user's function also take `on_error` ("stop" or "dead-letters").
    """

    def __init__(self, query: Query, origins: tuple[str, ...], rows: Input, clock: Clock | None) -> None:
        self.query = query
        self.origins = origins  #: the operators that put its rows out
        self.rows = rows
        self.clock = clock  #: the kind of its watermarks

    @property
    def name(self) -> str:
        """The name of its operator, or operators; for messages."""
        return " + ".join(self.origins)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the stream."""
        return self.rows.schema

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns of the stream, none before `key_by`."""
        return self.rows.keys

    @property
    def time(self) -> str | None:
        """The column with the event time, if it has one."""
        return self.rows.time

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name}: {field.type}" for field in self.schema)
        return f"<stream of {self.name!r} ({columns}), keys {list(self.keys)}, event time {self.time}>"

    def _repr_html_(self) -> str:
        """Shows the columns in a notebook; `preview` shows rows."""
        from seep.reports.notebook import card, columns_table, line

        columns = columns_table(self.schema, self.keys, self.time)
        return card(f"stream of {self.name}", columns, line("stream.preview() runs it here on its first rows"))

    def preview(self, rows: int = 10, epochs: int = 20) -> Preview:
        """Returns the first rows of the stream, which a notebook shows as a table.

        Runs the operators that it depends on in this process, on its sources' first rows: until so many rows are there,
        at most so many epochs. If a source ends before that, windows and timers that are open then close.
        """
        found: Preview = launcher.preview(self, rows, epochs)
        return found

    # -- key and event time -----------------------------------------------------------------------------------------

    def key_by(self, *columns: str) -> Stream:
        """Returns the same rows, grouped by the given columns; it adds no operator.

        The key is kept as long as later operators put these columns out.
        """
        check_keys(self.schema, columns, self.name)
        return self._with(self.rows._replace(keys=columns))

    def event_time(self, column: str) -> Stream:
        """Returns the same rows, with the event time in another column; it adds no operator.

        You promise that in this column, too, no row is older than the watermark (such a row is late). This is true for
        `window_end` after a window without lateness, for example.
        """
        check_time(self.name, self.schema, column)
        clock = clock_of(self.schema, column)
        if self.clock != clock:
            has = f"watermarks in {self.clock}" if self.clock else "no watermarks, as no source has an event time"
            raise UserError(
                f"the stream of {self.name!r} has {has}; column {column!r} ({self.schema.field(column).type}) cannot "
                "be its event time: name a time column in the sources, of the same kind"
            )
        return self._with(self.rows._replace(time=column))

    def _with(self, rows: Input) -> Stream:
        return Stream(self.query, self.origins, rows, self.clock)

    # -- row by row -------------------------------------------------------------------------------------------------

    def map(
        self, name: str, function: BatchFunction, schema: pa.Schema | None = None, **options: Unpack[CodeOptions]
    ) -> Stream:
        """Makes one row for each row; the function makes columns from a batch.

        Without `schema`, the function is called with an empty batch to find the columns.
        """
        return self._add(name, Map(function, schema), options)

    def flat_map(
        self, name: str, function: BatchFunction, schema: pa.Schema | None = None, **options: Unpack[CodeOptions]
    ) -> Stream:
        """Makes any number of rows for each row; otherwise like `map`."""
        return self._add(name, FlatMap(function, schema), options)

    def each(self, name: str, function: RowFunction, schema: pa.Schema, **options: Unpack[CodeOptions]) -> Stream:
        """Calls a Python function for every row; it returns a row, several rows, or None.

        This is about a hundred times slower than `map`: see `EachRow` for measurements.
        """
        return self._add(name, EachRow(function, schema), options)

    def filter(self, name: str, predicate: pc.Expression | BatchFunction, **options: Unpack[CodeOptions]) -> Stream:
        """Keeps the rows for which an Arrow expression, or a function on batches, is true."""
        return self._add(name, Filter(predicate), options)

    def select(
        self, name: str, columns: Iterable[str] | Mapping[str, str | pc.Expression], **options: Unpack[CodeOptions]
    ) -> Stream:
        """Keeps only these columns; a mapping renames columns, or computes new ones from Arrow expressions."""
        chosen = columns if isinstance(columns, Mapping) else {column: column for column in columns}
        return self._add(name, Project(chosen), options)

    def union(self, *others: Stream) -> Stream:
        """Returns the rows of all the streams, which must have the same columns; it adds no operator."""
        streams = (self, *others)
        check_same_query("union", streams)
        origins = tuple(origin for stream in streams for origin in stream.origins)
        if twice := sorted({origin for origin in origins if origins.count(origin) > 1}):
            raise UserError(
                f"the stream of {twice[0]!r} is twice in a union, and an operator reads it once at most at one port; "
                f"leave it out once, or put a map between"
            )
        for other in others:
            _check_alike(self, other)
        keys = self.keys if all(stream.keys == self.keys for stream in others) else ()
        return Stream(self.query, origins, self.rows._replace(keys=keys), common_clock("union", streams))

    # -- by key -----------------------------------------------------------------------------------------------------

    def window(self, window: Window) -> Windowed:
        """Divides the stream into windows of event time; the next operator computes each window separately."""
        return Windowed(self, window)

    def aggregate(
        self,
        name: str,
        *,
        emit: Emit = "changes",
        on_disk: bool = False,
        parallelism: int | None = None,
        slot_bits: int | None = None,
        aliases: Sequence[str] = (),
        **aggregates: Agg,
    ) -> Stream:
        """Computes aggregates for each key; every keyword is a column: `n=seep.count(), total=seep.sum("price")`.

        With `emit="changes"`, it puts out the new values of changed keys after each epoch; with "end", the values of
        all keys once, when the input has ended. With `on_disk`, there may be more keys than fit in memory.
        """
        options = _given(parallelism, slot_bits, aliases)
        return self._aggregate(name, None, emit, options, aggregates, on_disk)

    def _aggregate(
        self,
        name: str,
        window: Window | None,
        emit: Emit,
        options: OperatorOptions,
        aggregates: Mapping[str, Agg],
        on_disk: bool = False,
    ) -> Stream:
        for column, aggregate in aggregates.items():
            if not isinstance(aggregate, Agg):
                raise UserError(
                    f"operator {name!r}: column {column!r} is to be {aggregate!r}, which is not an aggregate; "
                    f"write {column}=seep.count(), seep.sum('…') or another one"
                )
        if not aggregates:
            raise UserError(f"operator {name!r} has nothing to work out; name columns, such as n=seep.count()")
        definition = Aggregate(aggregates, window, emit, on_disk)
        return self._add(name, definition, options, keeps_time=False, runs_code=False)

    def reduce(
        self,
        name: str,
        function: Callable[[dict[str, Any], dict[str, Any]], Mapping[str, Any]],
        *,
        emit: Emit = "changes",
        **options: Unpack[CodeOptions],
    ) -> Stream:
        """Combines the rows of each key in pairs: `function(a, b)` makes one row, a dictionary, of two.

        It calls Python for every row: see `Reduce` for its cost. `emit` is the same as for `aggregate`.
        """
        return self._add(name, Reduce(function, emit), options, keeps_time=False)

    def state_machine(
        self,
        name: str,
        fold: Callable[[Any, dict[str, Any]], Any],
        schema: pa.Schema,
        *,
        initial: Any = None,
        state_type: pa.DataType | None = None,
        **options: Unpack[CodeOptions],
    ) -> Stream:
        """Calls `fold(state, row) -> (state, row or rows or None)` for the rows of each key, in order of event time.

        It calls Python for every row: see `StateMachine` for its cost.
        """
        return self._add(name, StateMachine(fold, schema, initial, state_type), options)

    def join(
        self,
        name: str,
        right: Stream,
        *,
        window: Tumbling | Session | None = None,
        between: tuple[Duration, Duration] | None = None,
        lateness: Duration | None = None,
        on_disk: bool = False,
        **options: Unpack[OperatorOptions],
    ) -> Stream:
        """Joins rows with the same key: in the same window, within a distance in event time, or without regard to time.

        Joins are inner: a row without a partner is not put out.

        With `between=(lower, upper)`, the right row's time is from left + lower to left + upper, and rows may come late
        by `lateness`. In sessions, which rows of both sides form together, pairs are put out when the session has
        closed, with `window_start` and `window_end`. Without either, all rows are kept for ever. Pairs have no event
        time: name one with `event_time`. With `on_disk` (in tumbling windows, or without either), there may be more
        rows than fit in memory.
        """
        _check_join_options(name, options)
        definition = _join_of(name, window, between, lateness, on_disk)
        return self._add(name, definition, options, right, keeps_time=False, runs_code=False)

    def apply(
        self,
        name: str,
        operator: Operator | Callable[[], Operator] | Definition,
        *others: Stream,
        **options: Unpack[CodeOptions],
    ) -> Stream:
        """Adds an operator of your own: a subclass of `seep.Operator`, an object of one (it is copied), or a factory.

        The other streams are read at ports 1, 2, …; only an operator of one stream keeps the event time.
        """
        return self._add(name, _definition_of(name, operator), options, *others, keeps_time=not others)

    # -- ends -------------------------------------------------------------------------------------------------------

    def sink(self, name: str, definition: SinkDefinition, **options: Unpack[VertexOptions]) -> None:
        """Ends the stream in a sink. Other operators and sinks may read the same stream."""
        check_name(name)
        if not isinstance(definition, SinkDefinition):
            raise UserError(f"sink {name!r}: {definition!r} is not a sink; use one of seep.sinks, such as collect()")
        check_options(name, options, VertexOptions)
        self.query.add(SinkVertex(name, definition, (self,), options))

    # -- adding operators -------------------------------------------------------------------------------------------

    def _add(
        self,
        name: str,
        definition: Definition,
        options: CodeOptions | OperatorOptions,
        *others: Stream,
        keeps_time: bool = True,
        runs_code: bool = True,
    ) -> Stream:
        return self.query.add_operator(name, definition, (self, *others), options, keeps_time, runs_code)


class Windowed:
    """A keyed stream divided into windows of event time."""

    def __init__(self, stream: Stream, window: Window) -> None:
        if not isinstance(window, Window):
            raise UserError(
                f"{window!r} is not a window; write seep.tumbling('30 s'), seep.sliding(…) or seep.session(…)"
            )
        self._stream = stream
        self._window = window

    def aggregate(
        self,
        name: str,
        *,
        parallelism: int | None = None,
        slot_bits: int | None = None,
        aliases: Sequence[str] = (),
        **aggregates: Agg,
    ) -> Stream:
        """Computes aggregates for each key and window, put out when the watermark closes the window.

        The columns are those of the key, `window_start`, `window_end`, and one for each keyword.
        """
        return self._stream._aggregate(name, self._window, "end", _given(parallelism, slot_bits, aliases), aggregates)

    def highest(
        self,
        name: str,
        column: str | None = None,
        *,
        parallelism: int | None = None,
        slot_bits: int | None = None,
        aliases: Sequence[str] = (),
        **aggregate: Agg,
    ) -> Stream:
        """Finds the highest in each window over all keys; all of them in a tie.

        With the name of a column, it puts out the rows with the highest value, with `window_start` and `window_end`
        before their own columns. With an aggregate, a count or a sum of integers such as `n=seep.count()`, it puts out
        the keys with the highest value. It adds two operators: each instance of `name-parts` finds the highest of its
        keys, and `name` the highest of all.
        """
        parts = self._stream._add(
            f"{name}-parts",
            _highest_of(name, self._window, column, aggregate),
            _given(parallelism, slot_bits, _listed(name, aliases, "-parts")),
            keeps_time=False,
            runs_code=False,
        )
        by_window = parts.key_by("window_start", "window_end")
        highest = HighestRows(column or next(iter(aggregate)))
        options = _given(None, None, aliases)
        return by_window._add(name, highest, options, keeps_time=False, runs_code=False)


def _definition_of(name: str, operator: object) -> Definition:
    if isinstance(operator, Definition):
        return operator
    if not isinstance(operator, Operator) and not callable(operator):
        raise UserError(f"operator {name!r}: {operator!r} is not an operator; give it a subclass of seep.Operator")
    try:
        with naming(name):
            return CustomOperator(operator)
    except TypeError as reason:
        raise UserError(
            f"operator {name!r}: {operator!r} makes no operator ({reason}); give it a subclass of seep.Operator, an "
            "object of one, or a function without arguments that makes such an object"
        ) from reason


def _highest_of(name: str, window: Window, column: str | None, aggregate: Mapping[str, Agg]) -> Definition:
    if len(aggregate) + (column is not None) != 1:
        raise UserError(f"operator {name!r}: say what is to be the highest, a column or one aggregate")
    if column is not None:
        if not isinstance(window, Tumbling):
            raise UserError(f"operator {name!r}: the highest rows are those of tumbling windows, not of {window}")
        return HighestRows(column, window)
    if not isinstance(window, Tumbling | Sliding):
        raise UserError(
            f"operator {name!r}: the highest keys are those of tumbling or sliding windows, not of {window}"
        )
    ((result, asked),) = aggregate.items()
    return HighestKeys(result, asked, window)


def _check_join_options(name: str, options: Mapping[str, Any]) -> None:
    """Raises UserError for an unknown option, and lists those that a join takes."""
    known = sorted(["window", "between", "lateness", "on_disk", *OperatorOptions.__annotations__])
    for word, value in options.items():
        if word == "how" and value == "inner":
            raise UserError(f"operator {name!r}: joins are inner always; leave out how='inner'")
        if word == "how":
            raise UserError(
                f"operator {name!r}: joins are inner, and how={value!r} is not offered; a join takes "
                f"{', '.join(known)}. For rows without a partner, apply(…) an operator of your own with ports = 2"
            )
        if word not in known:
            raise UserError(f"operator {name!r} has no option {word!r}; a join takes {', '.join(known)}")


def _join_of(
    name: str,
    window: Tumbling | Session | None,
    between: tuple[Duration, Duration] | None,
    lateness: Duration | None,
    on_disk: bool,
) -> Definition:
    if window is not None and between is not None:
        raise UserError(f"operator {name!r}: give window= or between=, not both")
    if lateness is not None and between is None:
        raise UserError(f"operator {name!r}: lateness= goes with between=; a window has its own, and others need none")
    if on_disk and (between is not None or isinstance(window, Session)):
        raise UserError(f"operator {name!r}: on_disk= is for joins in tumbling windows, or without any")
    if between is not None:
        return IntervalJoin(*between, lateness=0 if lateness is None else lateness)
    if window is None:
        return UnboundedJoin(on_disk)
    if isinstance(window, Session):
        return SessionJoin(window)
    if not isinstance(window, Tumbling):
        raise UserError(
            f"operator {name!r}: streams are joined in tumbling windows, in sessions, or with between=, not by {window}"
        )
    return WindowJoin(window, on_disk)


def _given(parallelism: int | None, slot_bits: int | None, aliases: Sequence[str]) -> OperatorOptions:
    options = OperatorOptions()
    if parallelism is not None:
        options["parallelism"] = parallelism
    if slot_bits is not None:
        options["slot_bits"] = slot_bits
    if aliases:
        options["aliases"] = aliases
    return options


def _listed(name: str, aliases: Sequence[str], ending: str) -> list[str]:
    """Returns the aliases of an operator that is a part of another."""
    check_aliases(name, aliases)
    return [alias + ending for alias in aliases]


def _check_alike(one: Stream, other: Stream) -> None:
    """Raises unless the streams of a union agree in columns, types and event time."""
    differences = [
        f"{_field(a)} and {_field(b)}"
        for a, b in zip_longest(one.schema, other.schema)
        if a is None or b is None or not a.equals(b)
    ]
    if differences:
        raise UserError(
            f"the streams of {one.name!r} and {other.name!r} cannot be united, as their columns differ: "
            f"{'; '.join(differences)}; make them alike with select"
        )
    if one.time != other.time:
        raise UserError(
            f"the streams of {one.name!r} (event time: {one.time}) and {other.name!r} (event time: {other.time}) "
            "cannot be united; name the same column with event_time, or as the time of the sources"
        )


def _field(field: pa.Field | None) -> str:
    if field is None:
        return "none"
    return f"{field.name} ({field.type}{'' if field.nullable else ', never null'})"
