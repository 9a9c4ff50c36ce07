"""Compares the keys of a batch, as 64-bit words, with stored keys, by one compiled function for all types."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from primitives.kernels import kernel
from primitives.state.columnar.intrinsics import pointer
from primitives.state.columnar.spans import Integer, copy_span, same_span

Words = NDArray[np.uint64]
Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]


class Probe(NamedTuple):
    """The keys of a batch, as words in the layout of the table."""

    hashes: Words
    words: Words
    nulls: Words  #: for each key, a bit for each column
    data: Bytes  #: bytes of long spans
    nullable: bool  #: false until a key has a null; then nulls are not compared


class TableArrays(NamedTuple):
    """The rows of a table, for compiled code; not to be kept, as it holds views of regions."""

    words: Words
    nulls: Words
    heap: Bytes
    heap_counts: Ints
    width: int  #: words in a row
    key_width: int  #: number of key words, which come first
    plain: int  #: number of key words that are compared directly, which come first; the others are spans
    key_bits: np.uint64  #: bits of the key columns in a mask of nulls


@kernel
def probe_pointers(p: Probe) -> Probe:
    """The probe with pointers for arrays."""
    return Probe(pointer(p.hashes), pointer(p.words), pointer(p.nulls), pointer(p.data), p.nullable)


@kernel
def stored_pointers(s: TableArrays) -> TableArrays:
    """The rows with pointers for arrays."""
    words, nulls, heap, counts = pointer(s.words), pointer(s.nulls), pointer(s.heap), pointer(s.heap_counts)
    return TableArrays(words, nulls, heap, counts, s.width, s.key_width, s.plain, s.key_bits)


@kernel
def same_key(stored: TableArrays, row: Integer, probe: Probe, at: Integer) -> bool:
    """Whether the key of a row is the one at `at` in a batch."""
    mine, other = row * stored.width, at * stored.key_width
    for word in range(stored.plain):
        if stored.words[mine + word] != probe.words[other + word]:
            return False
    if probe.nullable and stored.nulls[row] & stored.key_bits != probe.nulls[at]:
        return False
    for word in range(stored.plain, stored.key_width, 2):
        if not same_span(stored.words, mine + word, stored.heap, probe.words, other + word, probe.data):
            return False
    return True


@kernel
def store_key(stored: TableArrays, row: Integer, probe: Probe, at: Integer) -> None:
    """Writes the key at `at` in a batch as that of a row."""
    mine, other = row * stored.width, at * stored.key_width
    for word in range(stored.plain):
        stored.words[mine + word] = probe.words[other + word]
    if probe.nullable:
        stored.nulls[row] = probe.nulls[at]
    for word in range(stored.plain, stored.key_width, 2):
        copy_span(stored.words, mine + word, probe.words, other + word, probe.data, stored.heap, stored.heap_counts)
