"""Frame: columnar state over a vectorised hash index; the container for throughput."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from primitives.errors import Damaged, UserError
from primitives.slots import DEFAULT_SLOT_BITS, SlotSet, check_slot_bits, slots_of
from primitives.state.changes import Changes, Tracked
from primitives.state.chunk import Chunk
from primitives.state.columnar.bitmap import Bitmap, common_rows, count_common
from primitives.state.columnar.columns import DeclaredColumns
from primitives.state.columnar.fixed import Selection, row_numbers
from primitives.state.columnar.folds import Overflow
from primitives.state.columnar.index import Index, Located
from primitives.state.columnar.probe import Probe
from primitives.state.columnar.row_slots import RowSlots
from primitives.state.columnar.table import RowTable
from primitives.state.container import check_fits

Rows = NDArray[np.int64]
Keys = Any  # a RecordBatch, Table or mapping with the key columns, or the only key column itself

#: Number of rows by which `size` estimates all.
_SAMPLE = 64

#: A frame with more row numbers than this is compacted, which blocks it, only when less than one in `_SPARSE` is a row.
_WORTH_COMPACTING, _SPARSE = 1 << 16, 4

#: Number of rows that are restored at a time.
_PART = 1 << 16

#: Rows of slots count as few if they are less than one in this number.
_FEW = 8

#: If most of this many rows have changed, a delta is a full snapshot, so that the reader can drop earlier chunks.
_WORTH_A_WHOLE = 1 << 12

_NO_ROWS = np.empty(0, np.int64)


class InPlace(NamedTuple):
    """The place of a frame's values in memory: column c of row r is `words[r * width + first + c]`.

    A column narrower than 64 bits is the low bytes of its word, and the others are zero. All words of numbers below
    `end` that are no rows are zero.
    """

    words: NDArray[np.int64]
    width: int
    first: int
    rows: Rows  #: the requested rows
    end: int  #: one more than the highest row number


@dataclass(slots=True)
class _Log:
    """The log of an interval."""

    written: Bitmap = field(default_factory=Bitmap)
    deleted: list[list[pa.Array]] = field(default_factory=list)  #: key columns


class Frame(Tracked[_Log]):
    """A table of rows by key, read and written in batches; knows slots, and what changed since a marked epoch.

    Keys and values are columns of numbers, decimals, bools, times, dates, strings or binaries; null is a key like any
    other. A new row holds the `defaults` of its columns: if none is given, zero in a column of numbers or durations,
    false, or else null.

    Every method that takes keys takes a RecordBatch, Table or mapping with the key columns by name (others are left
    alone), or the key column itself if there is only one. A value column is an Arrow or NumPy array, a sequence, or one
    value for all rows. Where a key occurs more than once in a batch, its rows take effect in order.

    To address rows by number is faster if they are used repeatedly. A row keeps its number until it is deleted, or
    until `restore`, `drop` or `mark`, which may number all anew: so use numbers within an epoch.

    Subkeys identify a row too, but have no say in its slot: so a key can have several rows, and they move together.

    Rows are in no order that could be relied on: it depends on the past, not only on the content.

    >>> counts = Frame("counts", keys={"id": pa.int64()}, values={"n": pa.int64()})
    >>> rows = counts.add([7, 9, 7], n=1)
    >>> counts.column("n")[rows].tolist()
    [2, 1, 2]
    >>> values, found = counts.get([9, 8])
    >>> values.to_pydict(), found.tolist()
    ({'n': [1, None]}, [True, False])
    """

    def __init__(
        self,
        name: str,
        keys: Mapping[str, pa.DataType],
        values: Mapping[str, pa.DataType],
        *,
        subkeys: Mapping[str, pa.DataType] | None = None,
        slot_bits: int = DEFAULT_SLOT_BITS,
        defaults: Mapping[str, Any] | None = None,
        version: int = 0,
    ) -> None:
        self.name = name
        self.slot_bits = check_slot_bits(slot_bits)
        self.version = version
        self._slot_keys = tuple(keys)
        self._declared = DeclaredColumns(name, keys, values, defaults or {}, subkeys or {})
        self._table = self._new_table(self._declared.values.types, self._declared.defaults)
        self._columns = dict(zip(values, self._table.values, strict=True))
        self._index = Index(self._table)
        self._slots = RowSlots(slot_bits)
        self._changes = Changes(name, _Log)

    # --- by key -------------------------------------------------------------------------------------------------------

    def locate(self, keys: Keys, *, create: bool = True) -> Rows:
        """The row number of each key; with `create` every key gets a row, otherwise those without one give -1."""
        return self._create(self._declared.keys_from(keys)) if create else self._find(keys)

    def locate_new(self, keys: Keys) -> tuple[Rows, Rows]:
        """Works like `locate`, and also returns the positions in `keys` of those that got a new row.

        >>> seen = Frame("seen", keys={"id": pa.int64()}, values={})
        >>> rows, new = seen.locate_new([7, 9, 7])
        >>> rows.tolist(), new.tolist()
        ([0, 1, 0], [0, 1])
        """
        located = self._located(self._declared.keys_from(keys))
        return located.rows, located.created

    def put(self, keys: Keys, /, **values: Any) -> Rows:
        """Writes the given columns of the rows of keys, which are created if necessary; returns their numbers.

        >>> names = Frame("names", keys={"id": pa.int64()}, values={"name": pa.string(), "age": pa.int32()})
        >>> _ = names.put({"id": [1, 2]}, name=["Ada", None])
        >>> names.to_arrow().to_pylist()
        [{'id': 1, 'name': 'Ada', 'age': 0}, {'id': 2, 'name': None, 'age': 0}]
        """
        rows, columns = self._open(keys, values)
        for name, column in columns.items():
            self._assign(name, rows, column)
        return rows

    def reserve(self, rows: int) -> None:
        """Announces this many new rows, which makes adding them cheaper."""
        self._index.make_room(rows)

    def append(self, rows: pa.RecordBatch) -> None:
        """Adds whole rows with new keys; several times as fast as `put`.

        >>> names = Frame("names", keys={"id": pa.int64()}, values={"age": pa.int32()})
        >>> names.append(pa.record_batch({"id": [1, 2], "age": pa.array([7, 9], pa.int32())}))
        >>> len(names)
        2
        """
        if self._puts_only:
            self._put(rows)
            return
        for start in range(0, len(rows), _PART):
            part = rows.slice(start, _PART)
            if (count := self._append(part, self._table.probe(self._declared.keys_from(part)))) < len(part):
                key = self._key(part, count)
                raise UserError(f"state '{self.name}' is to append a row with the key {key}, which has one; use put")

    def add(self, keys: Keys, /, **values: Any) -> Rows:
        """Adds to columns of the rows of keys, which are created if necessary; returns their numbers.

        Only columns of 64 bits and decimals can be added to. A sum beyond its type raises `Overflow`, with the key;
        then all rows have been added, and such sums have wrapped around. Adding a null changes nothing, and null plus a
        number is that number; the same holds for `min` and `max`.
        """
        return self._fold("add", keys, values)

    def min(self, keys: Keys, /, **values: Any) -> Rows:
        """Lowers columns to the given values if these are less; NaN is greater than any number.

        Such columns should have None as their default, so that the first value is always taken.

        >>> low = Frame("low", keys={"id": pa.int64()}, values={"price": pa.float64()}, defaults={"price": None})
        >>> _ = low.min([1, 1, 2], price=[5.0, 3.0, 9.0])
        >>> low.to_arrow()["price"].to_pylist()
        [3.0, 9.0]
        """
        return self._fold("min", keys, values)

    def max(self, keys: Keys, /, **values: Any) -> Rows:
        """Raises columns to the given values if these are greater; otherwise as `min`."""
        return self._fold("max", keys, values)

    def get(self, keys: Keys) -> tuple[pa.RecordBatch, NDArray[np.bool_]]:
        """Returns the values of keys, null for a key without a row, and which keys have a row."""
        rows = self._find(keys)
        found = rows >= 0
        values = self._table.to_arrow(self._table.values, np.maximum(rows, 0))
        if not found.all():
            values = [pc.if_else(pa.array(found), array, pa.scalar(None, array.type)) for array in values]
        return pa.record_batch(values, schema=self._declared.values), found

    def delete(self, keys: Keys) -> int:
        """Deletes the rows of keys; returns the number of deleted rows."""
        return self._delete_rows(self._index.distinct(self._find(keys)))

    def _delete_rows(self, rows: Rows) -> int:
        interval = self._changes.current
        if interval is not None and len(rows):
            interval.log.deleted.append(self._table.to_arrow(self._table.keys, rows))
        self._slots.remove(rows)
        self._index.remove(rows)
        return len(rows)

    # --- by row number ------------------------------------------------------------------------------------------------

    def column(self, name: str) -> ColumnView:
        """Returns a view of a value column, to read and write it by row number."""
        self._declared.check_value(name)
        return ColumnView(self, name)

    def take(self, rows: Rows) -> pa.RecordBatch:
        """Keys and values of rows."""
        return self._batch(self._checked(rows))

    def delete_rows(self, rows: Rows) -> int:
        """Deletes rows by number; returns the number of deleted rows."""
        return self._delete_rows(self._index.distinct(self._checked(rows)))

    def in_place(self, rows: Rows) -> InPlace:
        """Returns the place of the value columns in memory, for compiled code that reads and writes the given rows.

        It costs a fraction of views of several columns, as each row is waited for once. Use it at once: the next call
        of any other method may move everything. Only columns of numbers without nulls can be used.

        >>> totals = Frame("totals", keys={"id": pa.int64()}, values={"n": pa.int64(), "sum": pa.int64()})
        >>> place = totals.in_place(totals.locate([7, 9]))
        >>> place.words[place.rows[1] * place.width + place.first + 1] = 30  # column 1 of the row of 9
        >>> totals.get([9])[0].to_pylist()
        [{'n': 0, 'sum': 30}]
        """
        checked = self._checked(rows)
        self._touch(checked)
        words, width, first = self._table.value_words()
        return InPlace(words, width, first, checked, self._index.end)

    def __len__(self) -> int:
        return len(self._index)

    def to_arrow(self, slots: SlotSet | None = None) -> pa.RecordBatch:
        """A copy of all rows, or of those in `slots`."""
        return self._batch(self._index.rows if slots is None else self._rows_in(slots))

    def rows_per_slot(self) -> NDArray[np.int64]:
        """How many rows each slot holds; costs no look at the rows."""
        return self._slots.counts.copy()

    # --- a State ------------------------------------------------------------------------------------------------------

    def mark(self, epoch: int) -> None:
        """See `State.mark`."""
        if self._is_sparse(len(self._index)):
            self._compact(_NO_ROWS)
        super().mark(epoch)

    def snapshot(self, slots: SlotSet, since: int | None = None) -> Chunk:
        """See `State.snapshot`.

        A full snapshot costs a copy, and for some of the slots a look at the slot of each row too. With `since`, it
        costs a bit per row and a copy of the written rows. If these are most of many rows, the snapshot is full.
        """
        if since is None:
            return self._chunk(slots, self._rows_in(slots), self._no_keys())
        replaced = self._changes.replaced_since(since)
        kept = slots - replaced
        written = self._written_in(kept, since)
        if written is None:
            return self.snapshot(slots)
        whole = row_numbers(self._rows_in(slots & replaced))  # written or not
        rows = np.concatenate([written, whole]) if len(whole) else written
        return self._chunk(replaced, rows, self._deleted_since(since, kept))

    def restore(self, chunks: Iterable[Chunk]) -> None:
        """See `State.restore`. Rows of slots that hold none yet cost a third of what others do."""
        for chunk in chunks:
            check_fits(chunk, self, self.version, self._slot_keys, self._declared.all)
            self.drop(chunk.replaced)
            self.delete(chunk.deleted)
            if self._puts_only:
                self._put(chunk.rows)
            else:
                self._upsert(chunk.rows)

    @property
    def _puts_only(self) -> bool:
        """Whether a subclass does more than write rows when they are put, such as to keep a budget of memory."""
        return type(self).put is not Frame.put

    def _put(self, rows: pa.RecordBatch) -> None:
        self.put(rows, **{name: rows[name] for name in self._columns})

    def _upsert(self, rows: pa.RecordBatch) -> None:
        """Puts distinct rows, some at a time, so that intermediate results stay in the cache."""
        held = self._slots.counts > 0
        self._index.make_room(len(rows))
        for start in range(0, len(rows), _PART):
            part = rows.slice(start, _PART)
            probe = self._table.probe(self._declared.keys_from(part))
            if held[slots_of(probe.hashes, self.slot_bits)].any():
                self._put(part)
            elif (count := self._append(part, probe)) < len(part):
                raise Damaged(
                    f"what is restored into state '{self.name}' has two rows with the key {self._key(part, count)}, so "
                    "it is not what was written; restore another copy, or an earlier checkpoint"
                )

    def _key(self, rows: pa.RecordBatch, at: int) -> dict[str, Any]:
        key: dict[str, Any] = rows.select(self._declared.keys.names).slice(at, 1).to_pylist()[0]
        return key

    def _append(self, part: pa.RecordBatch, probe: Probe) -> int:
        """Adds rows in order, up to the first whose key exists already; returns their number."""
        rows = self._index.append(probe)
        count: int = rows.stop - rows.start
        numbers = row_numbers(rows)
        self._slots.add(numbers, probe.hashes[:count])
        for name, column in self._columns.items():
            self._table.assign(column, rows, part[name].slice(0, count))
        self._touch(numbers)
        return count

    def drop(self, slots: SlotSet) -> None:
        """See `State.drop`. Costs a look at the slot of each row, unless the slots are empty."""
        self._changes.replace(slots)
        self._remove_slots(slots)

    def drop_in_parts(self, slots: SlotSet, parts: int) -> Iterator[None]:
        """See `State.drop_in_parts`.

        Each part has neighbouring rows, which costs less than the rows of a slot. The last part searches for rows that
        were renumbered meanwhile.
        """
        if self._puts_only:
            yield from super().drop_in_parts(slots, parts)
            return
        for part in range(1, parts):
            self._changes.replace(slots)
            rows = self._slots.rows_in(slots, self._index.end * part // parts, self._index.end * (part - 1) // parts)
            rows = rows[self._index.live.holds(rows)]
            self._slots.remove(rows)
            self._index.remove(rows)
            yield
        self.drop(slots)
        yield

    def _remove_slots(self, slots: SlotSet) -> None:
        rows = row_numbers(self._rows_in(slots))
        self._slots.clear(slots)
        if self._is_sparse(len(self._index) - len(rows)):
            self._compact(rows)
        else:
            self._index.remove(rows)

    def size(self, slots: SlotSet | None = None) -> int:
        """See `State.size`. Extrapolates from a few rows."""
        held = len(self._index)
        count = held if slots is None else self._slots.count_in(slots)
        rows = self._index.rows
        sample = rows[:_SAMPLE] if isinstance(rows, np.ndarray) else slice(0, min(_SAMPLE, rows.stop))
        return count * int(self._batch(sample).nbytes) // min(_SAMPLE, held) if count else 0

    def changed(self, since: int) -> int:
        """See `State.changed`."""
        kept = SlotSet.full(self.slot_bits) - self._changes.replaced_since(since)
        return len(self._written_since(since)) + len(self._deleted_since(since, kept)[0])

    # --- rows that are stored elsewhere for a while
    # ---------------------------------------------------------------------

    def evict(self, slots: SlotSet) -> None:
        """Removes the rows of slots that are stored elsewhere from now on; this does not count as a change."""
        self._unlog(row_numbers(self._rows_in(slots)))
        self._remove_slots(slots)

    def admit(self, rows: pa.RecordBatch, written: Mapping[int, pa.RecordBatch] = MappingProxyType({})) -> None:
        """Adds rows that were evicted; `written` has the keys of rows changed since a mark, by mark."""
        numbers = self._number(rows)
        for name, column in self._columns.items():
            self._table.assign(column, numbers, rows[name])
        for mark, batch in written.items():
            changed = self._find(batch)
            self._changes.since(mark)[0].log.written.add(changed[changed >= 0])

    def _number(self, rows: pa.RecordBatch) -> Rows:
        """Creates rows for new keys without logging them; the logs may still have entries of their numbers."""
        located = self._index.locate(self._declared.keys_from(rows), create=True)
        self._slots.add(located.rows[located.created], located.hashes[located.created])
        self._unlog(located.rows)
        return located.rows

    def _unlog(self, rows: Rows) -> None:
        for mark in self.marks[:1]:
            for interval in self._changes.since(mark):
                interval.log.written.discard(rows)

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _new_table(self, values: Sequence[pa.DataType] = (), defaults: Sequence[pa.Scalar] = ()) -> RowTable:
        return RowTable(self._declared.keys.types, values, defaults, slot_keys=len(self._slot_keys))

    def _located(self, columns: Sequence[pa.Array]) -> Located:
        """Returns the rows of keys, which are all created if necessary."""
        located = self._index.locate(columns, create=True)
        rows = located.rows[located.created]
        if len(rows):
            if self.owned is not None:
                new = located.created
                self.owned.check(self.name, located.hashes[new], lambda at: _key_at(columns, int(new[at])))
            self._slots.add(rows, located.hashes[located.created])
            self._touch(rows)
        return located

    def _create(self, columns: Sequence[pa.Array]) -> Rows:
        return self._located(columns).rows

    def _find(self, keys: Keys) -> Rows:
        """Returns the row of each key, or -1."""
        return self._index.locate(self._declared.keys_from(keys), create=False).rows

    def _open(self, keys: Keys, values: Mapping[str, Any]) -> tuple[Rows, dict[str, pa.Array]]:
        """Returns the rows of keys, created if necessary and marked as written, and the given values as arrays."""
        key_columns = self._declared.keys_from(keys)
        count = len(key_columns[0])
        columns = {name: self._declared.value_from(name, given, count) for name, given in values.items()}
        rows = self._create(key_columns)
        self._touch(rows)
        return rows, columns

    def _fold(self, fold: str, keys: Keys, values: Mapping[str, Any]) -> Rows:
        for name in values:
            self._declared.check_fold(name, fold)
        rows, columns = self._open(keys, values)
        for name, column in columns.items():
            self._combine(fold, name, rows, column)
        return rows

    def _fold_rows(self, fold: str, name: str, rows: Rows, values: Any) -> None:
        self._declared.check_fold(name, fold)
        checked = self._checked(rows)
        column = self._declared.value_from(name, values, len(checked))
        self._touch(checked)
        self._combine(fold, name, checked, column)

    def _combine(self, fold: str, name: str, rows: Rows, values: pa.Array) -> None:
        beyond = self._table.fold(self._columns[name], fold, rows, values)
        if len(beyond):
            key = self._key(self._batch(rows[beyond[:1]]), 0)
            raise Overflow(self.name, self._declared.values.field(name), key, beyond)

    def _assign(self, name: str, rows: Rows, values: pa.Array) -> None:
        self._table.assign(self._columns[name], rows, values)
        self._table.tidy(lambda: self._index.rows)

    def _touch(self, rows: Rows) -> None:
        interval = self._changes.current
        if interval is not None:
            interval.log.written.add(rows)

    def _is_sparse(self, rows: int) -> bool:
        """Whether to renumber all rows if this many are left."""
        return self._index.end > max(_SPARSE * rows, _WORTH_COMPACTING)

    def _compact(self, without: Rows) -> None:
        """Removes rows, renumbers the others without gaps, and frees memory."""
        rows = self._index.compact(without)
        self._slots.keep(rows)
        for mark in self.marks[:1]:
            for interval in self._changes.since(mark):
                interval.log.written.renumber(rows)

    # --- slots and changes --------------------------------------------------------------------------------------------

    def _is_most(self, written: int, there: int) -> bool:
        return not self._puts_only and there >= _WORTH_A_WHOLE and 2 * written > there

    def _rows_in(self, slots: SlotSet) -> Selection:
        count = self._slots.count_in(slots)
        if count in (0, len(self._index)):
            return self._index.rows if count else _NO_ROWS
        rows = self._slots.rows_in(slots, self._index.end)
        return rows if len(rows) == count else rows[self._index.live.holds(rows)]

    def _written_in(self, slots: SlotSet, since: int) -> Rows | None:
        """Returns the written rows of slots; None if these are most of many."""
        there = self._slots.count_in(slots)
        if there == len(self._index):  # known without a list of them
            is_most = self._is_most(count_common(self._index.live, self._logs_since(since)), there)
            return None if is_most else self._written_since(since)
        is_few = _FEW * there < len(self._index)  # so these are checked, or else the written ones
        written = self._written_among(slots, since) if is_few else self._slots.within(slots, self._written_since(since))
        return None if self._is_most(len(written), there) else written

    def _written_among(self, slots: SlotSet, since: int) -> Rows:
        rows = row_numbers(self._rows_in(slots))
        logs = [written.holds(rows) for written in self._logs_since(since)]
        return rows[np.logical_or.reduce(logs)] if logs else _NO_ROWS

    def _written_since(self, since: int) -> Rows:
        return common_rows(self._index.live, self._logs_since(since))

    def _logs_since(self, since: int) -> list[Bitmap]:
        return [interval.log.written for interval in self._changes.since(since)]

    def _deleted_since(self, since: int, slots: SlotSet) -> list[pa.Array]:
        """Returns the keys in `slots` that were deleted and not created again, each once."""
        logged = [keys for interval in self._changes.since(since) for keys in interval.log.deleted]
        if not logged:
            return self._no_keys()
        columns = [pa.concat_arrays(arrays) for arrays in zip(*logged, strict=True)]
        distinct = Index(self._new_table()).locate(columns, create=True)
        gone = self._index.locate(columns, create=False).rows[distinct.created] < 0
        mine = slots.mask(self.slot_bits)[slots_of(distinct.hashes[distinct.created], self.slot_bits)]
        return [column.take(pa.array(distinct.created[gone & mine])) for column in columns]

    # --- batches ------------------------------------------------------------------------------------------------------

    def _batch(self, rows: Selection) -> pa.RecordBatch:
        columns = [*self._table.keys, *self._table.values]
        return pa.record_batch(self._table.to_arrow(columns, rows), schema=self._declared.all)

    def _chunk(self, replaced: SlotSet, rows: Selection, deleted: Sequence[pa.Array]) -> Chunk:
        gone = pa.record_batch(deleted, schema=self._declared.keys)
        return self._chunk_of(self._slot_keys, replaced, self._batch(rows), gone)

    def _no_keys(self) -> list[pa.Array]:
        return [pa.array([], kind) for kind in self._declared.keys.types]

    def _checked(self, rows: Rows) -> Rows:
        numbers = np.asarray(rows)
        if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
            raise UserError(f"row numbers of state '{self.name}' are a list of integers; got {rows!r}")
        numbers = numbers.astype(np.int64)  # a plain copy, as compiled code is made for one type of array
        held = self._index.live.holds(numbers)
        if not held.all():
            raise UserError(
                f"state '{self.name}' has no row {numbers[~held][0]}: rows are numbered by locate, put and the like, "
                "-1 stands for a key without a row, and a row that was deleted has no number"
            )
        return numbers


def _key_at(columns: Sequence[pa.Array], row: int) -> Any:
    values = tuple(column[row].as_py() for column in columns)
    return values if len(values) > 1 else values[0]


class ColumnView:
    """A value column of a frame by row number: read with `view[rows]`, write with `view[rows] = values`, or fold.

    >>> best = Frame("best", keys={"id": pa.int64()}, values={"score": pa.int64()})
    >>> score, rows = best.column("score"), best.locate([7, 9])
    >>> score[rows] = score[rows] + [10, 20]
    >>> score[rows].tolist()
    [10, 20]
    """

    __slots__ = ("_frame", "_name")

    def __init__(self, frame: Frame, name: str) -> None:
        self._frame = frame
        self._name = name

    def __getitem__(self, rows: Rows) -> NDArray[Any]:
        """Returns a copy of the values of rows, as Arrow converts them: integers with a null become floats."""
        values: NDArray[Any] = self.to_arrow(rows).to_numpy(zero_copy_only=False)
        return values

    def __setitem__(self, rows: Rows, values: Any) -> None:
        """Writes the values of rows, in order."""
        checked = self._frame._checked(rows)
        column = self._frame._declared.value_from(self._name, values, len(checked))
        self._frame._touch(checked)
        self._frame._assign(self._name, checked, column)

    def fold(self, fold: str, rows: Rows, values: Any) -> None:
        """Combines the values of rows, in order, with others: `add`, `min` or `max`, as the frame's methods do.

        Or `add_wrapping`, where sums of integers wrap around at 64 bits.

        >>> prices = Frame("prices", keys={"id": pa.int64()}, values={"low": pa.int64()}, defaults={"low": None})
        >>> low, rows = prices.column("low"), prices.locate([7, 9, 7])
        >>> low.fold("min", rows, [5, 6, 3])
        >>> low[rows].tolist()
        [3, 6, 3]
        """
        self._frame._fold_rows(fold, self._name, rows, values)

    def to_arrow(self, rows: Rows) -> pa.Array:
        """Returns a copy of the values of rows."""
        column = self._frame._columns[self._name]
        return self._frame._table.to_arrow([column], self._frame._checked(rows))[0]


def warm_up() -> None:
    """Compiles the kernels of frames, or loads them from Numba's cache, so that the first batch need not wait."""
    values = {"n": pa.int64(), "x": pa.float64(), "s": pa.string()}
    for keys in ({"k": pa.int64()}, {"k": pa.int64(), "t": pa.string()}):
        frame = Frame("warm up", keys, values)
        given = {"k": [1, 2], "t": ["a", "b" * 20]}
        frame.mark(0)
        frame.add(given, n=1, x=1.0)
        frame.put(given, s="long" * 50_000)
        frame.put(given, s="short")  # makes enough garbage to rewrite the heap
        frame.delete({"k": [2], "t": ["b" * 20]})
        frame.column("n")[frame.locate(given)] = 3
        chunks = [frame.snapshot(SlotSet.full(frame.slot_bits), since) for since in (None, 0)]
        chunks[0].select(SlotSet([0]))
        frame.restore(chunks)
        frame._slots.rows_in(SlotSet([0]), frame._index.end)
        frame._compact(_NO_ROWS)
    _warm_up_folds()


def _warm_up_folds() -> None:
    """Compiles the kernels for sums of other types, such as decimals, and for minima of floats."""
    price = pa.decimal128(9, 2)
    frame = Frame("warm up", {"k": price}, {"total": price, "u": pa.uint64(), "low": pa.float64()})
    given = {"k": pa.array([Decimal(1), Decimal("2.5")], price)}
    frame.add(given, total=given["k"], u=1)
    frame.max(given, total=given["k"])
    frame.min(given, low=1.0)
