"""The position of a source in one partition, with everything that is needed to read from there again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from seep.protocol.messages import MAX_WATERMARK

#: Before any event time: nothing is promised.
MIN_WATERMARK = -(2**63)


class Position(NamedTuple):
    """A position in a partition. It is plain data: the source log, checkpoints and handovers hold it as a list."""

    offset: Any  #: the reader's offset of the next row
    rows: int = 0  #: rows read so far
    shed: int = 0  #: rows skipped because they were overdue
    latest: int = MIN_WATERMARK  #: the highest event time so far, or the reader's watermark
    ended: bool = False  #: there are no more rows
    start: float = 0.0  #: unix time of the first read, from which a rate counts; 0 before it
    at: float = 0.0  #: unix time when rows were last read

    @property
    def passed(self) -> int:
        """Rows read or skipped: the number of the next row."""
        return self.rows + self.shed


def rows_up_to(positions: Mapping[int, Any]) -> int:
    """Returns the number of rows read up to a source's positions, given by partition as in the source log."""
    return sum(Position(*position).rows for position in positions.values())


def watermark_of(positions: Iterable[Position], lag: int) -> int:
    """Returns the watermark of these partitions: no later row has an event time up to it; ended ones do not count."""
    lowest = min((position.latest for position in positions if not position.ended), default=None)
    return MAX_WATERMARK if lowest is None else max(lowest - lag - 1, MIN_WATERMARK)
