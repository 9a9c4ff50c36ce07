"""Slots, the atomic units of keyed state: sets of them, and functions that distribute them over instances."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import index
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from primitives.errors import UserError

DEFAULT_SLOT_BITS = 8
MAX_SLOT_BITS = 20

#: Sets with more slots than this are read and built with NumPy; for smaller ones a plain loop is faster.
_FEW = 64


def slots_of(hashes: NDArray[np.uint64], slot_bits: int) -> NDArray[np.uint32]:
    """The slot of each hash: its top `slot_bits` bits.

    >>> slots_of(np.array([0, 2**63, 2**64 - 1], np.uint64), 2).tolist()
    [0, 2, 3]
    """
    slots = np.zeros(len(hashes), np.uint32)
    if check_slot_bits(slot_bits):  # a shift by all 64 bits is undefined, hence the zeros for 0 bits
        np.right_shift(hashes, np.uint64(64 - slot_bits), out=slots, casting="unsafe")
    return slots


def slot_of(key_hash: int, slot_bits: int) -> int:
    """The slot of one hash, as `slots_of` gives it.

    >>> slot_of(2**63, 2)
    2
    """
    return key_hash >> 64 - check_slot_bits(slot_bits)


def check_slot_bits(slot_bits: int) -> int:
    """Returns `slot_bits` if it is from 0 to MAX_SLOT_BITS, and raises UserError otherwise."""
    if not 0 <= slot_bits <= MAX_SLOT_BITS:
        raise UserError(f"slot_bits is {slot_bits}; choose a number from 0 to {MAX_SLOT_BITS}")
    return slot_bits


class SlotSet:
    """An immutable set of slots.

    One big integer holds the set, one bit per slot, so that the set operations cost some tens of nanoseconds at 256
    slots and some tens of microseconds at 2^20. What NumPy code needs, `array` and `mask`, is made once on demand.

    >>> moved = SlotSet([7, 0, 1, 2, 3])
    >>> moved, len(moved), 7 in moved
    (SlotSet(0-3, 7), 5, True)
    >>> SlotSet.full(3) - moved
    SlotSet(4-6)
    """

    __slots__ = ("_array", "_bits", "_mask")

    _bits: int
    _array: NDArray[np.uint32] | None
    _mask: NDArray[np.bool_] | None

    def __init__(self, slots: Iterable[SupportsIndex] | NDArray[np.integer[Any]] = ()) -> None:
        """The set of the given slots, which may come in any order and more than once."""
        if not isinstance(slots, np.ndarray):
            slots = list(slots)
        self._bits = _bits_of_few(slots) if len(slots) <= _FEW else _bits_of_many(np.asarray(slots))
        self._array = None
        self._mask = None

    @classmethod
    def _of(cls, bits: int) -> SlotSet:
        made = cls.__new__(cls)
        made._bits = bits
        made._array = None
        made._mask = None
        return made

    @classmethod
    def empty(cls) -> SlotSet:
        """The set without slots."""
        return cls._of(0)

    @classmethod
    def full(cls, slot_bits: int) -> SlotSet:
        """All slots of an operator with 2^slot_bits of them."""
        return cls._of((1 << (1 << check_slot_bits(slot_bits))) - 1)

    @classmethod
    def range(cls, first: SupportsIndex, last: SupportsIndex) -> SlotSet:
        """The slots from `first` to `last`, both included; empty if `last` is before `first`."""
        first, last = index(first), index(last)
        if last < first:
            return cls.empty()
        return cls._of((2 << _check_slot(last)) - (1 << _check_slot(first)))

    def __or__(self, other: SlotSet) -> SlotSet:
        return SlotSet._of(self._bits | other._bits)

    def __and__(self, other: SlotSet) -> SlotSet:
        return SlotSet._of(self._bits & other._bits)

    def __sub__(self, other: SlotSet) -> SlotSet:
        return SlotSet._of(self._bits & ~other._bits)

    def __le__(self, other: SlotSet) -> bool:
        """Whether every slot of this set is in `other`."""
        return self._bits & other._bits == self._bits

    def isdisjoint(self, other: SlotSet) -> bool:
        """Whether no slot is in both sets."""
        return not self._bits & other._bits

    def __contains__(self, slot: SupportsIndex) -> bool:
        position = index(slot)
        return position >= 0 and bool(self._bits >> position & 1)

    def __len__(self) -> int:
        return self._bits.bit_count()

    def __bool__(self) -> bool:
        return self._bits != 0

    def __iter__(self) -> Iterator[int]:
        if self._bits >> _FEW:
            return iter(self.array.tolist())
        return iter([slot for slot, bit in enumerate(bin(self._bits)[:1:-1]) if bit == "1"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SlotSet) and self._bits == other._bits

    def __hash__(self) -> int:
        return hash(self._bits)  # the hash of an int is the same in every process

    def __repr__(self) -> str:
        return f"SlotSet({', '.join(f'{a}-{b}' if a < b else str(a) for a, b in self.runs())})"

    @property
    def array(self) -> NDArray[np.uint32]:
        """The slots in order, as a read-only array."""
        if self._array is None:
            self._array = np.flatnonzero(self._unpacked(self._bits.bit_length())).astype(np.uint32)
            self._array.flags.writeable = False
        return self._array

    def mask(self, slot_bits: int) -> NDArray[np.bool_]:
        """A read-only array of 2^slot_bits booleans, true at the slots of the set; the last one made is kept.

        >>> SlotSet([1, 2]).mask(2).tolist()
        [False, True, True, False]
        """
        size = 1 << check_slot_bits(slot_bits)
        if self._mask is None or len(self._mask) != size:
            self._check_fits(slot_bits)
            self._mask = self._unpacked(size)
            self._mask.flags.writeable = False
        return self._mask

    def _check_fits(self, slot_bits: int) -> None:
        if self._bits >> (1 << slot_bits):
            raise UserError(
                f"slot {self._bits.bit_length() - 1} does not exist in an operator of {1 << slot_bits} slots "
                f"(slot_bits={slot_bits})"
            )

    def _unpacked(self, size: int) -> NDArray[np.bool_]:
        packed = np.frombuffer(self._bits.to_bytes((size + 7) // 8, "little"), np.uint8)
        return np.unpackbits(packed, count=size, bitorder="little").view(np.bool_)

    def runs(self) -> list[tuple[int, int]]:
        """The set as (first, last) pairs of consecutive slots, in order.

        >>> SlotSet([0, 1, 2, 7]).runs()
        [(0, 2), (7, 7)]
        """
        slots = self.array
        if not len(slots):
            return []
        breaks = np.flatnonzero(np.diff(slots) != 1)
        firsts = slots[np.concatenate(([0], breaks + 1))]
        lasts = slots[np.concatenate((breaks, [len(slots) - 1]))]
        return list(zip(firsts.tolist(), lasts.tolist(), strict=True))

    def parts(self, count: int) -> Iterator[SlotSet]:
        """Divides the set, in order, into up to `count` parts of equal size; the last one may be smaller.

        >>> [*SlotSet.range(3, 7).parts(2)]
        [SlotSet(3-5), SlotSet(6-7)]
        """
        size = -(-len(self) // count)
        for first in range(0, len(self), size or 1):
            yield SlotSet(self.array[first : first + size])

    def to_json(self) -> list[list[int]]:
        """The set as a list of [first, last] runs, for `from_json`."""
        return [[first, last] for first, last in self.runs()]

    @classmethod
    def from_json(cls, runs: Sequence[Sequence[int]]) -> SlotSet:
        """The set that `to_json` wrote.

        >>> SlotSet.from_json([[0, 2], [7, 7]])
        SlotSet(0-2, 7)
        """
        return cls(np.concatenate([np.arange(*_checked_run(run)) for run in runs])) if runs else cls.empty()


def _checked_run(run: Sequence[int]) -> tuple[int, int]:
    match run:
        case [int(first), int(last)] if first <= last:
            return _check_slot(first), _check_slot(last) + 1
    raise UserError(f"{run!r} is not a run of slots; write [first, last] with first <= last")


def _check_slot(slot: int) -> int:
    if not 0 <= slot < 1 << MAX_SLOT_BITS:
        raise UserError(f"there is no slot {slot}: slots are numbered from 0 to {(1 << MAX_SLOT_BITS) - 1}")
    return slot


def _bits_of_few(slots: Iterable[SupportsIndex]) -> int:
    bits = 0
    for slot in slots:
        bits |= 1 << _check_slot(_as_int(slot))
    return bits


def _bits_of_many(slots: NDArray[Any]) -> int:
    if slots.dtype.kind not in "iu":
        raise UserError(f"slots are integers, and these are {slots.dtype}")
    member = np.zeros(_check_slot(int(slots.max())) + 1, np.bool_)
    _check_slot(int(slots.min()))
    member[slots] = True
    return int.from_bytes(np.packbits(member, bitorder="little").tobytes(), "little")


def _as_int(slot: SupportsIndex) -> int:
    try:
        return index(slot)
    except TypeError:
        raise UserError(f"slots are integers, and {slot!r} is a {type(slot).__name__}") from None


def contiguous_assignment(parallelism: int, slot_bits: int) -> NDArray[np.int32]:
    """The owner of every slot when `parallelism` instances share all slots in runs that are as equal as can be.

    Runs of unequal length alternate. (Heron's equations give the longer runs to the first instances instead, so its
    assignments differ from these where slots cannot be shared evenly.)

    >>> contiguous_assignment(3, 3).tolist()
    [0, 0, 0, 1, 1, 1, 2, 2]
    """
    size = _shared_slots(parallelism, slot_bits)
    return (np.arange(size) * parallelism // size).astype(np.int32)


def _shared_slots(parallelism: int, slot_bits: int) -> int:
    size = 1 << check_slot_bits(slot_bits)
    if not 1 <= parallelism <= size:
        raise UserError(
            f"{parallelism} instances cannot share {size} slots (slot_bits={slot_bits}); "
            f"choose a parallelism from 1 to {size}, or more slot_bits"
        )
    return size


def _even_bound(part: int, parts: int, size: int) -> int:
    """Returns where `part` begins if `size` items are divided into `parts`: the ceiling of part * size / parts."""
    return -(-part * size // parts)


def split_evenly(slots: SlotSet, parts: int) -> list[SlotSet]:
    """Cuts a set, in slot order, into parts whose numbers of slots differ by at most one.

    All slots of an operator are cut as in `contiguous_assignment`. Parts are empty only if there are fewer slots.

    >>> split_evenly(SlotSet([0, 1, 2, 10, 11]), 2)
    [SlotSet(0-2), SlotSet(10-11)]
    """
    _check_parts(parts)
    return _cut(slots, [_even_bound(part, parts, len(slots)) for part in range(parts + 1)])


def split_by_weight(slots: SlotSet, weights: NDArray[np.float64], parts: int) -> list[SlotSet]:
    """Cuts a set, in slot order, into the parts whose heaviest is as light as any such cut allows.

    `weights` holds one weight per slot, aligned with `slots.array`. The minimum is exact over the prefix sums of the
    weights (so exact altogether for whole weights below 2^53); among cuts that reach it, a fairly even one is taken. No
    part is empty unless there are fewer slots than parts. Costs one pass over the slots, and for each part a few dozen
    binary searches.

    >>> split_by_weight(SlotSet.full(3), np.array([9, 1, 1, 1, 1, 1, 1, 3]), 2)
    [SlotSet(0), SlotSet(1-7)]
    """
    _check_parts(parts)
    totals = _running_totals(slots, weights)
    if parts >= len(slots) or not totals[-1]:
        return split_evenly(slots, parts)
    return _cut(slots, _even_bounds_under(_lightest_cap(totals, parts), totals, parts))


def _check_parts(parts: int) -> None:
    if parts < 1:
        raise UserError(f"slots cannot be split into {parts} parts; ask for at least one")


def _cut(slots: SlotSet, bounds: Sequence[int]) -> list[SlotSet]:
    """The parts of a set between consecutive bounds, which count its slots in order."""
    array = slots.array
    return [
        slots & SlotSet.range(array[start], array[end - 1]) if start < end else SlotSet.empty()
        for start, end in pairwise(bounds)
    ]


def _running_totals(slots: SlotSet, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = np.asarray(weights, np.float64)
    if weights.shape != (len(slots),):
        raise UserError(f"{len(slots)} slots need as many weights, one each; got an array of shape {weights.shape}")
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        raise UserError(f"slot {slots.array[wrong[0]]} weighs {weights[wrong[0]]}; weights are finite and not negative")
    return np.concatenate(([0.0], np.cumsum(weights)))


def _lightest_cap(totals: NDArray[np.float64], parts: int) -> float:
    """The least weight such that parts no heavier than it can hold everything.

    Exact bisection: each probe moves a bound to the weight of a run of slots that exists, beyond which nothing changes,
    so the bounds meet at the answer itself and not near it.
    """
    low, high = float(np.diff(totals).max()), float(totals[-1])
    while low < high:
        probe = (low + high) / 2
        bounds = _pack(totals, probe if probe < high else low, parts)
        if bounds[-1] == len(totals) - 1:
            high = max(float(totals[end] - totals[start]) for start, end in pairwise(bounds))
        else:
            low = min(float(totals[end + 1] - totals[start]) for start, end in pairwise(bounds))
    return high


def _pack(totals: NDArray[np.float64], cap: float, parts: int) -> list[int]:
    """Bounds of up to `parts` parts, each filled up to `cap`; everything fits if the last bound is the end."""
    bounds = [0]
    while bounds[-1] < len(totals) - 1 and len(bounds) <= parts:
        bounds.append(_furthest_end(totals, bounds[-1], cap))
    return bounds


def _furthest_end(totals: NDArray[np.float64], start: int, cap: float) -> int:
    return bisect_right(totals, cap, lo=start + 1, key=lambda total: total - totals[start]) - 1


def _earliest_start(totals: NDArray[np.float64], end: int, cap: float) -> int:
    return bisect_left(totals, -cap, hi=end, key=lambda total: total - totals[end])


def _even_bounds_under(cap: float, totals: NDArray[np.float64], parts: int) -> list[int]:
    """Returns bounds of exactly `parts` parts, none empty and none above `cap`, each near an even share of the rest."""
    size = len(totals) - 1
    least = [size]  # least[k]: from here on, everything fits into the last k parts
    for _ in range(parts - 1):
        least.append(_earliest_start(totals, least[-1], cap))
    bounds = [0]
    for left in range(parts - 1, 0, -1):  # `left` parts follow the one whose end is chosen, and each needs a slot
        start = bounds[-1]
        share = totals[start] + (totals[-1] - totals[start]) / (left + 1)
        earliest, latest = max(least[left], start + 1), min(_furthest_end(totals, start, cap), size - left)
        bounds.append(min(max(_nearest(totals, share), earliest), latest))
    return [*bounds, size]


def _nearest(totals: NDArray[np.float64], target: float) -> int:
    """Returns the position whose running total is nearest to `target`, which is not above the last one."""
    above = min(int(np.searchsorted(totals, target)), len(totals) - 1)
    below = max(above - 1, 0)
    return below if target - totals[below] < totals[above] - target else above
