"""Runs Spark's `StatefulProcessor` unchanged as an operator: `seep.from_processor`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from primitives.errors import UserError, install_command
from seep.operators.context import Context, Inputs
from seep.operators.custom import Operator
from seep.operators.definition import Input
from seep.protocol.messages import MAX_WATERMARK
from seep.rows.spark_types import arrow_schema, spark_schema
from seep.spark.processors.forms import to_spark
from seep.spark.processors.handle import Handle, Schema, Schemas
from seep.spark.processors.shapes import FrameShape, RowShape

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, TimerValues

#: The values of the key columns, as Arrow values.
Key = tuple[Any, ...]
#: Spark's value for a clock that must not be used.
_NO_CLOCK = -1
#: The latest time in 64 bits.
_LATEST = 2**63 - 1


def from_processor(
    processor: StatefulProcessor, output: Schema, *, time_mode: str = "None", in_pandas: bool = False
) -> Processor:
    """Makes an operator that runs a processor written for Spark's `transformWithState`, unchanged.

    It refuses `handleInitialState`, times to live of state, and timers of processing time.

    `output` and `time_mode` are Spark's `outputStructType` and `timeMode`; `in_pandas` is for a processor written for
    `transformWithStateInPandas`. It calls Python for every key that has rows in an epoch, as Spark does; for many rows,
    write an `Operator`.

    >>> operator = seep.from_processor(Counter(), "id string, n int")   # doctest: +SKIP
    >>> counts = seep.stateful(df, key="id", operator=operator)         # doctest: +SKIP
    """
    return Processor(processor, output, time_mode, in_pandas)


class Processor(Operator):
    """See `from_processor`."""

    def __init__(self, processor: StatefulProcessor, output: Schema, time_mode: str, in_pandas: bool) -> None:
        _check_initial_state(processor)
        _check_pandas(in_pandas)
        self._processor = processor
        self._has_timers = _has_timers(time_mode)
        self._in_pandas = in_pandas
        self._schemas = Schemas()
        self._columns = self._schemas(output)

    @property
    def user_objects(self) -> list[object]:
        """The objects whose attributes must not change either."""
        return [self._processor]

    # -- as an operator -----------------------------------------------------------------------------------------------

    def output(self, inputs: Sequence[Input]) -> pa.Schema:
        """See `Operator.output`."""
        if self._has_timers and inputs[0].time is None:
            raise UserError("time_mode='EventTime' needs an event time: name its column with time= where rows come in")
        return arrow_schema(self._columns)

    def open(self, context: Context) -> None:
        """See `Operator.open`. The driver calls it too, so that all schemas are read before nodes need them."""
        [given] = context.inputs
        rows = spark_schema(given.schema)
        shape = FrameShape if self._in_pandas else RowShape
        self._shape = shape(rows, self._columns)
        self._keys = given.keys
        self._key_forms = [to_spark(rows[name].dataType) for name in given.keys]
        self._unit = _per_millisecond(given)
        self._handle = Handle(context, self._schemas)
        self._handle.latest = _LATEST // self._unit
        self._processor.init(self._handle)  # type: ignore[arg-type]  # alike, but not of Spark's class

    def process(self, inputs: Inputs) -> pa.RecordBatch:
        """See `Operator.process`."""
        self._handle.alarm = self._set_alarm if self._has_timers else None
        batch, now = inputs.in_sequence(), self._times(inputs)
        groups = self._groups(batch)
        made: list[Any] = []
        for key, rows in zip(groups, self._shape.parts(batch, groups.values()), strict=True):
            made += self._processor.handleInputRows(self._at(key), rows, now)
        return self._shape.batch(made)

    def on_notify(self, due: pa.RecordBatch, inputs: Inputs) -> pa.RecordBatch:
        """See `Operator.on_notify`. When the input has ended, the remaining timers fire, and cannot set others."""
        if inputs.ended:
            self._handle.alarm = _never
        made: list[Any] = []
        for time, key, _ in self.records(due):
            made += self._expired(self._as_tuple(key), time // self._unit, self._times(inputs))
        return self._shape.batch(made)

    # -- parts of it --------------------------------------------------------------------------------------------------

    def _groups(self, batch: pa.RecordBatch) -> dict[Key, list[int]]:
        """Returns the numbers of the rows of each key."""
        groups: dict[Key, list[int]] = defaultdict(list)
        for at, key in enumerate(zip(*(batch[name].to_pylist() for name in self._keys), strict=True)):
            groups[key].append(at)
        return groups

    def _as_tuple(self, key: Any) -> Key:
        return key if len(self._keys) > 1 else (key,)

    def _at(self, key: Key) -> Key:
        """Sets the current key of all state; returns it in Spark's form."""
        self._handle.key = key if len(key) > 1 else key[0]
        return tuple(form(value) for form, value in zip(self._key_forms, key, strict=True))

    def _expired(self, key: Key, milliseconds: int, now: TimerValues) -> Iterable[Any]:
        from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo

        spoken = self._at(key)
        if self._handle.has_timer(milliseconds):
            yield from self._processor.handleExpiredTimer(spoken, now, ExpiredTimerInfo(milliseconds))
            self._handle.deleteTimer(milliseconds)

    def _set_alarm(self, milliseconds: int) -> None:
        self.notify(milliseconds * self._unit, self._handle.key)

    def _times(self, inputs: Inputs) -> TimerValues:
        from pyspark.sql.streaming.stateful_processor import TimerValues

        watermark = _LATEST if inputs.watermark == MAX_WATERMARK else max(inputs.watermark // self._unit, 0)
        return TimerValues(_NO_CLOCK, watermark if self._has_timers else _NO_CLOCK)


def _check_pandas(in_pandas: bool) -> None:
    if in_pandas and find_spec("pandas") is None:
        raise UserError(f"in_pandas=True needs pandas, which is not installed: {install_command('pandas')}")


def _check_initial_state(processor: StatefulProcessor) -> None:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    if getattr(type(processor), "handleInitialState", None) not in (None, StatefulProcessor.handleInitialState):
        raise UserError(
            f"{type(processor).__name__} has a handleInitialState(), which would never be called: initial state cannot "
            "be given. Put the initial rows before the others with union, have handleInputRows() take them in, and "
            "remove handleInitialState()"
        )


def _has_timers(time_mode: str) -> bool:
    match time_mode.lower():
        case "none":
            return False
        case "eventtime":
            return True
        case "processingtime":
            raise UserError(
                "time_mode='ProcessingTime': timers by the clock would fire otherwise when rows are processed again; "
                "use 'EventTime', with the column of time= in from_spark"
            )
    raise UserError(f"time_mode={time_mode!r}; it is 'None' or 'EventTime'")


def _per_millisecond(given: Input) -> int:
    """Returns the units of event time per millisecond: timestamps are microseconds; integers are milliseconds."""
    is_timestamp = given.time is not None and pa.types.is_timestamp(given.schema.field(given.time).type)
    return 1_000 if is_timestamp else 1


def _never(_milliseconds: int) -> None:
    """Schedules nothing, as the input has ended."""
