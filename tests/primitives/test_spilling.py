"""Containers that spill: the same as plain ones, but for their memory; and what a full disk does to them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from primitives.errors import EnvironmentFault, UserError
from primitives.hashing import hash_keys
from primitives.slots import SlotSet, slots_of
from primitives.state.budget import MemoryBudget
from primitives.state.chunk import Chunk
from primitives.state.on_disk.spilling_frame import SpillingFrame
from primitives.state.on_disk.spilling_values import SpillingValues
from tests.primitives.frame_machine import FramesOfTwoInstances, Row
from tests.primitives.test_disk import full_disk
from tests.primitives.two_instances import SLOT_BITS, InDirectories, slot_sets
from tests.primitives.values_machine import ValuesOfTwoInstances, words

ALL = SlotSet.full(4)


# --- next to a dictionary ---------------------------------------------------------------------------------------------


class FramesThatSpill(InDirectories, FramesOfTwoInstances):
    """As for frames; two or three slots of four fit into memory, of both instances together."""

    budget_bytes = 500

    def __init__(self) -> None:
        self.budget = MemoryBudget(self.budget_bytes)
        super().__init__()

    def make(self) -> Any:
        return self.made(SpillingFrame, budget=self.budget, directory=self.fresh_directory())

    def restored(self, *chunks: Chunk) -> dict[Row, Row]:
        with closing(self.make()) as frame:
            frame.restore(chunks)
            return self.content(frame)

    @rule(slots=slot_sets)
    def spill(self, slots: SlotSet) -> None:
        self.here.spill(slots - self.here._cold.slots)


class WithNumbers(FramesThatSpill):
    keys = (("id", pa.int64()),)
    key_values = (st.one_of(st.none(), st.integers(-4, 8)),)


class WithSubkeysAndTexts(FramesThatSpill):
    keys = (("word", pa.string()), ("yes", pa.bool_()), ("at", pa.int64()))
    subkeys = ("at",)
    key_values = (st.sampled_from(["", "b", "ä" * 40]), st.sampled_from([None, False, True]), st.integers(0, 2))
    budget_bytes = 1_200


class ValuesThatSpill(InDirectories, ValuesOfTwoInstances):
    """As for values; no rule holds an object of an earlier one, so all slots may leave after each."""

    def __init__(self) -> None:
        self.budget = MemoryBudget(250)
        super().__init__()

    def make(self) -> Any:
        directory = self.fresh_directory()
        return SpillingValues(
            "seen", {"word": pa.string()}, slot_bits=SLOT_BITS, budget=self.budget, directory=directory
        )

    @rule(slots=slot_sets)
    def spill(self, slots: SlotSet) -> None:
        self.here.settle()
        self.here.spill(slots & SlotSet(list(self.here._slots)))

    @rule(word=words)
    def change_while_iterating(self, word: Any) -> None:
        for key, value in self.home(word).items():
            value.append(0)
            self.expected[key] = [*self.expected[key], 0]
            self.budget.settle()

    @invariant()
    def memory_is_within_the_budget(self) -> None:
        self.budget.settle()
        assert self.budget.held() <= self.budget.limit


short_runs = settings(max_examples=12, stateful_step_count=25, deadline=None)
TestWithNumbers = WithNumbers.TestCase
TestWithNumbers.settings = short_runs
TestWithSubkeysAndTexts = WithSubkeysAndTexts.TestCase
TestWithSubkeysAndTexts.settings = short_runs
TestValuesThatSpill = ValuesThatSpill.TestCase
TestValuesThatSpill.settings = short_runs


# --- memory -----------------------------------------------------------------------------------------------------------


def make_frame(directory: Path, budget: MemoryBudget, name: str = "counts") -> SpillingFrame:
    return SpillingFrame(
        name, {"id": pa.int64()}, {"n": pa.int64()}, slot_bits=4, budget=budget, directory=directory / name
    )


def make_values(directory: Path, budget: MemoryBudget, name: str = "carts") -> SpillingValues:
    return SpillingValues(name, {"id": pa.int64()}, slot_bits=4, budget=budget, directory=directory / name)


def keys_in(slots: SlotSet, start: int, end: int) -> Any:
    """The numbers from `start` to before `end` that are keys in some slots."""
    keys = np.arange(start, end)
    return keys[slots.mask(4)[slots_of(hash_keys([pa.array(keys)]), 4)]]


def files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def test_a_frame_of_four_times_the_budget_stays_within_it(tmp_path: Path) -> None:
    budget = MemoryBudget(50_000)
    frame = make_frame(tmp_path, budget)
    for _ in range(2):
        for start in range(0, 12_500, 1_250):
            frame.add(np.arange(start, start + 1_250), n=1)
            assert budget.held() <= 1.2 * budget.limit
    assert frame.size() == 200_000
    assert frame.rows_per_slot().sum() == len(frame) == 12_500
    assert frame.to_arrow()["n"].to_pylist() == [2] * 12_500


def test_values_of_four_times_the_budget_stay_within_it(tmp_path: Path) -> None:
    budget = MemoryBudget(5_000)
    values = make_values(tmp_path, budget)
    for key in range(700):
        values[key] = "x" * 20
        assert budget.held() <= 1.2 * budget.limit
    assert values.size() > 4 * budget.limit
    assert sorted(values) == list(range(700))
    assert set(values.values()) == {"x" * 20}


def test_containers_of_a_budget_share_it(tmp_path: Path) -> None:
    budget = MemoryBudget(100_000)
    first, second = make_frame(tmp_path, budget, "first"), make_frame(tmp_path, budget, "second")
    first.add(np.arange(5_000), n=1)
    assert not files(tmp_path)
    second.add(np.arange(5_000), n=1)
    assert budget.held() <= budget.limit
    assert files(tmp_path / "first")
    assert sorted(first.to_arrow()["id"].to_pylist()) == list(range(5_000))
    second.close()
    first.close()
    assert budget.held() == 0
    assert not files(tmp_path)


def test_the_slots_that_were_used_last_of_all_leave_first(tmp_path: Path) -> None:
    frame = make_frame(tmp_path, MemoryBudget(100_000))
    frame.add(np.arange(5_000), n=1)
    frame.add(keys_in(SlotSet.range(8, 15), 0, 6_500), n=1)
    frame.add(keys_in(SlotSet.range(8, 15), 6_500, 8_500), n=1)
    assert frame._cold.slots
    assert frame._cold.slots <= SlotSet.range(0, 7)


def test_row_numbers_of_before_a_spill_are_refused(tmp_path: Path) -> None:
    frame = make_frame(tmp_path, MemoryBudget(100_000))
    rows = frame.add([7, 8], n=1)
    assert frame.column("n")[rows].tolist() == [1, 1]
    frame.add(np.arange(20_000), n=1)
    with pytest.raises(UserError, match=r"rows of state 'counts' went to disk after these row numbers were given out"):
        frame.take(rows)
    assert frame.take(frame.locate([7, 8]))["n"].to_pylist() == [2, 2]
    assert frame.locate([-1], create=False).tolist() == [-1]


def test_an_object_that_is_out_is_changed_also_when_others_go_to_disk(tmp_path: Path) -> None:
    budget = MemoryBudget(5_000)
    values = make_values(tmp_path, budget)
    cart: list[str] = []
    values[0] = cart
    for key in range(1, 300):
        values[key] = "x" * 20
    assert files(tmp_path)
    cart.append("tea")
    budget.settle()
    for key in range(300, 600):
        values[key] = "x" * 20
    assert values[0] == ["tea"]
    assert values[0] is not cart


def test_what_one_epoch_holds_beyond_the_budget_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    values = make_values(tmp_path, MemoryBudget(20_000))
    with pytest.raises(EnvironmentFault, match=r"bytes of state are in use at once, and the memory budget is 20000"):
        values.update({key: ["x" * 20] for key in range(2_000)})


def test_a_slot_that_is_larger_than_the_budget_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    budget = MemoryBudget(10_000)
    frame = SpillingFrame(
        "counts", {"id": pa.int64()}, {"n": pa.int64()}, slot_bits=0, budget=budget, directory=tmp_path / "frame"
    )
    frame.add(np.arange(1_000), n=1)
    with pytest.raises(EnvironmentFault, match="raise it, use more nodes or slots, or containers of the kind Disk"):
        frame.add([1], n=1)


# --- faults -----------------------------------------------------------------------------------------------------------


def test_when_the_disk_is_full_nothing_is_lost_and_what_is_in_memory_can_be_used(tmp_path: Path) -> None:
    budget = MemoryBudget(100_000)
    frame = make_frame(tmp_path, budget)
    frame.add(np.arange(6_000), n=1)
    with full_disk(100):
        with pytest.raises(EnvironmentFault, match=r"cannot write .* bytes of state to .*; free some space"):
            frame.add(np.arange(6_000, 8_000), n=1)
        assert not files(tmp_path)
        assert frame.get([7])[0]["n"].to_pylist() == [1]
        frame.column("n")[frame.locate([7])] = 2
    assert frame.snapshot(ALL).rows["n"].to_pylist().count(1) == 5_999
    frame.add(np.arange(6_000, 8_000), n=1)
    assert len(frame) == 8_000


def test_a_damaged_or_lost_file_is_said(tmp_path: Path) -> None:
    frame = make_frame(tmp_path, MemoryBudget(100_000))
    frame.add(np.arange(3_000), n=1)
    frame.spill(SlotSet([3, 4]))
    damaged, lost = files(tmp_path)
    damaged.write_bytes(b"x" + damaged.read_bytes()[1:])
    lost.unlink()
    with pytest.raises(EnvironmentFault, match="is damaged"):
        frame.to_arrow(SlotSet([int(damaged.stem)]))
    with pytest.raises(EnvironmentFault, match="cannot read state back"):
        frame.to_arrow(SlotSet([int(lost.stem)]))
    assert len(frame.to_arrow(SlotSet([5]))) > 0
