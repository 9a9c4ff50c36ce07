"""KeyTable: the keys of a container's rows as 64-bit words, so that one compiled comparison serves all types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from primitives.hashing import hash_keys
from primitives.state.fixed import (
    Selection,
    from_numbers,
    is_span,
    null_mask,
    pick,
    read_only,
    row_numbers,
    storage_type,
    to_numbers,
    validity,
)
from primitives.state.intrinsics import pointer
from primitives.state.memory import Region
from primitives.state.spans import Heap, Spans, copy_span, encode, release, same_span, starts_and_bytes, to_array

Words = NDArray[np.uint64]
Nulls = NDArray[np.uint32]
Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

#: Bits in a row's mask of nulls.
MAX_KEY_COLUMNS = 32


class Probe(NamedTuple):
    """The keys of a batch."""

    hashes: Words
    words: Words  #: those of the first key, of the second …
    nulls: Nulls  #: for each key, a bit for each column
    data: Bytes  #: of long spans
    nullable: bool  #: as long as no key ever had a null it is false, and no nulls are looked at


class Stored(NamedTuple):
    """The keys of all rows."""

    words: Words
    nulls: Nulls
    heap: Bytes
    heap_counts: Ints
    width: int  #: words in a key
    fixed: int  #: how many of them are compared as they are; the others are spans


@dataclass(frozen=True, slots=True)
class _Column:
    kind: pa.DataType
    bit: np.uint32  #: in a row's mask of nulls
    head: int  #: the first of its words in a key


class KeyTable:
    """The key columns of rows, as a table of words.

    A single fixed-width column is one word. Any other key is its hash, then a word for each fixed-width column, then
    two for each span. A null is zero, and a bit in a mask that takes no memory before the first null.
    """

    def __init__(self, kinds: Sequence[pa.DataType]) -> None:
        self._hashed = len(kinds) > 1 or is_span(kinds[0])
        in_order = sorted(range(len(kinds)), key=lambda at: is_span(kinds[at]))
        self._fixed = self._hashed + sum(not is_span(kind) for kind in kinds)
        self._width = self._fixed + 2 * sum(map(is_span, kinds))
        heads = [*range(self._hashed, self._fixed), *range(self._fixed, self._width, 2)]
        layout = dict(zip(in_order, heads, strict=True))
        self._columns = [_Column(kind, np.uint32(1 << at), layout[at]) for at, kind in enumerate(kinds)]
        self._words: Region[np.uint64] = Region(np.uint64)
        self._nulls: Region[np.uint32] = Region(np.uint32)
        self._nullable = False
        self._heap = Heap()

    # --- batches ------------------------------------------------------------------------------------------------------

    def encode(self, columns: Sequence[pa.Array]) -> Probe:
        """The keys of a batch, as words like those in the table."""
        hashes = hash_keys(columns)
        self._nullable = self._nullable or any(column.null_count for column in columns)
        if not self._hashed:
            return Probe(hashes, _to_words(columns[0]), self._null_masks(columns), _NO_BYTES, self._nullable)
        table = np.empty((len(hashes), self._width), np.uint64)
        table[:, 0] = hashes
        data: list[Bytes] = []
        for column, array in zip(self._columns, columns, strict=True):
            if is_span(column.kind):
                data.append(_encode_spans(array, table, column.head, shift=sum(map(len, data))))
            else:
                table[:, column.head] = _to_words(array)
        return Probe(hashes, read_only(table.reshape(-1)), self._null_masks(columns), _joined(data), self._nullable)

    def _null_masks(self, columns: Sequence[pa.Array]) -> Nulls:
        masks = np.zeros(len(columns[0]) if self._nullable else 0, np.uint32)
        for column, array in zip(self._columns, columns, strict=True):
            if array.null_count:
                masks |= np.where(null_mask(array), column.bit, np.uint32(0))
        return masks

    # --- rows ---------------------------------------------------------------------------------------------------------

    def reserve(self, rows: int, data: int) -> None:
        """Makes room for so many rows in all, and for so many bytes of long spans more."""
        self._words.reserve(rows * self._width)
        self._nulls.reserve(rows)
        self._heap.reserve(data)

    def stored(self) -> Stored:
        """What compiled code needs; not to be kept, as it holds views of regions."""
        heap = self._heap
        return Stored(self._words.array, self._nulls.array, heap.region.array, heap.counts, self._width, self._fixed)

    def hashes(self, rows: Selection) -> Words:
        """The hash of the key of each row."""
        return self._pick(0, rows) if self._hashed else hash_keys(self.to_arrow(rows))

    def to_arrow(self, rows: Selection) -> list[pa.Array]:
        """The key columns of rows, in the declared order."""
        return [self._column_to_arrow(column, rows) for column in self._columns]

    def _column_to_arrow(self, column: _Column, rows: Selection) -> pa.Array:
        valid = validity(pick(self._nulls.array, rows) & column.bit != 0) if self._nullable else None
        if is_span(column.kind):
            return to_array(self._spans(column.head), row_numbers(rows), self._heap, column.kind, valid)
        return from_numbers(column.kind, _from_words(column.kind, self._pick(column.head, rows)), valid)

    def release(self, rows: Ints) -> None:
        """Lets go of the long spans of rows that are deleted."""
        for head in self._span_heads:
            release(self._spans(head), rows, self._heap.counts)

    def tidy(self, rows: Callable[[], Selection]) -> None:
        """Leaves garbage behind if there is much; `rows` are all that there are."""
        if self._heap.wasteful:
            self._heap.rewrite([self._spans(head) for head in self._span_heads], row_numbers(rows()))

    def keep(self, rows: Ints) -> None:
        """Keeps these rows only, which ascend, and numbers them anew."""
        self._words.keep(rows, self._width)
        self._nulls.keep(rows)

    @property
    def _span_heads(self) -> range:
        return range(self._fixed, self._width, 2)

    def _spans(self, head: int) -> Spans:
        return Spans(self._words.array, self._width, head)

    def _pick(self, word: int, rows: Selection) -> Words:
        return pick(self._words.array, rows, self._width, word)


_NO_BYTES = read_only(np.empty(0, np.uint8))


def _to_words(array: pa.Array) -> Words:
    """The values of a fixed-width array, zero for null; floats normalised, so that equal keys are equal words."""
    numbers = to_numbers(array)
    if numbers.dtype.kind == "f":
        numbers = np.where(np.isnan(numbers), numbers.dtype.type(np.nan), numbers + numbers.dtype.type(0))
    words = numbers.view(f"u{numbers.itemsize}").astype(np.uint64, copy=False)
    return read_only(np.where(null_mask(array), np.uint64(0), words) if array.null_count else words)


def _from_words(kind: pa.DataType, words: Words) -> NDArray[Any]:
    numbers = storage_type(kind)
    assert numbers is not None
    return words.astype(f"u{numbers.itemsize}", copy=False).view(numbers)


def _encode_spans(array: pa.Array, table: NDArray[np.uint64], head: int, shift: int) -> Bytes:
    """Writes the spans of one column into the words of a batch, and returns the bytes of the long ones."""
    starts, data = starts_and_bytes(array)
    encode(starts, data, shift, Spans(table.reshape(-1), table.shape[1], head))
    if array.null_count:
        table[null_mask(array), head : head + 2] = 0
    return data


def _joined(data: Sequence[Bytes]) -> Bytes:
    return data[0] if len(data) == 1 else read_only(np.concatenate([_NO_BYTES, *data]))


# --- for compiled code ------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def same_key(stored: Stored, row: int, probe: Probe, at: int) -> bool:
    """Whether the key of a row is the one at `at` in a batch."""
    mine, other = row * stored.width, at * stored.width
    for word in range(stored.fixed):
        if stored.words[mine + word] != probe.words[other + word]:
            return False
    if probe.nullable and stored.nulls[row] != probe.nulls[at]:
        return False
    for word in range(stored.fixed, stored.width, 2):
        if not same_span(stored.words, mine + word, stored.heap, probe.words, other + word, probe.data):
            return False
    return True


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def store_key(stored: Stored, row: int, probe: Probe, at: int) -> None:
    """Writes the key at `at` in a batch as that of a row."""
    mine, other = row * stored.width, at * stored.width
    for word in range(stored.fixed):
        stored.words[mine + word] = probe.words[other + word]
    if probe.nullable:
        stored.nulls[row] = probe.nulls[at]
    for word in range(stored.fixed, stored.width, 2):
        copy_span(stored.words, mine + word, probe.words, other + word, probe.data, stored.heap, stored.heap_counts)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def probe_pointers(p: Probe) -> Probe:
    return Probe(pointer(p.hashes), pointer(p.words), pointer(p.nulls), pointer(p.data), p.nullable)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def stored_pointers(s: Stored) -> Stored:
    return Stored(pointer(s.words), pointer(s.nulls), pointer(s.heap), pointer(s.heap_counts), s.width, s.fixed)
