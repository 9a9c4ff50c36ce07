"""Merges chunks of one container, which take effect in order, into the fewest with the same effect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from primitives.slots import SlotSet
from primitives.state.chunk import Chunk
from primitives.state.file_chunk import FileChunk


def settled(chunks: Iterable[Any]) -> list[Any]:
    """The chunks of a chain that still count: each one of files is complete, as far as the chain has the files, and
    what it voids is gone. A chain of rows stays as it is."""
    found: list[Any] = []
    for chunk in chunks:
        if isinstance(chunk, FileChunk):
            chunk = chunk.completed([each for each in found if isinstance(each, FileChunk)])
            left = (_outside(chunk.slots, each) for each in found)
            found = [each for each in left if each is not None]
        found.append(chunk)
    return found


def merged(chunks: Sequence[Any]) -> list[Any]:
    """The fewest chunks with the effect of a chain: one, unless there are files in it, which rows may follow."""
    found: list[Any] = []
    for are_files, run in groupby(settled(chunks), lambda chunk: isinstance(chunk, FileChunk)):
        first, *later = run
        found += [first, *later] if are_files or not later else [first.merge(later)]
    return found


def _outside(slots: SlotSet, chunk: Chunk | FileChunk) -> Chunk | FileChunk | None:
    """The part of a chunk for all other slots, if there is one."""
    if isinstance(chunk, FileChunk):
        others = chunk.select(chunk.slots - slots)
        return others if others.slots else None
    rest = chunk.select(SlotSet.full(chunk.slot_bits) - slots)
    return rest if rest.replaced or len(rest.rows) or len(rest.deleted) else None
