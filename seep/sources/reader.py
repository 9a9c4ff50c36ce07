"""The base of readers: a reader reads the partitions of an outside system from offsets that it defines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import pyarrow as pa

from primitives.errors import InternalError


class Block(NamedTuple):
    """Some rows, and the offset after them."""

    rows: pa.RecordBatch
    offset: Any
    ended: bool = False  #: whether no rows will ever follow
    #: no later row of the partition has an event time before this, in the unit of watermarks; it must be a function of
    #: the rows up to here. None: derived from the highest event time so far
    watermark: int | None = None


class SourceReader(ABC):
    """Reads partitions 0, 1, 2, …; one is made for each instance, on its node, so it may hold connections and files.

    An offset is the position of the next row of a partition. It must be plain data: None, bool, int, float, str, bytes,
    and lists and dictionaries of these. Recovery relies on this law: reading from an offset returns the same rows in
    the same order every time, in blocks of any size.
    """

    def start(self, partition: int) -> Any:  # noqa: ARG002
        """Returns the offset of the first row."""
        return 0

    def earliest(self, partition: int) -> int | None:  # noqa: ARG002
        """Returns a lower bound of the partition's event times, in the unit of watermarks; None if that is not known.

        Called only for sources that are read by time.
        """
        return None

    @abstractmethod
    def read(self, partition: int, offset: Any, limit: int) -> Block:
        """Returns the next rows, at most `limit`, without waiting; no rows if there are none at the moment."""

    def skip(self, partition: int, offset: Any, rows: int) -> tuple[Any, int]:  # noqa: ARG002
        """Returns the offset after `rows` rows, or at the end, without reading them, and the number of rows skipped.

        Called only for sources that shed.
        """
        raise InternalError(f"{type(self).__name__} cannot pass over rows without reading them")

    def release(self, partition: int) -> None:  # noqa: B027
        """Closes the files of a partition: it will not be read here again, or only from another offset."""
