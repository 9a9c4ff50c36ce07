"""Two frames next to a dictionary; other containers with the same columns are put in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from primitives.hashing import hash_keys
from primitives.slots import slots_of, split_evenly
from primitives.state.chunk import Chunk, merge_chunks
from primitives.state.frame import Frame
from tests.primitives.two_instances import FULL, SLOT_BITS, TwoInstances

Row = tuple[Any, ...]

texts = st.sampled_from([None, "", "b", "exactly 12 b", "a little longer", "a little longer!", "ä" * 40])


def batch(schema: pa.Schema, rows: Sequence[Row]) -> pa.RecordBatch:
    columns = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(schema)]
    return pa.record_batch(columns, schema=schema)


def content(rows: pa.RecordBatch, keys: int) -> dict[Row, Row]:
    columns = [column.to_pylist() for column in rows.columns]
    found = list(zip(*columns, strict=True))
    by_key = {row[:keys]: row[keys:] for row in found}
    assert len(by_key) == len(found), "a key has two rows"
    return by_key


class FramesOfTwoInstances(TwoInstances):
    """Their values are a sum, a minimum and a text."""

    keys: tuple[tuple[str, pa.DataType], ...]
    subkeys: tuple[str, ...] = ()  # the last of them
    key_values: tuple[st.SearchStrategy[Any], ...]

    def make(self) -> Any:
        return self.made(Frame)

    def made(self, container: Callable[..., Any], **more: Any) -> Any:
        """An empty one of that kind."""
        return container(
            "seen",
            {name: kind for name, kind in self.keys if name not in self.subkeys},
            {"sum": pa.int64(), "least": pa.float64(), "text": pa.string()},
            subkeys={name: kind for name, kind in self.keys if name in self.subkeys},
            slot_bits=SLOT_BITS,
            defaults={"least": None, "text": "none so far"},
            **more,
        )

    def some_keys(self, data: st.DataObject) -> list[Row]:
        return data.draw(st.lists(st.tuples(*self.key_values), max_size=12))

    def by_home(self, keys: Sequence[Row]) -> Iterator[tuple[Frame, pa.RecordBatch, list[int]]]:
        """Each instance with those of the keys that are its own, and their positions."""
        whole = batch(pa.schema(list(self.keys)), keys)
        of_slot = whole.columns[: len(whole.columns) - len(self.subkeys)]
        slots = slots_of(hash_keys(of_slot), SLOT_BITS)
        for frame, owned in ((self.here, self.owned), (self.there, FULL - self.owned)):
            at = np.flatnonzero(owned.mask(SLOT_BITS)[slots])
            yield frame, whole.take(pa.array(at)), at.tolist()

    def content(self, frame: Frame) -> dict[Row, Row]:
        return content(frame.to_arrow(), len(self.keys))

    def restored(self, *chunks: Chunk) -> dict[Row, Row]:
        frame = self.make()
        frame.restore(chunks)
        return self.content(frame)

    @rule(data=st.data())
    def add(self, data: st.DataObject) -> None:
        keys = self.some_keys(data)
        numbers = [data.draw(st.integers(-5, 5)) for _ in keys]
        for frame, batch, at in self.by_home(keys):
            frame.add(batch, sum=[numbers[position] for position in at])
        for key, number in zip(keys, numbers, strict=True):
            total, *others = self.expected.get(key, (0, None, "none so far"))
            self.expected[key] = (total + number, *others)

    @rule(data=st.data())
    def lower(self, data: st.DataObject) -> None:
        keys = self.some_keys(data)
        numbers = [data.draw(st.sampled_from([None, -1.5, 0.0, 7.0])) for _ in keys]
        for frame, batch, at in self.by_home(keys):
            frame.min(batch, least=[numbers[position] for position in at])
        for key, number in zip(keys, numbers, strict=True):
            total, least, text = self.expected.get(key, (0, None, "none so far"))
            known = [value for value in (least, number) if value is not None]
            self.expected[key] = (total, min(known, default=None), text)

    @rule(data=st.data())
    def put(self, data: st.DataObject) -> None:
        keys = self.some_keys(data)
        given = [data.draw(texts) for _ in keys]
        for frame, batch, at in self.by_home(keys):
            frame.put(batch, text=[given[position] for position in at])
        for key, text in zip(keys, given, strict=True):
            self.expected[key] = (*self.expected.get(key, (0, None, ""))[:2], text)

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        keys = self.some_keys(data)
        deleted = sum(frame.delete(batch) for frame, batch, _ in self.by_home(keys))
        assert deleted == len({key for key in keys if key in self.expected})
        for key in keys:
            self.expected.pop(key, None)

    @rule(data=st.data())
    def get(self, data: st.DataObject) -> None:
        keys = self.some_keys(data)
        for frame, batch, at in self.by_home(keys):
            values, found = frame.get(batch)
            mine = [keys[position] for position in at]
            assert found.tolist() == [key in self.expected for key in mine]
            rows = zip(*(column.to_pylist() for column in values.columns), strict=True)
            assert list(rows) == [self.expected.get(key, (None, None, None)) for key in mine]

    @rule()
    def compact(self) -> None:
        self.here._compact(np.empty(0, np.int64))

    @rule()
    def recover(self) -> None:
        """What is restored from the chain goes on in place of the original."""
        self.checkpoint()
        last = self.content(self.here)
        assert self.restored(*self.chain) == self.restored(merge_chunks(self.chain)) == last
        self.here = self.make()
        self.here.restore(self.chain)
        self.chain, self.full_at = [], {}
        self.checkpoint()

    @precondition(lambda self: self.owned != FULL)
    @rule()
    def forget_what_is_elsewhere(self) -> None:
        for key in self.content(self.there):
            del self.expected[key]
        self.there.drop(FULL)

    @rule()
    def deltas_since_any_mark_complete_what_was_there(self) -> None:
        now = self.content(self.here)
        for mark, full in self.full_at.items():
            delta = self.here.snapshot(FULL, mark)
            assert self.restored(full, delta) == self.restored(merge_chunks([full, delta])) == now
            assert self.here.changed(mark) == len(delta.rows) + len(delta.deleted)
            assert not len(delta.select(delta.replaced).deleted)

    @rule()
    def parts_are_disjoint_cover_and_merge(self) -> None:
        parts = [self.here.snapshot(slots) for slots in split_evenly(FULL, 3)]
        assert sum(len(part.rows) for part in parts) == len(self.here)
        assert self.restored(merge_chunks(parts)) == self.content(self.here)

    def teardown(self) -> None:
        here, there = self.content(self.here), self.content(self.there)
        assert here | there == self.expected
        assert len(self.here) + len(self.there) == len(here) + len(there) == len(self.expected)
        assert self.here.rows_per_slot()[(FULL - self.owned).mask(SLOT_BITS)].sum() == 0
        self.deltas_since_any_mark_complete_what_was_there()
