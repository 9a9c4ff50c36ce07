"""Any sequence of what runs and people do with checkpoints, compared with a plain account of it."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from primitives.errors import UserError
from seep.storage.attempt import Attempt, Fenced, Writer
from seep.storage.memory import MemoryStore
from seep.storage.pins import Pin
from seep.storage.reading import NotStanding
from tests.storage.manifests import Info, catalogue, fill, ids, text


class Story(RuleBasedStateMachine):
    """Each step by a catalogue of its own, as another process would have it."""

    attempts: Bundle[Attempt[Info]] = Bundle("attempts")

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore("checkpoints")
        self.complete: dict[int, Info] = {}
        #: Attempts of the newest run that are neither committed nor given up, and what they build on.
        self.under_way: dict[int, list[Info]] = {}
        self.pins: list[Pin] = []
        self.highest = 0

    @initialize()
    def first_run(self) -> None:
        self.run: Writer[Info] = catalogue(self.store).enter("the first")

    @rule()
    def another_run_takes_over(self) -> None:
        self.under_way.clear()
        self.run = catalogue(self.store).enter("another")

    @rule(target=attempts, builds_on=st.integers(0, 2))
    def begin(self, builds_on: int) -> Attempt[Info]:
        bases = sorted(self.complete.values())[-builds_on:] if builds_on else []
        attempt = self.run.begin(ids(bases))
        assert attempt.id > self.highest
        self.highest = attempt.id
        self.under_way[attempt.id] = bases
        return attempt

    @rule(attempt=consumes(attempts), savepoint=st.booleans())
    def commit(self, attempt: Attempt[Info], savepoint: bool) -> None:
        bases = self.under_way.pop(attempt.id, None)
        blobs = fill(attempt).union(*(base.blobs for base in bases or ()))
        try:
            self.complete[attempt.id] = attempt.commit(text(attempt.id, blobs, savepoint=savepoint))
            assert bases is not None, "it was fenced"
        except Fenced:
            assert bases is None

    @rule(attempt=consumes(attempts))
    def abandon(self, attempt: Attempt[Info]) -> None:
        attempt.abandon()
        self.under_way.pop(attempt.id, None)

    @rule(attempt=attempts)
    def write(self, attempt: Attempt[Info]) -> None:
        fill(attempt)

    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        id = data.draw(st.integers(1, self.highest + 1))
        try:
            self.pins.append(catalogue(self.store).pin(id, "a reader"))
            assert id in self.complete
        except NotStanding:
            assert id not in self.complete

    @rule()
    def release(self) -> None:
        while self.pins:
            self.pins.pop().release()

    @rule(keep=st.integers(1, 3))
    def clean(self, keep: int) -> None:
        ordinary = [id for id in sorted(self.complete, reverse=True) if not self.complete[id].savepoint]
        cleaned = catalogue(self.store).clean(keep)
        assert set(cleaned.disposed) == set(ordinary[keep:]) - self.needed()
        self.forget(cleaned.disposed)
        self.nothing_else_is_left()

    @rule(data=st.data())
    def dispose(self, data: st.DataObject) -> None:
        wanted = data.draw(st.sets(st.integers(1, self.highest + 1), min_size=1, max_size=2))
        allowed = wanted <= self.complete.keys() and wanted.isdisjoint(self.needed()) and wanted != self.complete.keys()
        disposed = False
        with suppress(UserError):
            catalogue(self.store).dispose(wanted)
            disposed = True
        assert disposed == allowed
        if disposed:
            self.forget(wanted)
            self.nothing_else_is_left()

    @invariant()
    def the_complete_ones_are_those_that_should_be(self) -> None:
        assert {info.id: info for info in catalogue(self.store).complete()} == self.complete

    @invariant()
    def all_blobs_of_the_complete_ones_are_there(self) -> None:
        for info in self.complete.values():
            assert all(self.store.size(blob) for blob in info.blobs)

    def needed(self) -> set[int]:
        """Those that are read or built upon."""
        return {pin.id for pin in self.pins}.union(*(ids(bases) for bases in self.under_way.values()))

    def forget(self, gone: set[int] | tuple[int, ...]) -> None:
        for id in gone:
            del self.complete[id]

    def nothing_else_is_left(self) -> None:
        referred = {blob for info in self.complete.values() for blob in info.blobs}
        kept = {blob for blob in self.store.list() if "/counter/" in blob}
        assert referred == {blob for blob in kept if int(blob.split("/")[1]) not in self.under_way}


Story.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestStory = Story.TestCase
