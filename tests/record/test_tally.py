"""The tally: what is counted, each row at most once, whoever leaves or is lost."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from primitives.graph import InstanceId
from seep.protocol.view import Incarnation
from seep.record.tally import LastWords, Tally
from tests.record.kit import Recorded, figures, launched, node

COUNTER = InstanceId("counter", 0)
FIRST, SECOND = Incarnation(COUNTER, 0), Incarnation(COUNTER, 1)

#: Of an epoch, how many rows were late; and whether there was a report after it.
Epochs = Sequence[tuple[int, bool]]
EPOCHS = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=400)


def process(tally: Tally, who: Incarnation, epochs: Epochs, first: int = 1) -> int:
    """An instance counts epoch by epoch; returns how many rows."""
    late = 0
    for epoch, (rows, is_reported) in enumerate(epochs, first):
        late += rows
        if is_reported:
            tally.note(who, epoch, {"late": late})
    return late


@given(EPOCHS, st.integers(0, 400))
def test_what_an_instance_has_counted_before_it_left_counts_in_full(epochs: Epochs, leaves_after: int) -> None:
    tally = Tally()
    before, after = epochs[:leaves_after], epochs[leaves_after:]
    rows = process(tally, FIRST, before)
    tally.note(FIRST, len(before), {"late": rows})
    tally.left(FIRST)
    rows += process(tally, SECOND, [*after, (0, True)], len(before) + 1)
    assert tally.total() == {"late": rows}
    assert tally.is_exact


@given(EPOCHS, st.data())
def test_no_row_counts_twice_though_epochs_are_processed_again(epochs: Epochs, data: st.DataObject) -> None:
    tally = Tally()
    dies_after = data.draw(st.integers(0, len(epochs)))
    kept = data.draw(st.integers(0, dies_after))
    process(tally, FIRST, epochs[:dies_after])
    tally.lost(FIRST, kept)
    process(tally, SECOND, [*epochs[kept:], (0, True)], kept + 1)
    assert sum(rows for rows, _ in epochs[kept:]) <= tally.total()["late"] <= sum(rows for rows, _ in epochs)
    assert not tally.is_exact


def test_a_loss_after_the_end_of_the_query_takes_nothing_away() -> None:
    tally = Tally()
    tally.note(FIRST, 9, {"late": 4})
    tally.lost(FIRST, None)
    assert tally.total() == {"late": 4}


def test_a_report_that_comes_after_the_last_word_counts_nothing() -> None:
    it = Recorded()
    it.take("n1", 1.0, figures(counters={"late": 3}))
    it.record.left("n1", figures(counters={"late": 5}))
    it.record.take("n1", node(1.05, figures(counters={"late": 4})))
    assert it.record.counters == ({"late": 5}, True)
    assert it.record.status(launched()).instances == ()


def test_an_instance_is_told_of_for_as_long_as_it_lives() -> None:
    it, query = Recorded(), launched()
    numbers = figures("numbers", rows_out=100)
    it.take("n1", 1.0, figures(), numbers)
    assert [each.name for each in it.record.status(query).instances] == ["counter[0]#0", "numbers[0]#0"]
    it.take("n1", 2.0, numbers)
    assert [each.name for each in it.record.status(query).instances] == ["numbers[0]#0"]
    it.record.left("n1", figures("numbers", rows_out=120))
    assert it.record.status(query).instances == ()
    assert it.record.rows_read == 120, "what a source has read that has left stays read"


def test_the_last_words_of_a_lost_node_are_not_waited_for() -> None:
    words = LastWords(patience=3.0)
    words.expect("n1", "n1", 0.0)
    words.expect(FIRST, "n2", 0.0)
    assert words.lost("n2") == [FIRST]
    assert words.nodes == {"n1"}
    assert words.overdue(2.9) == []
    assert words.overdue(3.1) == ["n1"]
    assert words.nodes == frozenset()
