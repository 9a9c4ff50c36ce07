"""What was restored ahead of a handover, before a mark, is all in a delta since that mark once it is adopted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from primitives.slots import SlotSet
from primitives.state.budget import MemoryBudget
from primitives.state.container import State
from primitives.state.frame import Frame
from primitives.state.on_disk.disk import Disk
from primitives.state.on_disk.spilling_frame import SpillingFrame
from primitives.state.on_disk.spilling_values import SpillingValues
from primitives.state.rows import Rows
from primitives.state.timers import Timers
from primitives.state.values import Values

KEYS, N = {"k": pa.int64()}, {"n": pa.int64()}
SOME = SlotSet.range(0, 99)
NUMBERS = list(range(200))


def made(kind: type, place: Path, memory: int) -> State:
    match kind.__name__:
        case "Frame" | "Rows":
            return kind("state", KEYS, N)
        case "SpillingFrame":
            return SpillingFrame("state", KEYS, N, budget=MemoryBudget(memory), directory=place)
        case "SpillingValues":
            return SpillingValues("state", KEYS, value=pa.int64(), budget=MemoryBudget(memory), directory=place)
        case "Disk":
            return Disk("state", KEYS, N, directory=place, memory=8 << 20)
        case _:
            return kind("state", KEYS, value=pa.int64())


def fill(state: State) -> None:
    match state:
        case Frame() | Disk():
            state.put(NUMBERS, n=NUMBERS)
        case Values():
            for number in NUMBERS:
                state[number] = number
        case Timers():
            state.schedule_batch(np.array(NUMBERS), [NUMBERS], pa.array(NUMBERS))
        case Rows():
            state.add(pa.record_batch({"k": NUMBERS, "n": NUMBERS}))


def content(state: State) -> list[str]:
    return sorted(map(str, state.snapshot(SlotSet.full(8)).rows.to_pylist()))


@pytest.mark.parametrize("memory", [1 << 30, 1 << 10])
@pytest.mark.parametrize("kind", [Frame, SpillingFrame, Values, SpillingValues, Timers, Rows, Disk])
def test_a_delta_has_all_of_what_was_adopted_since_the_mark(kind: type, memory: int, tmp_path: Path) -> None:
    origin, target, backup = (made(kind, tmp_path / name, memory) for name in ("origin", "target", "backup"))
    fill(origin)
    target.mark(1)
    target.restore([origin.snapshot(SOME)])
    target.mark(2)
    target.adopt(SOME)
    backup.restore([target.snapshot(SlotSet.full(8), 2)])
    assert content(backup) == content(target) != []
