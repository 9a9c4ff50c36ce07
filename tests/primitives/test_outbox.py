from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from primitives.errors import InternalError
from primitives.outbox import Outbox, nbytes_of, spill_state
from primitives.spill import Batches, SpillStore
from tests.primitives.spilled import BATCHES, batches_nbytes

epoch_sets = st.sets(st.integers(1, 40))


def filled(epochs: set[int] | range, size: Callable[[str], int] = nbytes_of) -> Outbox[str]:
    outbox = Outbox[str](size=size)
    for epoch in sorted(epochs):
        outbox.append(epoch, f"payload {epoch}")
    return outbox


def pull_all(outbox: Outbox[str], receiver: str) -> list[int]:
    """All epochs that are waiting; bounded, so that a cursor that is stuck fails a test instead of hanging it."""
    return [epoch for epoch, _ in islice(iter(lambda: outbox.pull(receiver), None), 100)]


@given(epoch_sets, st.integers(1, 45))
def test_a_receiver_pulls_every_epoch_from_its_first_on_in_order(epochs: set[int], first: int) -> None:
    outbox = filled(epochs)
    outbox.attach("r", first)
    assert pull_all(outbox, "r") == sorted(epoch for epoch in epochs if epoch >= first)


@given(epoch_sets, st.integers(1, 45))
def test_replaying_twice_is_replaying_once(epochs: set[int], first: int) -> None:
    outbox = filled(epochs)
    outbox.attach("r", first)
    once = pull_all(outbox, "r")
    outbox.attach("r", first)
    outbox.attach("r", first)
    assert pull_all(outbox, "r") == once


@given(epoch_sets, st.integers(0, 45))
def test_trim_drops_all_epochs_up_to_the_given_one_and_none_above(epochs: set[int], safe: int) -> None:
    outbox = filled(epochs)
    kept = [epoch for epoch in sorted(epochs) if epoch > safe]
    assert outbox.trim(safe) == len(epochs) - len(kept)
    assert [epoch for epoch, _ in outbox.entries()] == kept


@given(epoch_sets, st.integers(0, 45), st.integers(0, 45))
def test_restoring_the_entries_after_an_epoch_gives_the_same_log_from_there_on(
    epochs: set[int], trimmed: int, after: int
) -> None:
    outbox = filled(epochs)
    outbox.trim(trimmed)
    restored = Outbox[str](trimmed=max(trimmed, after))
    restored.restore(outbox.entries(after))
    assert restored.entries() == [entry for entry in outbox.entries() if entry[0] > after]


@given(epoch_sets, st.lists(st.integers(1, 45), max_size=3), st.integers(0, 45))
@example(set(range(1, 13)), [1, 8], 5)  # trim has overtaken the first reader
def test_the_coldest_epoch_is_the_one_whose_next_reader_is_furthest_away(
    epochs: set[int], cursors: list[int], trimmed: int
) -> None:
    outbox = filled(epochs, size=len)
    for number, cursor in enumerate(cursors):
        outbox.attach(number, cursor)
    outbox.trim(trimmed)
    starts = [max(cursor, trimmed + 1) for cursor in cursors]

    def distance(epoch: int) -> float:
        return min((epoch - start for start in starts if epoch >= start), default=inf)

    left = [epoch for epoch, _ in outbox.entries()]
    assert outbox.coldest() == max(left, key=lambda epoch: (distance(epoch), epoch), default=None)


def test_a_slow_receiver_does_not_hold_up_another_one() -> None:
    outbox = filled(range(1, 4))
    outbox.attach("slow", 1)
    outbox.attach("quick", 1)
    assert pull_all(outbox, "quick") == [1, 2, 3]
    assert outbox.pull("slow") == (1, "payload 1")


def test_a_receiver_attached_ahead_of_the_log_skips_what_comes_before() -> None:
    outbox = Outbox[str]()
    outbox.attach("r", 5)
    outbox.append(4, "early")
    assert not outbox.pending("r")
    outbox.append(6, "due")
    assert outbox.pull("r") == (6, "due")


def test_an_epoch_appended_after_everything_was_pulled_is_pulled_next() -> None:
    outbox = filled(range(1, 3))
    outbox.attach("r", 1)
    pull_all(outbox, "r")
    outbox.append(9, "new")
    assert outbox.pending("r")
    assert outbox.pull("r") == (9, "new")


