"""Timers: post-dated records and event-time timers per key, popped when the watermark reaches their time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import index
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from primitives.errors import UserError
from primitives.hashing import hash_keys
from primitives.slots import DEFAULT_SLOT_BITS, SlotSet, slots_of
from primitives.state.changes import Changes
from primitives.state.chunk import Chunk
from primitives.state.codec import Decode, Encode, ValueCodec
from primitives.state.columnar.fixed import CONVERSION_ERRORS
from primitives.state.columnar.runs import Runs, SortedRun, signatures
from primitives.state.keys import Column, Key, KeyColumns, same_rows, to_array
from primitives.state.numbered import NumberedRows, concatenated

_TIMES = range(-(2**63), 2**63)


class Timers(NumberedRows):
    """Records (time, key, value) that return when the watermark reaches their time; a timer is one without value.

    Times are int64 event time in any unit. Records of one time and key keep the order in which they were scheduled; a
    third identifying column, `seq`, numbers them. Keys, values and their encoding are as in `Values`.

    >>> timers = Timers("windows", keys={"user": pa.int64()}, value=pa.string())
    >>> timers.schedule(20, 7, "late")
    >>> timers.schedule_batch([10, 10, 30], [[2, 1, 3]])
    >>> due = timers.pop(20)
    >>> due.column("user").to_pylist()
    [1, 2, 7]
    >>> list(timers.records(due))
    [(10, 1, None), (10, 2, None), (20, 7, 'late')]

    Vectorised operators use `schedule_batch` and the columns of `pop`; what is scheduled and cancelled
    one by one is collected and takes effect as a batch when the timers are next looked at. Each row costs its share of
    a sort when it comes, a few merges while it waits (see `Runs`), and its share of a sort when it is due.
    """

    def __init__(
        self,
        name: str,
        keys: Mapping[str, pa.DataType],
        *,
        slot_bits: int = DEFAULT_SLOT_BITS,
        value: pa.DataType | None = None,
        encode: Encode | None = None,
        decode: Decode | None = None,
        version: int = 0,
    ) -> None:
        self.name = name
        self.slot_bits = slot_bits
        self.version = version
        self._keys = KeyColumns(name, slot_bits, keys, reserved=["time", "seq", "value"])
        self._codec = ValueCodec(name, value, encode, decode)
        self._takes_objects = value is None or encode is not None
        self._identity = pa.schema([pa.field("time", pa.int64()), *self._keys.fields, pa.field("seq", pa.int64())])
        self._schema = self._identity.append(pa.field("value", self._codec.type))
        self._next_seq = 0
        self._runs = Runs()
        self._changes = Changes(name, list)
        self._batches: list[pa.RecordBatch] = []  #: scheduled but not yet in the runs
        self._singles: list[tuple[int, Key, int, Any]] = []  #: the same, one by one: time, key, seq, stored value
        self._cancelled: list[tuple[int, Key, int]] = []  #: to be cancelled in the runs: time, key, first seq kept

    # --- scheduling ---------------------------------------------------------------------------------------------------

    def schedule(self, time: int, key: Any, value: Any = None) -> None:
        """Adds one record, or a timer if there is no value."""
        stored, normal = self._codec.checked(value, lambda: key), self._keys.normal(key)
        if self.owned is not None:
            self.owned.check_key(self.name, self._keys.hash(normal), normal)
        self._singles.append((self._checked_time(time), normal, self._take_seqs(1), stored))

    def schedule_batch(self, times: Column, keys: Sequence[Column], values: Column | None = None) -> None:
        """Adds a record for each of `times`; `keys` has one column per key column, in the declared order.

        `values` is a column of the declared type; or a sequence of Python objects, if there is no type or there is an
        `encode`.
        """
        times = self._time_column(times)
        count = len(times)
        key_columns = self._keys.normal_columns(keys, count)
        self._keys.check_owned(self.owned, key_columns)
        value_column = self._value_column(values, key_columns, count)
        seqs = pa.array(np.arange(count) + self._take_seqs(count))
        self._batches.append(pa.record_batch([times, *key_columns, seqs, value_column], schema=self._schema))

    def cancel(self, time: int, key: Any) -> None:
        """Removes the records scheduled so far, if any, for one time and key."""
        self._cancelled.append((self._checked_time(time), self._keys.normal(key), self._next_seq))

    def _take_seqs(self, count: int) -> int:
        self._next_seq += count
        return self._next_seq - count

    def _checked_time(self, time: Any) -> int:
        number = index(time) if hasattr(time, "__index__") else None
        if number is None or number not in _TIMES:
            raise UserError(f"time {time!r} of state '{self.name}' is not a 64-bit integer")
        return number

    def _time_column(self, times: Column) -> pa.Array:
        try:
            column = to_array(times, pa.int64())
        except CONVERSION_ERRORS as reason:
            raise UserError(f"the times given to state '{self.name}' are not 64-bit integers: {reason}") from reason
        if column.null_count:
            raise UserError(f"{column.null_count} of the times given to state '{self.name}' are null; filter them out")
        return column

    def _value_column(self, values: Column | None, keys: list[pa.Array], count: int) -> pa.Array:
        if values is None:
            return pa.nulls(count, self._codec.type)
        if len(values) != count:
            raise UserError(f"state '{self.name}' was given {count} times, but {len(values)} values")
        if self._takes_objects:
            return self._codec.column(values, lambda at: self._keys.from_columns([key.slice(at, 1) for key in keys])[0])
        try:
            return to_array(values, self._codec.type)
        except CONVERSION_ERRORS as reason:
            raise UserError(f"the values given to state '{self.name}' are not {self._codec.type}: {reason}") from reason

    def _settle(self) -> None:
        """Applies to the runs what was scheduled and cancelled since the last call."""
        if self._singles:
            self._batches.append(self._single_rows())
            self._singles = []
        if self._batches:
            self._add(pa.concat_batches(self._batches))
            self._batches = []
        if self._cancelled:
            times, keys, ends = zip(*self._cancelled, strict=True)
            wanted = pa.record_batch(
                [pa.array(times, pa.int64()), *self._keys.to_columns(keys)], self._identity.names[:-1]
            )
            self._remove_same(wanted, np.array(ends))
            self._runs.tidy()
            self._cancelled = []

    def _single_rows(self) -> pa.RecordBatch:
        times, keys, seqs, values = zip(*self._singles, strict=True)
        columns = [times, *self._keys.to_columns(keys), seqs, values]
        return pa.record_batch(
            [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)],
            schema=self._schema,
        )

    def _add(self, rows: pa.RecordBatch) -> None:
        self._runs.add(rows, self._hashes(rows), np.full(len(rows), self._last_mark))

    def _hashes(self, batch: pa.RecordBatch) -> NDArray[np.uint64]:
        return hash_keys([batch.column(name) for name in self._keys.names])

    def _remove_same(self, wanted: pa.RecordBatch, ends: NDArray[np.int64] | None = None) -> None:
        """Removes the rows that equal a row of `wanted` in its columns, and whose seq is below its end, if given."""
        if not len(wanted):
            return
        searched = signatures(wanted.column("time").to_numpy(), self._hashes(wanted))
        order = np.argsort(searched)
        for run in self._runs:
            positions, which = run.find(searched[order])
            if not len(positions):
                continue
            which = order[which]
            rows = run.rows.take(pa.array(positions))
            same = same_rows(rows.select(wanted.schema.names).columns, wanted.take(pa.array(which)).columns)
            if ends is not None:
                same &= rows.column("seq").to_numpy() < ends[which]
            self._remove(run, np.unique(positions[same]))

    def _remove(self, run: SortedRun, positions: NDArray[np.intp]) -> None:
        """Removes rows of a run, and logs those that existed at the last mark."""
        self._log_removed(positions, run.born, run.hashes, run.take)
        run.remove(positions)

    def _slots(self, hashes: NDArray[np.uint64]) -> NDArray[np.uint32]:
        return slots_of(hashes, self.slot_bits)

    # --- popping ------------------------------------------------------------------------------------------------------

    def pop(self, watermark: int, slots: SlotSet | None = None) -> pa.RecordBatch:
        """Removes the records up to and including a time, in all or some slots, and returns them.

        The columns are time, the keys, and value. The order is by time, key (nulls last), and order of scheduling.
        Costs the returned records, and the due ones in other slots, which are skipped.
        """
        self._settle()
        mask = None if slots is None else slots.mask(self.slot_bits)
        due = []
        for run in self._runs:
            positions = run.due(watermark)
            if mask is not None:
                positions = positions[mask[self._slots(run.hashes[positions])]]
            if len(positions):
                due.append(run.take(positions))
                self._remove(run, positions)
        self._runs.tidy()
        return self._in_order(due).select(["time", *self._keys.names, "value"])

    def _in_order(self, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """The rows of parts that are sorted by time, sorted by identity."""
        rows = concatenated(parts, self._schema)
        if len(parts) > 1:
            rows = rows.take(pa.array(np.argsort(rows.column("time").to_numpy(), kind="stable")))
        by_identity = [(name, "ascending") for name in self._identity.names]
        # Sorting rows that are sorted by time already costs little; Arrow sorts tables of one chunk faster than
        # batches.
        return rows.take(pc.sort_indices(pa.Table.from_batches([rows]), sort_keys=by_identity))

    def records(self, popped: pa.RecordBatch) -> Iterator[tuple[int, Key, Any]]:
        """Returns time, key and value of each row that `pop` returned, as Python objects."""
        times = popped.column("time").to_pylist()
        keys = self._keys.from_columns(popped.columns[1:-1])
        return zip(times, keys, self._codec.values(popped.column("value")), strict=True)

    # --- a State ------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        self._settle()
        return len(self._runs)

    def mark(self, epoch: int) -> None:
        """See `State.mark`."""
        self._settle()
        super().mark(epoch)

    def snapshot(self, slots: SlotSet, since: int | None = None) -> Chunk:
        """See `State.snapshot`. Costs a look at the slot or age of every row, and the rows in the chunk."""
        self._settle()

        def written(replaced: SlotSet) -> pa.RecordBatch:
            parts = [run.take(self._written(run, slots, replaced, since)) for run in self._runs]
            return concatenated(parts, self._schema)

        return self._chunk(slots, since, written)

    def _written(self, run: SortedRun, slots: SlotSet, replaced: SlotSet, since: int | None) -> NDArray[np.intp]:
        """Returns positions of the rows of a run in some slots: written since a mark, or in replaced slots."""
        written = np.zeros(len(run.alive), np.bool_) if since is None else run.born >= since
        if replaced:
            written |= replaced.mask(self.slot_bits)[self._slots(run.hashes)]
        positions = run.where(written)
        return positions[slots.mask(self.slot_bits)[self._slots(run.hashes[positions])]]

    def restore(self, chunks: Iterable[Chunk]) -> None:
        """See `State.restore`. Costs the rows of the chunks, and as much as `drop`."""
        for chunk in chunks:
            self._clear_for(chunk)
            self._runs.tidy()
            self._add(chunk.rows)
            self._next_seq = max(self._next_seq, (pc.max(chunk.rows.column("seq")).as_py() or 0) + 1)

    def drop(self, slots: SlotSet) -> None:
        """See `State.drop`. Costs a look at the slot of every row."""
        self._settle()
        mask = slots.mask(self.slot_bits)
        for run in self._runs:
            run.remove(run.where(mask[self._slots(run.hashes)]))
        self._runs.tidy()
        self._changes.replace(slots)

    def size(self, slots: SlotSet | None = None) -> int:
        """See `State.size`. Counts all rows of a run as equally large."""
        self._settle()
        mask = np.ones(1 << self.slot_bits, np.bool_) if slots is None else slots.mask(self.slot_bits)
        return sum(
            run.rows.nbytes * len(run.where(mask[self._slots(run.hashes)])) // len(run.alive) for run in self._runs
        )

    def changed(self, since: int) -> int:
        """See `State.changed`."""
        self._settle()
        full, replaced = SlotSet.full(self.slot_bits), self._changes.replaced_since(since)
        written = sum(len(self._written(run, full, replaced, since)) for run in self._runs)
        return written + sum(map(len, self._removed(full - replaced, since)))
