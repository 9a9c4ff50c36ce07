"""State machines in which containers are compared with a dictionary, while slots move and checkpoints are taken."""

from __future__ import annotations

import tempfile
from itertools import count
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from primitives.slots import SlotSet
from primitives.state.chunk import Chunk

SLOT_BITS = 2
FULL = SlotSet.full(SLOT_BITS)

slot_sets = st.sets(st.sampled_from(range(1 << SLOT_BITS))).map(SlotSet)


class TwoInstances(RuleBasedStateMachine):
    """One container under test, checkpointed all the time, and another with which it exchanges slots."""

    def __init__(self) -> None:
        super().__init__()
        self.here, self.there = self.make(), self.make()
        self.expected: dict[Any, Any] = {}  # of both together
        self.owned = FULL  # slots that are here; the others are there
        self.epoch = 0
        self.full_at: dict[int, Chunk] = {}  # full snapshot of each retained mark, as a backup holder has it
        self.chain: list[Chunk] = []  # a base, and a delta for each mark since
        self.checkpoint()

    def make(self) -> Any:
        """An empty container."""
        raise NotImplementedError

    @rule(slots=slot_sets)
    def move_away(self, slots: SlotSet) -> None:
        slots &= self.owned
        self.there.restore([self.here.snapshot(slots)])
        self.here.drop(slots)
        self.owned -= slots

    @rule(slots=slot_sets, parts=st.integers(1, 4))
    def move_away_and_drop_bit_by_bit(self, slots: SlotSet, parts: int) -> None:
        slots &= self.owned
        self.there.restore([self.here.snapshot(slots)])
        for _ in self.here.drop_in_parts(slots, parts):
            self.checkpoint()
        self.owned -= slots

    @rule(slots=slot_sets)
    def move_back(self, slots: SlotSet) -> None:
        slots -= self.owned
        self.here.restore([self.there.snapshot(slots)])
        self.there.drop(slots)
        self.owned |= slots

    @rule(slots=slot_sets, since=st.integers(0, 3))
    def hand_over_a_checkpoint_and_what_changed_since(self, slots: SlotSet, since: int) -> None:
        slots &= self.owned
        mark = self.here.marks[min(since, len(self.here.marks) - 1)]
        self.there.restore([self.full_at[mark].select(slots)])
        self.there.restore([self.here.snapshot(slots, mark).select(slots)])
        self.here.drop(slots)
        self.owned -= slots

    @rule()
    def checkpoint(self) -> None:
        self.epoch += 1
        full = self.here.snapshot(FULL)
        self.chain.append(self.here.snapshot(FULL, self.here.marks[-1]) if self.chain else full)
        self.here.mark(self.epoch)
        self.full_at[self.epoch] = full
        self.release(keep=3)

    @rule(keep=st.integers(1, 2))
    def release(self, keep: int) -> None:
        epoch = self.here.marks[-keep:][0]
        self.here.release(epoch)
        self.full_at = {mark: full for mark, full in self.full_at.items() if mark >= epoch}
        assert self.here.marks == tuple(self.full_at)


class InDirectories(RuleBasedStateMachine):
    """For containers that have a directory each."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self._serials = count()
        super().__init__()

    def fresh_directory(self) -> Path:
        return Path(self._directory.name, str(next(self._serials)))

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self._directory.cleanup()
