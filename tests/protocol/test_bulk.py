"""The bulk lane: state arrives once and whole, over connections that break anywhere, and little of it is sent twice."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.checkpoint import Checkpoint
from primitives.slots import SlotSet
from seep.protocol.bulk import (
    SHARED,
    TOGETHER,
    BulkAcknowledged,
    BulkFlow,
    BulkInbox,
    BulkKind,
    BulkOutbox,
    BulkSegment,
    BulkStanding,
    flow_of,
    state_bytes,
)
from seep.protocol.cuts import CutPart
from seep.protocol.messages import Attach, Persisted, Retrieve, Retrieved, StateMoved, StoreBackup, Tick, WarmUp
from tests.protocol.staging import SUM, SUM1, life

FLOWS = [BulkFlow(kind, subject) for kind in BulkKind for subject in "ab"]
BACKUP, RESTORE = BulkFlow(BulkKind.BACKUP, "a"), BulkFlow(BulkKind.RESTORE, "a")


class Lane:
    """Both ends, and what is under way between them: segments that carry bytes, and acknowledgements."""

    def __init__(self, credit: int, segment: int) -> None:
        self.outbox = BulkOutbox[bytes](credit, segment)
        self.inbox = BulkInbox()
        self.credit = credit
        self.forth: deque[tuple[BulkSegment, BulkFlow, bytes]] = deque()
        self.back: deque[BulkAcknowledged] = deque()
        self.partial: dict[int, bytes] = {}
        self.arrived: list[tuple[BulkFlow, bytes]] = []
        self.lost = self.sent = 0

    def add(self, flow: BulkFlow, content: bytes) -> None:
        self.outbox.add(flow, content, len(content))

    def send(self) -> bool:
        """Sends one segment, if there is one to send."""
        if (transfer := self.outbox.choose()) is None:
            return False
        if transfer.size is None:
            self.outbox.open(transfer, len(transfer.content))
        segment = self.outbox.next(transfer)
        assert self.outbox.unacknowledged <= self.credit
        self.forth.append((segment, transfer.flow, transfer.content[segment.start : segment.end]))
        self.sent += segment.length
        return True

    def deliver(self) -> bool:
        """The oldest segment arrives."""
        if not self.forth:
            return False
        segment, flow, data = self.forth.popleft()
        if self.inbox.receive(segment):
            before = b"" if segment.start == 0 else self.partial[segment.number]
            assert len(before) == segment.start
            self.partial[segment.number] = before + data
            if segment.end == segment.size:
                self.arrived.append((flow, self.partial.pop(segment.number)))
        self.back.append(BulkAcknowledged(segment.number, self.inbox.position(segment)))
        return True

    def acknowledge(self) -> bool:
        """The oldest acknowledgement arrives."""
        if not self.back:
            return False
        self.outbox.acknowledge(*self.back.popleft())
        return True

    def cut(self, segments: int, acknowledgements: int) -> None:
        """The connection breaks: of what is under way only so much still arrives, when there is another one already."""
        while len(self.forth) > segments:
            self.lost += self.forth.pop()[0].length
        while len(self.back) > acknowledgements:
            self.back.pop()
        self.outbox.resume(self.inbox.standing())

    def run(self) -> None:
        """Everything arrives."""
        while self.acknowledge() or self.deliver() or self.send():
            pass


def contents(*sizes: int) -> list[bytes]:
    return [bytes((number + at) % 251 for at in range(size)) for number, size in enumerate(sizes)]


messages = st.lists(st.tuples(st.sampled_from(FLOWS), st.integers(1, 40)), min_size=1, max_size=12)
steps = st.lists(
    st.one_of(
        st.sampled_from(["send", "send", "send", "deliver", "deliver", "acknowledge", "add"]),
        st.tuples(st.integers(0, 4), st.integers(0, 4)),
    ),
    max_size=120,
)


@given(messages, steps, st.integers(1, 9), st.integers(1, 4))
def test_each_message_arrives_once_and_whole_and_in_the_order_of_its_flow_whatever_breaks(
    sizes: list[tuple[BulkFlow, int]], steps: list[Any], segment: int, segments: int
) -> None:
    lane = Lane(segment * segments, segment)
    wanted = [(flow, content) for (flow, size), content in zip(sizes, contents(*(s for _, s in sizes)), strict=True)]
    waiting = deque(wanted)
    for step in steps:
        if step == "add":
            if waiting:
                lane.add(*waiting.popleft())
        elif isinstance(step, tuple):
            lane.cut(*step)
        else:
            getattr(lane, step)()
    for each in waiting:
        lane.add(*each)
    lane.run()
    assert sorted(lane.arrived, key=repr) == sorted(wanted, key=repr)
    for flow in FLOWS:
        assert [m for m in lane.arrived if m[0] == flow] == [m for m in wanted if m[0] == flow]
    assert list(lane.outbox.under_way()) == []
    assert lane.outbox.unacknowledged == 0


@given(st.integers(1, 2_000), st.lists(st.integers(0, 60), max_size=12))
def test_a_break_costs_no_more_than_what_was_under_way(size: int, breaks: list[int]) -> None:
    lane = Lane(credit=64, segment=16)
    (content,) = contents(size)
    lane.add(BACKUP, content)
    for turns in breaks:
        for _ in range(turns):
            lane.send() or lane.deliver()
            lane.acknowledge()
        lane.cut(0, 0)
    lane.run()
    assert lane.arrived == [(BACKUP, content)]
    assert lane.sent == size + lane.lost
    assert lane.lost <= 64 * len(breaks)


def test_no_more_is_under_way_than_the_receiver_has_room_for() -> None:
    lane = Lane(credit=4, segment=2)
    lane.add(RESTORE, bytes(100))
    assert [lane.send() for _ in range(3)] == [True, True, False]
    lane.deliver()
    assert not lane.send(), "the receiver has not said that it has it"
    lane.acknowledge()
    assert lane.send()


def test_backups_leave_room_for_what_somebody_waits_for() -> None:
    lane = Lane(credit=32, segment=2)
    lane.add(BACKUP, bytes(100))
    assert [lane.send() for _ in range(3)] == [True, True, False]
    lane.add(RESTORE, bytes(100))
    assert [lane.send() for _ in range(15)] == [*[True] * 14, False]


def test_what_somebody_waits_for_overtakes_a_backup_that_is_under_way() -> None:
    lane = Lane(credit=2, segment=2)
    lane.add(BACKUP, bytes(1_000))
    for _ in range(5):
        lane.send()
        lane.deliver()
        lane.acknowledge()
    before = lane.sent
    lane.add(RESTORE, bytes(100))
    while not lane.arrived:
        assert lane.send() or lane.deliver() or lane.acknowledge()
    assert lane.arrived[0][0] == RESTORE
    assert lane.sent - before <= 100 * SHARED / (SHARED - 1) + 2


def test_a_backup_goes_on_while_others_wait_for_state_without_end() -> None:
    lane = Lane(credit=2, segment=2)
    lane.add(BACKUP, bytes(20))
    lane.add(RESTORE, bytes(10_000))
    while not lane.arrived:
        assert lane.send() or lane.deliver() or lane.acknowledge()
    assert lane.arrived[0][0] == BACKUP


def test_a_small_backup_does_not_wait_for_a_large_one_of_another_instance() -> None:
    lane = Lane(credit=2, segment=2)
    lane.add(BACKUP, bytes(10_000))
    lane.add(BulkFlow(BulkKind.BACKUP, "b"), bytes(20))
    while not lane.arrived:
        assert lane.send() or lane.deliver() or lane.acknowledge()
    assert lane.sent < 60


def test_only_a_few_are_begun_at_a_time_so_that_the_receiver_need_not_keep_a_part_of_each() -> None:
    lane = Lane(credit=1_000, segment=2)
    for number in range(3 * TOGETHER):
        lane.add(BulkFlow(BulkKind.BACKUP, number), bytes(50))
    for _ in range(5 * TOGETHER):
        lane.send()
        lane.deliver()
    assert len(lane.partial) == TOGETHER


def test_what_is_under_way_is_told_until_the_receiver_has_it() -> None:
    lane = Lane(credit=4, segment=2)
    lane.add(BACKUP, bytes(7))
    assert [(each.flow, each.left) for each in lane.outbox.under_way()] == [(BACKUP, 7)]
    lane.send()
    assert [each.left for each in lane.outbox.under_way()] == [7]
    lane.deliver()
    lane.acknowledge()
    assert [each.left for each in lane.outbox.under_way()] == [5]
    lane.run()
    assert list(lane.outbox.under_way()) == []


def test_a_message_that_cannot_be_sent_holds_up_none_behind_it() -> None:
    lane = Lane(credit=4, segment=2)
    lane.add(BACKUP, b"no bytes can be made of it")
    lane.add(BACKUP, b"other")
    transfer = lane.outbox.choose()
    assert transfer is not None
    lane.outbox.drop(transfer)
    lane.run()
    assert lane.arrived == [(BACKUP, b"other")]


def test_what_was_damaged_on_its_way_comes_again() -> None:
    lane = Lane(credit=4, segment=2)
    lane.add(BACKUP, b"state")
    lane.send()
    lane.deliver()
    lane.inbox.restart(1)
    lane.partial.clear()
    lane.cut(0, 0)
    lane.run()
    assert lane.arrived == [(BACKUP, b"state")]


def test_a_receiver_tells_how_far_it_has_come_of_what_was_begun() -> None:
    inbox = BulkInbox()
    assert inbox.standing() == BulkStanding(0, {})
    assert inbox.receive(BulkSegment(1, 0, 2, 2))
    assert inbox.receive(BulkSegment(3, 0, 2, 5))
    assert not inbox.receive(BulkSegment(3, 3, 2, 5)), "it comes after a gap"
    assert inbox.standing() == BulkStanding(3, {2: 0, 3: 2})


CHECKPOINT = Checkpoint(SUM, 0, 0, 1, None, SlotSet([1]), (), (), 0)


@pytest.mark.parametrize(
    ("message", "flow"),
    [
        (StoreBackup(CHECKPOINT), BulkFlow(BulkKind.BACKUP, SUM)),
        (Retrieved(life(SUM1), SUM, CHECKPOINT, None), BulkFlow(BulkKind.RESTORE, life(SUM1))),
        (
            Retrieved(life(SUM1), SUM, CHECKPOINT, WarmUp(life(SUM1), SUM, SlotSet([1]), 3, "n1")),
            BulkFlow(BulkKind.WARM_UP, life(SUM1)),
        ),
        (StateMoved(life(SUM), life(SUM1), 3, None, ()), BulkFlow(BulkKind.HANDOVER, (life(SUM), life(SUM1)))),
        (Persisted(life(SUM), 4, CutPart(SlotSet([1]), None, ())), BulkFlow(BulkKind.LOOK, life(SUM))),
    ],
)
def test_what_carries_state_goes_on_the_bulk_lane(message: object, flow: BulkFlow) -> None:
    assert flow_of(message) == flow
    assert state_bytes(message) == 0, "there is none in it"


@pytest.mark.parametrize(
    "message",
    [
        Attach(life(SUM), life(SUM1), 3),
        Tick(life(SUM), 3, False),
        Retrieve(life(SUM1), SUM),
        Retrieved(life(SUM1), SUM, None, None),
        Retrieved(life(SUM1), SUM, CHECKPOINT, None, stands=True),
        Persisted(life(SUM), 4, CutPart(SlotSet([1]), None, "where it is in storage")),
    ],
)
def test_what_carries_none_is_a_letter(message: object) -> None:
    assert flow_of(message) is None
