"""Aggregates by key, over all rows or over windows of event time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import pyarrow as pa

from primitives.errors import UserError
from primitives.graph import Kind
from seep.operators.aggregation.agg import Agg, count, first, last, max, mean, min, sum
from seep.operators.aggregation.folding import Aggregates
from seep.operators.aggregation.panes import Panes
from seep.operators.aggregation.sessions import SessionWindows
from seep.operators.aggregation.totals import Totals
from seep.operators.base import BatchLogic
from seep.operators.definition import Definition, Input, OperatorSetting
from seep.operators.errors import naming
from seep.operators.keys import Keys
from seep.operators.windows import Session, Sliding, Tumbling, Window, gap_of, grid_of, lateness_of

__all__ = ["Agg", "Aggregate", "count", "first", "last", "max", "mean", "min", "sum"]


class Aggregate(Definition):
    """Aggregates of the rows of each key.

    Without a window, "changes" puts out, after each epoch, the key and the aggregates of every key that received rows;
    "end" puts out all keys once, when the input has ended. With a window, the key, `window_start`, `window_end` and the
    aggregates are put out when the watermark closes the window. (Both bounds have the type of the event time, or int64
    for integers.) Null is a key like any other. The order of output rows within an epoch is not defined. State is in
    memory; without a window it can be `on_disk`, for more keys than fit into memory (see `Disk`).

    >>> counts = Aggregate({"n": count()})
    >>> counts.output("counter", [Input(pa.schema([("word", pa.string())]), keys=("word",))])
    word: string
    n: int64
    """

    kind: ClassVar[Kind] = Kind.STATEFUL

    def __init__(
        self,
        aggregates: Mapping[str, Agg],
        window: Window | None = None,
        emit: Literal["changes", "end"] = "changes",
        on_disk: bool = False,
    ) -> None:
        if emit not in ("changes", "end"):
            raise UserError(f"emit={emit!r} is neither 'changes' nor 'end'")
        self.aggregates = dict(aggregates)
        self.window = window
        self.emit = emit
        self.on_disk = on_disk

    def output(self, operator: str, inputs: Sequence[Input]) -> pa.Schema:
        """See `Definition.output`."""
        (stream,) = inputs
        keys, aggregates = self._parts(operator, stream)
        bounds = [] if self.window is None else _bounds(operator, stream)
        fields = [*keys.fields, *bounds, *aggregates.fields]
        _check_names(operator, [field.name for field in fields])
        setting = OperatorSetting(operator, 0, (stream,), pa.schema(fields), ())
        self.logic(setting).close()  # checks that state can be made of these columns
        return setting.output

    def logic(self, setting: OperatorSetting) -> BatchLogic:
        """See `Definition.logic`."""
        (stream,) = setting.inputs
        keys, aggregates = self._parts(setting.operator, stream)
        with naming(setting.operator):
            if self.window is None:
                return Totals(setting, keys, aggregates, at_end=self.emit == "end", on_disk=self.on_disk)
            return _windowed(setting, keys, aggregates, self.window)

    def _parts(self, operator: str, stream: Input) -> tuple[Keys, Aggregates]:
        return Keys(operator, stream), Aggregates(operator, self.aggregates, stream)


def _windowed(setting: OperatorSetting, keys: Keys, aggregates: Aggregates, window: Window) -> BatchLogic:
    stream = setting.inputs[0]
    time = stream.schema.field(stream.time).type
    match window:
        case Session():
            return SessionWindows(setting, keys, aggregates, gap_of(window, time), lateness_of(window, time))
        case Tumbling() | Sliding():
            return Panes(setting, keys, aggregates, grid_of(window, time))
    raise UserError(f"{window!r} is not a window; use Tumbling, Sliding or Session")


def _check_names(operator: str, names: Sequence[str]) -> None:
    for at, name in enumerate(names):
        if name in names[:at]:
            raise UserError(
                f"operator '{operator}' would put out two columns '{name}', of {list(names)}; "
                "give the aggregate another name, or rename the key column before"
            )


def _bounds(operator: str, stream: Input) -> list[pa.Field]:
    if stream.time is None:
        raise UserError(
            f"operator '{operator}' has windows, and its input has no event time; "
            "name the time column at the source, and keep it up to here"
        )
    kind = stream.schema.field(stream.time).type
    kind = kind if pa.types.is_timestamp(kind) else pa.int64()
    return [pa.field("window_start", kind), pa.field("window_end", kind)]
