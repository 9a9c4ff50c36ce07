"""Renaming: stored things are found by what they were called before, unless that could be several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import seep
from formats.evolution import Evolution, check_containers
from formats.manifest import Component, Manifest
from formats.renaming import check_aliases, renamed
from primitives.errors import UserError
from primitives.slots import SlotSet
from primitives.state.frame import Frame
from seep.operators.definition import Input

FULL = SlotSet.full(8)


def test_what_is_stored_under_an_alias_is_found_by_the_name_of_now() -> None:
    aliases = {"visits": ["counts", "clicks"], "new": ["older"]}
    assert renamed("operator", {"clicks": 1, "parse": 2}, aliases) == {"parse": 2, "visits": 1}
    assert renamed("operator", {"visits": 1}, aliases) == {"visits": 1}
    assert renamed("operator", {}, aliases) == {}


def test_names_that_change_places_are_refused_and_others_may_change_at_once() -> None:
    with pytest.raises(UserError, match="operator 'a' could be any of the stored a, b, by its aliases"):
        renamed("operator", {"a": 1, "b": 2}, {"a": ["b"], "b": ["a"]})
    assert renamed("operator", {"a": 1, "b": 2}, {"c": ["a"], "d": ["b"]}) == {"c": 1, "d": 2}


def test_a_name_that_could_be_several_stored_ones_is_refused() -> None:
    with pytest.raises(UserError, match="operator 'visits' could be any of the stored counts, clicks"):
        renamed("operator", {"clicks": 1, "counts": 2}, {"visits": ["counts", "clicks"]})


def test_an_alias_that_is_in_use_or_of_two_is_refused() -> None:
    with pytest.raises(UserError, match="operator 'a' has the alias 'b', and 'b' is still in use"):
        check_aliases("operator", {"a": ["b"]}, ["a", "b"])
    with pytest.raises(UserError, match="operator 'a' and 'b' both have the alias 'c'; leave it out of one"):
        check_aliases("operator", {"a": ["c"], "b": ["c"]}, ["a", "b"])
    check_aliases("operator", {"a": ["c", "d"]}, ["a", "b"])


def test_a_manifest_has_operators_and_all_that_it_knows_of_sources_by_the_names_of_now() -> None:
    component = Component(epoch=7, parallelism=1, slot_bits=3)
    manifest = Manifest(
        query="q",
        id=1,
        epoch=7,
        created=0.0,
        sources={"numbers": {"0": [5]}, "others": {}},
        components={"counter": component},
        notes={"sources": {"numbers": "100 rows"}, "sinks": {}},
    )
    now = manifest.renamed({"totals": ["counter"], "integers": ["numbers"]})
    assert now.components == {"totals": component}
    assert now.sources == {"integers": {"0": [5]}, "others": {}}
    assert now.notes == {"sources": {"integers": "100 rows"}, "sinks": {}}
    assert manifest.sources.keys() == {"numbers", "others"}


def test_chunks_of_a_container_that_was_renamed_fit_it() -> None:
    old, new = (Frame(name, {"k": pa.int64()}, {"n": pa.int64()}) for name in ("counts", "visits"))
    old.add([7, 9], n=1)
    evolution, declared = Evolution(aliases={"visits": ["counts"]}), [new.snapshot(SlotSet.empty())]
    stored = [old.snapshot(FULL)]
    check_containers(evolution.renamed(stored), declared)
    new.restore(evolution.adapted(stored, declared, FULL))
    assert new.get([7])[0].to_pylist() == [{"n": 1}]
    with pytest.raises(UserError, match=r"state 'counts', which is not declared.*Name the old one among its aliases"):
        check_containers(stored, declared)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (["b"], [], "state 'a' has the alias 'b', and 'b' is still in use"),
        (["old"], ["old"], "state 'a' and 'b' both have the alias 'old'"),
        ("old", [], "the aliases of state 'a' must be a list"),
        (["a"], [], "the aliases of state 'a' must be a list of other names"),
    ],
)
def test_containers_whose_aliases_cannot_be_are_refused(first: Any, second: Any, message: str) -> None:
    class Twofold(seep.Operator):
        def output(self, inputs: Sequence[Input]) -> pa.Schema:
            return inputs[0].schema

        def open(self, context: seep.Context) -> None:
            self.a = context.values("a", aliases=first)
            self.b = context.rows("b", {"n": pa.int64()}, aliases=second)

    stream = seep.Query("q").source("rows", seep.sources.memory(pa.table({"k": [1]}))).key_by("k")
    with pytest.raises(UserError, match=f"operator 'x'.*{message}"):
        stream.apply("x", Twofold)
