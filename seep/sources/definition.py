"""What a source is before any instance of it runs: its columns, its partitions, and how to make its logic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import pyarrow as pa

from primitives.graph import Edge
from seep.protocol.logic import SourceLogic
from seep.rows.rate import Rate

#: Rows that a source reads in one epoch, at most, and bytes, by what its rows were like before.
MAX_ROWS, MAX_BYTES = 1 << 19, 32 << 20


@dataclass(frozen=True, slots=True)
class SourceSetting:
    """Where a source stands in its query: all that its instances are told."""

    operator: str
    slot_bits: int  #: its slots are its partitions
    outputs: tuple[Edge, ...]  #: each of them gets everything that the source reads
    epoch_seconds: float = 0.05
    rate: Rate | None = None  #: rows per second over all partitions; None to read as fast as the query takes it
    until: float | None = None  #: unix time from which on it reads nothing more and is exhausted
    max_rows: int = MAX_ROWS  #: per epoch, over all partitions


class SourceDefinition(ABC):
    """A source. It travels to the nodes with the query, so it holds no open resources."""

    #: Whether its partitions are read in the order of their event time, and not side by side.
    by_time = False

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of its rows."""

    @property
    @abstractmethod
    def time(self) -> str | None:
        """The column with the event time, if there is one."""

    @property
    def may_be_renamed(self) -> bool:
        """Whether all that is stored of it, where to read on, is found under another name too."""
        return True

    @property
    def time_remedy(self) -> str:
        """What to do if that column cannot be the event time."""
        return "cast it to integers or timestamps"

    @property
    @abstractmethod
    def partitions(self) -> int:
        """Into how many parts it can be divided; the query gives it at least as many slots."""

    @property
    def content(self) -> str:
        """Tells apart what positions cannot be carried over between: a run goes on only where this is as it was."""
        return f"{self.partitions} partitions"

    @abstractmethod
    def check(self, operator: str) -> None:
        """UserError that names the operator if its data is not there or not as described; called before a run."""

    @abstractmethod
    def logic(self, setting: SourceSetting) -> SourceLogic[pa.RecordBatch]:
        """The logic of one instance."""
