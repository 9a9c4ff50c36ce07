"""The inbox: every sender counted once per epoch, whatever is repeated, replaced or late."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from primitives.graph import InstanceId
from seep.protocol.instances.inbox import Inbox
from seep.protocol.messages import Data, StateMoved
from seep.protocol.view import Incarnation

RECEIVER = Incarnation(InstanceId("sum", 0), 0)
A, B, C = (InstanceId("map", i) for i in range(3))


def data(sender: InstanceId, epoch: int, number: int = 0, rows: object = ()) -> Data:
    return Data(Incarnation(sender, number), RECEIVER, epoch, {0: rows}, 0)


def moved(origin: InstanceId, epoch: int, *chunks: str) -> StateMoved:
    return StateMoved(Incarnation(origin, 0), RECEIVER, epoch, None, chunks)


def test_an_epoch_is_whole_when_every_sender_was_heard() -> None:
    inbox = Inbox()
    assert inbox.accept(data(A, 1))
    assert not inbox.has_all(1, [A, B])
    assert inbox.accept(data(B, 1))
    assert inbox.has_all(1, [A, B])
    assert not inbox.has_all(2, [A, B])


def test_an_epoch_without_senders_is_whole() -> None:
    assert Inbox().has_all(1, [])


@given(st.lists(st.tuples(st.sampled_from([A, B, C]), st.integers(1, 4)), max_size=40))
def test_epochs_are_taken_in_order_with_one_message_of_each_sender_however_often_it_was_sent(
    arrivals: list[tuple[InstanceId, int]],
) -> None:
    inbox, taken = Inbox(), []
    for attempt, (sender, epoch) in enumerate(arrivals):
        repeated = (sender, epoch) in arrivals[:attempt]
        assert inbox.accept(data(sender, epoch, rows=attempt)) == (not repeated)
        while inbox.has_all(inbox.processed + 1, [A, B, C]):
            taken += inbox.take(inbox.processed + 1)
            inbox.close(inbox.processed + 1)
    whole = [epoch for epoch in range(1, 5) if {(sender, epoch) for sender in (A, B, C)} <= set(arrivals)]
    whole = [epoch for epoch in whole if set(range(1, epoch + 1)) <= set(whole)]
    first = {arrival: attempt for attempt, arrival in reversed(list(enumerate(arrivals)))}
    assert sorted((m.sender.instance, m.epoch, m.batches[0]) for m in taken) == sorted(
        (sender, epoch, first[sender, epoch]) for epoch in whole for sender in (A, B, C)
    )
    assert [m.epoch for m in taken] == sorted(m.epoch for m in taken)


def test_what_was_processed_is_not_accepted_again() -> None:
    inbox = Inbox()
    inbox.processed = 3
    assert not inbox.accept(data(A, 3))
    assert not inbox.accept_state(moved(A, 3))
    assert inbox.accept(data(A, 4))


def test_a_late_repetition_is_noticed_while_its_epoch_is_being_processed() -> None:
    inbox = Inbox()
    inbox.accept(data(A, 1))
    assert inbox.take(1) == [data(A, 1)]
    assert not inbox.accept(data(A, 1))
    assert inbox.take(1) == []


def test_the_state_of_arriving_slots_is_kept_once_for_each_epoch_and_origin() -> None:
    inbox = Inbox()
    assert [inbox.accept_state(m) for m in (moved(A, 5, "a"), moved(A, 5, "again"), moved(B, 5), moved(A, 7))] == [
        True,
        False,
        True,
        True,
    ]
    assert inbox.take_state(5, A) == moved(A, 5, "a")
    assert inbox.take_state(5, A) is None
    assert inbox.take_state(7, A) == moved(A, 7)


def test_a_replaced_sender_says_everything_again() -> None:
    inbox = Inbox()
    for message in (data(A, 1), data(B, 1), data(A, 2)):
        inbox.accept(message)
    inbox.accept_state(moved(A, 5))
    inbox.discard(A)
    assert (inbox.has_all(1, [B]), inbox.has_all(1, [A]), inbox.has_all(2, [A])) == (True, False, False)
    assert inbox.take_state(5, A) is None
    assert inbox.accept(data(A, 1, number=1))
    assert inbox.take(1) == [data(B, 1), data(A, 1, number=1)]


def test_an_epoch_that_is_being_processed_needs_nothing_of_a_replaced_sender() -> None:
    inbox = Inbox()
    inbox.accept(data(A, 1))
    inbox.take(1)
    inbox.discard(A)
    assert not inbox.accept(data(A, 1, number=1))


def test_epochs_that_nobody_needs_are_skipped() -> None:
    inbox = Inbox()
    for epoch in (1, 3, 4):
        inbox.accept(data(A, epoch))
        inbox.accept_state(moved(B, epoch))
    inbox.skip_to(3)
    assert inbox.processed == 3
    assert (inbox.take(3), inbox.take_state(3, B)) == ([], None)
    assert (inbox.take(4), inbox.take_state(4, B)) == ([data(A, 4)], moved(B, 4))
