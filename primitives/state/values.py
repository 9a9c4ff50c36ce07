"""Values: a Python object per key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa

from primitives.hashing import hash_keys
from primitives.slots import DEFAULT_SLOT_BITS, SlotSet, slot_of, slots_of
from primitives.state.changes import Changes, Tracked
from primitives.state.chunk import Chunk
from primitives.state.codec import Decode, Encode, ValueCodec
from primitives.state.container import check_fits
from primitives.state.keys import Key, KeyColumns

#: Exact types whose instances are immutable.
_IMMUTABLE = {type(None), bool, int, float, str, bytes, datetime, date, timedelta, Decimal}

#: Number of rows that are encoded to estimate the size of all.
_SAMPLE = 64

_ABSENT: Any = object()


@dataclass(slots=True, eq=False)
class Cell:
    key: Key
    slot: int
    value: Any


#: The log of an interval: keys written or deleted, by slot. A dict, because its order is the same in every process.
_Touched = defaultdict[int, dict[Key, None]]


class Values(Tracked[_Touched], MutableMapping[Any, Any]):
    """A mapping from keys to Python objects that knows the slot of each key and what changed since a marked epoch.

    A key is a value, or a tuple if there are several key columns. Values are stored as `value`, an Arrow type, or by
    default as msgpack (see `codec.pack`); `encode` and `decode` turn other objects into such values and back.

    Iteration is by slot and then by key, so it depends on the content alone.

    To get a list, dict or other object that can change in place counts as changing it, so such a change never goes
    unnoticed; `peek` and `scan` are for looking only. The object must not be changed in a later epoch than that in
    which it was last got or set here.

    >>> counts = Values("counts", keys={"word": pa.string()})
    >>> counts["be"] = counts.get("be", 0) + 1
    >>> counts.change("be", lambda count: count + 1)
    2
    >>> dict(counts)
    {'be': 2}
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
        self._keys = KeyColumns(name, slot_bits, keys, reserved=["value"])
        self._codec = ValueCodec(name, value, encode, decode)
        self._identity = pa.schema(self._keys.fields)
        self._schema = self._identity.append(pa.field("value", self._codec.type))
        self._cells: dict[Key, Cell] = {}
        self._slots: dict[int, dict[Key, Cell]] = {}  #: the same cells by slot; no slot is empty
        self._changes = Changes(name, lambda: defaultdict(dict))

    # --- a mapping ----------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        cell = self._cells.get(key) or self._find(key)
        if cell is None:
            raise KeyError(key)
        return self._handed_out(cell)

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, or `default`."""
        cell = self._cells.get(key) or self._find(key)
        return default if cell is None else self._handed_out(cell)

    def __setitem__(self, key: Any, value: Any) -> None:
        cell = self._cells.get(key) or self._find(key) or self._create(self._keys.normal(key))
        cell.value = value
        self._touch(cell)

    def __delitem__(self, key: Any) -> None:
        cell = self._cells.get(key) or self._find(key)
        if cell is None:
            raise KeyError(key)
        self._delete(cell)

    def pop(self, key: Any, default: Any = _ABSENT) -> Any:
        """Deletes a key and returns its value, or `default` if there is none."""
        cell = self._cells.get(key) or self._find(key)
        if cell is not None:
            self._delete(cell)
            return cell.value
        if default is _ABSENT:
            raise KeyError(key)
        return default

    def change(self, key: Any, function: Callable[[Any], Any], default: Any = None) -> Any:
        """Sets a key to `function` of its value, or of `default` if there is none, and returns the result."""
        self[key] = value = function(self.get(key, default))
        return value

    def peek(self, key: Any, default: Any = None) -> Any:
        """Returns the value of a key, or `default`, to be read and not changed in place; does not count as a change."""
        cell = self._cells.get(key) or self._find(key)
        return default if cell is None else cell.value

    def scan(self, slots: SlotSet | None = None) -> Iterator[tuple[Key, Any]]:
        """Returns keys and values of all or some slots in order, for reading only, as with `peek`."""
        for slot in self._held(SlotSet.full(self.slot_bits) if slots is None else slots):
            for key in self._ordered(slot):
                yield key, self._cells[key].value

    def __contains__(self, key: object) -> bool:
        return key in self._cells or self._find(key) is not None

    def __iter__(self) -> Iterator[Any]:
        for slot in sorted(self._slots):
            yield from self._ordered(slot)

    def __len__(self) -> int:
        return len(self._cells)

    def clear(self) -> None:
        """Deletes every key."""
        for cell in list(self._cells.values()):
            self._delete(cell)

    def _find(self, key: Any) -> Cell | None:
        """Returns the cell of a key that was not found as given, by its normal form."""
        return self._cells.get(self._keys.normal(key))

    def _handed_out(self, cell: Cell) -> Any:
        value = cell.value
        if type(value) not in _IMMUTABLE and not is_immutable(value):
            self._touch(cell)
        return value

    def _touch(self, cell: Cell) -> None:
        interval = self._changes.current
        if interval is not None:
            interval.log[cell.slot][cell.key] = None

    def _create(self, key: Key) -> Cell:
        key_hash = self._keys.hash(key)
        if self.owned is not None:
            self.owned.check_key(self.name, key_hash, key)
        return self._insert(key, slot_of(key_hash, self.slot_bits))

    def _insert(self, key: Key, slot: int) -> Cell:
        cell = self._cells[key] = self._slots.setdefault(slot, {})[key] = Cell(key, slot, None)
        return cell

    def _delete(self, cell: Cell) -> None:
        del self._cells[cell.key]
        cells = self._slots[cell.slot]
        del cells[cell.key]
        if not cells:
            del self._slots[cell.slot]
        self._touch(cell)

    def _ordered(self, slot: int) -> list[Key]:
        return sorted(self._slots.get(slot, ()), key=self._keys.sort_key)

    # --- a State ------------------------------------------------------------------------------------------------------

    def snapshot(self, slots: SlotSet, since: int | None = None) -> Chunk:
        """See `State.snapshot`. Costs the keys of `slots`; with `since`, only those written or in replaced slots."""
        if since is None:
            return self._chunk(slots, self._cells_in(slots), [])
        replaced = self._changes.replaced_since(since)
        written, deleted = self._touched(slots - replaced, since)
        return self._chunk(replaced, [*self._cells_in(slots & replaced), *written], deleted)

    def restore(self, chunks: Iterable[Chunk]) -> None:
        """See `State.restore`."""
        for chunk in chunks:
            check_fits(chunk, self, self.version, self._keys.names, self._schema)
            self.drop(chunk.replaced)
            for key in self._keys.from_columns(chunk.deleted.columns):
                if key in self._cells:
                    self._delete(self._cells[key])
            self._upsert(chunk)

    def drop(self, slots: SlotSet) -> None:
        """See `State.drop`. Costs the keys of `slots`."""
        for slot in self._held(slots):
            for key in self._slots.pop(slot):
                del self._cells[key]
        self._changes.replace(slots)

    def size(self, slots: SlotSet | None = None) -> int:
        """See `State.size`. Extrapolates from a few rows."""
        held = list(self._slots) if slots is None else self._held(slots)
        cells = chain.from_iterable(self._slots[slot].values() for slot in held)
        sample = self._rows(list(islice(cells, _SAMPLE)))
        return sum(len(self._slots[slot]) for slot in held) * int(sample.nbytes) // max(len(sample), 1)

    def changed(self, since: int) -> int:
        """See `State.changed`."""
        replaced = self._changes.replaced_since(since)
        written, deleted = self._touched(SlotSet.full(self.slot_bits) - replaced, since)
        return len(written) + len(deleted) + sum(len(self._slots[slot]) for slot in self._held(replaced))

    # --- slots that are stored elsewhere for a while
    # --------------------------------------------------------------------

    def evict(self, slots: SlotSet) -> None:
        """Removes slots that are stored elsewhere from now on; this does not count as a change."""
        for slot in self._held(slots):
            for key in self._slots.pop(slot):
                del self._cells[key]
        for mark in self.marks[:1]:
            for interval in self._changes.since(mark):
                for slot in _common(interval.log, slots, self.slot_bits):
                    del interval.log[slot]

    def admit(self, rows: pa.RecordBatch, written: Mapping[int, pa.RecordBatch]) -> None:
        """Adds rows that were evicted; `written` has the keys of rows changed since a mark, by mark."""
        columns = rows.columns[:-1]
        slots = slots_of(hash_keys(columns), self.slot_bits).tolist()
        values = self._codec.values(rows.column("value"))
        for key, slot, value in zip(self._keys.from_columns(columns), slots, values, strict=True):
            self._insert(key, slot).value = value
        for mark, batch in written.items():
            log = self._changes.since(mark)[0].log
            for key in self._keys.from_columns(batch.columns):
                log[self._keys.slot(key)][key] = None

    # --- rows and slots -----------------------------------------------------------------------------------------------

    def _held(self, slots: SlotSet) -> list[int]:
        """Returns those of `slots` that have a key, in order."""
        return _common(self._slots, slots, self.slot_bits)

    def _cells_in(self, slots: SlotSet) -> list[Cell]:
        return [cell for slot in self._held(slots) for cell in self._slots[slot].values()]

    def _touched(self, slots: SlotSet, since: int) -> tuple[list[Cell], list[Key]]:
        """Returns the cells written and the keys deleted in `slots` since a mark."""
        keys: dict[Key, None] = {}
        for interval in self._changes.since(since):
            for slot in _common(interval.log, slots, self.slot_bits):
                keys |= interval.log[slot]
        cells = [self._cells.get(key) for key in keys]
        deleted = [key for key, cell in zip(keys, cells, strict=True) if cell is None]
        return [cell for cell in cells if cell is not None], deleted

    def _chunk(self, replaced: SlotSet, cells: list[Cell], deleted: list[Key]) -> Chunk:
        gone = pa.record_batch(self._keys.to_columns(deleted), schema=self._identity)
        return self._chunk_of(self._keys.names, replaced, self._rows(cells), gone)

    def _rows(self, cells: list[Cell]) -> pa.RecordBatch:
        keys = self._keys.to_columns([cell.key for cell in cells])
        values = self._codec.column([cell.value for cell in cells], lambda at: cells[at].key)
        return pa.record_batch([*keys, values], schema=self._schema)

    def _upsert(self, chunk: Chunk) -> None:
        keys = self._keys.from_columns(chunk.rows.columns[:-1])
        values = self._codec.values(chunk.rows.column("value"))
        for key, slot, value in zip(keys, chunk.slots_of_rows().tolist(), values, strict=True):
            cell = self._cells.get(key) or self._insert(key, slot)
            cell.value = value
            self._touch(cell)


def _common(by_slot: Mapping[int, Any], slots: SlotSet, slot_bits: int) -> list[int]:
    """Returns the slots in both, in order, at the cost of the smaller one."""
    if len(slots) <= len(by_slot):
        return [slot for slot in slots if slot in by_slot]
    mask: np.ndarray[Any, np.dtype[np.bool_]] = slots.mask(slot_bits)
    return sorted(slot for slot in by_slot if mask[slot])


def is_immutable(value: Any) -> bool:
    """Whether an object is immutable, with everything in it."""
    kind = type(value)
    if kind is tuple or kind is frozenset:
        return all(map(is_immutable, value))
    return kind in _IMMUTABLE or isinstance(value, np.generic)
