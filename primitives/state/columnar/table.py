"""RowTable: the columns of a container's rows, stored row by row as 64-bit words.

Columns come in and go out, but batches of keys access rows at random. With its words side by side, a row costs one wait
for memory, not one for each column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from primitives.hashing import hash_keys
from primitives.kernels import kernel
from primitives.state.columnar.adding import (
    AHEAD,
    add,
    add_signed,
    add_unsigned,
    add_wide,
    beyond,
    extreme_wide,
    lower_floats,
    overflowed,
)
from primitives.state.columnar.fixed import (
    WIDE,
    Selection,
    as_words,
    from_numbers,
    is_span,
    null_mask,
    read_only,
    row_numbers,
    storage_type,
    to_numbers,
    validity,
    zeroed,
)
from primitives.state.columnar.folds import FOLDS
from primitives.state.columnar.intrinsics import pointer, prefetch
from primitives.state.columnar.memory import Region
from primitives.state.columnar.probe import Probe, TableArrays
from primitives.state.columnar.spans import Heap, Spans, encode, release, spans_to_arrow, starts_and_bytes, store

Words = NDArray[np.uint64]
Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

#: Bits in a row's mask of nulls.
MAX_COLUMNS = 64

#: Rows whose words are separated at a time; they fit into the first-level cache.
_BLOCK = 512


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column's type and its place in each row."""

    kind: pa.DataType
    head: int  #: index of its first word
    bit: np.uint64  #: its bit in the mask of nulls

    @property
    def is_span(self) -> bool:
        return is_span(self.kind)

    @property
    def is_wide(self) -> bool:
        """Whether its numbers have two words, the lower one first."""
        return _is_wide(self.kind)

    @property
    def words(self) -> list[int]:
        """Returns the indexes of the words with its numbers."""
        return [self.head, self.head + 1] if self.is_wide else [self.head]


