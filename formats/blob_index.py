"""BlobIndex: the places of slots in a blob, so that some slots are read without the others."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Annotated, NamedTuple

from pydantic import Field, NonNegativeInt

from formats.settings import Section
from primitives.slots import MAX_SLOT_BITS, SlotSet

#: Reading so many unneeded bytes is faster than a second request.
_GAP = 1 << 14

_Slot = Annotated[int, Field(ge=0, lt=1 << MAX_SLOT_BITS)]


class ByteRange(NamedTuple):
    """A range of bytes of a blob."""

    start: int
    length: int

    @property
    def end(self) -> int:
        return self.start + self.length


class BlobBlock(NamedTuple):
    """A block of a blob, with the state of the slots from `first` to `last`."""

    first: _Slot
    last: _Slot
    length: NonNegativeInt  #: bytes, including its framing
    crc: NonNegativeInt  #: CRC-32 of these bytes
    rows: NonNegativeInt  #: number of upserts and deletions

    @property
    def slots(self) -> SlotSet:
        return SlotSet.range(self.first, self.last)


class BlobIndex(Section):
    """The header of a blob, and its consecutive blocks, in the order of slots. No slot is in two blocks."""

    header: NonNegativeInt  #: bytes of the header
    header_crc: NonNegativeInt
    blocks: tuple[BlobBlock, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of the whole blob."""
        return self.header + sum(block.length for block in self.blocks)

    @property
    def rows(self) -> int:
        return sum(block.rows for block in self.blocks)

    def where(self, slots: SlotSet) -> Iterator[tuple[BlobBlock, ByteRange]]:
        """Returns the blocks that may contain some of `slots`, and their places.

        >>> index = BlobIndex(header=100, header_crc=0, blocks=(BlobBlock(0, 3, 50, 0, 1), BlobBlock(5, 9, 70, 0, 1)))
        >>> [place for _, place in index.where(SlotSet([4, 7]))]
        [ByteRange(start=150, length=70)]
        """
        starts = accumulate((block.length for block in self.blocks), initial=self.header)
        for block, start in zip(self.blocks, starts, strict=False):
            if not slots.isdisjoint(block.slots):
                yield block, ByteRange(start, block.length)

    def ranges(self, slots: SlotSet) -> list[ByteRange]:
        """Returns the ranges to read for `slots`: the header and their blocks; neighbouring blocks make one range.

        >>> index = BlobIndex(header=100, header_crc=0, blocks=(BlobBlock(0, 3, 50, 0, 1), BlobBlock(5, 9, 70, 0, 1)))
        >>> index.ranges(SlotSet([2]))
        [ByteRange(start=0, length=150)]
        """
        merged = [ByteRange(0, self.header)]
        for _, place in self.where(slots):
            if place.start - merged[-1].end <= _GAP:
                place = ByteRange(merged[-1].start, place.end - merged.pop().start)
            merged.append(place)
        return merged
