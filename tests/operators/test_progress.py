"""Progress: what each slot has passed, and where that is known."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from primitives.slots import SlotSet
from seep.operators.progress import Progress
from seep.protocol.messages import MAX_WATERMARK

FULL = SlotSet.full(2)
KEYS = pa.array([f"k{n}" for n in range(100)])


def passed(progress: Progress, time: int) -> int:
    return int(progress.passed([KEYS], np.full(len(KEYS), time)).sum())


def test_slots_pass_times_by_themselves_and_never_go_back() -> None:
    progress = Progress(2)
    assert passed(progress, -(2**62)) == 0
    progress.advance(SlotSet([0, 1]), 10)
    assert 0 < passed(progress, 10) < 100
    progress.advance(FULL, 5)
    assert passed(progress, 5) == 100
    assert 0 < passed(progress, 10) < 100


def test_slots_that_have_left_are_known_no_more() -> None:
    here, there = Progress(2), Progress(2)
    here.advance(FULL, 10)
    there.state.restore([here.state.snapshot(SlotSet([2]))])
    here.state.drop(SlotSet([2]))
    assert 0 < passed(there, 10) < 100
    assert passed(here, 10) + passed(there, 10) == 100
    assert [len(progress.state) for progress in (here, there)] == [3, 1]


def test_no_key_is_hashed_while_nothing_can_be_late() -> None:
    progress = Progress(2)
    progress.advance(FULL, 10)
    unhashable = pa.array([[1]])
    assert not progress.passed([unhashable], np.array([11])).any()


def test_the_end_of_the_input_is_no_event_time_so_rows_of_a_run_that_goes_on_are_not_late() -> None:
    slots, progress, later = SlotSet.full(2), Progress(2), Progress(2)
    progress.advance(slots, 10)
    progress.advance(slots, MAX_WATERMARK)
    later.set_processing_state(progress.get_processing_state(slots))
    assert later.passed([pa.array(["a", "a"])], np.array([10, 11])).tolist() == [True, False]
