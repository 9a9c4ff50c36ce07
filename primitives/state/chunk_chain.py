"""Merges chunks of one container, which take effect in order, into as few as possible with the same effect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from primitives.slots import SlotSet
from primitives.state.chunk import Chunk
from primitives.state.file_chunk import FileChunk


def settled(chunks: Iterable[Any]) -> list[Any]:
    """Returns the chunks of a chain that still count.

    Chunks of files get their missing files from earlier ones of the chain, and chunks that they replace are dropped. A
    chain of rows is not changed.
    """
    found: list[Any] = []
    for chunk in chunks:
        if isinstance(chunk, FileChunk):
            chunk = chunk.completed([each for each in found if isinstance(each, FileChunk)])
            left = (_outside(chunk.slots, each) for each in found)
            found = [each for each in left if each is not None]
        found.append(chunk)
    return found


def merged(chunks: Sequence[Any]) -> list[Any]:
    """Returns the fewest chunks with the effect of a chain: one, unless rows follow files."""
    found: list[Any] = []
    for are_files, run in groupby(settled(chunks), lambda chunk: isinstance(chunk, FileChunk)):
        first, *later = run
        found += [first, *later] if are_files or not later else [first.merge(later)]
    return found


def _outside(slots: SlotSet, chunk: Chunk | FileChunk) -> Chunk | FileChunk | None:
    """Returns the part of a chunk for all other slots, or None if there is none."""
    if isinstance(chunk, FileChunk):
        others = chunk.select(chunk.slots - slots)
        return others if others.slots else None
    rest = chunk.select(SlotSet.full(chunk.slot_bits) - slots)
    return rest if rest.replaced or len(rest.rows) or len(rest.deleted) else None
