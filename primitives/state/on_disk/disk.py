"""Disk: a frame larger than memory, with its rows in RocksDB and the recently written ones in a frame before it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.errors import EnvironmentFault
from primitives.slots import DEFAULT_SLOT_BITS, SlotSet, slots_of
from primitives.state.changes import Changes, Tracked
from primitives.state.chunk import Chunk
from primitives.state.chunk_chain import settled
from primitives.state.columnar.columns import DeclaredColumns
from primitives.state.columnar.index import Index
from primitives.state.columnar.table import RowTable
from primitives.state.container import check_fits
from primitives.state.file_chunk import FileChunk, Links
from primitives.state.files import disk_faults, fresh_directory, map_file, read_batch, write_batch
from primitives.state.frame import ColumnView, Frame, Keys, Rows
from primitives.state.on_disk.rocks import RowStore
from primitives.state.on_disk.row_codec import RowCodec
from primitives.state.on_disk.row_files import read_pieces, read_rows
from primitives.state.owned_keys import OwnedKeys

Columns = Sequence[pa.Array]
Result = TypeVar("Result")

_NOWHERE = np.empty(0, np.int64)

#: Number of rows that are packed, unpacked or restored at a time.
_BLOCK = 1 << 16

#: Suffix of files with rows, which never change and keep their names.
_ROWS = ".sst"


class Disk(Tracked[list[Path]]):
    """A `Frame` for more rows than fit into memory, in a directory that belongs to it alone.

    It is used as a frame is, but row numbers hold only until the next call that takes keys. What a batch touches is
    brought from disk into a frame, the buffer, and worked on there. When the buffer has grown to an eighth of `memory`,
    its rows go to disk in order. Another quarter is for RocksDB; the rest is for what a batch needs while it is worked
    on, for indexes and filters (10 bits a row). The page cache of the operating system comes on top: it gives way to
    whoever needs memory.

    What is on disk serves this process only, and is gone when a container of the same directory opens: checkpoints are
    taken with `snapshot`, as of any container. Of slots that fit into the buffer, it gives rows; of more, the files,
    which takes no memory, and as much time as what has changed since.

    >>> import tempfile
    >>> counts = Disk("counts", keys={"id": pa.int64()}, values={"n": pa.int64()}, directory=tempfile.mkdtemp())
    >>> rows = counts.add([7, 9, 7], n=1)
    >>> counts.take(rows[:2]).to_pylist()
    [{'id': 7, 'n': 2}, {'id': 9, 'n': 1}]
    >>> values, found = counts.get([9, 8])
    >>> values.to_pydict(), found.tolist()
    ({'n': [1, None]}, [True, False])
    >>> counts.close()
    """

    def __init__(
        self,
        name: str,
        keys: Mapping[str, pa.DataType],
        values: Mapping[str, pa.DataType],
        *,
        directory: Path | str,
        subkeys: Mapping[str, pa.DataType] | None = None,
        slot_bits: int = DEFAULT_SLOT_BITS,
        defaults: Mapping[str, Any] | None = None,
        version: int = 0,
        memory: int = 512 << 20,
    ) -> None:
        self.name = name
        self.slot_bits = slot_bits
        self.version = version
        self._memory = memory
        self._slot_keys = tuple(keys)
        self._declared = DeclaredColumns(name, keys, values, defaults or {}, subkeys or {})
        self._codec = RowCodec(self._declared.keys, self._declared.values, len(keys))
        self._buffer = Frame(
            name, keys, values, subkeys=subkeys, slot_bits=slot_bits, defaults=defaults, version=version
        )
        self._rows_in_slot = np.zeros(1 << slot_bits, np.int64)
        self._changes: Changes[list[Path]] = Changes(name, list)  # files with keys that have left the buffer
        self._serials = count()
        self._no_rows = pa.RecordBatch.from_pylist([], self._declared.all)
        self._no_keys = pa.RecordBatch.from_pylist([], self._declared.keys)
        self._no_values = self._no_rows.select(self._declared.values.names)
        self._row_size = 0.0  #: average bytes of the rows that went to disk lately
        self._like = self._chunk(SlotSet.empty(), self._no_rows, self._no_keys)
        self._listed: frozenset[str] | None = None  #: names of the row files, as first listed after the last change
        self._known: dict[int, frozenset[str]] = {}  #: mark -> files that a reader with the state of that mark has
        self.directory = fresh_directory(Path(directory))
        self._store = self._opened()

    def _opened(self, given: FileChunk | None = None) -> RowStore:
        """Opens a new store, which is empty or has the files of a chunk."""
        files = self.directory / f"rows-{next(self._serials)}"
        with disk_faults(f"use {files} for state"):
            files.mkdir()
        try:
            if given is not None:
                given.place_in(files)
            return RowStore(files, self._memory // 4)
        except BaseException:
            shutil.rmtree(files, ignore_errors=True)
            raise

    # --- by key -------------------------------------------------------------------------------------------------------

    def locate(self, keys: Keys, *, create: bool = True) -> Rows:
        """See `Frame.locate`."""
        return self._at_rows(keys, partial(self._buffer.locate, create=create))

    def locate_new(self, keys: Keys) -> tuple[Rows, Rows]:
        """See `Frame.locate_new`."""
        return self._at_rows(keys, self._buffer.locate_new)

    def put(self, keys: Keys, /, **values: Any) -> Rows:
        """See `Frame.put`."""
        return self._at_rows(keys, partial(self._buffer.put, **values))

    def add(self, keys: Keys, /, **values: Any) -> Rows:
        """See `Frame.add`."""
        return self._at_rows(keys, partial(self._buffer.add, **values))

    def min(self, keys: Keys, /, **values: Any) -> Rows:
        """See `Frame.min`."""
        return self._at_rows(keys, partial(self._buffer.min, **values))

    def max(self, keys: Keys, /, **values: Any) -> Rows:
        """See `Frame.max`."""
        return self._at_rows(keys, partial(self._buffer.max, **values))

    def get(self, keys: Keys) -> tuple[pa.RecordBatch, NDArray[np.bool_]]:
        """See `Frame.get`; rows on disk stay there."""
        batch = self._keys_from(keys)
        values, found = self._buffer.get(batch)
        at, stored = self._stored(batch.columns, np.flatnonzero(~found))
        found[at] = True
        order = np.arange(len(found))
        order[at] = len(found) + np.arange(len(at))
        return pa.concat_batches([values, stored]).take(pa.array(order)), found

    def delete(self, keys: Keys) -> int:
        """See `Frame.delete`."""

        def delete(batch: pa.RecordBatch) -> int:
            deleted = self._buffer.delete(batch)
            self._store.delete(self._codec.keys(batch.columns))
            return deleted

        return self._at_rows(keys, delete)

    @property
    def owned(self) -> OwnedKeys | None:
        """See `Tracked.owned`."""
        return self._buffer.owned

    @owned.setter
    def owned(self, owned: OwnedKeys | None) -> None:
        self._buffer.owned = owned

    def _at_rows(self, keys: Keys, work: Callable[[pa.RecordBatch], Result]) -> Result:
        """Returns the result of `work` on keys whose rows are all in the buffer."""
        batch = self._keys_from(keys)
        self._listed = None
        if self._buffer.size() > self._room:
            self._write_out()
        self._fetch(batch)
        before = self._buffer.rows_per_slot()
        result = work(batch)
        self._rows_in_slot += self._buffer.rows_per_slot() - before
        return result

    # --- by row number ------------------------------------------------------------------------------------------------

    def column(self, name: str) -> ColumnView:
        """See `Frame.column`."""
        return self._buffer.column(name)

    def take(self, rows: Rows) -> pa.RecordBatch:
        """See `Frame.take`."""
        return self._buffer.take(rows)

    def __len__(self) -> int:
        return int(self._rows_in_slot.sum())

    def to_arrow(self, slots: SlotSet | None = None) -> pa.RecordBatch:
        """See `Frame.to_arrow`; the copy is in memory, so request some slots at a time."""
        self._write_out()
        chosen = SlotSet.full(self.slot_bits) if slots is None else slots
        return read_rows(self._store, self._like, chosen, self._count_in(chosen))

    def _count_in(self, slots: SlotSet) -> int:
        return int(self._rows_in_slot[slots.mask(self.slot_bits)].sum())

    def rows_per_slot(self) -> NDArray[np.int64]:
        """See `Frame.rows_per_slot`."""
        return self._rows_in_slot.copy()

    # --- a State ------------------------------------------------------------------------------------------------------

    def mark(self, epoch: int) -> None:
        """See `State.mark`."""
        self._buffer.mark(epoch)
        super().mark(epoch)
        self._known.setdefault(epoch, self._listed or frozenset())

    def release(self, epoch: int) -> None:
        """See `State.release`."""
        forgotten = [mark for mark in self.marks if mark < epoch]
        files = [path for mark in forgotten for path in self._changes.since(mark)[0].log]
        self._buffer.release(epoch)
        super().release(epoch)
        self._known = {mark: names for mark, names in self._known.items() if mark >= epoch}
        with disk_faults(f"delete files in {self.directory}"):
            for path in files:
                path.unlink()

    def snapshot(self, slots: SlotSet, since: int | None = None) -> Chunk | FileChunk:
        """See `State.snapshot`.

        For slots with more rows than the buffer has room for, it returns files: all of them, or the new ones. Files
        cost little. Rows cost about a microsecond each in full, and several for each change.
        """
        if self.size(slots) > self._room:
            return self._file_chunk(slots, since)
        return self._chunk(slots, self.to_arrow(slots), self._no_keys) if since is None else self._delta(slots, since)

    def _delta(self, slots: SlotSet, since: int) -> Chunk:
        replaced = self._changes.replaced_since(since)
        keys = self._changed_since(since, slots - replaced)
        values, found = self.get(keys)
        written = _joined(keys.columns, values.columns, self._declared.all).filter(pa.array(found))
        moved = [self.to_arrow(slots & replaced)] if slots & replaced else []
        return self._chunk(replaced, pa.concat_batches([written, *moved]), keys.filter(pa.array(~found)))

    def _file_chunk(self, slots: SlotSet, since: int | None) -> FileChunk:
        """Returns a chunk of files. An incremental one, like a delta, also names the slots replaced since."""
        known: frozenset[str] = frozenset()
        if since is not None:
            slots, known = slots | self._changes.replaced_since(since), self._known[since]
        links = Links(self.directory)
        sizes = self.link_files(links.directory)
        if self._listed is None:
            self._listed = _of_rows(sizes)
        contents = {name: map_file(links.directory / name) for name in sizes if name not in known}
        return FileChunk(self._like, slots, self.rows_per_slot(), sizes, contents, links)

    def link_files(self, directory: Path) -> dict[str, int]:
        """Links the files that hold all rows into a new directory; returns their names and sizes.

        An `.sst` file whose name was listed before, during the life of this container, is still the same file. The
        files that the container was restored from count as listed.
        """
        self._write_out()
        return self._store.link(directory)

    def restore(self, chunks: Iterable[Chunk | FileChunk]) -> None:
        """See `State.restore`. Chunks that build on a chunk of files must be restored in the same call.

        If there are no rows except replaced ones, files are used as they are. Otherwise the rows of replaced slots are
        written in sequence, and other rows cost as much as `put`.
        """
        taken_over = None
        for chunk in settled(self._checked(chunk) for chunk in chunks):
            if isinstance(chunk, FileChunk):
                taken_over = self._restore_files(chunk)
            else:
                self._restore_rows(chunk)
        self._listed = taken_over

    def _checked(self, chunk: Chunk | FileChunk) -> Chunk | FileChunk:
        described = chunk.like if isinstance(chunk, FileChunk) else chunk
        check_fits(described, self, self.version, self._slot_keys, self._declared.all)
        return chunk

    def _restore_files(self, chunk: FileChunk) -> frozenset[str] | None:
        """Returns the names of the files that were taken over, or None if they were not."""
        if len(self) == self._count_in(chunk.slots):
            self._take_over(chunk)
            return _of_rows(chunk.sizes)
        chunk.check_whole()
        self.drop(chunk.slots)
        for piece in read_pieces(chunk, self._room, self.directory):
            self._load(piece.rows)
        return None

    def _take_over(self, chunk: FileChunk) -> None:
        store = self._opened(chunk)
        self.drop(chunk.slots)
        self._close_store()
        self._store = store
        self._row_size = chunk.row_bytes
        self._rows_in_slot = chunk.rows_in_slot.copy()
        self._remove_slots(SlotSet(np.flatnonzero(self._rows_in_slot)) - chunk.slots)

    def _restore_rows(self, chunk: Chunk) -> None:
        self.drop(chunk.replaced)
        for deleted in _blocks(chunk.deleted):
            self.delete(deleted)
        new = chunk.replaced.mask(self.slot_bits)[chunk.slots_of_rows()]
        self._load(chunk.rows.filter(pa.array(new)))
        for rows in _blocks(chunk.rows.filter(pa.array(~new))):
            self.put(rows, **{name: rows[name] for name in self._declared.values.names})

    def drop(self, slots: SlotSet) -> None:
        """See `State.drop`. Costs nothing for rows on disk."""
        self._listed = None
        self._changes.replace(slots)
        self._buffer.evict(slots)
        self._remove_slots(slots)

    def _remove_slots(self, slots: SlotSet) -> None:
        """Removes the rows of slots on disk."""
        for first, last in slots.runs():
            self._store.delete_range(*self._codec.bounds(first, last, self.slot_bits))
        self._rows_in_slot[slots.mask(self.slot_bits)] = 0

    def size(self, slots: SlotSet | None = None) -> int:
        """See `State.size`. Counts all rows as equally large."""
        count = len(self) if slots is None else self._count_in(slots)
        held = len(self._buffer)
        return count * self._buffer.size() // held if held else int(count * self._row_size)

    def changed(self, since: int) -> int:
        """See `State.changed`. Costs a look at each written or deleted key."""
        replaced = self._changes.replaced_since(since)
        kept = SlotSet.full(self.slot_bits) - replaced
        return self._count_in(replaced) + len(self._changed_since(since, kept))

    def close(self) -> None:
        """Closes the files and deletes them."""
        self._close_store()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _close_store(self) -> None:
        with suppress(EnvironmentFault):  # closing writes out the buffers, which nobody needs
            self._store.close()
        shutil.rmtree(self._store.directory, ignore_errors=True)

    # --- between the buffer and the disk ------------------------------------------------------------------------------

    @property
    def _room(self) -> int:
        """Returns how many bytes of rows fit into the buffer."""
        return self._memory // 8

    def _fetch(self, keys: pa.RecordBatch) -> None:
        """Reads the rows of keys into the buffer."""
        if len(self) == len(self._buffer):
            return
        missing = np.flatnonzero(self._buffer.locate(keys, create=False) < 0)
        missing = missing[_first_of_each([column.take(pa.array(missing)) for column in keys.columns])]
        at, values = self._stored(keys.columns, missing)
        found = keys.take(pa.array(at))
        self._buffer.admit(_joined(found.columns, values.columns, self._declared.all))

    def _stored(self, keys: Columns, at: NDArray[np.int64]) -> tuple[NDArray[np.int64], pa.RecordBatch]:
        """Returns the positions in key columns that have a row on disk, and the values of these rows."""
        at = at[np.argsort(self._codec.hashes(keys)[at])]  # in file order, neighbours are in one block
        found, values = [_NOWHERE], [self._no_values]
        for start in range(0, len(at), _BLOCK):
            block = at[start : start + _BLOCK]
            rows = self._store.get(self._codec.keys([column.take(pa.array(block)) for column in keys]))
            there = [row for row in rows if row is not None]
            found.append(block[np.fromiter((row is not None for row in rows), np.bool_, len(rows))])
            values.append(pa.record_batch(self._codec.value_columns(there), schema=self._declared.values))
        return np.concatenate(found), pa.concat_batches(values)

    def _write_out(self) -> None:
        """Moves all rows of the buffer to disk; if that fails, they are still in the buffer."""
        self._log_changes()
        rows = self._buffer.to_arrow()
        self._write(rows)
        self._buffer.evict(SlotSet.full(self.slot_bits))
        self._forget_logs_of_buffer()

    def _write(self, rows: pa.RecordBatch) -> None:
        if len(rows):
            self._row_size = rows.nbytes / len(rows)
        width = len(self._declared.keys)
        order = np.argsort(self._codec.hashes(rows.columns))
        for start in range(0, len(rows), _BLOCK):
            block = rows.take(pa.array(order[start : start + _BLOCK])).columns
            self._store.put(self._codec.keys(block[:width]), self._codec.values(block[width:], len(block[0])))

    def _load(self, rows: pa.RecordBatch) -> None:
        """Writes rows that are neither in the buffer nor on disk."""
        self._write(rows)
        slots = slots_of(self._codec.hashes(rows.columns), self.slot_bits)
        self._rows_in_slot += np.bincount(slots, minlength=1 << self.slot_bits)

    # --- changes ------------------------------------------------------------------------------------------------------

    def _log_changes(self) -> None:
        """Writes the buffer's changed keys since each mark to a file, unless a later mark has the same keys."""
        logged = 0
        for mark in reversed(self.marks):
            keys = self._changed_in_buffer(mark)
            if len(keys) > logged:
                path = self.directory / f"changed-{next(self._serials)}.arrow"
                write_batch(path, keys)
                self._changes.since(mark)[0].log.append(path)
                logged = len(keys)

    def _forget_logs_of_buffer(self) -> None:
        """Resets the buffer's change tracking, with the same marks."""
        marks = self._buffer.marks
        for mark in marks[-1:]:
            self._buffer.release(mark + 1)
        for mark in marks:
            self._buffer.mark(mark)

    def _changed_in_buffer(self, since: int) -> pa.RecordBatch:
        """Returns the keys written or deleted in the buffer since a mark."""
        delta = self._buffer.snapshot(SlotSet.full(self.slot_bits), since)
        return pa.concat_batches([delta.rows.select(self._declared.keys.names), delta.deleted])

    def _changed_since(self, since: int, slots: SlotSet) -> pa.RecordBatch:
        """Returns the keys in some slots that were written or deleted since a mark, each once."""
        files = [path for interval in self._changes.since(since) for path in interval.log]
        keys = pa.concat_batches([self._changed_in_buffer(since), *map(read_batch, files)])
        mine = slots.mask(self.slot_bits)[slots_of(self._codec.hashes(keys.columns), self.slot_bits)]
        keys = keys.filter(pa.array(mine))
        return keys.take(pa.array(_first_of_each(keys.columns)))

    # --- batches ------------------------------------------------------------------------------------------------------

    def _chunk(self, replaced: SlotSet, rows: pa.RecordBatch, deleted: pa.RecordBatch) -> Chunk:
        return self._chunk_of(self._slot_keys, replaced, rows, deleted)

    def _keys_from(self, keys: Keys) -> pa.RecordBatch:
        return pa.record_batch(self._declared.keys_from(keys), schema=self._declared.keys)


def _first_of_each(keys: Columns) -> NDArray[np.int64]:
    """Returns positions of the first occurrence of each key."""
    kinds = [column.type for column in keys]
    return Index(RowTable(kinds)).locate(keys, create=True).created


def _joined(keys: Columns, values: Columns, schema: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch([*keys, *values], schema=schema)


def _blocks(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    return (rows.slice(start, _BLOCK) for start in range(0, len(rows), _BLOCK))


def _of_rows(files: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name in files if name.endswith(_ROWS))
