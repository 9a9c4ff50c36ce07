"""Aggregates over sessions: windows that end when a key has had no row for some time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.kernels import kernel
from primitives.state.frame import Frame
from seep.operators.aggregation.folding import Aggregates
from seep.operators.base import BatchLogic
from seep.operators.definition import OperatorSetting
from seep.operators.errors import naming
from seep.operators.keys import Keys, take
from seep.operators.progress import Progress
from seep.protocol.logic import Piece
from seep.rows.times import event_times, times_column

Ints = NDArray[np.int64]
Columns = dict[str, pa.Array]

# Columns of state besides the key and the aggregates. Users name key columns freely, so these have a prefix.
_NTH, _FIRST, _LAST, _COUNT, _ALARM = (f"session.{fact}" for fact in ("nth", "first", "last", "count", "alarm"))
_NO_ALARM = 2**63 - 1


class Sessions(NamedTuple):
    """Sessions of some keys, or parts of sessions: input rows, and sessions as they were stored."""

    key: Ints  #: numbers of keys in this epoch
    first: Ints
    last: Ints
    rows: Ints  #: the number of new rows
    state: pa.RecordBatch

    def at(self, places: Ints) -> Sessions:
        """Returns the sessions at some places."""
        return Sessions(
            self.key[places],
            self.first[places],
            self.last[places],
            self.rows[places],
            self.state.take(pa.array(places)),
        )


class KeySessions(NamedTuple):
    """The stored state of some keys: their sessions, the number of each session, and the next alarm of each key."""

    sessions: Sessions
    nth: Ints
    alarms: Ints


class SessionWindows(BatchLogic):
    """Keeps a row for each session that is open or may be reopened; the sessions of a key are numbered by time.

    An epoch processes only keys that have new rows or whose alarm is due. A key has one alarm, for the time when its
    next session closes if no row comes before. If a row has come, the alarm is set again.
    """

    def __init__(self, setting: OperatorSetting, keys: Keys, aggregates: Aggregates, gap: int, lateness: int) -> None:
        self._keys = keys
        self._aggregates = aggregates
        self._gap = gap
        self._lateness = lateness
        self._time = setting.inputs[0].time or ""
        bits = setting.slot_bits
        #: each row also holds the number of sessions of the key, and the time of its alarm
        self._sessions = aggregates.frame(
            "sessions",
            keys.kinds,
            dict.fromkeys((_FIRST, _LAST, _COUNT, _ALARM), pa.int64()),
            subkeys={_NTH: pa.int64()},
            slot_bits=bits,
        )
        self._alarms = keys.timers("alarms", bits)
        self._progress = Progress(bits)
        self.containers = (self._sessions, self._alarms, self._progress.state)
        super().__init__(setting, *self.containers)
        self.evolution = aggregates.evolution(self._sessions.name)

    def compute(self, piece: Piece[pa.RecordBatch]) -> pa.RecordBatch | None:
        batch, due = self.rows(piece), self._alarms.pop(piece.watermark, piece.slots)
        previous = self._progress.reached(piece.slots)
        self._progress.advance(piece.slots, piece.watermark)
        if not len(batch) and not len(due):
            return None
        concerned = Frame("keys", self._keys.kinds, {}, slot_bits=0)
        rows = self._rows(concerned.locate(self._keys.of(batch)), batch)
        concerned.locate(self._keys.due(due))
        keys = self._keys.of(concerned.to_arrow())
        stored = self._stored(keys, len(concerned), piece.watermark)
        sessions = self._without_late(self._merged(keys, rows, stored.sessions), previous)
        ends = self._ends(sessions)
        out = (ends <= piece.watermark) & ((ends > previous) | (sessions.rows > 0))
        self._store(keys, sessions.at(np.flatnonzero(ends + self._lateness > piece.watermark)), stored, piece.watermark)
        return self._results(keys, sessions.at(np.flatnonzero(out)))

    def _ends(self, sessions: Sessions) -> Ints:
        """Returns the watermark that closes each session."""
        return sessions.last + (self._gap - 1)

    # --- parts of sessions --------------------------------------------------------------------------------------------

    def _rows(self, keys: Ints, batch: pa.RecordBatch) -> Sessions:
        with naming(self.setting.operator):
            times = event_times(batch.column(self._time))
        columns = self._aggregates.of_rows(batch)
        state = pa.record_batch([columns[name] for name in self._aggregates.kinds], names=list(self._aggregates.kinds))
        return Sessions(keys, times, times, np.ones(len(keys), np.int64), state)

    def _stored(self, keys: Columns, count: int, watermark: int) -> KeySessions:
        which, rows = self._located(keys, np.arange(count), 0)
        firsts = self._sessions.take(rows)
        held, alarm = (firsts.column(name).to_numpy() for name in (_COUNT, _ALARM))
        alarms = np.full(count, _NO_ALARM)
        alarms[which] = np.where(alarm > watermark, alarm, _NO_ALARM)
        others = [self._located(keys, which[held > nth], nth) for nth in range(1, int(held.max(initial=0)))]
        which = np.concatenate([which, *(which for which, _ in others)])
        stored = self._sessions.take(np.concatenate([rows, *(rows for _, rows in others)]))
        first, last, nth = (stored.column(name).to_numpy() for name in (_FIRST, _LAST, _NTH))
        state = stored.select(list(self._aggregates.kinds))
        return KeySessions(Sessions(which, first, last, np.zeros(len(which), np.int64), state), nth, alarms)

    def _located(self, keys: Columns, which: Ints, nth: int) -> tuple[Ints, Ints]:
        """Returns the keys that have an nth session, and its row."""
        rows = self._sessions.locate({**take(keys, which), _NTH: np.full(len(which), nth)}, create=False)
        return which[rows >= 0], rows[rows >= 0]

    # --- sessions -----------------------------------------------------------------------------------------------------

    def _merged(self, keys: Columns, rows: Sessions, stored: Sessions) -> Sessions:
        """Merges parts that are less than the gap apart; returns sessions sorted by key and time."""
        key, first, last, count = (np.concatenate([rows[at], stored[at]]) for at in range(4))
        parts = Sessions(key, first, last, count, pa.concat_batches([rows.state, stored.state]))
        parts = parts.at(np.lexsort((first, key)))
        session = _number(parts.key, parts.first, parts.last, self._gap)
        starts = np.flatnonzero(np.diff(session, prepend=-1))
        return Sessions(
            parts.key[starts],
            parts.first[starts],
            np.maximum.reduceat(parts.last, starts),
            np.add.reduceat(parts.rows, starts),
            self._folded(keys, parts, session, len(starts)),
        )

    def _folded(self, keys: Columns, parts: Sessions, session: Ints, count: int) -> pa.RecordBatch:
        """Returns the state of `count` sessions, folded from the states of their parts."""
        state = parts.state

        def key_at(part: int) -> dict[str, Any]:
            return {name: column[int(parts.key[part])].as_py() for name, column in keys.items()}

        folded = self._aggregates.frame("folded", {"session": pa.int64()}, slot_bits=0)
        folded.locate(np.arange(count))
        self._aggregates.fold(folded, session, dict(zip(state.schema.names, state.columns, strict=True)), key_at)
        return folded.to_arrow().select(state.schema.names)

    def _without_late(self, sessions: Sessions, previous: int) -> Sessions:
        """Drops sessions made of late rows only; sessions with stored parts can still change."""
        late = self._ends(sessions) + self._lateness <= previous
        if not late.any():
            return sessions
        self.counters["late"] += int(sessions.rows[late].sum())
        return sessions.at(np.flatnonzero(~late))

    # --- storing ------------------------------------------------------------------------------------------------------

    def _store(self, keys: Columns, sessions: Sessions, stored: KeySessions, watermark: int) -> None:
        """Replaces the sessions of keys, and sets their alarms."""
        counts = np.bincount(sessions.key, minlength=len(stored.alarms))
        old = stored.sessions.key
        gone = stored.nth >= counts[old]
        self._sessions.delete({**take(keys, old[gone]), _NTH: stored.nth[gone]})
        nth = np.arange(len(sessions.key)) - (np.cumsum(counts) - counts)[sessions.key]
        columns = {
            _FIRST: sessions.first,
            _LAST: sessions.last,
            _COUNT: counts[sessions.key],
            _ALARM: self._set_alarms(keys, sessions, stored.alarms, watermark)[sessions.key],
            **dict(zip(sessions.state.schema.names, sessions.state.columns, strict=True)),
        }
        self._sessions.put({**take(keys, sessions.key), _NTH: nth}, **columns)

    def _set_alarms(self, keys: Columns, sessions: Sessions, alarms: Ints, watermark: int) -> Ints:
        """Sets an alarm for the next change of each key's sessions, unless it has one; returns all alarms."""
        ends = self._ends(sessions)
        needed = np.full(len(alarms), _NO_ALARM)
        np.minimum.at(needed, sessions.key, np.where(ends > watermark, ends, ends + self._lateness))
        sooner = np.flatnonzero(needed < alarms)
        self._alarms.schedule_batch(needed[sooner], list(take(keys, sooner).values()))
        soonest: Ints = np.minimum(needed, alarms)
        return soonest

    def _results(self, keys: Columns, sessions: Sessions) -> pa.RecordBatch:
        kind = self.setting.output.field("window_start").type
        bounds = [times_column(times, kind) for times in (sessions.first, sessions.last + self._gap)]
        columns = [*take(keys, sessions.key).values(), *bounds, *self._aggregates.results(sessions.state)]
        return pa.record_batch(columns, schema=self.setting.output)


@kernel
def _number(key: Ints, first: Ints, last: Ints, gap: int) -> Ints:
    """Returns the number of the session of each part; the parts are sorted by key and time."""
    session, number, reach = np.empty(len(key), np.int64), -1, np.int64(0)
    for at in range(len(key)):
        if at == 0 or key[at] != key[at - 1] or first[at] - reach >= gap:
            number += 1
            reach = last[at]
        session[at] = number
        reach = max(reach, last[at])
    return session
