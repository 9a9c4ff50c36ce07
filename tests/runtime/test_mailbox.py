from threading import Thread

from hypothesis import given
from hypothesis import strategies as st

from seep.threads.mailbox import Mailbox


@given(st.lists(st.tuples(st.booleans(), st.integers())))
def test_letters_come_first_and_each_kind_keeps_its_order(items: list[tuple[bool, int]]) -> None:
    mailbox = Mailbox[tuple[bool, int]]()
    for item in items:
        (mailbox.letter if item[0] else mailbox.stream)(item)
    taken = [mailbox.take() for _ in items]
    assert taken == [item for item in items if item[0]] + [item for item in items if not item[0]]
    assert len(mailbox) == 0


def test_a_letter_overtakes_stream_messages_that_were_sorted_before_it_came() -> None:
    mailbox = Mailbox[str]()
    mailbox.stream("first")
    mailbox.stream("second")
    assert mailbox.take() == "first"
    mailbox.letter("view")
    assert [mailbox.take(), mailbox.take()] == ["view", "second"]


def test_taking_waits_until_somebody_puts_something_in() -> None:
    mailbox = Mailbox[int]()
    found: list[int] = []
    taker = Thread(target=lambda: found.append(mailbox.take()))
    taker.start()
    mailbox.stream(7)
    taker.join(5)
    assert found == [7]
