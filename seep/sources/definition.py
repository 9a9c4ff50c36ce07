"""The definition of a source in a query: its columns, its partitions, and how to make the logic of an instance."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import pyarrow as pa

from primitives.graph import Edge
from seep.protocol.logic import SourceLogic
from seep.rows.rate import Rate

#: The most rows, and the most bytes, that a source reads in one epoch; bytes are estimated from earlier rows.
MAX_ROWS, MAX_BYTES = 1 << 19, 32 << 20


@dataclass(frozen=True, slots=True)
class SourceSetting:
    """A source's place in its query: everything that its instances need to know."""

    operator: str
    slot_bits: int  #: its slots are its partitions
    outputs: tuple[Edge, ...]  #: each of them gets everything that the source reads
    epoch_seconds: float = 0.05
    rate: Rate | None = None  #: rows per second over all partitions; None to read as fast as the query takes it
    until: float | None = None  #: unix time at which its input ends
    max_rows: int = MAX_ROWS  #: per epoch, over all partitions


class SourceDefinition(ABC):
    """A source. It is sent to the nodes with the query, so it holds no open resources."""

    #: Whether its partitions are read in the order of their event time, not at equal speed.
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
        """Whether its stored positions can be found under another name."""
        return True

    @property
    def time_remedy(self) -> str:
        """Advice for the user if that column cannot be the event time."""
        return "cast it to integers or timestamps"

    @property
    @abstractmethod
    def partitions(self) -> int:
        """The number of parts into which it is divided; the query gives it at least as many slots."""

    @property
    def content(self) -> str:
        """Describes the input: a later run accepts stored positions only if this is the same as before."""
        return f"{self.partitions} partitions"

    @abstractmethod
    def check(self, operator: str) -> None:
        """Raises UserError that names the operator if its data is missing or not as described; called before a run."""

    @abstractmethod
    def logic(self, setting: SourceSetting) -> SourceLogic[pa.RecordBatch]:
        """Makes the logic of one instance."""
