"""SourceReader: reads the partitions of something outside, from positions of its own making."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import pyarrow as pa

from primitives.errors import InternalError


class Block(NamedTuple):
    """Some rows, and where it goes on after them."""

    rows: pa.RecordBatch
    offset: Any
    ended: bool = False  #: there will never be more rows
    #: no later row of the partition has an event time before this, in the unit of watermarks; it must follow from the
    #: last of the rows. None: what the highest event time so far tells
    watermark: int | None = None


class SourceReader(ABC):
    """Reads partitions 0, 1, 2, …; one is made for each instance, on its node, so it may hold connections and files.

    An offset says where the next row of a partition is. It must be plain data: None, bool, int, float, str, bytes,
    and lists and dictionaries of these. The law that recovery rests on: reading from an offset gives the same rows in
    the same order every time, however they are cut into blocks.
    """

    def start(self, partition: int) -> Any:  # noqa: ARG002
        """The offset of the first row."""
        return 0

    def earliest(self, partition: int) -> int | None:  # noqa: ARG002
        """No row of the partition has an event time before this, in the unit of watermarks; None if that is not known.

        Asked only of sources that are read by time.
        """
        return None

    @abstractmethod
    def read(self, partition: int, offset: Any, limit: int) -> Block:
        """The next rows, at most `limit`, without waiting for more to come; no rows if there are none at the moment."""

    def skip(self, partition: int, offset: Any, rows: int) -> tuple[Any, int]:  # noqa: ARG002
        """The offset so many rows further on, or at the end, found without reading, and how many rows these are.

        Asked only of sources that shed.
        """
        raise InternalError(f"{type(self).__name__} cannot pass over rows without reading them")

    def release(self, partition: int) -> None:  # noqa: B027
        """The partition will not be read here again, or from elsewhere: close what is open for it."""
