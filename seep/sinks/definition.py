"""The definition of a sink in a query, and the store to which it commits whole epochs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import pyarrow as pa

from seep.protocol.view import Incarnation


class StoreSite(StrEnum):
    """The place where a sink's store is opened."""

    NODE = "node"  #: at the node of each instance: one store per instance
    DRIVER = "driver"  #: at the driver: one store for all instances; rows are sent there


class SinkFenced(Exception):
    """A later incarnation of the instance has opened the store."""


class SinkStore(ABC):
    """Stores each epoch once, all or nothing; after a failure it says after which epoch its instance continues."""

    @abstractmethod
    def open(self, sink: Incarnation) -> int:
        """Fences earlier incarnations of the instance and returns the last epoch it has committed, 0 for none."""

    @abstractmethod
    def commit(self, sink: Incarnation, epoch: int, batches: Sequence[pa.RecordBatch], watermark: int) -> int:
        """Takes the next epoch (often without rows); returns the last durable epoch, this or an earlier one.

        Epochs that are not durable are sent again after a failure. Raises SinkFenced, or EnvironmentFault if it cannot
        write.
        """

    def flush(self) -> int:
        """Makes the taken epochs durable, so that a later run can remove exactly what was committed after them.

        Returns the last durable epoch. Only for stores that collect several epochs.
        """
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027
        """Ends the use by this instance; epochs that are not durable are dropped."""


class SinkDefinition(ABC):
    """A sink. It is sent to the nodes with the query, so it holds no open resources."""

    place: StoreSite = StoreSite.NODE

    @property
    def roll(self) -> int:
        """The most epochs that the store collects before it makes them durable; added to the window of open epochs."""
        return 1

    @abstractmethod
    def check(self, operator: str, schema: pa.Schema) -> None:
        """Raises UserError that names the operator if rows of these columns cannot be written; called before a run."""

    def note(self) -> Any:
        """Returns plain data that a later run needs to continue from a checkpoint of this one."""
        return None

    def resumed(self, epoch: int, note: Any) -> SinkDefinition:  # noqa: ARG002
        """Returns the sink for a run that continues after an epoch of an earlier run, given the note of that run.

        It removes what the earlier run wrote after the epoch before it writes anything: those rows are sent again.
        """
        return self

    @abstractmethod
    def store(self, operator: str, schema: pa.Schema) -> SinkStore:
        """Makes the store; called in the process that uses the store."""
