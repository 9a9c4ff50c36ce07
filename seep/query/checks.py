"""Checks of a query's declarations alone: each raises a UserError that says what to change."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from primitives.errors import UserError
from primitives.graph import Kind
from primitives.hashing import hash_keys
from seep.operators.definition import Definition
from seep.rows.times import is_event_time

if TYPE_CHECKING:
    from seep.query.stream import Stream

#: The kind of event times: only those of one kind can be compared. A watermark has the kind of its sources' times.
Clock = Literal["integers", "timestamps"]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def check_name(name: object) -> None:
    """Raises unless a name can be used in messages, on the command line and in file names."""
    if not isinstance(name, str):
        raise UserError(f"an operator's name comes first and is text, not {name!r}, as in stream.map('double', …)")
    if not _NAME.fullmatch(name):
        raise UserError(
            f"{name!r} cannot be the name of an operator; use letters, digits and '_', and later also '-' and '.'"
        )


def check_columns(operator: str, schema: pa.Schema) -> None:
    """Raises if two columns of a stream have the same name."""
    if twice := sorted({name for name in schema.names if schema.names.count(name) > 1}):
        raise UserError(f"operator {operator!r} puts out several columns called {', '.join(twice)}; rename them")


def check_time(operator: str, schema: pa.Schema, time: str, remedy: str = "cast it to integers or timestamps") -> None:
    """Raises unless the event time is a column of integers or timestamps; the error ends with the remedy."""
    if schema.get_field_index(time) < 0:
        raise UserError(
            f"operator {operator!r} has no column {time!r} to take the event time from, only {', '.join(schema.names)}"
        )
    if not is_event_time(schema.field(time).type):
        kind = schema.field(time).type
        raise UserError(f"operator {operator!r}: column {time!r} is a {kind} and cannot be the event time; {remedy}")


def clock_of(schema: pa.Schema, time: str | None) -> Clock | None:
    """Returns the kind of a stream's event times, if it has any."""
    if time is None:
        return None
    return "timestamps" if pa.types.is_timestamp(schema.field(time).type) else "integers"


def common_clock(operator: str, streams: Sequence[Stream]) -> Clock | None:
    """Returns the kind of the watermarks of an operator's streams; raises if they cannot be compared."""
    clocks = {stream.clock: stream for stream in streams if stream.clock}
    if len(clocks) > 1:
        described = " and ".join(f"{clock} behind {stream.name!r}" for clock, stream in clocks.items())
        raise UserError(
            f"operator {operator!r} reads streams whose event times cannot be compared: {described}; "
            "use timestamps in all sources, or integers in all"
        )
    return next(iter(clocks), None)


def check_keys(schema: pa.Schema, columns: Sequence[object], stream: str) -> None:
    """Raises unless key columns exist, have types that can be hashed, and are named once each."""
    if not columns:
        raise UserError(
            f"key_by on the stream of {stream!r} needs at least one column; it has {', '.join(schema.names)}"
        )
    for column in columns:
        if column not in schema.names:
            raise UserError(
                f"key_by: the stream of {stream!r} has no column {column!r}; it has {', '.join(schema.names)}"
            )
        if not can_be_key(schema.field(column).type):
            raise UserError(
                f"key_by: column {column!r} of the stream of {stream!r} is a {schema.field(column).type}, which cannot "
                "be a key; cast it to integer, float, decimal128, bool, text, binary, timestamp or date"
            )
    if len(set(columns)) < len(columns):
        raise UserError(f"key_by on the stream of {stream!r} names a column twice: {', '.join(map(str, columns))}")


def can_be_key(kind: pa.DataType) -> bool:
    """Whether values of a type can be hashed, and so be a key."""
    try:
        hash_keys([pa.array([], kind)])
    except UserError:
        return False
    return True


def check_same_query(operator: str, streams: Sequence[Any]) -> None:
    """Raises unless all streams belong to the same query."""
    for stream in streams:
        if not hasattr(stream, "origins"):
            raise UserError(f"operator {operator!r} reads streams, not {stream!r}; give it a stream of the query")
    if len({id(stream.query) for stream in streams}) > 1:
        names = ", ".join(sorted({stream.query.name for stream in streams}))
        raise UserError(f"operator {operator!r} would read streams of several queries ({names}); build them in one")


def check_keyed(operator: str, definition: Definition, streams: Sequence[Stream]) -> None:
    """Raises unless all streams of an operator with state have a key, of the same types."""
    if definition.kind is not Kind.STATEFUL:
        return
    for stream in streams:
        if not stream.keys:
            raise UserError(
                f"operator {operator!r} keeps state by key, and the stream of {stream.name!r} has no key; "
                "write key_by(…) before it (for one result over all rows, key by a column that is the same in all)"
            )
    if len({tuple(_key_types(stream)) for stream in streams}) > 1:
        described = " and ".join(f"{stream.name!r} by {_keys_in_words(stream)}" for stream in streams)
        raise UserError(
            f"operator {operator!r} needs keys of the same types on all its streams, and has {described}; "
            "cast the key columns before key_by"
        )


def _key_types(stream: Stream) -> list[pa.DataType]:
    """Returns the types of the key, without dictionary encoding."""
    kinds = [stream.schema.field(key).type for key in stream.keys]
    return [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in kinds]


def _keys_in_words(stream: Stream) -> str:
    return ", ".join(f"{key} ({kind})" for key, kind in zip(stream.keys, _key_types(stream), strict=True))


def check_travels(operator: str, definition: object) -> None:
    """Raises unless the definition can be sent to the nodes as Spark sends functions: it tries to pickle it."""
    from pyspark import cloudpickle

    try:
        pickler: Any = cloudpickle.Pickler
        pickler(_NullFile(), protocol=5, buffer_callback=lambda _: None).dump(definition)
    except Exception as reason:
        raise UserError(
            f"operator {operator!r} cannot be sent to the nodes: {reason}; its functions must not hold on to open "
            "files, locks, connections or sessions: open them inside the function"
        ) from reason


class _NullFile:
    """A file that discards what is written to it."""

    def write(self, written: bytes) -> int:
        return len(written)
