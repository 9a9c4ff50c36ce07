"""RowsOnDisk: a bag of rows by key and bucket like `Rows`, for more rows than fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.slots import DEFAULT_SLOT_BITS, SlotSet
from primitives.state.columnar.fixed import to_numbers
from primitives.state.container import State
from primitives.state.keys import Column, KeyColumns
from primitives.state.on_disk.disk import Disk

Ints = NDArray[np.int64]

_BUCKET, _NTH, _COUNT = "_bucket", "_nth", "_n"


class RowsOnDisk:
    """Two containers: the number of rows of each key and bucket, and the rows by their number there.

    Its columns have types that `Disk` supports. Expired rows are found slot by slot, through the counts, so it is for
    buckets that end rarely, such as long windows.

    >>> import tempfile
    >>> home = Path(tempfile.mkdtemp())
    >>> bids = RowsOnDisk("bids", {"item": pa.int64()}, {"price": pa.int64()}, place=lambda name: home / name)
    >>> bids.add(pa.record_batch({"item": [7, 9, 7], "price": [1, 2, 3]}))
    >>> positions, found = bids.match([pa.array([8, 7])])
    >>> positions.tolist(), found["price"].to_pylist()
    ([1, 1], [1, 3])
    >>> bids.expire(1), len(bids)
    (3, 0)
    >>> bids.close()
    """

    def __init__(
        self,
        name: str,
        keys: Mapping[str, pa.DataType],
        values: Mapping[str, pa.DataType],
        *,
        place: Callable[[str], Path],
        slot_bits: int = DEFAULT_SLOT_BITS,
        bucket: Callable[[pa.RecordBatch], Ints] | None = None,
        memory: int = 512 << 20,
    ) -> None:
        self._keys = KeyColumns(name, slot_bits, keys, reserved=[_BUCKET, _NTH, _COUNT])
        self._schema = pa.schema([*self._keys.fields, *values.items()])
        self._bucket = bucket
        self._oldest = -(2**63)  #: no row is in an earlier bucket
        place_of, bits = f"{name}.counts", slot_bits
        self._counts = Disk(
            place_of,
            keys,
            {_COUNT: pa.int64()},
            subkeys={_BUCKET: pa.int64()},
            slot_bits=bits,
            directory=place(place_of),
            memory=memory // 4,
        )
        place_of = f"{name}.rows"
        self._rows = Disk(
            place_of,
            keys,
            values,
            subkeys={_BUCKET: pa.int64(), _NTH: pa.int64()},
            slot_bits=bits,
            directory=place(place_of),
            memory=memory - memory // 4,
        )
        self.containers: tuple[State, ...] = (self._counts, self._rows)

    def add(self, batch: pa.RecordBatch) -> None:
        """See `Rows.add`."""
        if not len(batch):
            return
        buckets = np.zeros(len(batch), np.int64) if self._bucket is None else self._bucket(batch)
        place = {**{name: batch[name] for name in self._keys.names}, _BUCKET: buckets}
        rows = self._counts.locate(place)
        nth = self._counts.column(_COUNT)[rows] + _nth_of_each(rows)
        self._counts.add(place, **{_COUNT: 1})
        names = self._schema.names[len(self._keys.names) :]
        self._rows.put({**place, _NTH: nth}, **{name: batch[name] for name in names})

    def match(self, keys: Sequence[Column], buckets: Ints | None = None) -> tuple[Ints, pa.RecordBatch]:
        """See `Rows.match`."""
        columns = self._keys.normal_columns(keys, len(keys[0]))
        if buckets is None:
            buckets = np.zeros(len(columns[0]), np.int64)
        named = dict(zip(self._keys.names, columns, strict=True))
        counts, found = self._counts.get({**named, _BUCKET: buckets})
        held = np.where(found, to_numbers(counts[_COUNT].fill_null(0)), 0)
        return self._numbered(named, buckets, held)

    def _numbered(self, keys: Mapping[str, pa.Array], buckets: Ints, counts: Ints) -> tuple[Ints, pa.RecordBatch]:
        """Returns the first `counts` rows of each key and bucket."""
        positions, place = _places(keys, buckets, counts)
        values, _ = self._rows.get(place)
        return positions, pa.record_batch([*(place[name] for name in keys), *values.columns], schema=self._schema)

    def expire(self, before: int, slots: SlotSet | None = None) -> int:
        """See `Rows.expire`.

        If some rows may have expired, it costs a look at the counts of all keys, and at the expired rows unless they
        are all rows of their slot.
        """
        if before <= self._oldest:
            return 0
        self._oldest = before
        held = SlotSet(np.flatnonzero(self._counts.rows_per_slot()))
        return sum(self._expire(before, SlotSet([slot])) for slot in (held if slots is None else held & slots))

    def _expire(self, before: int, slot: SlotSet) -> int:
        held = self._counts.to_arrow(slot)
        counts = held.filter(pa.array(to_numbers(held[_BUCKET]) < before))
        if len(counts) == len(held):  # all rows expire, so none has to be read
            self._counts.drop(slot)
            self._rows.drop(slot)
            return int(to_numbers(counts[_COUNT]).sum())
        if not len(counts):
            return 0
        keys = {name: counts[name] for name in self._keys.names}
        _, place = _places(keys, to_numbers(counts[_BUCKET]), to_numbers(counts[_COUNT]))
        self._counts.delete(counts)
        return self._rows.delete(place)

    def __len__(self) -> int:
        return len(self._rows)

    def close(self) -> None:
        """Deletes all files."""
        self._counts.close()
        self._rows.close()


def _places(keys: Mapping[str, pa.Array], buckets: Ints, counts: Ints) -> tuple[Ints, dict[str, pa.Array]]:
    """Returns the places of rows: the position of each row's key, and the keys and subkeys."""
    positions = np.repeat(np.arange(len(counts)), counts)
    nth = np.arange(len(positions)) - np.repeat(np.cumsum(counts) - counts, counts)
    which = pa.array(positions)
    place = {name: column.take(which) for name, column in keys.items()}
    return positions, {**place, _BUCKET: pa.array(buckets[positions]), _NTH: pa.array(nth)}


def _nth_of_each(rows: Ints) -> Ints:
    """Returns the number of equal elements before each.

    >>> _nth_of_each(np.array([5, 3, 5, 5])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(rows, kind="stable")
    starts = np.flatnonzero(np.diff(rows[order], prepend=-1))
    lengths = np.diff(starts, append=len(rows))
    nth = np.empty(len(rows), np.int64)
    nth[order] = np.arange(len(rows)) - np.repeat(starts, lengths)
    return nth
