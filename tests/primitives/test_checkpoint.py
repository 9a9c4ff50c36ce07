"""Checkpoints: what is restored from one is what was there, and deltas add up to a full one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.checkpoint import Checkpoint, checkpoint_state, merge_checkpoints
from primitives.emission import Emission
from primitives.errors import InternalError
from primitives.graph import Edge, InstanceId
from primitives.outbox import Outbox
from primitives.restore import restore_state
from primitives.slots import SlotSet
from tests.strategies import AnyState, ArrowState, PlainState, Writes, content_in, few, slot_sets, write, writes

BITS = 2
ALL = SlotSet.full(BITS)
SUM = InstanceId("sum", 0)
EDGE = Edge("sum", "out")

both = pytest.mark.parametrize("make", [PlainState, ArrowState])


class Work:
    """An instance of one operator that works in epochs; it has a model of what its state and outbox must hold."""

    def __init__(self, make: type[AnyState]) -> None:
        self.make, self.state = make, make(BITS)
        self.outbox: Outbox[Emission[str]] = Outbox()
        self.owned, self.epoch, self.taken = ALL, 0, 0
        self.content: dict[int, int] = {}
        self.sent: dict[int, Emission[str]] = {}

    def process(self, content: Writes) -> None:
        """One more epoch."""
        self.epoch += 1
        write(self.state, content, self.owned, BITS)
        for key, value in content:
            self.content.pop(key, None)
            if value is not None:
                self.content[key] = value
        self.content = content_in(self.content, self.owned, BITS)
        self.sent[self.epoch] = Emission({EDGE: f"epoch {self.epoch}"}, self.epoch)
        self.outbox.append(self.epoch, self.sent[self.epoch])

    def lose(self, slots: SlotSet) -> None:
        self.state.drop(slots)
        self.owned -= slots
        self.content = content_in(self.content, self.owned, BITS)

    def win(self, slots: SlotSet, content: Writes) -> None:
        """Slots that were not here come from elsewhere, with other content than when they left."""
        slots -= self.owned
        elsewhere = self.make(BITS)
        write(elsewhere, content, slots, BITS)
        self.state.restore(elsewhere.snapshot(slots))
        self.owned |= slots
        self.content |= elsewhere.content()

    def trim(self, epoch: int) -> None:
        self.outbox.trim(epoch)
        self.sent = {e: emission for e, emission in self.sent.items() if e > epoch}

    def checkpoint(self, base: int | None = None) -> Checkpoint:
        self.taken += 1
        return checkpoint_state(
            self.state,
            self.outbox,
            owner=SUM,
            incarnation=1,
            serial=self.taken,
            epoch=self.epoch,
            slots=self.owned,
            base=base,
        )

    def is_restored_by(self, checkpoint: Checkpoint) -> bool:
        state, outbox = self.make(BITS), Outbox[Emission[str]]()
        epoch = restore_state(checkpoint, state, outbox)
        found = (epoch, state.content(), dict(outbox.entries()), outbox.trimmed)
        return found == (self.epoch, self.content, self.sent, self.outbox.trimmed)


#: What happens between two checkpoints: slots leave, slots come, epochs are processed, output is trimmed.
turns = st.tuples(slot_sets(BITS), slot_sets(BITS), writes, st.lists(writes, max_size=3), st.integers(0, 4))


def take(work: Work, turn: tuple[SlotSet, SlotSet, Writes, list[Writes], int]) -> None:
    leaving, coming, content, processed, behind = turn
    work.lose(leaving)
    work.win(coming, content)
    for each in processed:
        work.process(each)
    work.trim(max(work.epoch - behind, work.outbox.trimmed))


@both
@few
@given(turn=turns)
def test_restoring_a_checkpoint_gives_back_state_outbox_and_epoch(make: type[AnyState], turn: Any) -> None:
    work = Work(make)
    take(work, turn)
    assert work.is_restored_by(work.checkpoint())


@both
@few
@given(first=turns, later=st.lists(turns, max_size=4), data=st.data())
def test_a_base_and_its_deltas_have_the_effect_of_one_full_checkpoint(
    make: type[AnyState], first: Any, later: list[Any], data: st.DataObject
) -> None:
    work = Work(make)
    take(work, first)
    chain = [work.checkpoint()]
    for turn in later:
        take(work, turn)
        chain.append(work.checkpoint(base=chain[-1].epoch))
    cut = data.draw(st.integers(1, len(chain)))
    merged_so_far = merge_checkpoints(chain[0], chain[1:cut])  # as a holder does now and then
    whole = merge_checkpoints(merged_so_far, chain[cut:])
    assert work.is_restored_by(whole)
    assert (whole.base, whole.slots, whole.order) == (None, work.owned, (1, len(chain)))


@both
def test_a_delta_carries_only_what_changed_and_was_sent_since_its_base(make: type[AnyState]) -> None:
    work = Work(make)
    work.process([(key, 0) for key in range(12)])
    work.checkpoint()
    work.process([(3, 1)])
    delta = work.checkpoint(base=1)
    changed = make(BITS)
    changed.restore(delta.state)
    assert changed.content() == {3: 1}
    assert [epoch for epoch, _ in delta.buffer] == [2]


@both
def test_what_is_written_after_a_checkpoint_is_not_in_it(make: type[AnyState]) -> None:
    work = Work(make)
    work.process([(3, 1)])
    before = work.checkpoint()
    work.state.put(3, 2)
    restored = make(BITS)
    restored.restore(before.state)
    assert restored.content() == {3: 1}


@both
@given(content=writes, slots=slot_sets(BITS))
def test_a_checkpoint_covers_the_given_slots_only(make: type[AnyState], content: Writes, slots: SlotSet) -> None:
    work = Work(make)
    work.process(content)
    whole, work.owned = work.content, slots
    restored = make(BITS)
    restored.restore(work.checkpoint().state)
    assert restored.content() == content_in(whole, slots, BITS)


@both
def test_a_merged_checkpoint_covers_what_the_last_one_covers(make: type[AnyState]) -> None:
    work = Work(make)
    work.process([(key, 0) for key in range(12)])
    base = work.checkpoint()
    whole, work.owned = work.content, SlotSet([0, 2])  # the others were handed over and are not dropped here yet
    merged, restored = merge_checkpoints(base, [work.checkpoint(base=1)]), make(BITS)
    restored.restore(merged.state)
    assert (merged.slots, restored.content()) == (work.owned, content_in(whole, work.owned, BITS))


@both
def test_a_checkpoint_marks_the_state_so_that_the_next_one_can_be_a_delta(make: type[AnyState]) -> None:
    work = Work(make)
    work.process([])
    work.checkpoint()
    assert work.state.marks == (1,)


def test_a_delta_is_not_merged_with_what_it_does_not_build_on() -> None:
    base = Checkpoint(SUM, 0, 0, 4, None, ALL, (), (), 0)
    with pytest.raises(InternalError, match=r"checkpoint 9 of sum\[0\] builds on 6, not on 4"):
        merge_checkpoints(base, [replace(base, epoch=9, base=6)])


def test_a_base_alone_is_what_it_is() -> None:
    base = Checkpoint(SUM, 0, 0, 4, None, ALL, (), (), 0)
    assert merge_checkpoints(base, []) is base


def test_output_that_was_trimmed_in_the_meantime_is_not_merged() -> None:
    work = Work(PlainState)
    work.process([])
    base = work.checkpoint()
    work.process([])
    work.trim(1)
    assert [epoch for epoch, _ in merge_checkpoints(base, [work.checkpoint(base=1)]).buffer] == [2]


def test_checkpoints_of_an_owner_are_ordered_by_incarnation_and_then_by_serial() -> None:
    checkpoint = Checkpoint(SUM, 1, 5, 4, None, ALL, (), (), 0)
    assert checkpoint.order < replace(checkpoint, serial=6).order < replace(checkpoint, incarnation=2, serial=0).order


def test_a_checkpoint_is_as_large_as_its_state_and_its_output() -> None:
    class Batch:
        nbytes = 100

    state = PlainState(BITS)
    for key in range(5):
        state.put(key, 0)  # in this container a cell counts as one byte
    outbox = Outbox[Emission[Batch]]()
    outbox.append(1, Emission({EDGE: Batch()}, 0))
    checkpoint = checkpoint_state(state, outbox, owner=SUM, incarnation=0, serial=0, epoch=1, slots=ALL)
    assert checkpoint.nbytes == 105
