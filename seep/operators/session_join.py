"""The session join: pairs of rows of two streams that have the same key and are in the same session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from primitives.errors import UserError
from primitives.graph import Edge
from primitives.state.rows import Rows
from seep.operators.aggregation.agg import count
from seep.operators.aggregation.folding import Aggregates
from seep.operators.aggregation.sessions import SessionWindows
from seep.operators.base import BatchLogic
from seep.operators.definition import Input, OperatorSetting
from seep.operators.errors import naming
from seep.operators.joins import LEFT, RIGHT, Join, JoinSide, PairMatching, Times, columns_of, time_types, with_keys
from seep.operators.keyed import plain_type
from seep.operators.keys import Keys
from seep.operators.progress import Progress
from seep.operators.windows import Session, gap_of
from seep.protocol.logic import Logic, Piece
from seep.rows.times import event_times, times_column

_TIME, _START, _END = "session.time", "window_start", "window_end"


@dataclass(frozen=True, slots=True)
class SessionJoin(Join):
    """Joins pairs with the same key in the same session, which rows of both streams form together.

    Puts out the columns of other joins, and `window_start` and `window_end`, when the watermark closes the session. A
    row is late if the watermark has passed its time plus the gap, even if a session is open that would include it.
    """

    window: Session

    def output(self, operator: str, inputs: Sequence[Input]) -> pa.Schema:
        """See `Definition.output`."""
        pairs = Join.output(self, operator, inputs)
        if taken := {_START, _END} & set(pairs.names):
            raise UserError(f"operator '{operator}' puts out a column '{min(taken)}' of its own; rename that one")
        with naming(operator):
            kinds = time_types(inputs)
        kind = kinds[LEFT] if pa.types.is_timestamp(kinds[LEFT]) else pa.int64()
        return pa.schema([*pairs, pa.field(_START, kind), pa.field(_END, kind)])

    def logic(self, setting: OperatorSetting) -> Logic[pa.RecordBatch]:
        """See `Definition.logic`."""
        return _Joining(setting, gap_of(self.window, time_types(setting.inputs)[LEFT]))

    def meeting(self, inputs: Sequence[Input]) -> PairMatching:
        """Rows wait for the end of their session by key alone."""
        kind = time_types(inputs)[LEFT]
        gap_of(self.window, kind)
        if self.window.lateness:
            raise UserError("the sessions of a join have no lateness; let the sources lag by it, as out_of_order=")
        return PairMatching()


class _Sessions(NamedTuple):
    """Sessions that have closed."""

    keys: list[pa.Array]
    starts: Times
    ends: Times


class _Joining(BatchLogic):
    """Finds sessions with the operator for session windows, on the keys and times of both streams."""

    def __init__(self, setting: OperatorSetting, gap: int) -> None:
        self._gap = gap
        self._columns = columns_of(setting.inputs)
        self._sides = [JoinSide(at, each, PairMatching(), setting.slot_bits) for at, each in enumerate(setting.inputs)]
        self._both = _both(setting.inputs[LEFT])
        self._sessions = _session_windows(setting, self._both, gap)
        self._progress = Progress(setting.slot_bits)
        self._progress.state.name = "late"
        sides = [each for side in self._sides for each in side.containers]
        super().__init__(setting, *self._sessions.containers, *sides, self._progress.state)

    def compute(self, piece: Piece[pa.RecordBatch]) -> pa.RecordBatch | None:
        """See `BatchLogic.compute`."""
        with naming(self.setting.operator):
            came = [self._on_time(side, piece) for side in self._sides]
        for side, rows in zip(self._sides, came, strict=True):
            side.kept.add(rows)
        self._progress.advance(piece.slots, piece.watermark)
        inputs = {0: tuple(self._keyed(side, rows) for side, rows in zip(self._sides, came, strict=True))}
        closed = self._sessions.compute(piece._replace(inputs=inputs))
        return None if closed is None or not len(closed) else self._pairs(self._found(closed))

    def _on_time(self, side: JoinSide, piece: Piece[pa.RecordBatch]) -> pa.RecordBatch:
        rows = with_keys(self.rows(piece, side.index), side.keys)
        late = self._progress.passed(side.key_columns(rows), self._times(side, rows) + self._gap - 1)
        if late.any():
            self.counters["late"] += int(late.sum())
            rows = rows.filter(pa.array(~late))
        return rows

    def _times(self, side: JoinSide, rows: pa.RecordBatch) -> Times:
        return event_times(rows[self.setting.inputs[side.index].time])

    def _keyed(self, side: JoinSide, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = [*side.key_columns(rows), pa.array(self._times(side, rows))]
        return pa.record_batch(columns, schema=self._both.schema)

    def _found(self, closed: pa.RecordBatch) -> _Sessions:
        keys = [closed[name] for name in self._both.keys]
        return _Sessions(keys, event_times(closed[_START]), event_times(closed[_END]))

    def _pairs(self, sessions: _Sessions) -> pa.RecordBatch:
        (left_of, left), (right_of, right) = (self._remove_rows_of(side, sessions) for side in self._sides)
        lefts, rights = _pairs_by_session(left_of, right_of)
        chosen = {LEFT: left.take(pa.array(lefts)), RIGHT: right.take(pa.array(rights))}
        columns = [chosen[column.side].column(column.source) for column in self._columns]
        kind, of = self.setting.output.field(_START).type, left_of[lefts]
        bounds = [times_column(times[of], kind) for times in (sessions.starts, sessions.ends)]
        return pa.record_batch([*columns, *bounds], schema=self.setting.output)

    def _remove_rows_of(self, side: JoinSide, sessions: _Sessions) -> tuple[Times, pa.RecordBatch]:
        """Removes the rows of one side in these sessions; returns the session of each row, and the rows."""

        def fits(which: Times, rows: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
            times = self._times(side, rows)
            within: np.ndarray[tuple[int], np.dtype[np.bool_]] = sessions.starts[which] <= times
            return within & (times < sessions.ends[which])

        assert isinstance(side.kept, Rows)
        return side.kept.pop(sessions.keys, fits)


def _both(left: Input) -> Input:
    """Returns the stream of keys and times of both sides."""
    kinds = {f"key_{at}": plain_type(left.schema.field(name).type) for at, name in enumerate(left.keys)}
    return Input(pa.schema({**kinds, _TIME: pa.int64()}), tuple(kinds), _TIME)


def _session_windows(setting: OperatorSetting, both: Input, gap: int) -> SessionWindows:
    fields = [*both.schema][:-1] + [pa.field(name, pa.int64()) for name in (_START, _END, "rows")]
    inner = replace(setting, inputs=(both,), output=pa.schema(fields), outputs=tuple[Edge, ...]())
    aggregates = Aggregates(setting.operator, {"rows": count()}, both)
    return SessionWindows(inner, Keys(setting.operator, both), aggregates, gap, lateness=0)


def _pairs_by_session(left_of: Times, right_of: Times) -> tuple[Times, Times]:
    """Returns all pairs of a left and a right row of the same session.

    >>> _pairs_by_session(np.array([5, 7]), np.array([7, 5, 7]))
    (array([0, 1, 1]), array([1, 0, 2]))
    """
    order = np.argsort(right_of, kind="stable")
    begins, ends = (np.searchsorted(right_of[order], left_of, side) for side in ("left", "right"))
    counts = ends - begins
    lefts = np.repeat(np.arange(len(left_of)), counts)
    nth = np.arange(len(lefts)) - np.repeat(np.cumsum(counts) - counts, counts)
    return lefts, order[begins[lefts] + nth]
