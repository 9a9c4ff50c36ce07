"""Rows: any number of rows per key, looked up by key in batches; the container for joins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.errors import UserError
from primitives.hashing import hash_keys
from primitives.slots import DEFAULT_SLOT_BITS, SlotSet, slots_of
from primitives.state.changes import Changes
from primitives.state.chunk import Chunk
from primitives.state.columnar.memory import Region
from primitives.state.columnar.multi_index import Chains
from primitives.state.columnar.pile import Pile
from primitives.state.columnar.runs import signatures
from primitives.state.keys import Column, KeyColumns, same_rows
from primitives.state.numbered import NumberedRows

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

#: The column that distinguishes rows of one key.
SEQUENCE = "_seq"

_NEVER = 2**63 - 1  # the earliest bucket if there are no rows

#: Removed rows stay in place until they are more than the others and more than this.
_WORTH_COMPACTING = 1 << 16


class _Facts:
    """Numbers that are stored for each row beside its columns."""

    def __init__(self) -> None:
        self.count = 0
        self._hashes: Region[np.uint64] = Region(np.uint64)
        self._numbers: Region[np.int64] = Region(np.int64)  #: seq, born, bucket of each row
        self._alive: Region[np.bool_] = Region(np.bool_)

    def append(self, hashes: Words, seqs: Ints, born: int, buckets: Ints) -> None:
        start, end = self.count, self.count + len(hashes)
        self._hashes.reserve(end)
        self._numbers.reserve(3 * end)
        self._alive.reserve(end)
        self.count = end
        self.hashes[start:] = hashes
        self.seqs[start:], self.born[start:], self.buckets[start:] = seqs, born, buckets
        self.alive[start:] = True

    def keep(self, rows: Ints) -> None:
        """Keeps only these rows, which ascend."""
        self._hashes.keep(rows)
        self._numbers.keep(rows, 3)
        self._alive.keep(rows)
        self.count = len(rows)

    @property
    def hashes(self) -> Words:
        return self._hashes.array[: self.count]

    @property
    def seqs(self) -> Ints:
        return self._numbers.array[: 3 * self.count : 3]

    @property
    def born(self) -> Ints:
        """The mark after which each row was written."""
        return self._numbers.array[1 : 3 * self.count : 3]

    @property
    def buckets(self) -> Ints:
        return self._numbers.array[2 : 3 * self.count : 3]

    @property
    def alive(self) -> NDArray[np.bool_]:
        return self._alive.array[: self.count]


class Rows(NumberedRows):
    """A bag of rows by key: equal rows are all kept. Columns that are not keys may be of any Arrow type.

    With `bucket`, which maps each row of a batch to an integer, rows are looked up by key and bucket, and removed by
    bucket. A bucket is a window, or a period of time, so that expired rows are neither searched nor kept.

    >>> bids = Rows("bids", keys={"item": pa.int64()}, values={"price": pa.float64()})
    >>> bids.add(pa.record_batch({"item": [7, 9, 7], "price": [1.0, 2.0, 3.0]}))
    >>> positions, found = bids.match([[8, 7]])
    >>> positions.tolist(), sorted(found["price"].to_pylist())
    ([1, 1], [1.0, 3.0])
    """

    def __init__(
        self,
        name: str,
        keys: Mapping[str, pa.DataType],
        values: Mapping[str, pa.DataType],
        *,
        slot_bits: int = DEFAULT_SLOT_BITS,
        bucket: Callable[[pa.RecordBatch], Ints] | None = None,
        version: int = 0,
    ) -> None:
        self.name = name
        self.slot_bits = slot_bits
        self.version = version
        self._keys = KeyColumns(name, slot_bits, keys, reserved=[SEQUENCE])
        self._check_values(values)
        self._bucket = bucket
        self._declared = pa.schema([*self._keys.fields, *values.items()])
        self._identity = pa.schema([*self._keys.fields, (SEQUENCE, pa.int64())])
        self._schema = pa.schema([*self._identity, *values.items()])
        self._next_seq = 0
        self._oldest = _NEVER  #: no row is in an earlier bucket
        self._live = 0
        self._pile = Pile(self._declared)
        self._facts = _Facts()
        self._chains = Chains()
        self._changes = Changes(name, list)

    def _check_values(self, values: Mapping[str, pa.DataType]) -> None:
        for column in values:
            if column == SEQUENCE or column in self._keys.names:
                raise UserError(f"column '{column}' of state '{self.name}': this name is taken; rename it")

    # --- by key -------------------------------------------------------------------------------------------------------

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds the rows of a batch, which has the declared columns and perhaps others."""
        keys = self._keys.normal_columns([self._column(batch, name) for name in self._keys.names], len(batch))
        self._keys.check_owned(self.owned, keys)
        values = [self._column(batch, field.name) for field in list(self._declared)[len(keys) :]]
        seqs = np.arange(self._next_seq, self._next_seq + len(batch))
        self._next_seq += len(batch)
        self._append(pa.record_batch([*keys, *values], schema=self._declared), seqs)

    def match(self, keys: Sequence[Column], buckets: Ints | None = None) -> tuple[Ints, pa.RecordBatch]:
        """All pairs of a key given and a row that has it: positions among the keys, and the rows, in any order.

        `keys` has one column per key column, in the declared order; where the container has buckets, they are given
        for each of the keys. Costs up to two waits for memory per key, and a copy of the rows found.
        """
        positions, found, _ = self._matched(keys, buckets)
        return positions, found

    def pop(
        self, keys: Sequence[Column], fits: Callable[[Ints, pa.RecordBatch], NDArray[np.bool_]]
    ) -> tuple[Ints, pa.RecordBatch]:
        """Works like `match`, but returns only the pairs that fit, by positions and rows, and removes their rows.

        >>> bids = Rows("bids", keys={"item": pa.int64()}, values={"price": pa.float64()})
        >>> bids.add(pa.record_batch({"item": [7, 7], "price": [1.0, 3.0]}))
        >>> positions, found = bids.pop([[7]], lambda positions, rows: rows["price"].to_numpy() > 2)
        >>> found["price"].to_pylist(), len(bids)
        ([3.0], 1)
        """
        positions, found, rows = self._matched(keys, None)
        chosen = fits(positions, found)
        self._remove(np.unique(rows[chosen]))
        return positions[chosen], found.filter(pa.array(chosen))

    def _matched(self, keys: Sequence[Column], buckets: Ints | None) -> tuple[Ints, pa.RecordBatch, Ints]:
        """Pairs, as `match` gives them, and the numbers of the rows."""
        columns = self._keys.normal_columns(keys, len(keys[0]))
        if buckets is None:
            buckets = np.zeros(len(columns[0]), np.int64)
        positions, rows = self._chains.find(signatures(buckets, hash_keys(columns)))
        alive = self._facts.alive[rows]
        positions, rows = positions[alive], rows[alive]
        order, found = self._pile.take(rows)
        positions, rows = positions[order], rows[order]
        wanted = pa.array(positions)
        # Rows of a key in other buckets have other signatures; so only rows of other keys can have been found by
        # mistake.
        same = same_rows(found.columns[: len(columns)], [column.take(wanted) for column in columns])
        return (positions, found, rows) if same.all() else (positions[same], found.filter(pa.array(same)), rows[same])

    def expire(self, before: int, slots: SlotSet | None = None) -> int:
        """Removes the rows in buckets before `before`, in all or some slots; returns their number.

        Costs nothing if there are none, and a look at every row if there may be some.
        """
        if before <= self._oldest:
            return 0
        due = self._facts.alive & (self._facts.buckets < before)
        if slots is not None:
            due &= self._in(slots)
        rows = np.flatnonzero(due)
        self._remove(rows)
        self._oldest = int(self._facts.buckets[self._facts.alive].min(initial=_NEVER))
        return len(rows)

    def to_arrow(self) -> pa.RecordBatch:
        """Returns a copy of all rows, in no particular order."""
        return self._pile.take(np.flatnonzero(self._facts.alive))[1]

    def _column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        kind = self._declared.field(name).type
        if batch.schema.get_field_index(name) < 0:
            raise UserError(f"state '{self.name}' has a column '{name}', which the batch lacks: {batch.schema.names}")
        column = batch.column(name)
        if column.type != kind:
            raise UserError(f"column '{name}' of state '{self.name}' is {kind}, but {column.type} in the batch")
        return column

    # --- rows by number -----------------------------------------------------------------------------------------------

    def _append(self, rows: pa.RecordBatch, seqs: Ints) -> None:
        if not len(rows):
            return
        hashes = hash_keys(rows.columns[: len(self._keys.names)])
        buckets = np.zeros(len(rows), np.int64) if self._bucket is None else self._bucket(rows)
        self._pile.append(rows)
        self._facts.append(hashes, seqs, self._last_mark, buckets)
        self._chains.append(signatures(buckets, hashes))
        self._live += len(rows)
        self._oldest = min(self._oldest, int(buckets.min()))

    def _remove(self, rows: Ints) -> None:
        """Removes rows, and logs those that were there at the last mark."""
        self._log_removed(rows, self._facts.born, self._facts.hashes, self._batch)
        self._forget(rows)

    def _forget(self, rows: Ints) -> None:
        """Removes rows; renumbers the others if few are left."""
        self._facts.alive[rows] = False
        self._live -= len(rows)
        if self._facts.count > max(2 * self._live, _WORTH_COMPACTING):
            kept = np.flatnonzero(self._facts.alive)
            for part in (self._pile, self._facts, self._chains):
                part.keep(kept)

    def _remove_same(self, identities: pa.RecordBatch) -> None:
        """Removes the rows with these identities. Costs a look at every row."""
        if not len(identities) or not self._live:
            return
        wanted = Chains()
        wanted.append(signatures(identities.column(SEQUENCE).to_numpy(), hash_keys(identities.columns[:-1])))
        rows, which = wanted.find(signatures(self._facts.seqs, self._facts.hashes))
        alive = self._facts.alive[rows]
        rows, which = rows[alive], which[alive]
        mine = self._batch(rows).select(self._identity.names)
        self._remove(rows[same_rows(mine.columns, identities.take(pa.array(which)).columns)])

    def _batch(self, rows: Ints) -> pa.RecordBatch:
        """Returns the rows at ascending numbers, in the columns of a chunk."""
        columns: list[Any] = self._pile.take(rows)[1].columns
        columns.insert(len(self._keys.names), pa.array(self._facts.seqs[rows]))
        return pa.record_batch(columns, schema=self._schema)

    def _in(self, slots: SlotSet) -> NDArray[np.bool_]:
        """Returns which rows, removed ones included, are in slots."""
        return slots.mask(self.slot_bits)[slots_of(self._facts.hashes, self.slot_bits)]

    # --- a State ------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._live

    def snapshot(self, slots: SlotSet, since: int | None = None) -> Chunk:
        """See `State.snapshot`. Costs a look at the slot or age of every row, and the rows in the chunk."""
        return self._chunk(slots, since, lambda replaced: self._batch(self._written(slots, replaced, since)))

    def _written(self, slots: SlotSet, replaced: SlotSet, since: int | None) -> Ints:
        """Returns the rows in some slots that were written since a mark, and all in replaced slots."""
        written = self._in(replaced)
        if since is not None:
            written |= self._facts.born >= since
        return np.flatnonzero(written & self._facts.alive & self._in(slots))

    def restore(self, chunks: Iterable[Chunk]) -> None:
        """See `State.restore`. Costs the rows of the chunks, and a look at every row."""
        for chunk in chunks:
            self._clear_for(chunk)
            seqs = chunk.rows.column(SEQUENCE).to_numpy()
            self._append(chunk.rows.select(self._declared.names), seqs)
            self._next_seq = max(self._next_seq, int(seqs.max(initial=-1)) + 1)

    def drop(self, slots: SlotSet) -> None:
        """See `State.drop`. Costs a look at the slot of every row."""
        self._forget(np.flatnonzero(self._in(slots) & self._facts.alive))
        self._changes.replace(slots)

    def size(self, slots: SlotSet | None = None) -> int:
        """See `State.size`. Counts all rows as equally large."""
        count = self._live if slots is None else int((self._in(slots) & self._facts.alive).sum())
        return count * (self._pile.nbytes // self._facts.count + 8) if count else 0

    def changed(self, since: int) -> int:
        """See `State.changed`."""
        full, replaced = SlotSet.full(self.slot_bits), self._changes.replaced_since(since)
        return len(self._written(full, replaced, since)) + sum(map(len, self._removed(full - replaced, since)))


def warm_up() -> None:
    """Compiles the kernels of such containers, or loads them from Numba's cache, for the first batch not to wait."""
    rows = Rows("warm up", {"k": pa.int64()}, {})
    rows.add(pa.record_batch({"k": [1, 2]}))
    rows.match([[1]])
