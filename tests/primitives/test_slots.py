"""Slots of hashes, sets of slots, and the cuts that share slots out."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from primitives.errors import UserError
from primitives.slots import (
    MAX_SLOT_BITS,
    SlotSet,
    contiguous_assignment,
    slot_of,
    slots_of,
    split_by_weight,
    split_evenly,
)

LAST_SLOT = 2**MAX_SLOT_BITS - 1

members = st.sets(st.integers(0, 40), max_size=30) | st.sets(st.integers(0, 5000), min_size=60, max_size=90)
slot_sets = members.map(SlotSet)
slot_bits = st.integers(0, MAX_SLOT_BITS)
quickly = settings(deadline=None)


# --- the slot of a hash ---


@quickly
@given(st.lists(st.integers(0, 2**64 - 1)), slot_bits)
@example([0, 2**63, 2**64 - 1], 0)
def test_a_slot_is_the_top_bits_of_the_hash(hashes: list[int], bits: int) -> None:
    expected = [key_hash // 2 ** (64 - bits) for key_hash in hashes]
    slots = slots_of(np.array(hashes, np.uint64), bits)
    assert slots.dtype == np.uint32
    assert slots.tolist() == expected == [slot_of(key_hash, bits) for key_hash in hashes]


@pytest.mark.parametrize("bits", [-1, MAX_SLOT_BITS + 1])
@pytest.mark.parametrize(
    "use",
    [
        SlotSet.full,
        SlotSet([0]).mask,
        lambda bits: slots_of(np.zeros(1, np.uint64), bits),
        lambda bits: slot_of(0, bits),
        lambda bits: contiguous_assignment(1, bits),
    ],
)
def test_slot_bits_out_of_range_are_refused(use: Callable[[int], object], bits: int) -> None:
    with pytest.raises(UserError, match=rf"slot_bits is {bits}; choose a number from 0 to 20"):
        use(bits)


# --- sets of slots ---


@quickly
@given(members, members)
def test_sets_of_slots_behave_as_sets(a: set[int], b: set[int]) -> None:
    one, other = SlotSet(a), SlotSet(b)
    assert set(one | other) == a | b
    assert set(one & other) == a & b
    assert set(one - other) == a - b
    assert (one <= other, one.isdisjoint(other), one == other) == (a <= b, a.isdisjoint(b), a == b)
    assert (one & other) <= one <= (one | other)
    assert (len(one), bool(one)) == (len(a), bool(a))
    assert [slot in one for slot in range(-1, 60)] == [slot in a for slot in range(-1, 60)]


@quickly
@given(members)
def test_slots_are_listed_in_order(slots: set[int]) -> None:
    assert list(SlotSet(slots)) == SlotSet(slots).array.tolist() == sorted(slots)
    assert SlotSet(slots).array.dtype == np.uint32


@quickly
@given(st.lists(st.integers(0, 300), max_size=200))
@example([LAST_SLOT, 0])
def test_a_set_is_built_from_any_iterable_in_any_order(slots: list[int]) -> None:
    wanted = SlotSet(set(slots))
    given_as: list[Any] = [
        reversed(slots),
        np.array(slots, np.uint32),
        np.array(slots, np.int64),
        map(np.int64, slots),
        wanted,
    ]
    assert all(SlotSet(form) == wanted for form in given_as)


@quickly
@given(members)
def test_equal_sets_have_equal_hashes(slots: set[int]) -> None:
    assert hash(SlotSet(slots)) == hash(SlotSet(sorted(slots)) | SlotSet.empty())


def test_a_set_of_slots_is_unlike_other_sets() -> None:
    assert SlotSet([1, 2]) != {1, 2}


@quickly
@given(members)
def test_runs_are_the_longest_stretches_of_consecutive_slots(slots: set[int]) -> None:
    runs = SlotSet(slots).runs()
    assert [slot for first, last in runs for slot in range(first, last + 1)] == sorted(slots)
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(runs))


@quickly
@given(slot_sets)
def test_a_set_survives_json(slots: SlotSet) -> None:
    assert SlotSet.from_json(json.loads(json.dumps(slots.to_json()))) == slots


@quickly
@given(slot_sets, st.integers(13, 15))
def test_a_mask_is_true_at_the_slots_of_the_set(slots: SlotSet, bits: int) -> None:
    for size in (bits, bits + 1):  # the kept mask of one size does not stand in for another
        mask = slots.mask(size)
        assert len(mask) == 2**size
        assert np.flatnonzero(mask).tolist() == list(slots)
    assert slots.mask(bits) is slots.mask(bits)


def test_a_mask_that_is_too_short_is_refused() -> None:
    assert SlotSet([3]).mask(2).tolist() == [False, False, False, True]
    with pytest.raises(UserError, match=r"slot 4 does not exist in an operator of 4 slots \(slot_bits=2\)"):
        SlotSet([1, 4]).mask(2)


@pytest.mark.parametrize("view", [lambda slots: slots.array, lambda slots: slots.mask(3)], ids=["array", "mask"])
def test_what_a_set_gives_out_cannot_be_written(view: Callable[[SlotSet], np.ndarray[Any, Any]]) -> None:
    with pytest.raises(ValueError, match="read-only"):
        view(SlotSet([1, 2]))[0] = 1


@quickly
@given(st.integers(0, 500), st.integers(0, 500))
def test_a_range_includes_both_ends(first: int, last: int) -> None:
    assert list(SlotSet.range(first, last)) == list(range(first, last + 1))


@pytest.mark.parametrize("bits", [0, 1, 8, MAX_SLOT_BITS])
def test_the_full_set_has_every_slot(bits: int) -> None:
    assert SlotSet.full(bits) == SlotSet.range(0, 2**bits - 1)
    assert len(SlotSet.full(bits)) == 2**bits == len(SlotSet.full(bits).array)


def test_a_set_shows_its_runs() -> None:
    assert repr(SlotSet([7, 0, 1, 2, 3])) == "SlotSet(0-3, 7)"
    assert repr(SlotSet.empty()) == "SlotSet()"


@pytest.mark.parametrize("slot", [-1, LAST_SLOT + 1])
@pytest.mark.parametrize(
    "build",
    [
        lambda slot: SlotSet([0, slot]),
        lambda slot: SlotSet([*range(100), slot]),
        lambda slot: SlotSet(np.append(np.arange(100), slot)),
        lambda slot: SlotSet.range(min(slot, 0), slot if slot > 0 else 5),
        lambda slot: SlotSet.from_json([[min(slot, 0), max(slot, 0)]]),
    ],
)
def test_a_slot_out_of_range_is_refused(build: Callable[[int], SlotSet], slot: int) -> None:
    with pytest.raises(UserError, match=f"there is no slot {slot}"):
        build(slot)


@pytest.mark.parametrize("slots", [["1"], [1.0], np.arange(100.0)], ids=["string", "float", "float array"])
def test_slots_that_are_not_integers_are_refused(slots: Any) -> None:
    with pytest.raises(UserError, match="slots are integers"):
        SlotSet(slots)


@pytest.mark.parametrize("run", [[3, 2], [1], [1, 2, 3], ["a", "b"]], ids=repr)
def test_a_run_that_is_none_is_refused(run: list[Any]) -> None:
    with pytest.raises(UserError, match="is not a run of slots"):
        SlotSet.from_json([[0, 1], run])


# --- contiguous, nearly equal runs of slots ---

shares = st.integers(0, 8).flatmap(lambda bits: st.tuples(st.integers(1, 2**bits), st.just(bits)))


def owner_of_slot(slot: int, parallelism: int, bits: int) -> int:
    return slot * parallelism >> bits


@quickly
@given(shares)
def test_every_instance_owns_its_even_share_of_the_slots(share: tuple[int, int]) -> None:
    parallelism, bits = share
    owned = np.bincount(contiguous_assignment(*share), minlength=parallelism)
    assert owned.min() >= 2**bits // parallelism
    assert owned.max() <= -(-(2**bits) // parallelism)


@quickly
@given(shares)
def test_the_assignment_lists_the_owner_of_each_slot(share: tuple[int, int]) -> None:
    owners = contiguous_assignment(*share)
    assert owners.dtype == np.int32
    assert owners.tolist() == [owner_of_slot(slot, *share) for slot in range(2 ** share[1])]


def test_the_assignment_does_not_overflow_at_the_most_slots() -> None:
    owners = contiguous_assignment(2**MAX_SLOT_BITS, MAX_SLOT_BITS)
    assert np.array_equal(owners, np.arange(2**MAX_SLOT_BITS))


@pytest.mark.parametrize("parallelism", [-1, 0, 5])
def test_more_instances_than_slots_are_refused(parallelism: int) -> None:
    with pytest.raises(UserError, match=rf"{parallelism} instances cannot share 4 slots .* from 1 to 4"):
        contiguous_assignment(parallelism, 2)


# --- splitting ---


def is_cut(parts: list[SlotSet], slots: SlotSet) -> bool:
    """Whether the parts, one after the other, list the slots in order."""
    return [slot for part in parts for slot in part] == list(slots)


@quickly
@given(slot_sets, st.integers(1, 50))
def test_an_even_split_cuts_into_parts_of_nearly_equal_size(slots: SlotSet, count: int) -> None:
    parts = split_evenly(slots, count)
    sizes = [len(part) for part in parts]
    assert len(parts) == count
    assert is_cut(parts, slots)
    assert max(sizes) - min(sizes) <= 1


@quickly
@given(shares)
def test_an_even_split_of_all_slots_is_the_contiguous_assignment(share: tuple[int, int]) -> None:
    parallelism, bits = share
    parts = split_evenly(SlotSet.full(bits), parallelism)
    assert parts == [SlotSet(np.flatnonzero(contiguous_assignment(*share) == i)) for i in range(parallelism)]


def heaviest(parts: list[SlotSet], slots: SlotSet, weights: list[float]) -> float:
    weight = dict(zip(slots, weights, strict=True))
    return max(sum(weight[slot] for slot in part) for part in parts)


def lightest_possible(weights: list[int], count: int) -> int:
    """The weight of the heaviest part in the best of all cuts, by trying all."""
    cuts = combinations(range(1, len(weights)), count - 1)
    return min(max(sum(weights[a:b]) for a, b in pairwise((0, *cut, len(weights)))) for cut in cuts)


weighted = st.lists(st.integers(0, 20) | st.sampled_from([0, 1, 10**6]), min_size=1, max_size=9)


@quickly
@given(weighted, st.data())
def test_a_split_by_weight_is_the_best_cut(weights: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(weights)))
    slots = SlotSet(data.draw(st.sets(st.integers(0, 99), min_size=len(weights), max_size=len(weights))))
    parts = split_by_weight(slots, np.array(weights), count)
    assert is_cut(parts, slots)
    assert len(parts) == count
    assert all(parts)
    assert heaviest(parts, slots, [float(weight) for weight in weights]) == lightest_possible(weights, count)


@quickly
@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=60), st.integers(1, 70))
def test_a_split_by_any_weights_is_a_cut_without_needless_empty_parts(weights: list[float], count: int) -> None:
    slots = SlotSet.range(0, len(weights) - 1)
    parts = split_by_weight(slots, np.array(weights), count)
    assert is_cut(parts, slots)
    assert sum(map(bool, parts)) == min(count, len(slots))
    assert heaviest(parts, slots, weights) <= (sum(weights) / count + max(weights)) * (1 + 1e-9)


@quickly
@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([0.0, 1.0, 0.1]))
def test_equal_weights_are_split_into_nearly_equal_parts(size: int, count: int, weight: float) -> None:
    sizes = [len(part) for part in split_by_weight(SlotSet.range(0, size - 1), np.full(size, weight), count)]
    assert max(sizes) - min(sizes) <= 1


def test_a_hot_slot_gets_a_part_of_its_own() -> None:
    parts = split_by_weight(SlotSet.full(3), np.array([1, 1, 1, 90, 1, 1, 1, 1]), 3)
    assert parts == [SlotSet.range(0, 2), SlotSet([3]), SlotSet.range(4, 7)]


def test_a_part_near_the_even_share_does_not_overload_the_parts_after_it() -> None:
    parts = split_by_weight(SlotSet.full(2), np.array([2, 1, 3, 1]), 3)  # the even share of 7/3 is nearest to slot 0
    assert parts == [SlotSet([0, 1]), SlotSet([2]), SlotSet([3])]


def test_cuts_whose_weights_differ_in_the_last_bit_are_told_apart() -> None:
    parts = split_by_weight(SlotSet.range(0, 2), np.array([0.4, 0.2, 0.4]), 2)
    assert parts == [SlotSet([0]), SlotSet([1, 2])]  # as 1.0 - 0.4 < 0.4 + 0.2 in floating point


def test_the_most_slots_are_split_in_good_balance() -> None:
    weights = np.random.default_rng(1).pareto(3, 2**MAX_SLOT_BITS)
    parts = split_by_weight(SlotSet.full(MAX_SLOT_BITS), weights, 8)
    loads = [weights[part.array].sum() for part in parts]
    assert max(loads) < 1.001 * weights.sum() / 8


@pytest.mark.parametrize("split", [split_evenly, lambda slots, parts: split_by_weight(slots, np.ones(1), parts)])
def test_a_split_into_no_parts_is_refused(split: Callable[[SlotSet, int], object]) -> None:
    with pytest.raises(UserError, match="cannot be split into 0 parts"):
        split(SlotSet([5]), 0)


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_a_weight_that_is_none_is_refused_with_its_slot(weight: float) -> None:
    with pytest.raises(UserError, match=f"slot 9 weighs {weight}"):
        split_by_weight(SlotSet([5, 9]), np.array([1, weight]), 2)


def test_weights_that_do_not_match_the_slots_are_refused() -> None:
    with pytest.raises(UserError, match=r"2 slots need as many weights.*\(3,\)"):
        split_by_weight(SlotSet([5, 9]), np.ones(3), 2)
