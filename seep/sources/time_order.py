"""Reading partitions in the order of their event time: the one that is behind all others goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import pyarrow as pa

from seep.rows.position import MIN_WATERMARK, Position

#: An epoch's rows are read in about so many slices, each of at least so many rows: a partition gets ahead of the others
#: by a slice at most.
_SLICES, _LEAST = 16, 256


class TakenRows(NamedTuple):
    """What was read of one partition, and the positions of the first of these rows and of the one after the last."""

    batches: list[pa.RecordBatch]
    first: Position
    after: Position

    def then(self, more: TakenRows) -> TakenRows:
        """This, and what was read right after it."""
        return TakenRows(self.batches + more.batches, self.first, more.after)


#: Reads at most so many rows of a slot, from a position on.
Take = Callable[[int, Position, int], TakenRows]


def take_in_time_order(live: Mapping[int, Position], rows: int, take: Take) -> list[TakenRows]:
    """Reads so many rows of all partitions together, slice by slice, always of the one that is behind in event time.

    Of a partition of which no time is known yet one row is read, to know it. One without rows at the moment is left
    for the next epoch.
    """
    taken = {slot: TakenRows([], position, position) for slot, position in live.items()}
    behind = [(position.latest, slot) for slot, position in live.items()]
    heapify(behind)
    size = max(rows // _SLICES, _LEAST)
    while behind and rows > 0:
        latest, slot = heappop(behind)
        before = taken[slot].after
        taken[slot] = taken[slot].then(take(slot, before, 1 if latest == MIN_WATERMARK else min(size, rows)))
        after = taken[slot].after
        rows -= after.rows - before.rows
        if after.rows > before.rows and not after.ended:
            heappush(behind, (after.latest, slot))
    return list(taken.values())
