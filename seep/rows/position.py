"""Position: where a source stands in one partition, and all that must be known again when it is read again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from seep.protocol.messages import MAX_WATERMARK

#: Before any event time: nothing is promised.
MIN_WATERMARK = -(2**63)


class Position(NamedTuple):
    """Plain data: it goes through the source log, checkpoints and handovers, as a list."""

    offset: Any  #: where the next row is, in the reader's own terms
    rows: int = 0  #: rows read so far
    shed: int = 0  #: rows passed over because they were overdue
    latest: int = MIN_WATERMARK  #: the highest event time read so far; or what the reader says of later ones
    ended: bool = False  #: there are no more rows
    start: float = 0.0  #: unix time of the first read, from which a rate counts; 0 before it
    at: float = 0.0  #: unix time when rows were last read

    @property
    def passed(self) -> int:
        """Rows that are done with, read or not: the number of the next row."""
        return self.rows + self.shed


def rows_up_to(positions: Mapping[int, Any]) -> int:
    """Rows that were read of a source up to its positions, by partition, as the source log has them."""
    return sum(Position(*position).rows for position in positions.values())


def watermark_of(positions: Iterable[Position], lag: int) -> int:
    """No later row of these partitions has an event time up to this; partitions at their end hold nothing back."""
    lowest = min((position.latest for position in positions if not position.ended), default=None)
    return MAX_WATERMARK if lowest is None else max(lowest - lag - 1, MIN_WATERMARK)
