"""Rewriting: a new savepoint with the state a function made, which restores; the source stays as it is."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.persist import retrieve_state
from primitives.errors import UserError
from primitives.hashing import hash_key
from primitives.slots import SlotSet, slot_of, split_evenly
from seep.inspection import Stored, packed, rewrite, unpacked
from seep.storage.attempt import Fenced
from tests.inspection.orders import ALL, QUERY, SLOT_BITS, WORDS, Counter, Stage, counts
from tests.strategies import few


def restored(stage: Stage, checkpoint: int, slots: SlotSet = ALL) -> Counter:
    """An operator that has taken over what a checkpoint has, as a run does it."""
    stored, counter = Stored.open(stage.location, QUERY, checkpoint), Counter()
    counter.state.restore(retrieve_state(stored.component("counter"), slots, stored.store.get))
    return counter


def doubled(operator: str, container: str, table: pa.Table) -> pa.Table:
    """Twice the counts, and nothing else."""
    assert operator == "counter"
    if container != "counts":
        return table
    return table.set_column(table.schema.get_field_index("n"), "n", pc.multiply(table["n"], 2))


@few
@given(st.lists(st.sampled_from(WORDS), min_size=1), st.integers(1, 4))
def test_a_savepoint_restores_what_the_function_made_at_any_parallelism(words: list[str], parts: int) -> None:
    with TemporaryDirectory() as root:
        stage, counter = Stage(Path(root)), Counter()
        stage.take(counter.see(*words[1:]))
        stage.take(counter.see(words[0]))
        made = rewrite(stage.location, QUERY, doubled)
        found: dict[str, int] = {}
        for slots in split_evenly(ALL, parts):
            found |= counts(restored(stage, made, slots))
        assert found == {word: 2 * n for word, n in counts(counter).items()}
        assert dict(restored(stage, made).lists) == dict(counter.lists)


def test_the_source_stays_as_it_is(stage: Stage) -> None:
    counter = Counter().see(*WORDS)
    stage.take(counter)
    before = {path: path.read_bytes() for path in Path(stage.location).rglob("*") if path.is_file()}
    rewrite(stage.location, QUERY, doubled)
    assert all(path.read_bytes() == content for path, content in before.items())
    assert counts(restored(stage, 1)) == counts(counter)


def test_what_is_not_changed_is_not_copied_and_stays_when_the_source_goes(stage: Stage) -> None:
    counter = Counter().see(*WORDS)
    source = stage.take(counter)
    made = rewrite(stage.location, QUERY, doubled)
    component = Stored.open(stage.location, QUERY, made).component("counter")
    assert component.containers["lists"] == source.components["counter"].containers["lists"]
    stage.catalogue.dispose([source.id])
    assert dict(restored(stage, made).lists) == dict(counter.lists)


def test_it_is_a_savepoint_that_says_where_it_comes_from_and_what_latest_means(stage: Stage) -> None:
    source = stage.take(Counter().see("be"))
    made = rewrite(stage.location, QUERY, doubled, source.id)
    manifest = Stored.open(stage.location, QUERY).manifest
    assert (manifest.id, manifest.savepoint, manifest.epoch) == (made, True, source.epoch)
    assert (manifest.sources, manifest.notes) == (source.sources, {"sinks": {}, "rewritten_from": source.id})
    assert manifest.generation > source.generation


def test_python_objects_are_unpacked_and_packed(stage: Stage) -> None:
    stage.take(Counter().see("be"))

    def anonymous(_: str, container: str, table: pa.Table) -> pa.Table:
        if container != "last page":
            return table
        pages = [page | {"day": None} for page in unpacked(table["value"])]
        return table.set_column(1, "value", packed(pages))

    made = restored(stage, rewrite(stage.location, QUERY, anonymous))
    assert made.pages["be"] == {"page": 2, "tags": {"a", "b"}, "day": None, "raw": b"\x01"}


def test_rows_that_are_added_or_get_another_key_are_in_the_slots_of_their_keys(stage: Stage) -> None:
    stage.take(Counter().see(*WORDS))

    def renamed(_: str, container: str, table: pa.Table) -> pa.Table:
        if container != "counts":
            return table
        upper = table.set_column(0, "word", pc.utf8_upper(table["word"]))
        return pa.concat_tables([upper, pa.table({"word": ["new"], "n": [7], "score": [0.0]})])

    made = rewrite(stage.location, QUERY, renamed)
    stored = Stored.open(stage.location, QUERY, made)
    for word, n in {**dict.fromkeys(map(str.upper, WORDS), 1), "new": 7}.items():
        mine = SlotSet([slot_of(hash_key(word), SLOT_BITS)])
        found = stored.table("counter", "counts", slots=mine, keys={"word": word})
        assert found["n"].to_pylist() == [n]


def test_rows_can_be_removed_all_of_them_too(stage: Stage) -> None:
    stage.take(Counter().see(*WORDS))
    made = rewrite(stage.location, QUERY, lambda _, container, table: table[:0] if container == "bids" else table)
    assert len(restored(stage, made).bids) == 0


def test_other_operators_than_those_named_are_left_alone(stage: Stage) -> None:
    counter = Counter().see("be")
    stage.take(counter)
    with pytest.raises(UserError, match="no state of an operator 'splitter'"):
        rewrite(stage.location, QUERY, doubled, operators=["splitter"])
    made = rewrite(stage.location, QUERY, doubled, operators=[])
    assert counts(restored(stage, made)) == counts(counter)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda table: table.drop_columns("n"), r"has the columns word \(string\), n \(int64\), .*was rewritten with"),
        (lambda table: table.set_column(1, "n", table["n"].cast(pa.int32())), r"n \(int32\).*migrate"),
        (lambda table: pa.concat_tables([table, table[:1]]), "2 rows of word='word 0'; it can have only one"),
        (lambda _: None, "returned NoneType for state 'counts'"),
        (lambda table: table["none"], "failed with state 'counts' of operator 'counter': KeyError"),
    ],
)
def test_what_cannot_be_state_is_refused_and_nothing_comes_of_it(stage: Stage, change: object, words: str) -> None:
    counter = Counter().see("word 0")
    stage.take(counter)
    assert callable(change)
    with pytest.raises(UserError, match=words):
        rewrite(stage.location, QUERY, lambda _, __, table: change(table))
    assert Stored.open(stage.location, QUERY).manifest.id == 1
    assert counts(restored(stage, 1)) == counts(counter)


def test_a_run_that_goes_on_is_fenced(stage: Stage) -> None:
    counter = Counter().see("be")
    stage.take(counter)
    rewrite(stage.location, QUERY, doubled)
    with pytest.raises(Fenced, match="rewrite of checkpoint 1"):
        stage.take(counter)
