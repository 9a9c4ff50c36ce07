"""Segments: the compiled hash table of an index, which grows one segment at a time.

It is extendible hashing. A key's *tag* is the low half of its hash (slots are its top bits). A directory maps the low
bits of the tag to a segment of 2^10 places, and the top bits of the tag say at which of them to begin to look. A
segment that is three quarters full is split in two: that takes microseconds, and no second copy of anything else. Keys
that no split would separate, because their hashes are alike, overflow into further segments behind the one they are in.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from primitives.errors import InternalError
from primitives.kernels import kernel
from primitives.state.columnar.intrinsics import pointer, prefetch
from primitives.state.columnar.probe import Probe, TableArrays, probe_pointers, same_key, store_key, stored_pointers
from primitives.state.columnar.spans import Integer

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]

# Counters: bits of a tag that the directory uses, segments in use, rows ever in use, and those of them that are free;
# and keys of the batch for which a row was created.
DEPTH, SEGMENTS, ROWS, FREE, CREATED, COUNTS = 0, 1, 2, 3, 4, 5

# Fields of a segment: number of places taken, number of low bits that the tags of its keys share, and the segment that
# it overflows into, or 0.
_FILL, _LOCAL_DEPTH, _OVERFLOW, FACTS = 0, 1, 2, 3

_PLACE_BITS = 10
PLACES = 1 << _PLACE_BITS
_FULL = PLACES * 3 // 4

#: Average number of keys per segment for which segments are reserved: so few that hardly any segment needs a split.
ROOMY = _FULL * 9 // 10

#: With a good hash, a directory has a few entries for each segment. If it would need more, splits do not help.
ENTRIES = 16

#: Number of keys that are looked up together, so that their waits for memory overlap.
_BLOCK = 128

_TAG = np.uint64(0xFFFFFFFF)
_UPPER = np.uint64(32)
_TO_PLACE = np.uint64(64 - _PLACE_BITS)


class Segments(NamedTuple):
    """The arrays of a hash table."""

    places: Words  #: each holds a tag (upper half) and the number of its row plus one, or zero if it is empty
    directory: NDArray[np.int32]
    facts: NDArray[np.int32]
    free: Ints  #: row numbers that can be used again
    counts: Ints
    room: int  #: number of segments that fit into the memory


@kernel
def _pointers(t: Segments) -> Segments:
    """Converts arrays to pointers, which all functions below expect unless they call this."""
    return Segments(
        pointer(t.places), pointer(t.directory), pointer(t.facts), pointer(t.free), pointer(t.counts), t.room
    )


# --- finding ----------------------------------------------------------------------------------------------------------


@kernel
def locate(
    table: Segments, stored: TableArrays, probe: Probe, rows: Ints, created: Ints, first: Integer, create: bool
) -> Integer:
    """Writes the rows of the keys from `first` on, or -1 for none; returns the first key not done for lack of segments.

    With `create` there is no -1, and the positions of keys for which a row was created are added to `created`.
    """
    table, stored, probe = _pointers(table), stored_pointers(stored), probe_pointers(probe)
    for start in range(first, len(rows), _BLOCK):
        end = min(start + _BLOCK, len(rows))
        _guess(table, stored, probe, rows, start, end)
        if not _confirm(table, stored, probe, rows, start, end):
            reached = _resolve(table, stored, probe, rows, created, start, end, create)
            if reached < end:
                return int(reached)
    return len(rows)


@kernel
def _guess(table: Segments, stored: TableArrays, probe: Probe, rows: Ints, start: Integer, end: Integer) -> None:
    """Writes for each key of a block the first place with its tag, or an empty one, and prefetches the row there."""
    for at in range(start, end):
        prefetch(table.places, _home(table, probe.hashes[at]))
    for at in range(start, end):
        tag = probe.hashes[at] & _TAG
        place = _home(table, tag)
        while table.places[place] and table.places[place] >> _UPPER != tag:
            place = _next(place)
        rows[at] = place
        prefetch(stored.words, _row_at(table, place) * stored.width)


@kernel
def _confirm(table: Segments, stored: TableArrays, probe: Probe, rows: Ints, start: Integer, end: Integer) -> bool:
    """Writes the rows at guessed places, or ~place if a row is not that of the key; returns whether all were."""
    confirmed = True
    for at in range(start, end):
        row = _row_at(table, rows[at])
        right = row >= 0 and same_key(stored, row, probe, at)
        rows[at] = row if right else ~rows[at]
        confirmed &= right
    return confirmed


@kernel
def _resolve(
    table: Segments,
    stored: TableArrays,
    probe: Probe,
    rows: Ints,
    created: Ints,
    start: Integer,
    end: Integer,
    create: bool,
) -> Integer:
    """Continues the search for keys of a block that are still at ~place, and creates rows; returns how far it got."""
    segments = table.counts[SEGMENTS]
    for at in range(start, end):
        if rows[at] >= 0:
            continue
        is_split = segments != table.counts[SEGMENTS]  # then the guesses may be wrong
        place = _search(table, stored, probe, at, _home(table, probe.hashes[at]) if is_split else ~rows[at])
        rows[at] = _row_at(table, place)
        if rows[at] < 0 and create:
            rows[at] = _create(table, stored, probe, at, place)
            if rows[at] < 0:
                return at
            created[table.counts[CREATED]] = at
            table.counts[CREATED] += 1
    return end


@kernel
def _search(table: Segments, stored: TableArrays, probe: Probe, at: Integer, place: Integer) -> Integer:
    """Returns the place of a key, searched from a place on, or the empty place that shows that the key is absent."""
    tag = probe.hashes[at] & _TAG
    while True:
        while table.places[place]:
            if table.places[place] >> _UPPER == tag and same_key(stored, _row_at(table, place), probe, at):
                return place
            place = _next(place)
        overflow = table.facts[(place >> _PLACE_BITS) * FACTS + _OVERFLOW]
        if not overflow:
            return place
        place = np.int64(overflow) << _PLACE_BITS | _first_place(tag)


@kernel
def _home(table: Segments, key_hash: np.uint64) -> Integer:
    """Returns the place where the search for a key begins."""
    segment, place = _segment(table, key_hash & _TAG), _first_place(key_hash & _TAG)
    return int(segment << _PLACE_BITS | place)


@kernel
def _segment(table: Segments, tag: np.uint64) -> Integer:
    return np.int64(table.directory[np.int64(tag) & ((1 << table.counts[DEPTH]) - 1)])


@kernel
def _first_place(tag: np.uint64) -> Integer:
    return np.int64(tag << _UPPER >> _TO_PLACE)


@kernel
def _next(place: Integer) -> Integer:
    """Returns the next place in the segment; after the last one, the first."""
    return (place & -PLACES) | ((place + 1) & (PLACES - 1))


@kernel
def _row_at(table: Segments, place: Integer) -> Integer:
    """Returns the row at a place, or -1 if it is empty."""
    return np.int64(table.places[place] & _TAG) - 1


@kernel
def _content(key_hash: np.uint64, row: Integer) -> np.uint64:
    """Returns the entry for a row."""
    return key_hash << _UPPER | np.uint64(row + 1)


# --- creating ---------------------------------------------------------------------------------------------------------


@kernel
def _create(table: Segments, stored: TableArrays, probe: Probe, at: Integer, place: Integer) -> Integer:
    """Returns the new row of a key whose search ended at `place`, or -1 if another segment is needed first."""
    free = table.counts[FREE]
    row = table.free[free - 1] if free else table.counts[ROWS]
    if not _enter(table, probe.hashes[at], row, place):
        return -1
    table.counts[FREE if free else ROWS] += -1 if free else 1
    store_key(stored, row, probe, at)
    return np.int64(row)


@kernel
def append(table: Segments, stored: TableArrays, probe: Probe, first: Integer) -> Integer:
    """Inserts rows at the end that have the keys from `first` on already; returns how far it got.

    Stops if it runs out of segments, and at a key that has another row.
    """
    count = len(probe.hashes)
    table, stored, probe = _pointers(table), stored_pointers(stored), probe_pointers(probe)
    for at in range(first, count):
        prefetch(table.places, _home(table, probe.hashes[min(at + _BLOCK, count - 1)]))
        place = _place_of_new(table, probe.hashes[at])
        if place >= 0:
            _occupy(table, place, _content(probe.hashes[at], table.counts[ROWS]))
        elif not _append_after_search(table, stored, probe, at):  # rare, so only this case is a call
            return at
        table.counts[ROWS] += 1
    return count


@kernel
def _append_after_search(table: Segments, stored: TableArrays, probe: Probe, at: Integer) -> bool:
    place = _search(table, stored, probe, at, _home(table, probe.hashes[at]))
    return not table.places[place] and _enter(table, probe.hashes[at], table.counts[ROWS], place)


@kernel
def _place_of_new(table: Segments, key_hash: np.uint64) -> Integer:
    """Returns the empty place for a key if the tags show that it is new, and there is room for it; otherwise -1."""
    tag, place, is_like_another = key_hash & _TAG, _home(table, key_hash), False
    while table.places[place]:
        is_like_another |= table.places[place] >> _UPPER == tag  # without a branch, which would take half as long again
        place = _next(place)
    segment = place >> _PLACE_BITS
    overflows = table.facts[segment * FACTS + _OVERFLOW] != 0
    return -1 if is_like_another or overflows or _is_full(table, segment) else place


@kernel
def insert_all(table: Segments, hashes: Words, first: Integer) -> Integer:
    """Inserts the rows from `first` on, all new; returns how far it got before it ran out of segments."""
    table = _pointers(table)
    for row in range(first, len(hashes)):
        prefetch(table.places, _home(table, hashes[min(row + _BLOCK, len(hashes) - 1)]))
        if not _insert(table, hashes[row], row):
            return row
    return len(hashes)


@kernel
def _enter(table: Segments, key_hash: np.uint64, row: Integer, place: Integer) -> bool:
    """Inserts a row at `place`, where the search for its key ended; returns False if it first needs another segment."""
    if _is_full(table, place >> _PLACE_BITS):
        return bool(_insert(table, key_hash, row))
    _occupy(table, place, _content(key_hash, row))
    return True


@kernel
def _insert(table: Segments, key_hash: np.uint64, row: Integer) -> bool:
    tag = key_hash & _TAG
    while True:
        segment = head = _segment(table, tag)
        while _is_full(table, segment) and table.facts[segment * FACTS + _OVERFLOW]:
            segment = np.int64(table.facts[segment * FACTS + _OVERFLOW])
        if not _is_full(table, segment):
            _put(table, segment, _content(tag, row))
            return True
        if not _add_segment(table, head, segment, tag):
            return False


@kernel
def _is_full(table: Segments, segment: Integer) -> bool:
    return bool(table.facts[segment * FACTS + _FILL] >= _FULL)


@kernel
def _put(table: Segments, segment: Integer, content: np.uint64) -> None:
    place = segment << _PLACE_BITS | np.int64(content >> _TO_PLACE)
    while table.places[place]:
        place = _next(place)
    _occupy(table, place, content)


@kernel
def _occupy(table: Segments, place: Integer, content: np.uint64) -> None:
    table.places[place] = content
    table.facts[(place >> _PLACE_BITS) * FACTS + _FILL] += 1


# --- growing ----------------------------------------------------------------------------------------------------------


@kernel
def spread(table: Segments, depth: int) -> None:
    """Splits segments until the tags in each share `depth` bits, as long as there is room and none overflows."""
    table = _pointers(table)
    for bits in range(depth):
        for tag in range(1 << bits):
            segment = _segment(table, np.uint64(tag))
            shallow = table.facts[segment * FACTS + _LOCAL_DEPTH] == bits
            alone = not table.facts[segment * FACTS + _OVERFLOW]
            if shallow and alone and not _add_segment(table, segment, segment, np.uint64(tag)):
                return


@kernel
def _add_segment(table: Segments, head: Integer, last: Integer, tag: np.uint64) -> bool:
    """Splits the full segment of a tag; if that is not possible, lets it overflow from the last one behind it."""
    added = table.counts[SEGMENTS]
    if added == table.room:
        return False
    table.counts[SEGMENTS] += 1
    if head == last and _deepen(table, table.facts[head * FACTS + _LOCAL_DEPTH]):
        _split(table, head, added, np.int64(tag))
    else:
        table.facts[last * FACTS + _OVERFLOW] = added
    return True


@kernel
def _deepen(table: Segments, local_depth: Integer) -> bool:
    """Ensures that the directory uses more bits than the keys of a segment share."""
    size = 1 << table.counts[DEPTH]
    if local_depth < table.counts[DEPTH]:
        return True
    if 2 * size > ENTRIES * table.counts[SEGMENTS]:
        return False
    for entry in range(size):
        table.directory[size + entry] = table.directory[entry]
    table.counts[DEPTH] += 1
    return True


@kernel
def _split(table: Segments, old: Integer, new: Integer, tag: Integer) -> None:
    """Moves the keys whose tags have the next bit set from the segment of `tag` to a new one."""
    depth = table.facts[old * FACTS + _LOCAL_DEPTH]
    bit = 1 << depth
    for entry in range(tag & (bit - 1) | bit, 1 << table.counts[DEPTH], 2 * bit):
        table.directory[entry] = new
    table.facts[old * FACTS + _LOCAL_DEPTH] = table.facts[new * FACTS + _LOCAL_DEPTH] = depth + 1
    table.facts[old * FACTS + _FILL] = 0
    contents, taken = np.empty(PLACES, np.uint64), 0
    for place in range(old << _PLACE_BITS, (old + 1) << _PLACE_BITS):
        contents[taken] = table.places[place]
        taken += table.places[place] != 0  # without a branch here and below, as it could not be predicted
        table.places[place] = 0
    for content in contents[:taken]:
        goes = (np.int64(content >> _UPPER) >> depth) & 1
        _put(table, old + goes * (new - old), content)


# --- removing ---------------------------------------------------------------------------------------------------------


@kernel
def remove(table: Segments, hashes: Words, rows: Ints) -> None:
    """Removes rows, given with the hashes of their keys, and makes their numbers free."""
    table = _pointers(table)
    for at in range(len(rows)):
        prefetch(table.places, _home(table, hashes[min(at + _BLOCK, len(rows) - 1)]))
        _take(table, hashes[at] & _TAG, rows[at])
        table.free[table.counts[FREE]] = rows[at]
        table.counts[FREE] += 1


@kernel
def _take(table: Segments, tag: np.uint64, row: Integer) -> None:
    content = _content(tag, row)
    segment = _segment(table, tag)
    place = segment << _PLACE_BITS | _first_place(tag)
    while table.places[place] != content:
        if table.places[place]:
            place = _next(place)
        else:
            segment = np.int64(table.facts[segment * FACTS + _OVERFLOW])
            if not segment:
                raise InternalError("a row of a frame is not in its index")
            place = segment << _PLACE_BITS | _first_place(tag)
    table.facts[segment * FACTS + _FILL] -= 1
    _close_gap(table, place)


@kernel
def _close_gap(table: Segments, gap: Integer) -> None:
    """Empties a place, and moves up entries that were placed behind it only because it was taken."""
    place = _next(gap)
    while table.places[place]:
        home = np.int64(table.places[place] >> _TO_PLACE)
        if (place - home) & (PLACES - 1) >= (place - gap) & (PLACES - 1):
            table.places[gap] = table.places[place]
            gap = place
        place = _next(place)
    table.places[gap] = 0