class RowTable:
    """Rows of key columns and value columns.

    In a row's words, the key comes first. A key that is a single column of up to 64 bits is one word. Any other key is
    its hash, then a word for each such column or two for a decimal, then two for each span. Value columns follow. A
    null is zero, with a bit in a mask beside the words that takes no memory before the first null. Unused rows are all
    zeros.

    If the first `slot_keys` of the key columns alone decide the slot, then they alone make the upper half of the hash.
    """

    def __init__(
        self,
        keys: Sequence[pa.DataType],
        values: Sequence[pa.DataType] = (),
        defaults: Sequence[pa.Scalar] = (),
        *,
        slot_keys: int | None = None,
    ) -> None:
        self._slot_keys = len(keys) if slot_keys is None else slot_keys
        self._hashed = len(keys) > 1 or _words_of(keys[0]) > 1
        self._plain = self._hashed + sum(_words_of(kind) for kind in keys if not is_span(kind))
        self._key_width = self._plain + 2 * sum(map(is_span, keys))
        columns, self._width = _lay_out(keys, values, int(self._hashed))
        self.keys, self.values = columns[: len(keys)], columns[len(keys) :]
        by_column = dict(zip(self.values, defaults, strict=True))
        self._null_bits = np.uint64(sum(int(column.bit) for column in by_column if not by_column[column].is_valid))
        self._defaults = {
            column: value for column, value in by_column.items() if value.is_valid and not _is_zero(value)
        }
        self._words: Region[np.uint64] = Region(np.uint64)
        self._nulls: Region[np.uint64] = Region(np.uint64)
        self._null_keys = False  #: whether any key has ever had a null
        self._nullable = bool(self._null_bits)  #: whether any column has ever had a null; before that, no mask is read
        self._heap = Heap()

    # --- keys ---------------------------------------------------------------------------------------------------------

    def probe(self, keys: Sequence[pa.Array]) -> Probe:
        """Converts the keys of a batch, given as columns of the declared types."""
        hashes = self._hash(keys)
        self._null_keys = self._null_keys or any(array.null_count for array in keys)
        self._nullable = self._nullable or self._null_keys
        nulls = self._null_masks(keys)
        if not self._hashed:
            return Probe(hashes, _to_words(keys[0]), nulls, _NO_BYTES, self._null_keys)
        words = np.empty((len(hashes), self._key_width), np.uint64)
        words[:, 0] = hashes
        data: list[Bytes] = []
        for column, array in zip(self.keys, keys, strict=True):
            if column.is_span:
                data.append(_encode_spans(array, words, column.head, shift=sum(map(len, data))))
            else:
                words[:, column.words] = _to_words(array).reshape(-1, len(column.words))
        return Probe(hashes, read_only(words.reshape(-1)), nulls, _joined(data), self._null_keys)

    def _hash(self, keys: Sequence[pa.Array]) -> Words:
        """Returns the hashes of keys: the upper half decides the slot, and the index uses the lower half."""
        of_slot, others = keys[: self._slot_keys], keys[self._slot_keys :]
        return read_only(hash_keys(of_slot) ^ (hash_keys(others) >> _UPPER)) if others else hash_keys(keys)

    def _null_masks(self, keys: Sequence[pa.Array]) -> Words:
        masks = np.zeros(len(keys[0]) if self._null_keys else 0, np.uint64)
        for column, array in zip(self.keys, keys, strict=True):
            if array.null_count:
                masks |= np.where(null_mask(array), column.bit, np.uint64(0))
        return masks

    def hashes(self, rows: Selection) -> Words:
        """Returns the hash of the key of each row."""
        return self._gather([0], rows)[0] if self._hashed else hash_keys(self.to_arrow(self.keys, rows))

    # --- rows ---------------------------------------------------------------------------------------------------------

    def reserve(self, rows: int, data: int) -> None:
        """Makes room for `rows` rows in all, and for `data` more bytes of long spans."""
        self._words.reserve(rows * self._width)
        self._nulls.reserve(rows)
        self._heap.reserve(data)

    def stored(self) -> TableArrays:
        """The arrays that compiled code needs."""
        heap = self._heap
        return TableArrays(
            self._words.array,
            self._nulls.array,
            heap.region.array,
            heap.counts,
            self._width,
            self._key_width,
            self._plain,
            np.uint64((1 << len(self.keys)) - 1),
        )

    def append(self, first: int, probe: Probe) -> None:
        """Writes keys into unused rows from `first` on, for which there is room."""
        rows = slice(first, first + len(probe.hashes))
        words, matrix = probe.words.reshape(-1, self._key_width), self._matrix()
        for word in range(self._plain):
            matrix[rows, word] = words[:, word]
        for column in self.keys:
            if column.is_span:
                pairs = words[:, column.head : column.head + 2].copy()
                self._store_spans(column, row_numbers(rows), pairs, probe.data)
        if probe.nullable:
            self._nulls.array[rows] = probe.nulls

    def set_defaults(self, rows: Ints) -> None:
        """Writes the default of each value column into new rows."""
        if self._null_bits:
            self._nulls.array[rows] |= self._null_bits
        for column, default in self._defaults.items():
            self.assign(column, rows, pa.repeat(default, len(rows)))

    def release(self, rows: Ints) -> None:
        """Frees the bytes that rows have in the heap, before the rows are cleared or dropped."""
        for spans in self._all_spans():
            release(spans, rows, self._heap.counts)

    def clear(self, rows: Ints) -> None:
        """Marks rows as unused."""
        _clear_rows(self._words.array, self._width, rows)
        if self._nullable:
            self._nulls.array[rows] = 0

    def keep(self, rows: Ints) -> None:
        """Keeps only these rows, which ascend, and renumbers them."""
        self._words.keep(rows, self._width)
        if self._nullable:
            self._nulls.keep(rows)
        else:
            self._nulls.truncate(len(rows))

    def tidy(self, rows: Callable[[], Selection]) -> None:
        """Rewrites the heap if it is mostly garbage; `rows` are all rows in use."""
        if self._heap.wasteful:
            self._heap.rewrite(self._all_spans(), row_numbers(rows()))

    # --- columns ------------------------------------------------------------------------------------------------------

    def to_arrow(self, columns: Sequence[TableColumn], rows: Selection) -> list[pa.Array]:
        """Returns a copy of the given columns of rows."""
        words = iter(self._gather([word for column in columns if not column.is_span for word in column.words], rows))
        masks = self._nulls.array[rows] if self._nullable else None
        arrays = []
        for column in columns:
            valid = None if masks is None else validity(masks & column.bit != 0)
            if column.is_span:
                arrays.append(spans_to_arrow(column.kind, self._spans(column), row_numbers(rows), self._heap, valid))
            else:
                numbers = _from_words(column.kind, [next(words) for _ in column.words])
                arrays.append(from_numbers(column.kind, numbers, valid))
        return arrays

    def assign(self, column: TableColumn, rows: Selection, values: pa.Array) -> None:
        """Writes values, in order: the last one for a row counts."""
        if column.is_span:
            self._assign_spans(column, row_numbers(rows), values)
        elif column.is_wide:
            self._matrix()[rows, column.head : column.head + 2] = as_words(_numbers_of(values))
        else:
            self._numbers(column)[rows] = _numbers_of(values)
        self._nullable = self._nullable or values.null_count > 0
        if self._nullable:
            masks = self._nulls.array[rows]
            self._nulls.array[rows] = np.where(null_mask(values), masks | column.bit, masks & ~column.bit)

    def _assign_spans(self, column: TableColumn, rows: Ints, values: pa.Array) -> None:
        words = np.empty((len(rows), 2), np.uint64)
        data = _encode_spans(values, words, head=0, shift=0)
        self._heap.reserve(len(data))
        self._store_spans(column, rows, words, data)

    def _store_spans(self, column: TableColumn, rows: Ints, words: NDArray[np.uint64], data: Bytes) -> None:
        store(self._spans(column), rows, words.reshape(-1), data, self._heap.region.array, self._heap.counts)

    def fold(self, column: TableColumn, name: str, rows: Ints, values: pa.Array) -> Ints:
        """Combines the stored values with others, in order, by one of FOLDS that accepts the type.

        A null among the values changes nothing; a stored null is replaced by any value. Returns positions in `rows`,
        one for each row whose sum is beyond its type, and has wrapped around.
        """
        numbers, valid = to_numbers(values), None
        if values.null_count:
            valid = np.flatnonzero(~null_mask(values))
            rows, numbers = rows[valid], read_only(numbers[valid])
        if self._nullable:
            self._begin(column, name, rows[self._nulls.array[rows] & column.bit != 0])
        positions = self._combine(column, name, rows, numbers)
        return positions if valid is None else valid[positions]

    def _begin(self, column: TableColumn, name: str, empty: Ints) -> None:
        """Replaces nulls in rows by the identity of the fold."""
        identity = FOLDS[name].identity(_storage(column.kind))
        if column.is_wide:
            self._matrix()[empty, column.head : column.head + 2] = as_words(identity.reshape(1))
        else:
            self._numbers(column)[empty] = identity
        self._nulls.array[empty] &= ~column.bit

    def _combine(self, column: TableColumn, name: str, rows: Ints, numbers: NDArray[Any]) -> Ints:
        if column.is_wide:
            return self._combine_wide(column, name, rows, as_words(numbers))
        if name == "add" and numbers.dtype.kind != "f":
            return self._add(column, rows, numbers)
        if name in ("add", "add_wrapping"):  # as NumPy does below, but several times as fast
            kind = numbers.dtype if numbers.dtype == np.float64 else np.dtype(np.int64)
            add(self._words.array.view(kind), self._width, column.head, rows, numbers.view(kind))
        else:
            self._fold_plainly(column, name, rows, numbers)
        return _NONE

    def _fold_plainly(self, column: TableColumn, name: str, rows: Ints, numbers: NDArray[Any]) -> None:
        there = self._numbers(column)
        if name == "min" and numbers.dtype in (np.float64, np.float32):
            lower_floats(there, rows, numbers)
        elif name == "min" and numbers.dtype.kind == "f":  # Numba does not have it
            np.fmin.at(there, rows, numbers)
        else:
            with np.errstate(invalid="ignore"):  # NaN is compared like any number
                FOLDS[name].combine.at(there, rows, numbers)

    def _add(self, column: TableColumn, rows: Ints, addends: NDArray[Any]) -> Ints:
        noted = np.empty(len(rows), np.int64)  # memory is used only when it is written
        unsigned = addends.dtype.kind == "u"
        words = self._words.array if unsigned else self._words.array.view(np.int64)
        count = (add_unsigned if unsigned else add_signed)(words, self._width, column.head, rows, addends, noted)
        return overflowed(rows, noted[:count]) if count else _NONE

    def _combine_wide(self, column: TableColumn, name: str, rows: Ints, words: Words) -> Ints:
        place = self._words.array, self._width, column.head, rows
        if name != "add":
            extreme_wide(*place, words.reshape(-1), name == "max")
            return _NONE
        noted = np.empty(len(rows), np.int64)
        count = add_wide(*place, words.reshape(-1), noted)
        wrapped = overflowed(rows, noted[:count]) if count else _NONE
        limit = 10**column.kind.precision
        found = np.concatenate([wrapped, beyond(*place, np.uint64(limit & _WORD), np.uint64(limit >> 64))])
        return found[np.sort(np.unique(rows[found], return_index=True)[1])] if len(found) else found

    # --- words --------------------------------------------------------------------------------------------------------

    def value_words(self) -> tuple[NDArray[np.int64], int, int]:
        """Returns the words of all rows, the number of words in a row, and the index of the first value column's."""
        return self._words.array.view(np.int64), self._width, self._key_width

    def _matrix(self) -> NDArray[np.uint64]:
        words = self._words.array
        return words[: len(words) // self._width * self._width].reshape(-1, self._width)

    def _numbers(self, column: TableColumn) -> NDArray[Any]:
        """Returns a view of a fixed-width column; narrow types are the low bytes of their word."""
        kind = _storage(column.kind)
        numbers = self._words.array.view(kind)
        parts = 8 // kind.itemsize
        return numbers[column.head * parts :: self._width * parts]

    def _spans(self, column: TableColumn) -> Spans:
        return Spans(self._words.array, self._width, column.head)

    def _all_spans(self) -> list[Spans]:
        return [self._spans(column) for column in (*self.keys, *self.values) if column.is_span]

    def _gather(self, heads: Sequence[int], rows: Selection) -> NDArray[np.uint64]:
        """Returns a copy of the words at each of `heads` in turn."""
        places = np.array(heads, np.int64)
        if isinstance(rows, slice):
            copies = np.empty((len(heads), rows.stop - rows.start), np.uint64)
            _copy_run(self._words.array, self._width, places, rows.start, copies)
        else:
            copies = np.empty((len(heads), len(rows)), np.uint64)
            _copy_rows(self._words.array, self._width, places, rows, copies)
        return copies


_UPPER = np.uint64(32)
_WORD = 2**64 - 1
_NONE = np.empty(0, np.int64)
_NO_BYTES = read_only(np.empty(0, np.uint8))


def _lay_out(
    keys: Sequence[pa.DataType], values: Sequence[pa.DataType], first: int
) -> tuple[tuple[TableColumn, ...], int]:
    """Returns the place of each column in a row, and the number of words in a row."""
    kinds = [*keys, *values]
    key_order = sorted(range(len(keys)), key=lambda at: is_span(kinds[at]))
    heads = {}
    for at in [*key_order, *range(len(keys), len(kinds))]:
        heads[at] = first
        first += _words_of(kinds[at])
    return tuple(TableColumn(kind, heads[at], np.uint64(1 << at)) for at, kind in enumerate(kinds)), first


def _is_wide(kind: pa.DataType) -> bool:
    return storage_type(kind) == WIDE


def _words_of(kind: pa.DataType) -> int:
    return 2 if is_span(kind) or _is_wide(kind) else 1


def _storage(kind: pa.DataType) -> np.dtype[Any]:
    storage = storage_type(kind)
    assert storage is not None
    return storage


def _is_zero(value: pa.Scalar) -> bool:
    return not is_span(value.type) and not to_numbers(pa.repeat(value, 1)).view(np.uint8).any()


def _to_words(array: pa.Array) -> Words:
    """Returns the values of a fixed-width key column, zero for null; floats are normalised to make equals equal."""
    numbers = _numbers_of(array)
    if numbers.dtype == WIDE:
        return read_only(as_words(numbers))
    if numbers.dtype.kind == "f":
        numbers = np.where(np.isnan(numbers), numbers.dtype.type(np.nan), numbers + numbers.dtype.type(0))
    return read_only(numbers.view(f"u{numbers.itemsize}").astype(np.uint64, copy=False))


def _numbers_of(array: pa.Array) -> NDArray[Any]:
    """Returns the values of a fixed-width column, zero for null."""
    numbers = to_numbers(array)
    return zeroed(numbers, null_mask(array)) if array.null_count else numbers


def _from_words(kind: pa.DataType, words: Sequence[Words]) -> NDArray[Any]:
    storage = _storage(kind)
    if storage == WIDE:
        return np.stack(words, axis=1).view(WIDE).reshape(-1)
    return words[0].astype(f"u{storage.itemsize}", copy=False).view(storage)


def _encode_spans(array: pa.Array, words: NDArray[np.uint64], head: int, shift: int) -> Bytes:
    """Writes an array as one column of spans, and returns the bytes of the long ones."""
    starts, data = starts_and_bytes(array)
    encode(starts, data, shift, Spans(words.reshape(-1), words.shape[1], head))
    if array.null_count:
        words[null_mask(array), head : head + 2] = 0
    return data


def _joined(data: Sequence[Bytes]) -> Bytes:
    return data[0] if len(data) == 1 else read_only(np.concatenate([_NO_BYTES, *data]))


# --- compiled ---------------------------------------------------------------------------------------------------------


@kernel
def _clear_rows(words: Words, width: int, rows: Ints) -> None:
    there = pointer(words)
    for at in range(len(rows)):
        prefetch(there, rows[min(at + AHEAD, len(rows) - 1)] * width)
        for word in range(rows[at] * width, (rows[at] + 1) * width):
            there[word] = 0


@kernel
def _copy_rows(words: Words, width: int, heads: Ints, rows: Ints, copies: NDArray[np.uint64]) -> None:
    there, out, count = pointer(words), pointer(copies), len(rows)
    for at in range(count):
        ahead = rows[min(at + AHEAD, count - 1)] * width
        for head in heads:
            prefetch(there, ahead + head)
        for column in range(len(heads)):
            out[column * count + at] = there[rows[at] * width + heads[column]]


@kernel
def _copy_run(words: Words, width: int, heads: Ints, first: int, copies: NDArray[np.uint64]) -> None:
    """Copies neighbouring rows, in blocks, so that each is read from memory once."""
    there, out, count = pointer(words), pointer(copies), copies.shape[1]
    for start in range(0, count, _BLOCK):
        for column in range(len(heads)):
            for at in range(start, min(start + _BLOCK, count)):
                out[column * count + at] = there[(first + at) * width + heads[column]]
