"""Index: a vectorised hash table that finds the rows of keys, and grows a segment at a time.

It is extendible hashing. A key's *tag* is the low half of its hash (slots are its top bits). A directory maps the low
bits of the tag to a segment of 2^12 places, and the top bits of the tag say at which of them to begin to look. A
segment that is three quarters full is split in two: that takes microseconds, and no second copy of anything else. Keys
that no split would separate, because their hashes are alike, overflow into further segments behind the one they are in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from primitives.errors import EnvironmentFault
from primitives.state.bitmap import Bitmap, rows_of
from primitives.state.fixed import Selection
from primitives.state.intrinsics import pointer, prefetch
from primitives.state.keytable import KeyTable, Probe, Stored, probe_pointers, same_key, store_key, stored_pointers
from primitives.state.memory import Region

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]
Integer: TypeAlias = "int | np.integer[Any]"  # in compiled code, always 64 bits

# What an index counts.
_DEPTH, _SEGMENTS, _ROWS, _FREE, _CREATED = range(5)

# What is known of each segment: how many places are taken, how many bits of the tag its keys share, and the segment
# that it overflows into, or 0.
_FILL, _LOCAL_DEPTH, _OVERFLOW, _FACTS = 0, 1, 2, 3

_PLACE_BITS = 12
_PLACES = 1 << _PLACE_BITS
_FULL = _PLACES * 3 // 4

#: A good hash needs a directory of a few entries per segment. If one would take more, then splits do not help.
_ENTRIES_PER_SEGMENT = 16

_MAX_ROWS = 2**32 - 1

#: Keys looked up at the same time, so that they wait for memory together.
_BLOCK = 128

_TAG = np.uint64(0xFFFFFFFF)
_UPPER = np.uint64(32)
_TO_PLACE = np.uint64(64 - _PLACE_BITS)


class Located(NamedTuple):
    """Where the keys of a batch are."""

    rows: Ints  #: -1 if there is no row
    created: Ints  #: positions, in the batch, of the keys for which a row was created
    hashes: Words


class _Table(NamedTuple):
    places: Words  #: in each, a tag (upper half), and the number of its row plus one; zero if empty
    directory: NDArray[np.int32]
    facts: NDArray[np.int32]
    free: Ints
    counts: Ints
    room: int  #: for how many segments there is memory


class Index:
    """Numbers rows by key: 0, 1, 2 …, and again those of rows that were removed.

    >>> index = Index([pa.int64()])
    >>> index.locate([pa.array([7, 9, 7])], create=True).rows.tolist()
    [0, 1, 0]
    >>> index.locate([pa.array([9, 8])], create=False).rows.tolist()
    [1, -1]
    """

    def __init__(self, kinds: Sequence[pa.DataType]) -> None:
        self._keys = KeyTable(kinds)
        self.live = Bitmap()
        self._free: Region[np.int64] = Region(np.int64)
        self._clear()

    def _clear(self) -> None:
        self._places: Region[np.uint64] = Region(np.uint64)
        self._directory: Region[np.int32] = Region(np.int32)
        self._facts: Region[np.int32] = Region(np.int32)
        self._counts = np.array([0, 1, 0, 0, 0])
        self._reserve_segments(1)

    def __len__(self) -> int:
        return self.end - int(self._counts[_FREE])

    @property
    def end(self) -> int:
        """One more than the highest row number ever in use."""
        return int(self._counts[_ROWS])

    @property
    def rows(self) -> Selection:
        """All rows."""
        return slice(0, self.end) if not self._counts[_FREE] else rows_of(self.live.words())

    def locate(self, columns: Sequence[pa.Array], *, create: bool) -> Located:
        """The row of each key, given by columns of the declared types; with `create`, there is one for every key."""
        probe = self._keys.encode(columns)
        count = len(probe.hashes)
        rows, created = np.empty(count, np.int64), np.empty(count if create else 0, np.int64)
        if create:
            self._reserve_rows(count, len(probe.data))
        self._counts[_CREATED] = done = 0
        while (done := _locate(self._table(), self._keys.stored(), probe, rows, created, done, create)) < count:
            self._reserve_segments(int(self._counts[_SEGMENTS]) + 1)
        created = created[: self._counts[_CREATED]]
        self.live.add(rows[created])
        return Located(rows, created, probe.hashes)

    def distinct(self, rows: Ints) -> Ints:
        """Those of the given numbers that are rows, each once."""
        members = self.live.discard(rows)
        self.live.add(members)
        return members

    def remove(self, rows: Ints) -> None:
        """Forgets rows, each given once; their numbers are free for new keys."""
        self._free.reserve(int(self._counts[_FREE]) + len(rows))
        _remove(self._table(), self._keys.hashes(rows), rows)
        self._keys.release(rows)
        self.live.discard(rows)
        self._keys.tidy(lambda: self.rows)

    def keys(self, rows: Selection) -> list[pa.Array]:
        """The key columns of rows."""
        return self._keys.to_arrow(rows)

    def hashes(self, rows: Selection) -> Words:
        """The hash of the key of each row."""
        return self._keys.hashes(rows)

    def compact(self) -> Ints:
        """Numbers all rows anew, without gaps; returns the old number of each. Gives memory back."""
        rows = rows_of(self.live.words())
        self._keys.keep(rows)
        self.live.renumber(rows)
        self._free.truncate(0)
        self._clear()
        self._counts[_ROWS] = len(rows)
        hashes, done = self._keys.hashes(slice(0, len(rows))), 0
        while (done := _insert_all(self._table(), hashes, done)) < len(rows):
            self._reserve_segments(int(self._counts[_SEGMENTS]) + 1)
        return rows

    def _reserve_rows(self, more: int, data: int) -> None:
        if self.end + more > _MAX_ROWS:
            raise EnvironmentFault(f"an index holds up to {_MAX_ROWS} rows; run the operator on more instances")
        self._keys.reserve(self.end + more, data)

    def _reserve_segments(self, count: int) -> None:
        self._places.reserve(count * _PLACES)
        capacity = len(self._places.array) // _PLACES
        self._facts.reserve(capacity * _FACTS)
        self._directory.reserve(capacity * _ENTRIES_PER_SEGMENT)

    def _table(self) -> _Table:
        """What compiled code needs; not to be kept, as it holds views of regions."""
        return _Table(
            self._places.array,
            self._directory.array,
            self._facts.array,
            self._free.array,
            self._counts,
            len(self._places.array) // _PLACES,
        )


# --- finding ----------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _locate(
    table: _Table, stored: Stored, probe: Probe, rows: Ints, created: Ints, first: Integer, create: bool
) -> Integer:
    """Writes the rows of the keys from `first` on; returns how far it got before it ran out of segments."""
    guesses = np.empty(_BLOCK, np.int64)
    table, stored, probe = _pointers(table), stored_pointers(stored), probe_pointers(probe)
    for start in range(first, len(rows), _BLOCK):
        end = min(start + _BLOCK, len(rows))
        _guess(table, stored, probe, start, end, guesses)
        segments = table.counts[_SEGMENTS]
        for at in range(start, end):
            unmoved = segments == table.counts[_SEGMENTS]
            place = _search(
                table, stored, probe, at, guesses[at - start] if unmoved else _home(table, probe.hashes[at])
            )
            row = _row_at(table, place)
            if row < 0 and create:
                row = _create(table, stored, probe, at, place)
                if row < 0:
                    return at
                created[table.counts[_CREATED]] = at
                table.counts[_CREATED] += 1
            rows[at] = row
    return len(rows)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _guess(table: _Table, stored: Stored, probe: Probe, start: Integer, end: Integer, guesses: Ints) -> None:
    """The first place with the right tag, or with none, for each key of a block; fetches the keys of the rows there."""
    for at in range(start, end):
        prefetch(table.places, _home(table, probe.hashes[at]))
    for at in range(start, end):
        tag = probe.hashes[at] & _TAG
        place = _home(table, tag)
        while table.places[place] and table.places[place] >> _UPPER != tag:
            place = _next(place)
        guesses[at - start] = place
        prefetch(stored.words, _row_at(table, place) * stored.width)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _search(table: _Table, stored: Stored, probe: Probe, at: Integer, place: Integer) -> Integer:
    """The place of a key, looked for from a place on; or, if it has none, the empty one at which that is certain."""
    tag = probe.hashes[at] & _TAG
    while True:
        while table.places[place]:
            if table.places[place] >> _UPPER == tag and same_key(stored, _row_at(table, place), probe, at):
                return place
            place = _next(place)
        overflow = table.facts[(place >> _PLACE_BITS) * _FACTS + _OVERFLOW]
        if not overflow:
            return place
        place = np.int64(overflow) << _PLACE_BITS | _first_place(tag)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _home(table: _Table, key_hash: np.uint64) -> Integer:
    """The place at which to begin to look for a key."""
    tag = key_hash & _TAG
    return _segment(table, tag) << _PLACE_BITS | _first_place(tag)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _segment(table: _Table, tag: np.uint64) -> Integer:
    return np.int64(table.directory[np.int64(tag) & ((1 << table.counts[_DEPTH]) - 1)])


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _first_place(tag: np.uint64) -> Integer:
    return np.int64(tag << _UPPER >> _TO_PLACE)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _next(place: Integer) -> Integer:
    """The place after one, within its segment; after the last one, the first."""
    return (place & -_PLACES) | ((place + 1) & (_PLACES - 1))


# --- creating ---------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _create(table: _Table, stored: Stored, probe: Probe, at: Integer, place: Integer) -> Integer:
    """The new row of a key, whose search ended at `place`; or -1 if the index needs another segment first."""
    free = table.counts[_FREE]
    row = table.free[free - 1] if free else table.counts[_ROWS]
    if _is_full(table, place >> _PLACE_BITS):
        if not _insert(table, probe.hashes[at], row):
            return -1
    else:
        _occupy(table, place, _content(probe.hashes[at], row))
    table.counts[_FREE if free else _ROWS] += -1 if free else 1
    store_key(stored, row, probe, at)
    return np.int64(row)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _insert_all(table: _Table, hashes: Words, first: Integer) -> Integer:
    """Inserts the rows from `first` on; returns how far it got before it ran out of segments."""
    table = _pointers(table)
    for row in range(first, len(hashes)):
        if not _insert(table, hashes[row], row):
            return row
    return len(hashes)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _insert(table: _Table, key_hash: np.uint64, row: Integer) -> bool:
    tag = key_hash & _TAG
    while True:
        segment = head = _segment(table, tag)
        while _is_full(table, segment) and table.facts[segment * _FACTS + _OVERFLOW]:
            segment = np.int64(table.facts[segment * _FACTS + _OVERFLOW])
        if not _is_full(table, segment):
            _put(table, segment, _content(tag, row))
            return True
        if not _add_segment(table, head, segment, tag):
            return False


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _is_full(table: _Table, segment: Integer) -> bool:
    return bool(table.facts[segment * _FACTS + _FILL] >= _FULL)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _put(table: _Table, segment: Integer, content: np.uint64) -> None:
    place = segment << _PLACE_BITS | np.int64(content >> _TO_PLACE)
    while table.places[place]:
        place = _next(place)
    _occupy(table, place, content)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _occupy(table: _Table, place: Integer, content: np.uint64) -> None:
    table.places[place] = content
    table.facts[(place >> _PLACE_BITS) * _FACTS + _FILL] += 1


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _content(key_hash: np.uint64, row: Integer) -> np.uint64:
    """What stands at the place of a row."""
    return key_hash << _UPPER | np.uint64(row + 1)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _row_at(table: _Table, place: Integer) -> Integer:
    """The row at a place, or -1 if it is empty."""
    return np.int64(table.places[place] & _TAG) - 1


# --- growing ----------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add_segment(table: _Table, head: Integer, last: Integer, tag: np.uint64) -> bool:
    """Splits the full segment of a tag or, failing that, lets it overflow from the last one behind it."""
    added = table.counts[_SEGMENTS]
    if added == table.room:
        return False
    table.counts[_SEGMENTS] += 1
    if head == last and _deepen(table, table.facts[head * _FACTS + _LOCAL_DEPTH]):
        _split(table, head, added, np.int64(tag))
    else:
        table.facts[last * _FACTS + _OVERFLOW] = added
    return True


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _deepen(table: _Table, local_depth: Integer) -> bool:
    """Makes sure that the directory looks at more bits than the keys of a segment share."""
    size = 1 << table.counts[_DEPTH]
    if local_depth < table.counts[_DEPTH]:
        return True
    if 2 * size > _ENTRIES_PER_SEGMENT * table.counts[_SEGMENTS]:
        return False
    for entry in range(size):
        table.directory[size + entry] = table.directory[entry]
    table.counts[_DEPTH] += 1
    return True


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _split(table: _Table, old: Integer, new: Integer, tag: Integer) -> None:
    """Moves the keys whose tags have the next bit set from the segment of `tag` to a new one."""
    depth = table.facts[old * _FACTS + _LOCAL_DEPTH]
    bit = 1 << depth
    for entry in range(tag & (bit - 1) | bit, 1 << table.counts[_DEPTH], 2 * bit):
        table.directory[entry] = new
    table.facts[old * _FACTS + _LOCAL_DEPTH] = table.facts[new * _FACTS + _LOCAL_DEPTH] = depth + 1
    table.facts[old * _FACTS + _FILL] = 0
    contents, taken = np.empty(_PLACES, np.uint64), 0
    for place in range(old << _PLACE_BITS, (old + 1) << _PLACE_BITS):
        contents[taken] = table.places[place]
        taken += table.places[place] != 0  # no branch here nor below, as none could be foreseen
        table.places[place] = 0
    for content in contents[:taken]:
        goes = (np.int64(content >> _UPPER) >> depth) & 1
        _put(table, old + goes * (new - old), content)


# --- removing ---------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _remove(table: _Table, hashes: Words, rows: Ints) -> None:
    for at in range(len(rows)):
        _take(table, hashes[at] & _TAG, rows[at])
        table.free[table.counts[_FREE]] = rows[at]
        table.counts[_FREE] += 1


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _take(table: _Table, tag: np.uint64, row: Integer) -> None:
    content = _content(tag, row)
    segment = _segment(table, tag)
    place = segment << _PLACE_BITS | _first_place(tag)
    while table.places[place] != content:
        if table.places[place]:
            place = _next(place)
        else:
            segment = np.int64(table.facts[segment * _FACTS + _OVERFLOW])
            place = segment << _PLACE_BITS | _first_place(tag)
    table.facts[segment * _FACTS + _FILL] -= 1
    _close_gap(table, place)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _close_gap(table: _Table, gap: Integer) -> None:
    """Empties a place, and moves up what was put behind it only because it was taken."""
    place = _next(gap)
    while table.places[place]:
        home = np.int64(table.places[place] >> _TO_PLACE)
        if (place - home) & (_PLACES - 1) >= (place - gap) & (_PLACES - 1):
            table.places[gap] = table.places[place]
            gap = place
        place = _next(place)
    table.places[gap] = 0


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _pointers(t: _Table) -> _Table:
    return _Table(pointer(t.places), pointer(t.directory), pointer(t.facts), pointer(t.free), pointer(t.counts), t.room)
