"""The courier: letters arrive once and in order, whatever the link does."""

from __future__ import annotations

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from seep.protocol.courier import Courier, LetterFrame

ends = st.sampled_from("ab")


class Correspondence(RuleBasedStateMachine):
    """Two ends that write to each other over a link which loses what is under way whenever it breaks."""

    def __init__(self) -> None:
        super().__init__()
        self.couriers = {end: Courier() for end in "ab"}
        self.under_way: dict[str, deque[LetterFrame]] = {end: deque() for end in "ab"}  # by where it goes
        self.posted: dict[str, list[int]] = {"a": [], "b": []}  # by where it goes
        self.arrived: dict[str, list[int]] = {"a": [], "b": []}
        self.up = True

    def send(self, to: str, frame: LetterFrame) -> None:
        if self.up:
            self.under_way[to].append(frame)

    @rule(to=ends)
    def post(self, to: str) -> None:
        letter = len(self.posted[to])
        self.posted[to].append(letter)
        self.send(to, self.couriers[other(to)].post(7, letter))

    @rule(to=ends, frames=st.integers(1, 30))
    def deliver(self, to: str, frames: int) -> None:
        for _ in range(min(frames, len(self.under_way[to])) if self.up else 0):
            frame = self.under_way[to].popleft()
            if self.couriers[to].receive(frame):
                self.arrived[to].append(frame.body)
            if (acknowledgement := self.couriers[to].acknowledgement()) is not None:
                self.send(other(to), acknowledgement)

    @rule(lost=st.tuples(st.integers(0, 5), st.integers(0, 5)))
    def cut(self, lost: tuple[int, int]) -> None:
        """From some point on everything under way is lost; what is before may be read when the link is back."""
        self.up = False
        for end, most in zip("ab", lost, strict=True):
            for _ in range(min(most, len(self.under_way[end]))):
                self.under_way[end].pop()

    @rule()
    def mend(self) -> None:
        if not self.up:
            self.up = True
            for end in "ab":
                for frame in self.couriers[end].again():
                    self.send(other(end), frame)

    @invariant()
    def letters_arrive_once_and_in_order(self) -> None:
        for end in "ab":
            assert self.arrived[end] == self.posted[end][: len(self.arrived[end])]

    def teardown(self) -> None:
        """Once the link holds, everything arrives."""
        self.cut((99, 99))
        self.mend()
        for end in "abab":  # each delivery may bring forth an acknowledgement
            self.deliver(end, 10_000)
        assert self.arrived == self.posted


def other(end: str) -> str:
    return "b" if end == "a" else "a"


TestCorrespondence = Correspondence.TestCase
TestCorrespondence.settings = settings(max_examples=60, stateful_step_count=40)


def test_a_letter_that_comes_after_a_gap_waits_until_the_gap_is_filled() -> None:
    sender, receiver = Courier(), Courier()
    first, second = sender.post(1, "first"), sender.post(1, "second")
    assert [receiver.receive(frame) for frame in (second, first, second)] == [False, True, True]


def test_what_was_acknowledged_is_not_sent_again() -> None:
    a, b = Courier(), Courier()
    frames = [a.post(1, body) for body in ("one", "two", "three")]
    for frame in frames[:2]:
        b.receive(frame)
    a.receive(b.post(1, "an answer acknowledges as well"))
    assert a.again() == frames[2:]


@given(letters=st.integers(0, 60))
def test_who_only_listens_acknowledges_now_and_then(letters: int) -> None:
    a, b = Courier(), Courier()
    for body in range(letters):
        b.receive(a.post(1, body))
        if (acknowledgement := b.acknowledgement()) is not None:
            assert not a.receive(acknowledgement)  # it brings no letter
    assert len(a.again()) < Courier.QUIET


def test_a_repetition_calls_for_no_acknowledgement_of_its_own() -> None:
    a, b = Courier(), Courier()
    frame = a.post(1, "letter")
    for _ in range(3 * Courier.QUIET):
        b.receive(frame)
    assert b.acknowledgement() is None


def test_a_frame_tells_the_view_that_it_was_written_under() -> None:
    assert Courier().post(12, "letter").version == 12
