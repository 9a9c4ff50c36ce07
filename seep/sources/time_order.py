"""Reads partitions in the order of their event time: always the partition with the earliest time next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import pyarrow as pa

from seep.rows.position import MIN_WATERMARK, Position

#: The number of slices of an epoch, and the least rows of a slice. A partition can be ahead of the others by
#: one slice at most.
_SLICES, _LEAST = 16, 256


class TakenRows(NamedTuple):
    """The rows read of one partition, with the positions of the first row and after the last row."""

    batches: list[pa.RecordBatch]
    first: Position
    after: Position

    def then(self, more: TakenRows) -> TakenRows:
        """Returns these rows, followed by the rows read right after them."""
        return TakenRows(self.batches + more.batches, self.first, more.after)


#: Reads at most the given number of rows of a slot from a position.
Take = Callable[[int, Position, int], TakenRows]


def take_in_time_order(live: Mapping[int, Position], rows: int, take: Take) -> list[TakenRows]:
    """Reads `rows` rows of all partitions together, slice by slice, always of the partition with the earliest time.

    If the time of a partition is unknown, one row is read to learn it. A partition that has no rows at the moment is
    left for the next epoch.
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
