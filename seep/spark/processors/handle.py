"""The handle of a processor: Spark's state variables and timers by name, on containers of the operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql import types as spark

from primitives.errors import UserError
from primitives.state.values import Values
from seep.operators.context import Context
from seep.rows.spark_types import arrow_schema
from seep.spark.processors.forms import Form, to_arrow, to_spark

#: A schema as in Spark's code: Spark's type, or SQL text.
Schema = spark.StructType | str
#: The container of timers that have not fired.
TIMERS = "registered timers"


class Schemas:
    """Schemas by their text: only the driver, which has Spark, can parse them, and does so before nodes need them."""

    def __init__(self) -> None:
        self._known: dict[str, spark.StructType] = {}

    def __deepcopy__(self, memo: object) -> Schemas:
        """Copies of an operator share their schemas: the operator on the driver is a copy, too."""
        return self

    def __call__(self, given: Schema) -> spark.StructType:
        if isinstance(given, spark.StructType):
            return given
        if given not in self._known:
            self._known[given] = self._parsed(given)
        return self._known[given]

    def _parsed(self, text: str) -> spark.StructType:
        try:
            found = spark.DataType.fromDDL(text)
        except Exception as reason:
            raise UserError(
                f"the schema {text!r} cannot be read: {reason}; Spark reads such text, so start its session before, or "
                "give a StructType"
            ) from reason
        return found if isinstance(found, spark.StructType) else spark.StructType().add("value", found)


class Handle:
    """See `StatefulProcessorHandle` of Spark. `key` is the current key."""

    def __init__(self, context: Context, schemas: Schemas) -> None:
        self.key: Any = None
        #: schedules a call for the key at a time in milliseconds; None in a time mode without timers
        self.alarm: Callable[[int], None] | None = None
        self.latest = 2**63 - 1  #: the latest possible time of a timer
        self._context, self._schemas = context, schemas
        self._timers = context.values(TIMERS, pa.list_(pa.int64()))

    # -- state variables ----------------------------------------------------------------------------------------------

    def getValueState(self, stateName: str, schema: Schema, ttlDurationMs: int | None = None) -> ValueState:
        """Returns a variable with one row for each key."""
        return ValueState(self, self._cells(stateName, self._schemas(schema), ttlDurationMs))

    def getListState(self, stateName: str, schema: Schema, ttlDurationMs: int | None = None) -> ListState:
        """Returns a variable with a list of rows for each key."""
        return ListState(self, self._cells(stateName, spark.ArrayType(self._schemas(schema)), ttlDurationMs))

    def getMapState(
        self, stateName: str, userKeySchema: Schema, valueSchema: Schema, ttlDurationMs: int | None = None
    ) -> MapState:
        """Returns a variable with a mapping from rows to rows for each key."""
        kind = spark.MapType(self._schemas(userKeySchema), self._schemas(valueSchema))
        return MapState(self, self._cells(stateName, kind, ttlDurationMs))

    def deleteIfExists(self, stateName: str) -> None:
        """Does nothing: a variable that init() does not ask for is dropped anyway."""
        if any(made.name == stateName for made in self._context.containers):
            raise UserError(f"state '{stateName}' is both asked for and deleted; take one of the two out of init()")

    def _cells(self, name: str, kind: spark.DataType, ttl: int | None) -> Values:
        if ttl:
            raise UserError(
                f"state '{name}' has a time to live of {ttl} ms of processing time, which would differ when rows are "
                "processed again: register a timer of event time instead, and clear the state when it fires"
            )
        stored = arrow_schema(spark.StructType().add("stored", kind)).field(0).type
        return self._context.values(name, stored, encode=to_arrow(kind), decode=_as_kept(kind))

    # -- timers -------------------------------------------------------------------------------------------------------

    def registerTimer(self, expiryTimestampMs: int) -> None:
        """Calls the key when the watermark reaches this time; registering it again has no effect."""
        alarm = self.alarm or _no_timers()
        times, time = self._timers.peek(self.key, []), min(int(expiryTimestampMs), self.latest)
        if time not in times:
            self._timers[self.key] = sorted([*times, time])
            alarm(time)

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        """Deletes a timer."""
        left = [time for time in self._timers.peek(self.key, []) if time != expiryTimestampMs]
        if left:
            self._timers[self.key] = left
        else:
            self._timers.pop(self.key, None)

    def listTimers(self) -> Iterator[int]:
        """Returns the times of the key's timers, in order."""
        return iter(list(self._timers.peek(self.key, [])))

    def has_timer(self, milliseconds: int) -> bool:
        """Whether the key has a timer at this time."""
        return milliseconds in self._timers.peek(self.key, [])


class Variable:
    """A state variable of the handle's current key."""

    def __init__(self, handle: Handle, cells: Values) -> None:
        self._handle, self._cells = handle, cells

    def exists(self) -> bool:
        return self._handle.key in self._cells

    def clear(self) -> None:
        self._cells.pop(self._handle.key, None)

    def _get(self) -> Any:
        return self._cells.peek(self._handle.key)

    def _set(self, value: Any) -> None:
        self._cells[self._handle.key] = value


class ValueState(Variable):
    """See `ValueState` of Spark."""

    def get(self) -> tuple[Any, ...] | None:
        found = self._get()
        return None if found is None else tuple(found)

    def update(self, newValue: Any) -> None:
        self._set(tuple(newValue))


class ListState(Variable):
    """See `ListState` of Spark."""

    def get(self) -> Iterator[tuple[Any, ...]]:
        return iter(list(self._get() or ()))

    def put(self, newState: Iterable[Any]) -> None:
        self._set([tuple(each) for each in newState])

    def appendValue(self, newState: Any) -> None:
        self.appendList([newState])

    def appendList(self, newState: Iterable[Any]) -> None:
        held = self._cells.get(self._handle.key)  # to be changed in place
        if held is None:
            self.put(newState)
        else:
            held.extend(tuple(each) for each in newState)


class MapState(Variable):
    """See `MapState` of Spark."""

    def getValue(self, key: Any) -> tuple[Any, ...] | None:
        found: tuple[Any, ...] | None = self._held().get(tuple(key))
        return found

    def containsKey(self, key: Any) -> bool:
        return tuple(key) in self._held()

    def updateValue(self, key: Any, value: Any) -> None:
        held = self._cells.get(self._handle.key)
        if held is None:
            self._set({tuple(key): tuple(value)})
        else:
            held[tuple(key)] = tuple(value)

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        return iter(list(self._held().items()))

    def keys(self) -> Iterator[tuple[Any, ...]]:
        return iter(list(self._held()))

    def values(self) -> Iterator[tuple[Any, ...]]:
        return iter(list(self._held().values()))

    def removeKey(self, key: Any) -> None:
        held = self._cells.get(self._handle.key)
        if held is not None and held.pop(tuple(key), None) is not None and not held:
            self.clear()

    def _held(self) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        found: dict[tuple[Any, ...], tuple[Any, ...]] = self._get() or {}
        return found


def _as_kept(kind: spark.DataType) -> Form:
    """Returns the conversion of stored values for a variable: its rows become tuples."""
    form = to_spark(kind)
    match kind:
        case spark.ArrayType():
            return lambda stored: [tuple(row) for row in form(stored)]
        case spark.MapType():
            return lambda stored: {tuple(key): tuple(value) for key, value in form(stored).items()}
    return lambda stored: tuple(form(stored))


def _no_timers() -> NoReturn:
    raise UserError("timers need an event time: say time_mode='EventTime'")
