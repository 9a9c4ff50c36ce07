"""Slots on their way out: handed over as often as it takes, and forgotten only when the new owner is safe."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from primitives.graph import InstanceId
from primitives.slots import SlotSet
from seep.protocol.instances.departures import PARTS, Departures
from seep.protocol.messages import Attach, StateMoved
from seep.protocol.view import Incarnation
from seep.simulator.cells import Cells
from tests.protocol.staging import ALL, KEYS, SLOT_BITS, SUM, SUM1, SUM2, life
from tests.strategies import slot_sets


class Origin:
    """An instance that owned all slots, with one key in each."""

    def __init__(self) -> None:
        self.state = Cells("sum", SLOT_BITS)
        for slot, key in enumerate(KEYS):
            self.state.put(key, f"state of slot {slot}")
        self.departures = Departures(life(SUM), self.state)

    def attach(self, receiver: Incarnation, first: int = 1, bases: Mapping[int, int] | None = None) -> list[StateMoved]:
        return self.departures.attach(Attach(life(SUM), receiver, first, bases or {}))

    def begin(self, epoch: int, **targets: list[int]) -> list[StateMoved]:
        return self.departures.begin(epoch, {InstanceId("sum", int(i[1:])): SlotSet(s) for i, s in targets.items()})

    def drop_all(self) -> None:
        for _ in range(PARTS + 1):
            self.departures.drop_some()

    def slots_here(self) -> list[int]:
        return sorted(KEYS.index(key) for key in self.state.keys_in(ALL))


def slots_in(message: StateMoved) -> list[int]:
    """The slots whose state a new owner has after it has restored the message."""
    target = Cells("sum", SLOT_BITS)
    target.restore(message.chunks)
    return sorted(KEYS.index(key) for key in target.keys_in(ALL))


def test_a_new_owner_that_has_asked_is_served_as_soon_as_the_slots_leave() -> None:
    origin = Origin()
    assert not origin.attach(life(SUM1))
    (message,) = origin.begin(5, _1=[0, 1])
    assert (message.sender, message.receiver, message.epoch, message.base) == (life(SUM), life(SUM1), 5, None)
    assert slots_in(message) == [0, 1]


def test_a_new_owner_that_asks_late_is_served_when_it_asks() -> None:
    origin = Origin()
    assert origin.begin(5, _1=[0]) == []
    assert [slots_in(message) for message in origin.attach(life(SUM1))] == [[0]]


def test_each_new_owner_gets_its_own_slots() -> None:
    origin = Origin()
    origin.begin(5, _1=[0, 3], _2=[1])
    for receiver, slots in ((life(SUM1), [0, 3]), (life(SUM2), [1])):
        (message,) = origin.attach(receiver)
        assert (message.receiver, slots_in(message)) == (receiver, slots)


def test_who_asks_again_is_served_again_until_it_is_safe() -> None:
    origin = Origin()
    origin.begin(5, _1=[0])
    for number in (0, 0, 1):
        assert [slots_in(message) for message in origin.attach(life(SUM1, number))] == [[0]]
    origin.departures.release(5)
    assert not origin.attach(life(SUM1, 1))


def test_several_handovers_to_the_same_owner_come_in_order_from_where_it_asks() -> None:
    origin = Origin()
    for epoch, slot in ((5, 0), (7, 1), (9, 2)):
        origin.begin(epoch, _1=[slot])
    served = origin.attach(life(SUM1), first=7)
    assert [(message.epoch, slots_in(message)) for message in served] == [(7, [1]), (9, [2])]


@given(first=slot_sets(SLOT_BITS), second=slot_sets(SLOT_BITS), up_to=st.integers(4, 8))
def test_state_stays_until_its_new_owner_is_safe_and_goes_then(first: SlotSet, second: SlotSet, up_to: int) -> None:
    second -= first
    origin = Origin()
    origin.begin(5, _1=list(first))
    origin.begin(7, _1=list(second))
    assert origin.departures.slots == first | second
    assert origin.slots_here() == list(ALL)
    origin.departures.release(up_to)
    assert origin.slots_here() == list(ALL)
    origin.drop_all()
    released = (first if up_to >= 5 else SlotSet()) | (second if up_to >= 7 else SlotSet())
    assert origin.slots_here() == list(ALL - released)
    assert origin.departures.slots == (first | second) - released


def test_slots_that_have_come_back_are_not_forgotten_with_the_handover_that_took_them_away() -> None:
    origin = Origin()
    origin.begin(5, _1=[0, 1])
    origin.departures.returned(SlotSet([0]))
    assert origin.departures.slots == SlotSet([1])
    origin.departures.release(5)
    origin.drop_all()
    assert origin.slots_here() == [0, 2, 3]


def test_slots_that_come_back_before_they_are_dropped_stay() -> None:
    origin = Origin()
    origin.begin(5, _1=[0, 1])
    origin.departures.release(5)
    origin.departures.returned(SlotSet([0]))
    origin.drop_all()
    assert origin.slots_here() == [0, 2, 3]


# -- state that the new owner fetched ahead ---------------------------------------------------------------------------


def test_of_slots_that_the_new_owner_has_a_backup_of_only_the_changes_are_sent() -> None:
    origin = Origin()
    origin.state.mark(3)
    origin.state.put(KEYS[0], "changed")
    origin.attach(life(SUM1), bases={5: 3})
    (message,) = origin.begin(5, _1=[0, 1])
    assert (message.base, slots_in(message)) == (3, [0])


def test_a_backup_older_than_what_is_known_of_changes_is_of_no_use() -> None:
    origin = Origin()
    origin.state.mark(4)
    origin.attach(life(SUM1), bases={5: 3})
    (message,) = origin.begin(5, _1=[0, 1])
    assert (message.base, slots_in(message)) == (None, [0, 1])


def test_a_backup_for_one_handover_says_nothing_of_another() -> None:
    origin = Origin()
    origin.state.mark(3)
    origin.attach(life(SUM1), bases={7: 3})
    assert [message.base for message in (*origin.begin(5, _1=[0]), *origin.begin(7, _1=[1]))] == [None, 3]


def test_changes_are_told_of_the_slots_that_leave_only() -> None:
    """The new owner may own other slots that were here before; that they are gone from here is not its business."""
    origin = Origin()
    origin.begin(5, _1=[0])
    origin.state.mark(6)
    origin.departures.release(5)
    origin.attach(life(SUM1), first=7, bases={7: 6})
    (message,) = origin.begin(7, _1=[1])
    assert [chunk.replaced & SlotSet([0]) for chunk in message.chunks] == [SlotSet()]


def test_backups_that_changes_may_be_asked_against_are_pinned_until_the_handover_is_over() -> None:
    origin = Origin()
    origin.attach(life(SUM1), bases={5: 3, 7: 4})
    assert sorted(origin.departures.pinned) == [3, 4]
    origin.departures.release(5)
    assert origin.departures.pinned == (4,)


# -- new owners that are replaced -------------------------------------------------------------------------------------


def test_a_new_owner_that_was_replaced_gets_nothing_more_and_its_successor_asks_for_itself() -> None:
    origin = Origin()
    origin.begin(5, _1=[0])
    origin.attach(life(SUM1))
    assert list(origin.departures.receivers) == [life(SUM1)]
    origin.departures.forget([SUM1])
    assert list(origin.departures.receivers) == []
    assert origin.begin(7, _1=[1]) == []
    assert [message.epoch for message in origin.attach(life(SUM1, 1))] == [5, 7]


def test_forgetting_who_never_asked_does_nothing() -> None:
    origin = Origin()
    origin.attach(life(SUM1))
    origin.departures.forget([SUM2])
    assert origin.departures.receivers == (life(SUM1),)


def test_what_is_safe_is_dropped_in_parts_so_that_no_epoch_has_to_wait_for_all() -> None:
    origin = Origin()
    origin.begin(5, _1=[0, 1, 2])
    origin.departures.release(5)
    assert origin.slots_here() == [*range(len(KEYS))]
    for left in (2, 1, 0):
        origin.departures.drop_some()
        assert len(origin.slots_here()) == len(KEYS) - 3 + left


def test_those_parts_are_of_the_same_size_however_many_slots_there_are() -> None:
    departures = Departures(life(SUM), origin_state := Cells("sum", 10))
    departures.begin(5, {SUM1: SlotSet.range(0, 999)})
    dropped: list[SlotSet] = []
    origin_state.drop = dropped.append  # type: ignore[method-assign]
    departures.release(5)
    for _ in range(PARTS + 1):
        departures.drop_some()
    assert len(dropped) > 50
    assert {len(part) for part in dropped} == {8}
    assert sorted(slot for part in dropped for slot in part) == list(range(1000))


def test_what_comes_back_meanwhile_is_not_dropped_and_the_others_are() -> None:
    origin = Origin()
    origin.begin(5, _1=[0, 1, 2])
    origin.departures.release(5)
    origin.departures.drop_some()
    origin.departures.returned(SlotSet([1]))
    origin.drop_all()
    assert origin.slots_here() == [1, *range(3, len(KEYS))]
