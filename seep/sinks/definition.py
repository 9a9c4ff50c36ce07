"""What a sink is before any instance of it runs, and the store that it commits whole epochs to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import pyarrow as pa

from seep.protocol.view import Incarnation


class StoreSite(StrEnum):
    """Where a sink's store is opened."""

    NODE = "node"  #: at each instance: one store per instance
    DRIVER = "driver"  #: at the driver: one store for all instances, and rows travel there


class SinkFenced(Exception):
    """The store is open for a later incarnation of the instance."""


class SinkStore(ABC):
    """Takes epochs, all or nothing, each once; knows after a failure where its instance has to go on."""

    @abstractmethod
    def open(self, sink: Incarnation) -> int:
        """Fences earlier incarnations of the instance and returns the last epoch it has committed, 0 for none."""

    @abstractmethod
    def commit(self, sink: Incarnation, epoch: int, batches: Sequence[pa.RecordBatch], watermark: int) -> int:
        """Takes the next epoch (often without rows); returns the last one that is durable, this or an earlier one.

        What is not durable yet comes again after a failure. Raises SinkFenced, and EnvironmentFault if it cannot write.
        """

    def flush(self) -> int:
        """Makes durable what was taken, in such a way that a later run can take back all that comes after it.

        Returns the last durable epoch. Only for stores that collect several epochs.
        """
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027
        """The instance ends; what is not durable is dropped."""


class SinkDefinition(ABC):
    """A sink. It travels to the nodes with the query, so it holds no open resources."""

    place: StoreSite = StoreSite.NODE

    @property
    def roll(self) -> int:
        """After how many epochs at most the store makes them durable; the window of open epochs grows by it."""
        return 1

    @abstractmethod
    def check(self, operator: str, schema: pa.Schema) -> None:
        """UserError that names the operator if rows of these columns cannot be written there; called before a run."""

    def note(self) -> Any:
        """What a later run must know to go on from a checkpoint of this one: plain data."""
        return None

    def resumed(self, epoch: int, note: Any) -> SinkDefinition:  # noqa: ARG002
        """The sink of a run that goes on after an epoch of an earlier one, which noted that.

        What the earlier run wrote after the epoch has to go before anything is written: it comes again.
        """
        return self

    @abstractmethod
    def store(self, operator: str, schema: pa.Schema) -> SinkStore:
        """Makes the store, at its place."""
