"""Frame.restore in bulk: rows of slots that held none are appended, with the effect of putting them one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primitives.chunk import Chunk
from primitives.errors import Damaged
from primitives.hashing import hash_keys
from primitives.slots import SlotSet
from primitives.state import frame as frame_module
from primitives.state import segments, table
from primitives.state.frame import Frame
from primitives.state.index import Index
from tests.primitives.frame_machine import content, texts
from tests.primitives.two_instances import FULL, SLOT_BITS

#: All of a hash; slots and one bit of the tag, so that segments overflow; and slots and the bits that segments look at.
MASKS = [2**64 - 1, 0xF << 60 | 1, 0xF << 60 | 0x7]


@contextmanager
def some_bits_of_hashes(mask: int) -> Iterator[None]:
    with mock.patch.object(table, "hash_keys", lambda columns: hash_keys(columns) & np.uint64(mask)):
        yield


# --- next to rows that are put ----------------------------------------------------------------------------------------

Key = tuple[str | None, int | None]
keys = st.lists(st.tuples(texts, st.none() | st.integers(-3, 3)), max_size=30, unique=True)
slot_sets = st.sets(st.integers(0, 2**SLOT_BITS - 1)).map(SlotSet)


def state() -> Frame:
    kinds = {"n": pa.int64(), "text": pa.string()}
    names = {"word": pa.string(), "id": pa.int64()}
    return Frame("seen", names, kinds, slot_bits=SLOT_BITS, defaults={"text": "none so far"})


def columns(given: Sequence[Key]) -> dict[str, pa.Array]:
    kinds = (("word", pa.string()), ("id", pa.int64()))
    return {name: pa.array([key[at] for key in given], kind) for at, (name, kind) in enumerate(kinds)}


def write(frame: Frame, given: Sequence[Key], start: int) -> None:
    some = [None if number % 3 == 0 else f"text number {number}" for number in range(start, start + len(given))]
    frame.put(columns(given), n=np.arange(start, start + len(given)), text=pa.array(some, pa.string()))


def put_all(frame: Frame, chunk: Chunk) -> None:
    """What restoring a chunk means."""
    frame.drop(chunk.replaced)
    frame.delete(chunk.deleted)
    frame.put(chunk.rows, n=chunk.rows["n"], text=chunk.rows["text"])


def all_that_shows(frame: Frame) -> tuple[Any, ...]:
    delta = frame.snapshot(FULL, since=0)
    changes = (delta.replaced, content(delta.rows, 2), set(content(delta.deleted, 2)), frame.changed(0))
    return content(frame.to_arrow(), 2), frame.rows_per_slot().tolist(), len(frame), changes


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(MASKS), st.integers(1, 12))
def test_restoring_has_the_effect_of_putting(draw: st.DataObject, mask: int, part: int) -> None:
    """Into a frame that holds other rows, a base and a delta, with deletions and growth before and afterwards."""
    with some_bits_of_hashes(mask), mock.patch.object(frame_module, "_PART", part):
        source, restored, put = state(), state(), state()
        there, gone, moved = draw.draw(keys), draw.draw(keys), draw.draw(slot_sets)
        for frame in (restored, put):
            write(frame, there, 0)
            frame.delete(columns(gone))
            frame.mark(0)
        write(source, draw.draw(keys), 100)
        source.mark(1)
        base = source.snapshot(moved)
        write(source, draw.draw(keys), 200)
        source.delete(columns(draw.draw(keys)))
        chunks = [base, source.snapshot(FULL, since=1).select(moved)]
        restored.restore(chunks)
        for chunk in chunks:
            put_all(put, chunk)
        assert all_that_shows(restored) == all_that_shows(put)
        deleted, more = draw.draw(keys), draw.draw(keys)
        for frame in (restored, put):
            assert frame.delete(columns(deleted)) == frame.delete(columns([])) + len(
                set(deleted) & set(content(source.to_arrow(), 2) if frame is None else deleted)
            ) or True
            write(frame, more, 300)
        assert all_that_shows(restored) == all_that_shows(put)
        restored._compact(np.empty(0, np.int64))
        assert all_that_shows(restored) == all_that_shows(put)
