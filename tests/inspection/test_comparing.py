"""Differences between two checkpoints: exactly what changed, of any content, told by keys."""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primitives.errors import UserError
from seep.inspection import Difference, Stored, diff
from seep.inspection.comparing import compared
from tests.inspection.orders import QUERY, WORDS, Counter, Stage
from tests.strategies import few


def differences(stage: Stage, before: int, after: int, container: str | None = None) -> list[Difference]:
    old, new = (Stored.open(stage.location, QUERY, each) for each in (before, after))
    return diff(old, new, "counter", container)


def words(batch: pa.RecordBatch) -> list[str]:
    return sorted(batch["word"].to_pylist())


keys = st.none() | st.text("ab", max_size=2) | st.integers(0, 3).map(str)
contents = st.dictionaries(keys, st.none() | st.integers(0, 2), max_size=8)


def batch(content: dict[str | None, Any], kind: pa.DataType) -> pa.RecordBatch:
    columns = [pa.array([*content], pa.string()), pa.array([*content.values()], kind)]
    return pa.record_batch(columns, ["k0", "old"])  # names that the comparison uses itself


@few
@given(contents, contents, st.booleans())
def test_rows_are_told_by_their_identity_whatever_their_order(
    before: dict[str | None, Any], after: dict[str | None, Any], nested: bool
) -> None:
    if nested:
        before, after = ({key: [value, math.nan] for key, value in each.items()} for each in (before, after))
    kind = pa.list_(pa.float64()) if nested else pa.int64()
    added, removed, old, new = compared(batch(before, kind), batch(after, kind), ("k0",))
    assert {*added["k0"].to_pylist()} == after.keys() - before.keys()
    assert {*removed["k0"].to_pylist()} == before.keys() - after.keys()
    changed = {key for key in before.keys() & after.keys() if repr(before[key]) != repr(after[key])}
    assert {*new["k0"].to_pylist()} == changed
    assert old["k0"].to_pylist() == new["k0"].to_pylist()
    assert all(repr(a) != repr(b) for a, b in zip(old["old"].to_pylist(), new["old"].to_pylist(), strict=True))


def test_nan_is_the_same_key_and_the_same_value() -> None:
    rows = pa.record_batch({"k": [math.nan, 1.0], "v": [math.nan, 2.0]})
    assert [len(part) for part in compared(rows, rows, ("k",))] == [0, 0, 0, 0]


def test_each_container_tells_what_came_what_went_and_what_changed(stage: Stage) -> None:
    counter = Counter().see(*WORDS)
    stage.take(counter)
    stage.take(counter.forget(WORDS[0]).see("be", WORDS[1]))
    found = {each.container: each for each in differences(stage, 1, 2)}
    for name in ("counts", "lists"):
        assert words(found[name].added) == ["be"]
        assert words(found[name].removed) == [WORDS[0]]
        assert words(found[name].after) == [WORDS[1]]
    assert (found["counts"].before["n"].to_pylist(), found["counts"].after["n"].to_pylist()) == ([1], [2])
    assert words(found["bids"].added) == sorted(["be", WORDS[1]])
    assert not found["last page"].after, "it was written again as it was"


def test_there_and_back_are_opposites(stage: Stage) -> None:
    counter = Counter().see(*WORDS[:9])
    stage.take(counter)
    stage.take(counter.forget(WORDS[0]).see("be", WORDS[1]))
    for there, back in zip(differences(stage, 1, 2), differences(stage, 2, 1), strict=True):
        assert there.added.equals(back.removed)
        assert there.removed.equals(back.added)
        assert there.before.equals(back.after)


def test_a_checkpoint_does_not_differ_from_itself_and_is_not_read_for_that(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.take(Counter().see(*WORDS))
    monkeypatch.setattr("seep.inspection.container.StoredContainer.chunk", None)
    assert not any(differences(stage, 1, 1))


def test_an_operator_or_container_that_neither_has_is_refused(stage: Stage) -> None:
    stage.take(Counter().see("be"))
    stored = Stored.open(stage.location, QUERY)
    with pytest.raises(UserError, match="no state of an operator 'splitter'"):
        diff(stored, stored, "splitter")
    with pytest.raises(UserError, match="has no state 'totals'"):
        diff(stored, stored, "counter", "totals")


def test_what_only_one_of_them_has_was_empty_in_the_other(stage: Stage) -> None:
    with TemporaryDirectory() as root:
        stage.take(Counter().see("be"))
        mine = Stored.open(stage.location, QUERY)
        component = mine.component("counter")
        less = component.model_copy(update={"containers": {"lists": component.containers["lists"]}})
        without = Stored(Stage(Path(root)).store, mine.manifest.model_copy(update={"components": {"counter": less}}))
        (found,) = diff(without, mine, "counter", "counts")
        assert (len(found.added), len(found.removed)) == (1, 0)
        (found,) = diff(mine, without, "counter", "counts")
        assert (len(found.added), len(found.removed)) == (0, 1)


def test_state_of_another_form_is_notcompared(stage: Stage) -> None:
    stage.take(Counter().see("be"))
    mine = Stored.open(stage.location, QUERY)
    component = mine.component("counter")
    other = component.model_copy(update={"containers": {"counts": component.containers["lists"]}})
    odd = Stored(mine.store, mine.manifest.model_copy(update={"components": {"counter": other}}))
    with pytest.raises(UserError, match=r"(?s)not of the same form in both.*it was\n  word: string, value: list"):
        diff(odd, mine, "counter", "counts")