def test_peeking_does_not_move_the_cursor() -> None:
    outbox = filled(range(1, 3))
    outbox.attach("r", 1)
    assert outbox.peek("r") == outbox.peek("r") == outbox.pull("r") == (1, "payload 1")


def test_an_unknown_receiver_has_nothing_to_pull() -> None:
    outbox = filled(range(1, 3))
    assert (outbox.pull("r"), outbox.peek("r"), outbox.pending("r"), outbox.position("r")) == (None, None, False, None)


def test_a_detached_receiver_is_unknown() -> None:
    outbox = filled(range(1, 3))
    outbox.attach("a", 1)
    outbox.attach("b", 1)
    outbox.detach("a")
    outbox.detach("never attached")
    assert outbox.receivers == ("b",)
    assert outbox.pull("a") is None


def test_attaching_at_the_position_changes_nothing() -> None:
    outbox = filled(range(1, 9))
    outbox.attach("r", 2)
    outbox.pull("r")
    position = outbox.position("r")
    assert position == 3
    outbox.attach("r", position)
    assert outbox.pull("r") == (3, "payload 3")


def test_a_receiver_overtaken_by_trim_goes_on_behind_it() -> None:
    outbox = filled(range(1, 9))
    outbox.attach("r", 2)
    outbox.trim(5)
    assert outbox.position("r") == 6
    assert outbox.pull("r") == (6, "payload 6")


def test_trim_never_goes_back() -> None:
    outbox = filled(range(1, 9))
    outbox.trim(5)
    assert outbox.trim(3) == 0
    assert outbox.trimmed == 5


def test_last_is_the_last_epoch_appended_or_trimmed() -> None:
    outbox = Outbox[str](trimmed=3)
    assert outbox.last == 3
    outbox.append(5, "a")
    assert outbox.last == 5
    outbox.trim(8)
    assert outbox.last == 8


@pytest.mark.parametrize("epoch", [2, 5])
def test_an_epoch_that_is_not_the_newest_is_refused(epoch: int) -> None:
    outbox = Outbox[str](trimmed=2)
    outbox.append(5, "a")
    with pytest.raises(InternalError, match=f"epoch {epoch} .* already at epoch 5"):
        outbox.append(epoch, "b")


def test_a_trimmed_epoch_cannot_be_replayed() -> None:
    outbox = filled(range(1, 9))
    outbox.trim(4)
    with pytest.raises(InternalError, match=r"'r' asks for epoch 4.* trimmed to 4"):
        outbox.attach("r", 4)


def test_restoring_into_a_log_with_entries_is_refused() -> None:
    outbox = filled(range(3, 6))
    with pytest.raises(InternalError, match="epochs 3 to 5"):
        outbox.restore([(6, "a")])


def test_payloads_with_nbytes_are_counted_and_others_weigh_nothing() -> None:
    outbox = Outbox[object]()
    outbox.append(1, pa.array([1, 2]))
    outbox.append(2, "no nbytes")
    assert (outbox.nbytes, len(outbox)) == (16, 2)
    outbox.trim(1)
    assert (outbox.nbytes, len(outbox)) == (0, 1)


def test_a_budget_without_a_spill_store_is_refused() -> None:
    with pytest.raises(InternalError, match="needs a spill store"):
        Outbox[str](budget=10)


def test_spilling_without_a_spill_store_is_refused() -> None:
    with pytest.raises(InternalError, match="no spill store"):
        spill_state(filled(range(1, 3), size=len), 0)


def test_an_epoch_is_spilled_only_from_memory(tmp_path: Path) -> None:
    outbox = Outbox[Batches](size=batches_nbytes, spill=SpillStore(tmp_path, BATCHES))
    outbox.append(1, {"edge": pa.record_batch({"n": [1, 2]})})
    assert outbox.spill(1) == 16
    with pytest.raises(InternalError, match=r"epoch 1 .* not in memory"):
        outbox.spill(1)


@pytest.mark.parametrize(
    ("cursors", "coldest"),
    [
        ({}, 6),  # nobody reads: all are kept for replay only, and the newest of them the longest
        ({"quick": 7}, 6),
        ({"quick": 5}, 4),  # behind all cursors before ahead of one
        ({"slow": 1}, 6),  # furthest ahead of the only reader
        ({"slow": 1, "quick": 5}, 4),  # 5 and 6 are about to be read
    ],
)
def test_what_is_needed_last_is_spilled_first(cursors: dict[str, int], coldest: int) -> None:
    outbox = filled(range(1, 7), size=len)
    for receiver, first in cursors.items():
        outbox.attach(receiver, first)
    assert outbox.coldest() == coldest


