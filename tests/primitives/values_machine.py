"""Two containers of values next to a dictionary; others are put in their place."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from primitives.slots import split_evenly
from primitives.state.chunk import Chunk, merge_chunks
from primitives.state.values import Values
from tests.primitives.two_instances import FULL, SLOT_BITS, TwoInstances

words = st.sampled_from([*"abcdefgh", None])


def make_values() -> Values:
    return Values("seen", keys={"word": pa.string()}, slot_bits=SLOT_BITS)


def restored(*chunks: Chunk) -> dict[Any, Any]:
    values = make_values()
    values.restore(chunks)
    return dict(values.scan())


@cache
def slot_of_word(word: Any) -> int:
    values = make_values()
    values[word] = 0
    return int(values.snapshot(FULL).slots_of_rows()[0])


class ValuesOfTwoInstances(TwoInstances):
    """Their keys are words, and their values lists of numbers."""

    def make(self) -> Values:
        return make_values()

    def home(self, word: Any) -> Values:
        return self.here if slot_of_word(word) in self.owned else self.there

    @initialize(some=st.lists(words, min_size=2))
    def begin(self, some: list[Any]) -> None:
        for word in some:
            self.write(word, 0)

    @rule(word=words, number=st.integers(0, 9))
    def write(self, word: Any, number: int) -> None:
        self.home(word)[word] = [number]
        self.expected[word] = [number]

    @rule(word=words, number=st.integers(0, 9))
    def change_in_place(self, word: Any, number: int) -> None:
        self.home(word).setdefault(word, []).append(number)
        self.expected[word] = [*self.expected.get(word, []), number]

    @rule(word=words)
    def change_while_iterating(self, word: Any) -> None:
        for key, value in self.home(word).items():
            value.append(0)
            self.expected[key] = [*self.expected[key], 0]

    @rule(word=words)
    def delete(self, word: Any) -> None:
        assert self.home(word).pop(word, None) == self.expected.pop(word, None)

    @rule()
    def recover(self) -> None:
        """What is restored from the chain goes on in place of the original."""
        self.checkpoint()
        self.here = self.make()
        self.here.restore(self.chain)
        self.chain, self.full_at = [], {}
        self.checkpoint()

    @precondition(lambda self: self.owned != FULL)
    @rule()
    def forget_what_is_elsewhere(self) -> None:
        for word in list(self.there):
            del self.expected[word]
        self.there.drop(FULL)

    @invariant()
    def both_hold_what_was_written(self) -> None:
        assert dict(self.here.scan()) | dict(self.there.scan()) == self.expected
        assert len(self.here) + len(self.there) == len(self.expected)

    @invariant()
    def a_full_chunk_restores_everything(self) -> None:
        assert restored(self.here.snapshot(FULL)) == dict(self.here.scan())

    @invariant()
    def deltas_since_any_mark_complete_what_was_there(self) -> None:
        for mark, full in self.full_at.items():
            delta = self.here.snapshot(FULL, mark)
            assert restored(full, delta) == restored(merge_chunks([full, delta])) == dict(self.here.scan())
            assert self.here.changed(mark) == len(delta.rows) + len(delta.deleted)
            assert not len(delta.select(delta.replaced).deleted)

    @invariant()
    def the_chain_of_deltas_is_the_last_mark(self) -> None:
        last = restored(self.full_at[self.here.marks[-1]])
        assert restored(*self.chain) == restored(merge_chunks(self.chain)) == last

    @invariant()
    def parts_are_disjoint_cover_and_merge(self) -> None:
        parts = [self.here.snapshot(slots) for slots in split_evenly(FULL, 3)]
        assert sum(len(part.rows) for part in parts) == len(self.here)
        assert restored(merge_chunks(parts)) == dict(self.here.scan())