class SpillingOutboxComparedWithAList(RuleBasedStateMachine):
    """Whatever is done to an outbox with a small budget, a plain list of epochs behaves alike."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = TemporaryDirectory()
        self.store = SpillStore(Path(self.directory.name, "outbox"), BATCHES)
        self.outbox = Outbox[Batches](size=batches_nbytes, budget=60, spill=self.store)
        self.log: list[tuple[int, list[int]]] = []
        self.trimmed = 0
        self.cursors: dict[str, int] = {}

    receivers = st.sampled_from("abc")

    @property
    def newest(self) -> int:
        return self.log[-1][0] if self.log else self.trimmed

    @rule(gap=st.integers(1, 3), rows=st.integers(0, 6))
    def append(self, gap: int, rows: int) -> None:
        epoch = self.newest + gap
        values = list(range(epoch, epoch + rows))
        self.log.append((epoch, values))
        self.outbox.append(epoch, {"edge": pa.record_batch({"n": pa.array(values, pa.int64())})})

    @rule(receiver=receivers, back=st.integers(-2, 10))
    def attach(self, receiver: str, back: int) -> None:
        first = max(self.trimmed + 1, self.newest - back)
        self.cursors[receiver] = first
        self.outbox.attach(receiver, first)

    @rule(receiver=receivers)
    def detach(self, receiver: str) -> None:
        self.cursors.pop(receiver, None)
        self.outbox.detach(receiver)

    @rule(receiver=receivers, peek=st.booleans())
    def pull(self, receiver: str, peek: bool) -> None:
        cursor = self.cursors.get(receiver)
        waiting = [] if cursor is None else [entry for entry in self.log if entry[0] >= cursor]
        assert self.outbox.pending(receiver) == bool(waiting)
        entry = self.outbox.peek(receiver) if peek else self.outbox.pull(receiver)
        assert ([] if entry is None else [plain(entry)]) == waiting[:1]
        if waiting and not peek:
            self.cursors[receiver] = waiting[0][0] + 1

    @rule(step=st.integers(-2, 6))
    def trim(self, step: int) -> None:
        epoch = self.trimmed + step
        self.trimmed = max(self.trimmed, epoch)
        kept = [entry for entry in self.log if entry[0] > epoch]
        assert self.outbox.trim(epoch) == len(self.log) - len(kept)
        self.log = kept

    @rule(budget=st.integers(0, 60))
    def spill(self, budget: int) -> None:
        before = self.outbox.nbytes
        moved = spill_state(self.outbox, budget)
        assert self.outbox.nbytes == before - moved <= budget

    @precondition(lambda self: self.log)
    @rule()
    def restart_from_a_checkpoint(self) -> None:
        checkpoint = self.outbox.entries()
        self.outbox.close()
        self.store = SpillStore(Path(self.directory.name, "outbox"), BATCHES)
        self.outbox = Outbox[Batches](size=batches_nbytes, budget=60, spill=self.store, trimmed=self.trimmed)
        self.outbox.restore(checkpoint)
        self.cursors.clear()

    @invariant()
    def log_is_the_same(self) -> None:
        assert [plain(entry) for entry in self.outbox.entries()] == self.log
        assert len(self.outbox) == len(self.log)
        assert (self.outbox.trimmed, self.outbox.last) == (self.trimmed, self.newest)

    @invariant()
    def every_byte_is_in_memory_or_on_disk_and_memory_is_within_budget(self) -> None:
        on_disk = [self.store.get(int(path.stem)) for path in self.store.directory.iterdir()]
        assert self.outbox.nbytes + sum(map(batches_nbytes, on_disk)) == sum(8 * len(values) for _, values in self.log)
        assert self.outbox.nbytes <= 60

    @invariant()
    def only_epochs_of_the_log_have_files(self) -> None:
        files = {int(path.stem) for path in self.store.directory.iterdir()}
        assert files <= {epoch for epoch, _ in self.log}
        assert len(files) == len(self.store)

    def teardown(self) -> None:
        self.outbox.close()
        assert not self.store.directory.exists()
        self.directory.cleanup()


def plain(entry: tuple[int, Batches]) -> tuple[int, list[int]]:
    return entry[0], entry[1]["edge"]["n"].to_pylist()


TestSpillingOutboxComparedWithAList = SpillingOutboxComparedWithAList.TestCase
TestSpillingOutboxComparedWithAList.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
